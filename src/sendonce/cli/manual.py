"""`man` and `runbook`: what there is to read, without a clone and without a network."""

from __future__ import annotations

import click

from sendonce.cli.base import cli, common, shared
from sendonce.core.errors import WrongUsage
from sendonce.exits import ExitCode
from sendonce.runbook import Section


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


@cli.command("runbook")
@click.argument("section", metavar="[SECTION]", required=False, type=click.Choice([s.value for s in Section]))
@common
def print_runbook(section: str | None) -> ExitCode:
    """Print what to do when, or the section that a message names.

    The page is docs/runbook.md of this very version. Its sections are listed by exit code at its beginning.
    """
    from sendonce import report, runbook

    text = runbook.page() if section is None else runbook.sections()[section]
    shared.voice.document("runbook", ExitCode.OK, section=section, page=text)
    if not shared.is_json:
        report.show_page(text, runbook.plain(text))
    return ExitCode.OK
