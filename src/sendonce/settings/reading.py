"""One setting at a time: from the text that was set to a checked value, every fault kept for one report."""

from __future__ import annotations

import os
import re
from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sendonce.core import dates
from sendonce.core.errors import SettingsWrong
from sendonce.core.guards import Window
from sendonce.core.model import Source
from sendonce.settings.env_file import read_private
from sendonce.settings.masking import readable, shown
from sendonce.settings.table import DOCS

if TYPE_CHECKING:
    from collections.abc import Mapping


_WEB_FORM: Final = r"https?://[A-Za-z0-9.\[\]:-]+(/[!-~]*)?"


class Value(NamedTuple):
    """What a setting is set to, where, and the folder where a relative path starts (None: nowhere)."""

    text: str
    origin: str
    folder: Path | None = None


class Reading:
    """The values as set. Its methods give them checked; after a fault, something harmless of the right type.

    `faults` are whole sentences. `spoiled` are names set on lines that cannot be read: they do not count as
    missing, too.
    """

    def __init__(self, values: Mapping[str, Value], spoiled: frozenset[str | None], looked_in: str) -> None:
        self.values = dict(values)
        self.faults: list[str] = []
        self.spoiled = spoiled
        self._looked_in = looked_in

    def wrong(self, name: str, what: str) -> None:
        """Note that a value cannot be used; `what` is the rest of a sentence that begins with the value."""
        value = self.values[name]
        said = "the value" if DOCS[name].is_secret else shown(value.text)
        # What is wrong may quote the value again: a pattern with the key in it is still the key.
        self.faults.append(f"{name} ({value.origin}): {said} {readable(what)}")

    def require(self, name: str, why: str = "") -> None:
        """Note it if `name` is not set; `why` is who needs it."""
        # A line that cannot be read may be the one that sets it.
        if name not in self.values and name not in self.spoiled and None not in self.spoiled:
            needed = f", and {why}" if why else ""
            self.faults.append(f"{name} is not set in {self._looked_in}{needed}: {DOCS[name].plain_meaning}")

    def take_from_file(self, name: str, file_name: str, warnings: list[str]) -> bool:
        """Put what the file of `file_name` holds in place of `name`, if that is not set; False if it cannot be read."""
        path = self.path(file_name)
        if path is None or name in self.values:
            return True
        origin = f"{path}, which {file_name} names ({self.values[file_name].origin})"
        try:
            file = read_private(path)
        except SettingsWrong as error:
            self.wrong(file_name, f"cannot be used: {error.message}")
            return False
        warnings.extend(file.warnings)
        if name == "SENDONCE_STATE" and "://" not in file.text:
            # it is not shown: what was meant as a URL may hold a password
            self.wrong(file_name, "holds no URL")
            return False
        self.values[name] = Value(file.text.removesuffix("\n").removesuffix("\r"), origin, path.parent)
        return True

    def text(self, name: str) -> str:
        """Return a line of text, or the default; "" if there is neither."""
        if name not in self.values:
            return DOCS[name].default
        fault = dates.text_fault(self.values[name].text)
        if fault:
            self.wrong(name, fault)
            return DOCS[name].default
        return self.values[name].text

    def matching(self, name: str, form: str, wanted: str) -> str:
        """Return a text of a given form (a regular expression), or the default."""
        if name not in self.values:
            return DOCS[name].default
        if not re.fullmatch(form, self.values[name].text):
            self.wrong(name, f"does not have the right form; wanted: {wanted}")
            return DOCS[name].default
        return self.values[name].text

    def web_address(self, name: str) -> str:
        """Return an http or https URL whose host and port can be; "" if not set."""
        from urllib.parse import urlsplit  # noqa: PLC0415 settings must stay cheap to import

        wanted = "an http:// or https:// URL without spaces"
        text = self.matching(name, _WEB_FORM, wanted)
        if not text:
            return ""
        try:
            parts = urlsplit(text)
            is_usable = bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port above 65535, or none at all; brackets that are not closed
            is_usable = False
        if not is_usable:
            self.wrong(name, f"has a host or port that cannot be; wanted: {wanted}")
            return ""
        return text

    def pattern(self, name: str, *, must_identify_date: bool = False) -> str:
        """Return a pattern for `dates.render`, or the default."""
        if name not in self.values:
            return DOCS[name].default
        fault = dates.pattern_fault(self.values[name].text, must_identify_date=must_identify_date)
        if fault:
            self.wrong(name, fault)
            return DOCS[name].default
        return self.values[name].text

    def seconds(self, name: str, default: float | None = None) -> float:
        """Seconds within the limits of the table. `default` is for settings that have none in the table."""
        otherwise = float(DOCS[name].default) if default is None else default
        limits = DOCS[name].limits
        if name not in self.values or limits is None:
            return otherwise
        text = self.values[name].text
        # By form first: float() also takes "nan", "inf", "1_0" and digits of other scripts.
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) and limits[0] <= float(text) <= limits[1]:
            return float(text)
        self.wrong(name, f"cannot be used; wanted: seconds from {limits[0]} to {limits[1]}, as 90 or 0.5")
        return otherwise

    def command(self, name: str) -> tuple[str, ...]:
        """Return a command as its words, the first an absolute path; () if not set. No shell ever sees it."""
        text = self.text(name)
        if not text:
            return ()
        import shlex  # noqa: PLC0415 settings must stay cheap to import

        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            self.wrong(
                name, f"is no command ({error}); wanted: a program and its arguments, quoted as for a shell"
            )
            return ()
        if not words or not words[0].startswith("/"):
            # cron's PATH is not that of the terminal where it was tried
            self.wrong(name, "must begin with the absolute path of a program; a shell is not asked")
            return ()
        return words

    def number(self, name: str) -> int | None:
        """Return a whole number from 0; None if not set."""
        text = self.matching(name, "[0-9]{1,9}", "a whole number, as 100")
        return int(text) if text else None

    def hours(self, name: str) -> float | None:
        """Return hours; None if not set."""
        text = self.matching(name, r"[0-9]{1,5}(\.[0-9]{1,3})?", "hours, as 12 or 0.5")
        return float(text) if text else None

    def window(self, name: str) -> Window | None:
        """Return a span of a day; None if not set."""
        clock = "([01][0-9]|2[0-3]):([0-5][0-9])"
        text = self.matching(name, f"{clock}-{clock}", "from-to, as 07:00-11:30")
        if not text:
            return None
        opens, closes = (time.fromisoformat(part) for part in text.split("-"))
        if opens == closes:
            self.wrong(name, "is empty: it closes when it opens, and nothing would ever be sent")
            return None
        if opens > closes:
            # over midnight it would be two dates, and which of them is meant would be a guess
            self.wrong(name, "ends before it begins; a window lies within one day")
            return None
        return Window(opens, closes)

    def source(self) -> Source:
        """Return the source of the day's campaign."""
        name = "SENDONCE_SOURCE"
        choices = [source.value for source in Source]
        text = self.matching(name, "|".join(choices), ", ".join(choices))
        return Source(text)

    def path(self, name: str) -> Path | None:
        """Return an absolute path; None if not set."""
        text = self._absolute(name)
        return Path(text) if text else None

    def path_pattern(self, name: str) -> str:
        """Return a pattern of an absolute path; "" if not set."""
        if name not in self.values or not self.pattern(name):
            return ""
        return self._absolute(name, is_pattern=True)

    def _absolute(self, name: str, *, is_pattern: bool = False) -> str:
        if name not in self.values:
            return ""
        value = self.values[name]
        # Bytes that are not UTF-8 are fine in a path: the file system takes them.
        fault = dates.text_fault(re.sub("[\udc80-\udcff]", "?", value.text))
        if fault:
            self.wrong(name, fault)
        elif re.match(r"~|.*\$[A-Za-z_{(]", value.text):
            self.wrong(
                name, "is taken literally, so neither ~ nor $NAME becomes a folder; write the whole path"
            )
        elif value.text.startswith("/"):
            return _as_on_disk(value.text)
        elif value.folder is None:
            self.wrong(name, "is relative; a path must be absolute when set in the environment")
        else:
            folder = str(value.folder)
            folder = folder.replace("{", "{{").replace("}", "}}") if is_pattern else folder
            return f"{folder}/{_as_on_disk(value.text)}"
        return ""

    def zone(self) -> str:
        """Return the name of a time zone that exists; never another in its place."""
        name = "SENDONCE_TIMEZONE"
        self.require(name)
        if name not in self.values:
            return ""
        text = self.values[name].text
        if not zone_exists(text):
            if _zone_exists("Etc/UTC"):
                self.wrong(name, "is no time zone; wanted: an IANA name, as Europe/Berlin")
            else:
                self.wrong(name, "cannot be looked up: this machine has no time zone data; install tzdata")
        return text


def _as_on_disk(path: str) -> str:
    """Return a path as this process must spell it: under an ASCII locale not every UTF-8 name is a path as it is."""
    return os.fsdecode(path.encode("utf-8", "surrogateescape"))


def zone_exists(name: str) -> bool:
    """Whether `name` can be SENDONCE_TIMEZONE."""
    return _is_zone_name(name) and _zone_exists(name)


def _is_zone_name(text: str) -> bool:
    """Whether it is a name, and one that means the same on every machine (`localtime` links to anything)."""
    is_name = re.fullmatch(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", text) is not None
    return (
        is_name
        and text not in {"localtime", "posixrules", "Factory"}
        and text.partition("/")[0] not in {"posix", "right"}
    )


def _zone_exists(name: str) -> bool:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 settings must stay cheap to import

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there; not zone data; a folder, as "Europe" is
        return False
    return True
