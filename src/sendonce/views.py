"""The ledger by days: what became of each date, and a calendar of it for the terminal.

Each mark has a sign besides its colour: neither a colour-blind reader nor a mail from cron loses anything.
"""

from __future__ import annotations

import re
import sys
from calendar import Calendar, month_abbr, month_name
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from sendonce.core.errors import WrongUsage
from sendonce.core.model import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date, datetime, tzinfo

    from sendonce.core.model import Batch, Pause

MONTHS_SHOWN: Final = 3
"""How many months a calendar has that nobody asked for more exactly."""


class Mark(Enum):
    """What became of a date, in the words of the legend. Alarms are those that a person should look at."""

    SENT = "sent"
    NOBODY = "sent to nobody"
    REFUSED = "refused"
    UNCLEAR = "unclear"
    MISSING = "missing"
    SKIPPED = "skipped"
    SCHEDULED = "scheduled"
    BEGUN = "begun"
    NOT_YET = "not yet"
    BEFORE = "no record"


class Sign(NamedTuple):
    """A mark on a terminal: in ASCII, with all characters (one column wide everywhere), its colour (SGR)."""

    ascii: str
    full: str
    colour: str


SIGNS: Final[Mapping[Mark, Sign]] = {
    Mark.SENT: Sign("+", "✓", "32"),
    Mark.NOBODY: Sign("o", "∅", "1;31"),
    Mark.REFUSED: Sign("x", "✗", "31"),
    Mark.UNCLEAR: Sign("?", "?", "1;35"),
    Mark.MISSING: Sign("!", "!", "1;33"),
    Mark.SKIPPED: Sign("-", "-", "36"),
    Mark.SCHEDULED: Sign("@", "@", "34"),
    Mark.BEGUN: Sign("~", "~", "33"),
    Mark.NOT_YET: Sign(".", ".", "2"),
    Mark.BEFORE: Sign(" ", " ", "2"),
}
MEANINGS: Final[Mapping[Mark, str]] = {
    Mark.NOBODY: "Mailchimp took it and had no recipients",
    Mark.UNCLEAR: "requested, and Mailchimp has not confirmed it",
    Mark.MISSING: "a day that passed without a record, after the first one",
    Mark.SKIPPED: "an operator, a pause or the calendar of holidays said so",
    Mark.SCHEDULED: "by somebody, in Mailchimp",
    Mark.BEGUN: "found or made, and not sent",
    Mark.NOT_YET: "today or later, without a record",
}


class History(NamedTuple):
    """All batches by date (YYYY-MM-DD), oldest first, as of `today`.

    `holidays` are dates without a record that are not to be mailed, each with why.
    """

    batches: Mapping[str, Batch]
    today: date
    holidays: Mapping[str, str] = MappingProxyType({})

    @property
    def first(self) -> str:
        """The first date on record, "" if there is none."""
        return next(iter(self.batches), "")

    def mark(self, day: str) -> Mark:
        """What became of a date (YYYY-MM-DD)."""
        if (batch := self.batches.get(day)) is not None:
            return mark_of(batch)
        if day in self.holidays:
            return Mark.SKIPPED
        if day >= self.today.isoformat():
            return Mark.NOT_YET
        return Mark.MISSING if "" < self.first < day else Mark.BEFORE


def history(batches: Iterable[Batch], today: date) -> History:
    """The ledger by days. `batches` are all there are, oldest first."""
    return History({batch.date: batch for batch in batches}, today)


def without_record(known: History, days: Iterable[str]) -> list[str]:
    """Those of these dates of which it must be known whether they are holidays."""
    return [day for day in days if known.mark(day) in {Mark.MISSING, Mark.NOT_YET}]


def paused_days(pauses: Iterable[Pause], days: Iterable[str], zone: tzinfo) -> dict[str, str]:
    """Those of these dates on which the job was paused, each with why. On the day that ends a pause it sends again."""
    asked, found = list(days), dict[str, str]()
    for pause in pauses:
        first, last = _day_of(pause.at, zone), pause.until or "9999-99-99"
        if pause.ended_at is not None:
            last = min(last, _day_of(pause.ended_at, zone))
        found |= {day: f"paused: {pause.reason}" for day in asked if first <= day < last}
    return found


def _day_of(time: datetime, zone: tzinfo) -> str:
    return time.astimezone(zone).date().isoformat()


def mark_of(batch: Batch) -> Mark:
    """What a record says became of its date."""
    main = batch.main
    match batch.state:
        case State.SENT:
            return Mark.NOBODY if main is not None and main.emails_sent == 0 else Mark.SENT
        case State.SENDING:
            return Mark.UNCLEAR
        case State.SKIPPED:
            return Mark.SKIPPED
        case _ if main is not None and main.scheduled_for is not None:
            return Mark.SCHEDULED
        case State.REFUSED:
            return Mark.REFUSED
        case _:
            return Mark.BEGUN


def counts(marks: Iterable[Mark]) -> dict[Mark, int]:
    """How many days have each mark, in the order of the legend; dates before the first record are none."""
    found = dict.fromkeys(Mark, 0)
    for mark in marks:
        found[mark] += 1
    del found[Mark.BEFORE]
    return found


# ------------------------------------------------------------------------------------------- which months are meant


def months_meant(month: str | None, year: str | None, today: date) -> list[tuple[int, int]]:
    """The months to show, as year and number: one, twelve, or the latest. Raise WrongUsage for an odd text."""
    if month is not None and year is not None:
        raise WrongUsage("--month and --year exclude each other.")
    if month is not None:
        digits = re.fullmatch("([0-9]{4})-(0[1-9]|1[0-2])", month)
        if digits is None or int(digits[1]) == 0:
            raise WrongUsage(f"--month {month[:40]!a} is not a month. Write YYYY-MM, as 2026-01.")
        return [(int(digits[1]), int(digits[2]))]
    if year is not None:
        number = year_meant(year)
        return [(number, month) for month in range(1, 13)]
    count = today.year * 12 + today.month - 1
    shown = range(max(12, count - MONTHS_SHOWN + 1), count + 1)
    return [(number // 12, number % 12 + 1) for number in shown]


def year_meant(text: str) -> int:
    """The year that `text` means. Raise WrongUsage if it is none."""
    if not re.fullmatch("[0-9]{4}", text) or int(text) == 0:
        raise WrongUsage(f"--year {text[:40]!a} is not a year. Write YYYY, as 2026.")
    return int(text)


def days_of(months: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Each date (YYYY-MM-DD) of these months."""
    for year, month in months:
        for day in Calendar().itermonthdays(year, month):
            if day:
                yield f"{year:04}-{month:02}-{day:02}"


# ------------------------------------------------------------------------------------------------- on a terminal


class Pen(NamedTuple):
    """How signs are drawn."""

    is_colour: bool = False
    is_ascii: bool = True

    def sign(self, mark: Mark) -> str:
        """The sign alone, one column wide."""
        return SIGNS[mark].ascii if self.is_ascii else SIGNS[mark].full

    def draw(self, mark: Mark, text: str) -> str:
        """Text in the colour of a mark; blanks at its end stay outside, so that a line can be cut off there."""
        shown = text.rstrip()
        if not self.is_colour or not shown:
            return text
        return f"\033[{SIGNS[mark].colour}m{shown}\033[0m{text[len(shown) :]}"


def pen_for(environ: Mapping[str, str]) -> Pen:
    """How to draw on standard output: in colour only on a terminal and without NO_COLOR, ASCII unless all of it is UTF-8.

    Python writes UTF-8 also where the locale is C or unknown: what the terminal there can show nobody said.
    """
    out = sys.stdout
    is_terminal = bool(out and out.isatty())
    is_colour = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM", "") not in {"", "dumb"}
    is_asked_for = environ.get("PYTHONUTF8") == "1"
    is_unknown = bool(sys.flags.utf8_mode) and not is_asked_for
    return Pen(is_colour, is_unknown or "utf" not in (getattr(out, "encoding", None) or "").lower())


WEEKDAYS: Final = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")
_MONTH_WIDTH: Final = 7 * 4 - 1
_GAP: Final = "    "


def as_months(known: History, months: Sequence[tuple[int, int]], pen: Pen, width: int) -> str:
    """Sheets of months, as many beside each other as fit into `width` columns."""
    beside = max(1, (width + len(_GAP)) // (_MONTH_WIDTH + len(_GAP)))
    rows = [months[at : at + beside] for at in range(0, len(months), beside)]
    blocks = ([_sheet(known, *month, pen) for month in row] for row in rows)
    return "\n\n".join("\n".join(_side_by_side(block)) for block in blocks) + "\n"


class _Line(NamedTuple):
    """A line of a sheet, and how many columns wide it is on a terminal."""

    text: str
    width: int


def _sheet(known: History, year: int, month: int, pen: Pen) -> list[_Line]:
    title = f"{month_name[month]} {year}".center(_MONTH_WIDTH)
    lines = [_Line(title, len(title)), _Line("  ".join(WEEKDAYS) + " ", _MONTH_WIDTH)]
    for week in Calendar().monthdayscalendar(year, month):
        cells = []
        for day in week:
            mark = known.mark(f"{year:04}-{month:02}-{day:02}")
            cells.append(pen.draw(mark, f"{day:2}{pen.sign(mark)}") if day else "   ")
        lines.append(_Line(" ".join(cells), _MONTH_WIDTH))
    return lines


def _side_by_side(sheets: Sequence[Sequence[_Line]]) -> Iterator[str]:
    blank = _Line(" " * _MONTH_WIDTH, _MONTH_WIDTH)
    for at in range(max(map(len, sheets))):
        parts = [sheet[at] if at < len(sheet) else blank for sheet in sheets]
        yield _GAP.join(part.text + " " * (_MONTH_WIDTH - part.width) for part in parts).rstrip()


def as_year(known: History, year: int, pen: Pen) -> str:
    """A year in twelve lines, 67 columns wide: a sign for each day."""
    ticks = {1, 5, 10, 15, 20, 25, 30}
    head = "".join(f"{day:>2}" if day in ticks else "  " for day in range(1, 32))
    lines = [f"{year:04} {head[1:]}".rstrip()]
    for month in range(1, 13):
        marks = [known.mark(day) for day in days_of([(year, month)])]
        signs = " ".join(pen.draw(mark, pen.sign(mark)) for mark in marks)
        lines.append(f"{month_abbr[month]}  {signs}".rstrip())
    return "\n".join(lines) + "\n"


def legend(found: Mapping[Mark, int], pen: Pen, width: int) -> str:
    """What each sign means, and how many days have it, in lines of at most `width` columns."""
    lines: list[_Line] = []
    for mark, count in found.items():
        plain = f"{pen.sign(mark)} {mark.value} {count}"
        item = _Line(pen.draw(mark, f"{pen.sign(mark)} {mark.value}") + f" {count}", len(plain))
        if lines and (wide := lines[-1].width + 3 + item.width) <= width:
            lines[-1] = _Line(f"{lines[-1].text}   {item.text}", wide)
        else:
            lines.append(item)
    return "\n".join(line.text for line in lines) + "\n"
