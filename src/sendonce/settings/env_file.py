"""The `.env` file, and the key file: read only if nobody else can write them, and never half.

python-dotenv drops a line that it cannot read and goes on. Here that would be a default in place of a
setting, and with it another ledger or another day; so every such line is a fault.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from sendonce.core.errors import SettingsWrong
from sendonce.settings.masking import shown
from sendonce.settings.table import DOCS, ENV_FILE_NAME, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from dotenv.parser import Binding

_LONGEST_FILE_BYTES: Final = 1 << 20
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
# Texts for people may well hold " #", which python-dotenv takes for a comment unless the value is quoted.
_MAY_HOLD_HASH: Final = frozenset(
    {"SENDONCE_TITLE", "SENDONCE_SUBJECT", "SENDONCE_FROM_NAME", "SENDONCE_PREVIEW_TEXT"}
)


class Text(NamedTuple):
    """A file's text, the folder it really lies in, and what a person should know about it."""

    text: str
    folder: Path
    warnings: tuple[str, ...]


class Line(NamedTuple):
    """One setting in a `.env`."""

    value: str
    number: int


class EnvFile(NamedTuple):
    """What a `.env` says.

    `folder` is where relative paths in it start: where the file itself lies, a link followed.
    `spoiled` are names that it sets in a way that cannot be read; None if not even the name is known.
    """

    path: Path
    folder: Path
    lines: Mapping[str, Line]
    faults: tuple[str, ...]
    spoiled: frozenset[str | None]
    warnings: tuple[str, ...]


def read_env(path: Path) -> EnvFile:
    """Read the `.env` at `path` literally, without interpolation.

    Raise SettingsWrong if it cannot be read or trusted as a whole. Faults of single lines come back with it,
    so that they can be reported with all others.
    """
    text, folder, warnings = read_private(path)
    # One kind of line end: the parser counts CRLF after a bad line twice.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines: dict[str, Line] = {}
    faults: list[str] = []
    spoiled: set[str | None] = set()
    notes = list(warnings)
    for number, binding in _bindings(text):
        name = binding.key if binding.key and re.fullmatch(_NAME, binding.key) else None
        fault = _line_fault(binding, name, lines)
        if fault:
            faults.append(f"{path} line {number}: {fault}")
            spoiled.add(name)
        elif name and binding.value is not None:
            lines[name] = Line(binding.value, number)
            if name.upper().startswith("MAILCHIMP_") and name not in DOCS:
                notes.append(f"{path} line {number}: sendonce has no setting {name}{_meant(name)}")
    return EnvFile(path, folder, lines, tuple(faults), frozenset(spoiled), tuple(notes))


def _bindings(text: str) -> Iterable[tuple[int, Binding]]:
    """Yield the bindings of a `.env` with the line that each really starts on; comments are left out."""
    import io  # noqa: PLC0415 this and the next only where there is a .env

    from dotenv.parser import parse_stream  # noqa: PLC0415 dotenv costs more to import than all of settings

    for binding in parse_stream(io.StringIO(text)):
        raw = binding.original.string
        # A binding starts at the blank lines before it, and so does its line number.
        blank = raw[: len(raw) - len(raw.lstrip())]
        if binding.error or binding.key is not None:
            yield binding.original.line + blank.count("\n"), binding


def _line_fault(binding: Binding, name: str | None, earlier: Mapping[str, Line]) -> str | None:
    """Say what is wrong with one line, in words that show no value: it might be the key."""
    form = "write NAME=value, or # before a comment"
    if binding.error or name is None:
        return f"this is not NAME=value with a plain name and closed quotes; {form}"
    if binding.value is None:
        # Not even the name, unless it is ours: a line that is nothing but a pasted key reads as a bare name.
        return f"{name if name in DOCS else 'a name'} without =value; {form}"
    if re.search("[\r\n]", binding.value):
        return f"the value of {_shown(name)} has a newline in it; close the quotes, and write no \\n in double ones"
    if name in earlier:
        return f"{_shown(name)} is set a second time (first on line {earlier[name].number}); leave one"
    if name in _MAY_HOLD_HASH and _is_cut_short(binding.original.string):
        return f'the value of {name} ends at " #", which begins a comment; put the value in quotes'
    return _name_fault(name)


def _name_fault(name: str) -> str | None:
    if name == ENV_FILE_NAME:
        return f"{name} says where the .env is, so it cannot stand in it; set it in the environment"
    # In any case and without the underscore, too: a misspelt name would be a default in its place.
    if name not in DOCS and name.upper().startswith("SENDONCE"):
        return f"there is no setting {_shown(name)}{_meant(name) or '; leave it out'}"
    return None


def _shown(name: str) -> str:
    """The name, unless it may be a key that somebody pasted to the end of one, without the equals sign."""
    may_hold_key = re.search(r"(?=[A-Za-z]*[0-9])[0-9A-Za-z]{20}", name)
    if not may_hold_key or name in DOCS:
        return name
    return "SENDONCE…" if name.upper().startswith("SENDONCE") else "a name"


def _is_cut_short(raw: str) -> bool:
    value = raw.partition("=")[2]
    return value.lstrip()[:1] not in {"'", '"'} and re.search(r"\s#", value) is not None


def _meant(name: str) -> str:
    """Guess what a misspelt name should have been."""
    import difflib  # noqa: PLC0415 only for a message about a fault

    close = difflib.get_close_matches(name.upper(), list(DOCS), n=1, cutoff=0.8)
    return f"; is {close[0]} meant?" if close else ""


def read_private(path: Path) -> Text:
    """Read a file that decides what is sent, or holds the key.

    Raise SettingsWrong, with a fault for a report, if it cannot be read, is not UTF-8, or if somebody who is
    neither we nor root owns it, may write it, or may put another in its place.
    """
    try:
        # Not blocking: a FIFO in place of the file would hold the run for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SettingsWrong(f"{path} is not a regular file")
            content = file.read(_LONGEST_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsWrong(f"{path} {_why_unreadable(error)}") from error
    real = path.resolve()
    _refuse_if_not_ours(path, status)
    # Both folders of a link: whoever may write either can put another file under this name.
    for folder in dict.fromkeys((path.parent, real.parent)):
        _refuse_if_not_ours(folder, folder.stat())
    warnings = []
    if _others_may(status, stat.S_IRGRP, stat.S_IROTH):
        mode = stat.S_IMODE(status.st_mode)
        warnings.append(f"{path} can be read by others (mode {mode:04o}). Run: chmod 600 {path}")
    return Text(_decoded(content, path), real.parent, tuple(warnings))


def _why_unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist; make it, or name another file"
    if isinstance(error, IsADirectoryError):
        return "is a folder; a file is wanted"
    if isinstance(error, PermissionError):
        return f"cannot be read: {error.strerror}; run sendonce as the user to whom it belongs"
    return f"cannot be read: {error.strerror}"


def _decoded(content: bytes, path: Path) -> str:
    if len(content) > _LONGEST_FILE_BYTES:
        raise SettingsWrong(
            f"{path} has more than {_LONGEST_FILE_BYTES} bytes, so it is not what it should be."
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsWrong(
            f"{path} line {line}: byte {error.start + 1} of the file is not UTF-8; save it as UTF-8"
        ) from error


def _refuse_if_not_ours(place: Path, status: os.stat_result) -> None:
    """Raise SettingsWrong if somebody who is neither we nor root owns or may write a file or folder."""
    us = os.geteuid()
    if status.st_uid not in {us, 0}:
        raise SettingsWrong(
            f"{place} belongs to uid {status.st_uid}, who could change what is sent; "
            f"it must belong to the user of this run (uid {us}) or to root"
        )
    # In a sticky folder, as /tmp, others may add files but not replace ours.
    is_sticky_folder = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if not is_sticky_folder and _others_may(status, stat.S_IWGRP, stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        raise SettingsWrong(
            f"{place} can be written by others (mode {mode:04o}), who could change what is sent. "
            f"Run: chmod go-w {place}"
        )


def _others_may(status: os.stat_result, group_bit: int, other_bit: int) -> bool:
    if status.st_mode & other_bit:
        return True
    return bool(status.st_mode & group_bit) and not _is_private_group(status.st_gid)


def _is_private_group(gid: int) -> bool:
    """Whether only we or root are in a group: many systems give each user one, and a umask of 002 with it."""
    import grp  # noqa: PLC0415 only where the group may do something
    import pwd  # noqa: PLC0415 the same

    users = set()
    for uid in (os.geteuid(), 0):
        try:
            users.add(pwd.getpwuid(uid).pw_name)
        except KeyError:  # a container's made-up uid
            continue
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name in users and set(group.gr_mem) <= users


def render_env(values: Mapping[str, str]) -> str:
    """Return the text of a `.env` that reads back as exactly these values, in their order.

    Raise SettingsWrong for a name that is none, and a value that no line can hold (a newline).
    """
    for name, value in values.items():
        if not re.fullmatch(_NAME, name):
            raise SettingsWrong(f"{shown(name)} is not a name that a .env can hold.")
        if re.search("[\r\n]", value):
            raise SettingsWrong(
                f"The value of {name} has a newline in it, which a .env cannot hold; leave it out."
            )
        if re.search("[\ud800-\udfff]", value):
            raise SettingsWrong(f"The value of {name} has bytes that are not UTF-8; write it as UTF-8.")
    text = "".join(f"{name}={_quoted(value)}\n" for name, value in values.items())
    # Read again with the parser that is installed: what quoting means has changed between its versions.
    if [(binding.key, binding.value) for _, binding in _bindings(text)] != list(values.items()):
        raise SettingsWrong(
            "A value has quotes or backslashes that python-dotenv does not read back; leave them out."
        )
    return text


def _quoted(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_./:@%+,-]*", value):
        return value
    # In single quotes nothing but these two is special.
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def example_env() -> str:
    """Return the text of `.env.example`: every setting, valid as it stands but for the key."""
    import textwrap  # noqa: PLC0415 not needed by any run

    blocks = [_EXAMPLE_HEAD]
    for doc in SETTINGS:
        default = "Required" if doc.is_required else f"Default: {doc.default_text}".replace("`", "")
        has_default = doc.is_required or doc.default or doc.derived_default
        note = f"{doc.plain_meaning}. {default}." if has_default else f"{doc.plain_meaning}."
        comment = [f"# {line}" for line in textwrap.wrap(note, 98, break_on_hyphens=False)]
        comment += [f"# {line}" for line in _EXAMPLE_NOTES.get(doc.name, ())]
        mark = "" if doc.is_required else "#"
        blocks.append("\n".join([*comment, f"{mark}{doc.name}={_quoted(doc.example or doc.default)}"]))
    return "\n\n".join(blocks) + "\n"


_EXAMPLE_HEAD: Final = """\
# Settings of sendonce. Copy to .env, put in the key, chmod 600. One such file for each job.
# A line is NAME=value, read literally: $HOME and ${NAME} mean nothing here. Quote a value with blanks.
# An empty value counts as not set. The environment wins over this file, flags win over both.
# Relative paths start at the folder of this file. A misspelt name is an error, not a default."""

_EXAMPLE_NOTES: Final[Mapping[str, tuple[str, ...]]] = {
    "SENDONCE_SOURCE": (
        "With draft, the name is the release: the day's mail is released by giving a finished campaign in",
        "Mailchimp its title (below). Call it anything else until then: a half-written draft with the right",
        "name goes out at the next run.",
    ),
}
