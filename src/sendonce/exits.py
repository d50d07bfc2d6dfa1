"""Exit codes: one table from errors, one from endings. Monitoring and crontab lines rely on these numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, assert_never

from sendonce.core.errors import InvariantBroken, Refused, Stopped, Temporary, Unusable, WrongUsage
from sendonce.core.model import Ending

if TYPE_CHECKING:
    from collections.abc import Mapping


class ExitCode(IntEnum):
    """What a command leaves behind for cron. 70, 75 and 78 are those of sysexits.h."""

    OK = 0
    REFUSED = 1
    WRONG_USAGE = 2
    BUG = 70
    TEMPORARY = 75
    UNUSABLE = 78


EXIT_MEANINGS: Final[Mapping[ExitCode, str]] = {
    ExitCode.OK: "sent now, already sent, or nothing to do",
    ExitCode.REFUSED: "refused or alarming: a human must look; the message says whether anything left",
    ExitCode.WRONG_USAGE: "wrong usage",
    ExitCode.BUG: "a bug in sendonce",
    ExitCode.TEMPORARY: (
        "temporary, interrupted, unclear, or sent but not yet recorded: run again, that is safe"
    ),
    ExitCode.UNUSABLE: "configuration, credentials or ledger unusable; nothing was sent by this run",
}

# One line per branch of the tree in core/errors.py; a subclass has the code of its branch.
_BRANCHES: Final[Mapping[type[BaseException], ExitCode]] = {
    WrongUsage: ExitCode.WRONG_USAGE,
    Refused: ExitCode.REFUSED,
    Temporary: ExitCode.TEMPORARY,
    Unusable: ExitCode.UNUSABLE,
    InvariantBroken: ExitCode.BUG,
    Stopped: ExitCode.TEMPORARY,
    # Ctrl-C before the run has its own handler in place: interrupted like any other, and safe to repeat.
    KeyboardInterrupt: ExitCode.TEMPORARY,
}


def code_of(error: BaseException) -> ExitCode:
    """Return the exit code of a command that ended with `error`; whatever is not in the tree is a bug."""
    return next((_BRANCHES[kind] for kind in type(error).__mro__ if kind in _BRANCHES), ExitCode.BUG)


def code_of_ending(ending: Ending) -> ExitCode:
    """Return the exit code of a run that came to its end."""
    match ending:
        case (
            Ending.SENT
            | Ending.FOUND_SENT
            | Ending.ALREADY_SENT
            | Ending.SKIPPED
            | Ending.PAUSED
            | Ending.SCHEDULED
            | Ending.WOULD_SEND
        ):
            return ExitCode.OK
        case Ending.SCHEDULED_ELSEWHEN | Ending.ALARM | Ending.REFUSED:
            return ExitCode.REFUSED
        case Ending.TEMPORARY | Ending.WAITING:
            return ExitCode.TEMPORARY
        case _:
            assert_never(ending)


def exit_table() -> str:
    """Return the exit codes as a Markdown table, for the README and `--help`."""
    rows = [f"| {code.value} | {meaning} |" for code, meaning in EXIT_MEANINGS.items()]
    return "\n".join(["| exit | meaning |", "|---|---|", *rows]) + "\n"
