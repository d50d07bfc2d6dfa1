"""Dates, and the names made from them: which campaign title belongs to which date.

Everything here is a function of its arguments. Names of months and days are English on every machine:
a title that followed the locale would be another title under cron.
"""

from __future__ import annotations

import re
import string
from datetime import date, timedelta
from typing import TYPE_CHECKING

from sendonce.core.errors import InvariantBroken, WrongUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# Directive → what it writes, and what it writes as a regular expression. Ours rather than strftime's: that
# one follows the locale, and leaves what it does not know to the C library, which is another on each system.
_DIRECTIVES: dict[str, tuple[Callable[[date], str], str]] = {
    "%Y": (lambda day: f"{day.year:04d}", "[0-9]{4}"),
    "%y": (lambda day: f"{day.year % 100:02d}", "[0-9]{2}"),
    "%m": (lambda day: f"{day.month:02d}", "[0-9]{2}"),
    "%-m": (lambda day: str(day.month), "[0-9]{1,2}"),
    "%B": (lambda day: _MONTHS[day.month - 1], "|".join(_MONTHS)),
    "%b": (lambda day: _MONTHS[day.month - 1][:3], "|".join(name[:3] for name in _MONTHS)),
    "%d": (lambda day: f"{day.day:02d}", "[0-9]{2}"),
    "%-d": (lambda day: str(day.day), "[0-9]{1,2}"),
    "%j": (lambda day: f"{day.timetuple().tm_yday:03d}", "[0-9]{3}"),
    "%A": (lambda day: _WEEKDAYS[day.weekday()], "|".join(_WEEKDAYS)),
    "%a": (lambda day: _WEEKDAYS[day.weekday()][:3], "|".join(name[:3] for name in _WEEKDAYS)),
    "%u": (lambda day: str(day.isoweekday()), "[1-7]"),
    "%G": (lambda day: f"{day.isocalendar().year:04d}", "[0-9]{4}"),
    "%V": (lambda day: f"{day.isocalendar().week:02d}", "[0-9]{2}"),
}
_ISO = ("%Y", "-", "%m", "-", "%d")
_NONCE = r"[0-9a-f]{8}"
_YY_PIVOT = 69  # POSIX: 69 to 99 are 1969 to 1999, 00 to 68 are 2000 to 2068
_SHOWN_CHARACTERS = 40

# A part of a pattern: (kind, text), the kind being "text", "job" or "date"; for "date" it is a directive.
_Part = tuple[str, str]


def parse_day(text: str, today: date) -> date:
    """Return the date that `text` means: YYYY-MM-DD in ASCII digits, `today` or `yesterday`.

    Raise WrongUsage for anything else, an empty text and a date that does not exist included: an empty
    one is what a failed `$(date …)` leaves behind, and must not become today.
    """
    if text == "today":
        return today
    if text == "yesterday":
        return today - timedelta(days=1)
    digits = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", text)
    fault = "is not a date in the wanted form" if text else "is empty"
    if digits:
        try:
            return date(*(int(group) for group in digits.groups()))
        except ValueError:
            fault = "is not a day of the calendar"
    shown = ascii(text[:_SHOWN_CHARACTERS])
    raise WrongUsage(f"The date {shown} {fault}. Write YYYY-MM-DD (2026-01-05), today or yesterday.")


def render(pattern: str, job: str, day: date) -> str:
    """Return the text of `pattern` for `day`.

    Raise InvariantBroken for a pattern that `pattern_fault` objects to, whatever the date.
    """
    return _filled(_parts_of_checked(pattern), job, day)


def pattern_fault(pattern: str, *, must_identify_date: bool) -> str | None:
    """Say what is wrong with `pattern`, as the rest of a sentence about it ("has …"); None if nothing is.

    With `must_identify_date`, what is rendered must lead back to the date: two dates with one title
    would be one campaign, and the second day would count as sent.
    """
    try:
        parts = _taken_apart(pattern)
    except ValueError as error:
        return str(error)
    job = "job"
    fault = text_fault(_filled(parts, job, date(2026, 1, 5)))
    if fault or not must_identify_date:
        return fault
    reader = _reader(parts, job)
    for day in _telling_days():
        text = _filled(parts, job, day)
        if _read(text, reader) != day:
            return (
                f'does not identify the date: "{text}" does not lead back to {day}; '
                "use {date}, or day, month and year"
            )
    return None


def text_fault(text: str) -> str | None:
    """Say what keeps `text` from being a line for people, as the rest of a sentence; None if nothing does."""
    if not text.strip():
        return "is empty"
    odd = next((character for character in text if _is_control(character)), None)
    if odd is not None:
        return f"has the control character U+{ord(odd):04X} at character {text.index(odd) + 1}"
    if text != text.strip():
        return "has white space at its beginning or end"
    return None


def belongs(title: str, key: str) -> bool:
    """Whether a campaign's title is the title key, or the title key with a nonce in brackets."""
    return title == key or re.fullmatch(re.escape(key) + rf" \[{_NONCE}\]", title) is not None


def created_title(key: str, nonce: str) -> str:
    """Return the title of a campaign that sendonce creates.

    Raise InvariantBroken unless `nonce` is 8 lower-case hex digits.
    """
    title = f"{key} [{nonce}]"
    if not re.fullmatch(_NONCE, nonce):
        raise InvariantBroken(f"{nonce!r} is no nonce: {title!r} would not be found again.")
    return title


def day_of_title(title: str, pattern: str, job: str) -> date | None:
    """Return the date whose campaign has this title, with a nonce or without; None if there is none.

    Raise InvariantBroken as `render` does.
    """
    parts = _parts_of_checked(pattern)
    reader = _reader(parts, job)
    without_nonce = re.sub(rf" \[{_NONCE}\]\Z", "", title)
    # The whole title first: in "News [20260105]" the bracket is the date, not a nonce.
    for key in (title, without_nonce):
        day = _read(key, reader)
        # Rendered again: only that tells "Tuesday 5 January 2026", which is a Monday, from the real title.
        if day is not None and _filled(parts, job, day) == key:
            return day
    return None


def _is_control(character: str) -> bool:
    # C0, DEL and C1; Unicode's two line ends; halves of a pair, which no UTF-8 text can hold.
    return re.match("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", character) is not None


def _taken_apart(pattern: str) -> list[_Part]:
    """Take `pattern` apart. Raise ValueError with the rest of a sentence about it."""
    if not pattern.strip():
        raise ValueError("is empty")
    try:
        pieces = list(string.Formatter().parse(pattern))
    except ValueError:
        raise ValueError("has a brace without its partner (write {{ or }} for a brace itself)") from None
    parts: list[_Part] = []
    for text, field, spec, conversion in pieces:
        parts.append(("text", text))
        if field is not None:
            parts.extend(_field(field, spec or "", conversion))
    return parts


def _parts_of_checked(pattern: str) -> list[_Part]:
    try:
        return _taken_apart(pattern)
    except ValueError as error:
        raise InvariantBroken(f"The pattern {pattern!r} {error}, and was used unchecked.") from error


def _field(field: str, spec: str, conversion: str | None) -> Iterator[_Part]:
    if field not in {"date", "job"}:
        raise ValueError(f"has the unknown field {{{field}}}; there are {{date}} and {{job}}")
    if conversion is not None:
        raise ValueError(f"has the conversion !{conversion}, which means nothing here; leave it out")
    if field == "job":
        if spec:
            raise ValueError(f"has a format for {{job}}, {spec!r}, which takes none")
        yield "job", ""
    elif not spec:
        yield from (("date" if piece in _DIRECTIVES else "text", piece) for piece in _ISO)
    else:
        yield from _directives(spec)


def _directives(spec: str) -> Iterator[_Part]:
    if "%" not in spec or "{" in spec:
        raise ValueError(f"has no date in {{date:{spec}}}; write it as in {{date:%d %B %Y}}")
    for piece in re.findall(r"%-?.?|[^%]+", spec, re.DOTALL):
        if piece in _DIRECTIVES:
            yield "date", piece
        elif piece == "%%":
            yield "text", "%"
        elif piece.startswith("%"):
            raise ValueError(f"has {piece} in {{date:{spec}}}; there are {' '.join(_DIRECTIVES)} and %%")
        else:
            yield "text", piece


def _filled(parts: list[_Part], job: str, day: date) -> str:
    values = {"job": job}
    return "".join(
        _DIRECTIVES[text][0](day) if kind == "date" else values.get(kind, text) for kind, text in parts
    )


def _reader(parts: list[_Part], job: str) -> tuple[re.Pattern[str], list[str]]:
    """Return a regular expression for what `_filled` writes, and the directive of each of its groups."""
    values = {"job": job}
    expression = "".join(
        f"({_DIRECTIVES[text][1]})" if kind == "date" else re.escape(values.get(kind, text))
        for kind, text in parts
    )
    return re.compile(expression), [text for kind, text in parts if kind == "date"]


def _read(text: str, reader: tuple[re.Pattern[str], list[str]]) -> date | None:
    expression, directives = reader
    found = expression.fullmatch(text)
    if not found:
        return None
    try:
        return _day_of_fields(dict(zip(directives, found.groups(), strict=True)))
    except (ValueError, OverflowError):
        return None


def _day_of_fields(fields: dict[str, str]) -> date | None:
    """Return the date of what was read; None if it says too little.

    Raise ValueError or OverflowError if there is no such date.
    """
    year, month = _year(fields), _month(fields)
    day = fields.get("%d") or fields.get("%-d")
    if year is not None and month is not None and day:
        return date(year, month, int(day))
    if year is not None and "%j" in fields:
        return date(year, 1, 1) + timedelta(days=int(fields["%j"]) - 1)
    weekday = _weekday(fields)
    # %V goes with %G, never with %Y: the last days of December may lie in the first week of the next year.
    if "%G" in fields and "%V" in fields and weekday is not None:
        return date.fromisocalendar(int(fields["%G"]), int(fields["%V"]), weekday)
    return None


def _year(fields: dict[str, str]) -> int | None:
    if "%Y" in fields:
        return int(fields["%Y"])
    if "%y" in fields:
        short = int(fields["%y"])
        return short + (1900 if short >= _YY_PIVOT else 2000)
    return None


def _month(fields: dict[str, str]) -> int | None:
    number = fields.get("%m") or fields.get("%-m")
    if number:
        return int(number)
    name = fields.get("%B") or fields.get("%b")
    return next((at for at, month in enumerate(_MONTHS, 1) if name and month.startswith(name)), None)


def _weekday(fields: dict[str, str]) -> int | None:
    if "%u" in fields:
        return int(fields["%u"])
    name = fields.get("%A") or fields.get("%a")
    return next((at for at, weekday in enumerate(_WEEKDAYS, 1) if name and weekday.startswith(name)), None)


def _telling_days() -> Iterator[date]:
    """Yield dates on which patterns go wrong: one and two digits, leap days, ends of years."""
    for month in (1, 2, 3, 5, 9, 10, 11, 12):
        for day in (1, 2, 3, 10, 11, 12, 13, 21, 28):
            yield date(2027, month, day)
    for year in (2024, 2028):
        yield date(year, 2, 29)
    for year in (2024, 2026, 2027, 2032, 2043):
        for days in range(-3, 4):
            yield date(year, 1, 1) + timedelta(days=days)
