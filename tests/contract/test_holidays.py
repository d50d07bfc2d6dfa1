"""The file of dates that are not mailed."""

from __future__ import annotations

import os
from datetime import date
from typing import TYPE_CHECKING

import pytest

from sendonce.adapters.holidays import skipped
from sendonce.core.errors import SettingsWrong

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.runs import Desk

CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:1
DTSTAMP:20200101T000000Z
DTSTART;VALUE=DATE:20201225
DTEND;VALUE=DATE:20201227
RRULE:FREQ=YEARLY
SUMMARY:Christmas
END:VEVENT
BEGIN:VEVENT
UID:3
DTSTAMP:20200101T000000Z
DTSTART;VALUE=DATE:20260601
STATUS:CANCELLED
SUMMARY:Strike
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTAMP:20200101T000000Z
DTSTART;VALUE=DATE:20260501
SUMMARY:Labour Day
END:VEVENT
END:VCALENDAR
"""


def file_of(folder: Path, text: str | bytes, name: str = "dates") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("day", "why"),
    [
        ("2026-12-23", None),
        ("2026-12-24", "Christmas"),
        ("2026-12-26", "Christmas"),
        ("2026-12-27", None),
        ("2027-01-01", "New Year"),
        ("2027-01-06", "it stands in SENDONCE_SKIP_DATES"),
    ],
)
def test_a_list_of_dates_has_single_ones_spans_names_and_comments(
    tmp_path: Path, day: str, why: str | None
) -> None:
    text = (
        "\ufeff# holidays\r\n\r\n2026-12-24..2026-12-26 Christmas\r\n2027-01-01 # New Year\r\n 2027-01-06\r\n"
    )
    assert skipped(file_of(tmp_path, text), date.fromisoformat(day)) == why


@pytest.mark.parametrize(
    ("day", "why"),
    [
        ("2026-12-24", None),
        ("2026-12-25", "Christmas"),
        ("2031-12-26", "Christmas"),
        ("2031-12-27", None),
        ("2026-05-01", "Labour Day"),
        ("2027-05-01", None),
        ("2026-06-01", None),
    ],
)
def test_a_calendar_has_events_that_recur_and_last(tmp_path: Path, day: str, why: str | None) -> None:
    assert skipped(file_of(tmp_path, CALENDAR, "holidays.ics"), date.fromisoformat(day)) == why


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-12-25\n25.12.2027\n", "line 2: '25.12.2027' is not clear"),
        ("2026-02-30", "line 1: '2026-02-30' is not clear"),
        ("2026-12-26..2026-12-24", "line 1: '2026-12-26..2026-12-24' is not clear"),
        ("2026-12-24..Christmas", "is not clear"),
        ("2026-12-24 .. 2026-12-26", "is not clear"),
        ("2026-12-24 - 2026-12-26", "is not clear"),
        ("2026-12-24 to 2026-12-26", "is not clear"),
        ("2026-12-24 2026-12-25", "is not clear"),
        ("２026-12-24", "is not clear"),
        (b"\xff\xfe2\x00", "it is not UTF-8"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:nonsense\n", "is not a calendar that can be read"),
    ],
)
def test_a_file_that_is_not_clear_is_named_with_its_line(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    path = file_of(tmp_path, text)
    with pytest.raises(SettingsWrong) as caught:
        skipped(path, date(2026, 11, 30))
    assert str(path) in caught.value.message
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("dates", "", "is empty"),
        ("dates", " \n\n", "is empty"),
        ("dates.ics", "", "does not begin with BEGIN:VCALENDAR"),
        ("dates.ICS", "<html>Sign in</html>", "does not begin with BEGIN:VCALENDAR"),
        ("dates.ics", "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\nEND:VCALENDAR\n", "has no event in it"),
    ],
)
def test_a_file_that_holds_nothing_is_no_file_of_holidays(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    """As an export leaves it that failed."""
    with pytest.raises(SettingsWrong) as caught:
        skipped(file_of(tmp_path, text, name), date(2026, 11, 30))
    assert said in caught.value.message


def test_a_list_with_nothing_but_a_comment_skips_no_date(tmp_path: Path) -> None:
    assert skipped(file_of(tmp_path, "# none this year\n"), date(2026, 11, 30)) is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsWrong, match="No such file"):
        skipped(tmp_path / "missing", date(2026, 11, 30))


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "without end"])
def test_what_is_no_file_of_dates_ends_a_run_and_does_not_hold_it_up(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "dates"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.touch()
            os.truncate(path, 5 << 20)
    with pytest.raises(SettingsWrong, match=f"SENDONCE_SKIP_DATES, {path}, .*Put it right, or unset it"):
        skipped(path, date(2026, 11, 30))


def test_a_run_on_a_holiday_mails_nothing_and_records_nothing(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(SENDONCE_SKIP_DATES="holidays.txt")
    desk.prepare()
    (desk.folder / "holidays.txt").write_text("2026-01-05 Epiphany Eve\n")
    told = desk.send()
    assert (told.code, desk.deliveries(), desk.record()) == (0, 0, {})
    assert "2026-01-05 is skipped: Epiphany Eve." in told.out
    (desk.folder / "holidays.txt").write_text("5 January\n")
    assert desk.send().code == 78
    assert desk.deliveries() == 0
