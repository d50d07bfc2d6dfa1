"""The way of almost every start from cron: the day is sent already, and nothing is left to do.

A window of tries starts the command a dozen times after the mail is out, and importing click alone costs more than
all that is needed to see so. The plain form of the call is therefore read here first. Whatever is not plain, not
settled or not in order is left to the whole command line, as if this had not been: nothing was printed or changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sendonce import compose
from sendonce.report import Voice
from sendonce.settings import environment, load, working_folder

if TYPE_CHECKING:
    from collections.abc import Sequence


class Call(NamedTuple):
    """`send-batch` with nothing but these options, each once."""

    env_file: str | None = None
    job: str | None = None
    day: str | None = None
    is_quiet: bool = False


def already_settled(arguments: Sequence[str]) -> int | None:
    """The exit code, if the ledger alone answers a plain `send-batch`; else None."""
    call = plain_call(arguments)
    if call is None:
        return None
    try:
        path = None if call.env_file is None else Path(call.env_file)
        job = compose.open_job(load(path, call.job, environment(), working_folder()), talk=None)
        if job.settings.ping_url is not None or job.settings.metrics_file is not None:
            return None  # others are told of this run, too
        if not isinstance(job.settings.state, Path):
            return None  # a server that hangs would be asked twice
        outcome = compose.already_settled(job, job.day(call.day))
    except Exception:  # noqa: BLE001 - the whole command line runs into the same, and tells it
        return None
    if outcome is None:
        return None
    job.log.note("ended", outcome=outcome.ending.value, said=outcome.message)
    outcome = compose.with_zone(job, call.day, outcome)
    voice = Voice(is_quiet=call.is_quiet)
    return int(voice.outcome("send-batch", outcome, [*job.settings.warnings, *job.log.warnings]))


def plain_call(arguments: Sequence[str]) -> Call | None:
    """The call, if it is one of these few words in their plain spelling; None for everything else."""
    found: dict[str, str | bool] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in {"-q", "--quiet"}:
            found["is_quiet"] = True
        elif word == "send-batch" and "command" not in found:
            found["command"] = word
        elif (name := _VALUES.get(word)) and name not in found and rest and not rest[0].startswith("-"):
            if name == "day" and "command" not in found:
                return None
            found[name] = rest.pop(0)
        else:
            return None
    if found.pop("command", None) is None or not all(found.values()):
        return None
    return Call(**found)  # type: ignore[arg-type] # each name has the type of its option


_VALUES = {"--env-file": "env_file", "--job": "job", "--date": "day"}
