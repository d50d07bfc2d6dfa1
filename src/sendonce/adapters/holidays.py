"""Dates on which nothing is mailed, from a file that a person keeps: a list of dates, or an iCalendar."""

from __future__ import annotations

import os
import re
import stat
from datetime import date
from typing import TYPE_CHECKING, Final

from sendonce.core.errors import SettingsWrong

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 4 << 20
_LINE: Final = r"(?P<first>\S+?)(?:\.\.(?P<last>\S+))?(?:\s+(?P<name>.*))?"
_WANTED: Final = (
    "wanted: a line for each date, as 2026-12-25, or 2026-12-24..2026-12-26 Christmas, or an iCalendar (.ics)"
)
_NAMELESS: Final = "it stands in SENDONCE_SKIP_DATES"


def skipped(path: Path, day: date) -> str | None:
    """Why `day` is not to be mailed, None if it is. Raise SettingsWrong, naming the line, if the file is not clear.

    The whole file is checked for any day: a fault in a line for Christmas is told in November.
    """
    text = _text(path)
    if text.lstrip().upper().startswith("BEGIN:VCALENDAR"):
        return _in_calendar(path, text, day)
    if path.suffix.lower() in {".ics", ".ical"}:
        raise _no_calendar(path, "it does not begin with BEGIN:VCALENDAR")
    if not text.strip():
        # a download that failed leaves such a file; who skips no date writes a comment into it
        raise SettingsWrong(
            f"Nothing was sent: SENDONCE_SKIP_DATES, {path}, is empty. Put its dates back; or write # into it, or unset "
            "the setting, if there are none."
        )
    found = None
    for number, line in enumerate(text.splitlines(), 1):
        written = line.partition("#")[0].strip()
        if not written:
            continue
        first, last, name = _read_line(path, number, written)
        if found is None and first <= day <= last:
            found = name or line.partition("#")[2].strip() or _NAMELESS
    return found


def _text(path: Path) -> str:
    try:
        data = _read(path)
        if len(data) > MAX_BYTES:
            raise SettingsWrong(
                f"Nothing was sent: SENDONCE_SKIP_DATES, {path}, has more than {MAX_BYTES >> 20} MiB, and is taken for "
                "something else. Put it right, or unset it."
            )
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsWrong(
            f"Nothing was sent: SENDONCE_SKIP_DATES, {path}, cannot be read ({_why(error)}). Put it right, or unset it."
        ) from None


def _read(path: Path) -> bytes:
    """As many bytes as such a file may have, and one more."""
    # without O_NONBLOCK a FIFO would hold every run up for ever
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SettingsWrong(
                f"Nothing was sent: SENDONCE_SKIP_DATES, {path}, is not a file. Put it right, or unset it."
            )
        with open(fd, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(fd)


def _read_line(path: Path, number: int, written: str) -> tuple[date, date, str]:
    match = re.fullmatch(_LINE, written)
    first, last = (_date(match[name]) if match else None for name in ("first", "last"))
    is_odd = match is not None and re.match(r"\.\.|-|to\b|.*[0-9]{4}-[0-9]{2}-[0-9]{2}", match["name"] or "")
    if match is None or is_odd or first is None or (match["last"] and (last is None or last < first)):
        raise SettingsWrong(
            f"Nothing was sent: SENDONCE_SKIP_DATES, {path} line {number}: {written!a} is not clear; {_WANTED}."
        )
    return first, last or first, (match["name"] or "").strip()


def _date(text: str | None) -> date | None:
    if text is None or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _in_calendar(path: Path, text: str, day: date) -> str | None:
    """The name of an event on that day, one that recurs, or lasts for days, as well."""
    try:
        import icalendar  # noqa: PLC0415 - only for who keeps a calendar
        import recurring_ical_events  # noqa: PLC0415 - as above
    except ImportError:
        raise SettingsWrong(
            f"Nothing was sent: SENDONCE_SKIP_DATES, {path}, is an iCalendar, and what reads it is not installed. Run "
            "pip install 'sendonce[ical]', or write the dates into a file, one on each line."
        ) from None
    try:
        calendar = icalendar.Calendar.from_ical(text)
        events = recurring_ical_events.of(calendar).at(day)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _no_calendar(path, str(error)) from None
    if not any(True for _ in calendar.walk("VEVENT")):
        raise _no_calendar(path, "it has no event in it")
    held = [event for event in events if str(event.get("STATUS", "")).upper() != "CANCELLED"]
    named = (str(event.get("SUMMARY", "")).strip() for event in held)
    return next((name or _NAMELESS for name in named), None)


def _no_calendar(path: Path, why: str) -> SettingsWrong:
    return SettingsWrong(
        f"Nothing was sent: SENDONCE_SKIP_DATES, {path}, is not a calendar that can be read ({why}). Export it anew, or "
        "write the dates into a file, one on each line."
    )


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or "an error" if isinstance(error, OSError) else "it is not UTF-8"
