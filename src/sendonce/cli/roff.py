"""Commands as a manual page, in the roff that `man` reads: ASCII, and only the oldest macros."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from sendonce import __version__
from sendonce.exits import EXIT_MEANINGS
from sendonce.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sendonce.settings import SettingDoc


def page(command: click.Command, words: Sequence[str], root: click.Group) -> str:
    """The page of a command, called by these words after `sendonce`; of `root` it has all commands and settings."""
    return "\n".join(_lines(command, words, root)) + "\n"


def _lines(command: click.Command, words: Sequence[str], root: click.Group) -> Iterator[str]:
    name = "-".join(["sendonce", *words])
    # no date: a page made twice of the same version is the same
    yield f'.TH "{_text(name.upper())}" "1" "" "sendonce {_text(__version__)}" "User Commands"'
    yield ".nh"
    yield ".SH NAME"
    yield f"{_text(name)} \\- {_line(_first_sentence(command))}"
    yield ".SH SYNOPSIS"
    yield from _usage(command, words)
    yield ".SH DESCRIPTION"
    yield from _help(command)
    yield from _options(".SH OPTIONS", command, _names(root) if command is not root else frozenset())
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        yield from _commands(command, words, _names(root))
    if command is root:
        yield from _settings()
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_MEANINGS.items():
        yield from (".TP", f".B {code.value}", _line(meaning))
    yield ".SH SEE ALSO"
    yield ".BR crontab (5),\n.BR systemd.timer (5)" if command is root else ".BR sendonce (1)"


def _commands(group: click.Group, words: Sequence[str], known: frozenset[str]) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name), known)
        elif not command.hidden:
            yield f'.SS "{_text(" ".join(["sendonce", *words, name]))}"'
            yield from _usage(command, (*words, name))
            yield ".PP"
            yield from _help(command)
            yield from _options("", command, known)


def _usage(command: click.Command, words: Sequence[str]) -> Iterator[str]:
    pieces = command.collect_usage_pieces(click.Context(command))
    yield f".B {_text(' '.join(['sendonce', *words]))}"
    yield f".RI {_quoted(' '.join(pieces))}"


def _help(command: click.Command) -> Iterator[str]:
    text = (command.help or "").replace("\b", "").strip()
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
        if number:
            yield ".PP"
        yield _line(" ".join(paragraph.split()))


def _options(heading: str, command: click.Command, known: frozenset[str]) -> Iterator[str]:
    """The options that are not `known` ones, which every command takes."""
    ctx = click.Context(command)
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in known]
    if options and heading:
        yield heading
    for option in options:
        if (told := option.get_help_record(ctx)) is not None:
            yield from (".TP", f".B {_text(told[0])}", _line(told[1]))


def _names(command: click.Command) -> frozenset[str]:
    return frozenset(parameter.name for parameter in command.params if parameter.name)


def _settings() -> Iterator[str]:
    yield ".SH ENVIRONMENT"
    yield _line(
        "Each setting stands in the .env or in the environment, which wins over it. An empty value counts as not set."
    )
    for setting in SETTINGS:
        yield from (".TP", f".B {_text(setting.name)}", _line(_meaning(setting)))


def _meaning(setting: SettingDoc) -> str:
    said = setting.plain_meaning[:1].upper() + setting.plain_meaning[1:]
    default = setting.default_text.replace("`", "")
    return f"{said}." if default == "–" else f"{said}. Default: {default}."


def _first_sentence(command: click.Command) -> str:
    sentence = command.get_short_help_str(limit=200).rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def _line(text: str) -> str:
    """A line of text, also if it begins as a request would."""
    safe = _text(text)
    return f"\\&{safe}" if safe[:1] in {".", "'"} else safe


def _quoted(text: str) -> str:
    return '"' + _text(text).replace('"', "\\(dq") + '"'


def _text(text: str) -> str:
    """Text without meaning to roff; a hyphen as the minus that can be pasted into a shell."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    escaped = escaped.replace("^", "\\(ha").replace("~", "\\(ti")
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
