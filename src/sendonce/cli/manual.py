"""`man`: the manual page, made from the commands themselves."""

from __future__ import annotations

import click

from sendonce.cli.base import cli, common, shared
from sendonce.core.errors import WrongUsage
from sendonce.exits import ExitCode


@cli.command("man")
@click.argument("words", metavar="[COMMAND]", nargs=-1)
@common
def print_manual(words: tuple[str, ...]) -> ExitCode:
    """Print the manual page, of everything or of one command.

    In roff, for man: sendonce man > sendonce.1. It is made from the commands, and so never out of date.
    """
    from sendonce.cli import roff
    from sendonce.settings.masking import shown

    command: click.Command = cli
    for at, word in enumerate(words):
        found = command.commands.get(word) if isinstance(command, click.Group) else None
        if found is None:
            raise WrongUsage(f"There is no command {shown(' '.join(words[: at + 1]))}. See: sendonce --help")
        command = found
    text = roff.page(command, words, cli)
    shared.voice.document("man", ExitCode.OK, page=text)
    shared.voice.result(text)
    return ExitCode.OK
