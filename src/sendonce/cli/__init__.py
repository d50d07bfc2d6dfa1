"""The command line: parse, call one function of `compose`, report, exit. Nothing here decides about sending.

`base` is what all commands share; each of the other modules adds its commands, in the order in which they are listed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sendonce.cli import sending

# isort: split
# the README lists commands in the order in which they were added, and what it is all for comes first
from sendonce.cli import checking, recipients, records, setting_up, trying, views
from sendonce.cli.base import cli, shared
from sendonce.core.errors import NoAnswer, SendonceError, Stopped, WrongUsage
from sendonce.exits import ExitCode

# isort: split
from sendonce.cli import manual

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "checking",
    "cli",
    "command_table",
    "manual",
    "recipients",
    "records",
    "run",
    "sending",
    "setting_up",
    "trying",
    "views",
]


def command_table() -> str:
    """Return all commands with their options as a Markdown table, for the README."""
    rows = [*_command_rows(cli, ()), ("every command", _option_list(cli), "before or after its name")]
    lines = [f"| {path} | {options} | {meaning} |" for path, options, meaning in rows]
    return "\n".join(["| command | options | meaning |", "|---|---|---|", *lines]) + "\n"


def _command_rows(group: click.Group, above: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _command_rows(command, (*above, name))
        else:
            meaning = command.get_short_help_str(limit=200).rstrip(".")
            yield f"`{' '.join((*above, name))}`", _option_list(command), meaning


def _option_list(command: click.Command) -> str:
    """Return what a command takes; for all but the whole, without what every command takes."""
    ctx = click.Context(command)
    shared = {"version"} if command is cli else {parameter.name for parameter in cli.params}
    texts = []
    for parameter in command.params:
        if parameter.name not in shared:
            names = [*parameter.opts[:1]] if isinstance(parameter, click.Option) else []
            is_bare = isinstance(parameter, click.Option) and parameter.is_flag
            value = [] if is_bare else [parameter.make_metavar(ctx).strip("[]").replace("|", "\\|")]
            texts.append(f"`{' '.join([*names, *value])}`")
    return " ".join(texts)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code comes back. Every foreseeable fault is one message."""
    try:
        code = cli.main(arguments, prog_name="sendonce", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        # click makes this of every Ctrl-C in a command: what was done by then is on record
        return shared.voice.fault(shared.command, Stopped("SIGINT"), _interrupted(arguments))
    except click.exceptions.NoArgsIsHelpError as fault:
        return _usage("", fault.ctx)
    except click.ClickException as fault:
        return _usage(fault.format_message(), fault.ctx if isinstance(fault, click.UsageError) else None)
    except WrongUsage as fault:
        return _usage(fault.message, click.get_current_context(silent=True))
    except NoAnswer as fault:
        return shared.voice.fault(shared.command, fault, f"{fault.message} Run again, that is safe.")
    except SendonceError as fault:
        return shared.voice.fault(shared.command, fault, fault.message)
    except (Stopped, KeyboardInterrupt) as fault:
        return shared.voice.fault(shared.command, fault, _interrupted(arguments))
    except Exception as fault:  # noqa: BLE001 - the last resort: a bug gets a code of its own, not a traceback
        return shared.voice.fault(shared.command, fault, _bug(fault))
    return int(code) if isinstance(code, int) else 0


def _interrupted(arguments: Sequence[str] | None) -> str:
    """What is to be done after a Ctrl-C. What was done by then is on record, and a second mailing not to be repeated."""
    if "--again" in (sys.argv[1:] if arguments is None else arguments):
        return "Interrupted. Look at what is on record (ledger show) before you order it again."
    return "Interrupted. Run again, that is safe."


def _usage(message: str, ctx: click.Context | None) -> int:
    from sendonce.report import write
    from sendonce.settings.masking import readable

    if ctx is not None and not message:
        write(2, f"{ctx.get_help()}\n")
    else:
        usage = f"{ctx.get_usage()}\n" if ctx is not None else ""
        write(2, f"{usage}Error: {readable(message)}\n")
    return int(ExitCode.WRONG_USAGE)


def _bug(fault: Exception) -> str:
    """Where it happened, without any value: a value might be the key."""
    place = fault.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = (
        f"{Path(place.tb_frame.f_code.co_filename).name} line {place.tb_lineno}"
        if place
        else "an unknown place"
    )
    return (
        f"This is a bug in sendonce: {type(fault).__name__} in {where}. What was sent is in the ledger or in Mailchimp: "
        "run the same command again, it asks both. Please report it."
    )
