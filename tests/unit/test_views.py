"""The calendar of the ledger: what became of each day, drawn by hand here."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from sendonce import views
from sendonce.core.errors import WrongUsage
from sendonce.core.model import Batch, Entry, Pause, State
from sendonce.views import Mark, Pen
from support.past import at, daily, sent

TODAY = date(2026, 1, 20)
ASCII, FULL = Pen(is_ascii=True), Pen(is_ascii=False)
COLOUR = Pen(is_colour=True, is_ascii=False)


def january() -> views.History:
    """A month with one of each."""
    draft = Entry("1a2b3c4d5e", "Digest")
    scheduled = draft._replace(scheduled_for=at("2026-01-22"))
    batches = [
        sent("2026-01-02"),
        Batch("2026-01-03", State.REFUSED, reason="no campaign"),
        Batch("2026-01-04", State.SKIPPED, reason="holiday"),
        Batch("2026-01-06", State.SENDING, campaigns=(draft._replace(requested_at=at("2026-01-06")),)),
        sent("2026-01-07", emails=0),
        Batch("2026-01-08", State.READY, campaigns=(draft,)),
        Batch("2026-01-09", State.REFUSED, campaigns=(scheduled,)),
        Batch("2026-01-22", State.PLANNED, campaigns=(scheduled,)),
    ]
    return views.history(batches, TODAY)


SHEET = """\
        January 2026
Mo  Tu  We  Th  Fr  Sa  Su
             1   2+  3x  4-
 5!  6?  7o  8~  9@ 10! 11!
12! 13! 14! 15! 16! 17! 18!
19! 20. 21. 22@ 23. 24. 25.
26. 27. 28. 29. 30. 31.
"""


def test_a_month_has_a_sign_for_each_day() -> None:
    assert views.as_months(january(), [(2026, 1)], ASCII, 80) == SHEET


def test_with_all_characters_the_signs_differ_and_the_columns_do_not() -> None:
    full = views.as_months(january(), [(2026, 1)], FULL, 80)
    # not by str.replace: "o" stands in the names of weekdays, too
    assert full == SHEET.replace("2+", "2✓").replace("3x", "3✗").replace("7o", "7∅")


def test_colour_is_laid_around_the_day_and_nothing_else_changes() -> None:
    lines = views.as_months(january(), [(2026, 1)], COLOUR, 80).splitlines()
    assert lines[2] == (
        "            \033[2m 1\033[0m  \033[32m 2✓\033[0m \033[31m 3✗\033[0m \033[36m 4-\033[0m"
    )
    assert lines[3].startswith(
        "\033[1;33m 5!\033[0m \033[1;35m 6?\033[0m \033[1;31m 7∅\033[0m \033[33m 8~\033[0m "
    )


def test_months_stand_side_by_side_as_far_as_the_terminal_reaches() -> None:
    months = [(2026, 1), (2026, 2), (2026, 3)]
    two, one = (views.as_months(january(), months, ASCII, width) for width in (80, 57))
    assert two.startswith(f"{' ' * 8}January 2026{' ' * (7 + 4 + 7)}February 2026\n")
    assert "\n12! 13! 14! 15! 16! 17! 18!     9. 10. 11. 12. 13. 14. 15.\n" in two
    assert max(map(len, two.splitlines())) == 27 + 4 + 27
    assert one.startswith(f"{SHEET}\n       February 2026\n")
    assert max(map(len, one.splitlines())) == 27


def test_the_legend_counts_the_days_and_breaks_at_the_width() -> None:
    known = january()
    found = views.counts(known.mark(day) for day in views.days_of([(2026, 1)]))
    assert views.legend(found, ASCII, 80) == (
        "+ sent 1   o sent to nobody 1   x refused 1   ? unclear 1   ! missing 11\n"
        "- skipped 1   @ scheduled 2   ~ begun 1   . not yet 11\n"
    )
    assert "\033[32m✓ sent\033[0m 1   " in views.legend(found, COLOUR, 80)
    assert max(map(len, views.legend(found, ASCII, 60).splitlines())) <= 60


def test_a_year_is_twelve_lines_of_signs() -> None:
    year = views.as_year(january(), 2026, ASCII).splitlines()
    assert year[0] == "2026 1       5        10        15        20        25        30"
    assert year[1] == "Jan    + x - ! ? o ~ @ ! ! ! ! ! ! ! ! ! ! . . @ . . . . . . . . ."
    assert year[2] == "Feb  " + " ".join("." * 28)
    assert (len(year), max(map(len, year))) == (13, 66)


def test_a_year_before_the_first_record_is_empty() -> None:
    year = views.as_year(january(), 2024, FULL).splitlines()
    assert year[1:] == [
        *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
        *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ]


def test_without_any_record_nothing_is_missing() -> None:
    nothing = views.history([], TODAY)
    assert nothing.mark("2026-01-19") is Mark.BEFORE
    assert nothing.mark("2026-01-20") is Mark.NOT_YET


def test_a_day_after_the_last_record_is_missing_until_yesterday() -> None:
    known = views.history(daily("2026-01-01", 3), TODAY)
    days = ("2025-12-31", "2026-01-03", "2026-01-04", "2026-01-19", "2026-01-20", "2026-01-21")
    assert [known.mark(day) for day in days] == [
        Mark.BEFORE, Mark.SENT, Mark.MISSING, Mark.MISSING, Mark.NOT_YET, Mark.NOT_YET,
    ]  # fmt: skip


def test_a_holiday_without_a_record_is_skipped_and_not_missing() -> None:
    named = {"2026-01-04": "Sunday", "2026-01-25": "Sunday", "2026-01-02": "on record"}
    known = views.history(daily("2026-01-01", 3), TODAY)
    assert views.without_record(known, ["2025-12-31", "2026-01-02", "2026-01-04", "2026-01-25"]) == [
        "2026-01-04", "2026-01-25",
    ]  # fmt: skip
    known = known._replace(holidays=named)
    marks = [
        known.mark(day) for day in ("2026-01-02", "2026-01-04", "2026-01-05", "2026-01-25", "2026-01-26")
    ]
    assert marks == [Mark.SENT, Mark.SKIPPED, Mark.MISSING, Mark.SKIPPED, Mark.NOT_YET]


@pytest.mark.parametrize(
    ("until", "paused"),
    [("", ["2026-01-03", "2026-01-04", "2026-01-05"]), ("2026-01-05", ["2026-01-03", "2026-01-04"])],
)
def test_days_of_a_pause_that_still_stands_begin_with_the_day_of_its_order(
    until: str, paused: list[str]
) -> None:
    # 23:30 in UTC is the next day in Berlin
    order = Pause("move", "root@web1", datetime(2026, 1, 2, 23, 30, tzinfo=UTC), until)
    days = [f"2026-01-0{n}" for n in range(1, 6)]
    assert views.paused_days([order], days, ZoneInfo("Europe/Berlin")) == dict.fromkeys(
        paused, "paused: move"
    )


def test_days_of_a_pause_that_is_over_end_before_the_day_of_its_end() -> None:
    over = Pause(
        "move",
        "root@web1",
        datetime(2026, 1, 2, 8, tzinfo=UTC),
        "2026-01-09",
        datetime(2026, 1, 4, 8, tzinfo=UTC),
        "me",
    )
    days = [f"2026-01-0{n}" for n in range(1, 6)]
    assert list(views.paused_days([over], days, ZoneInfo("UTC"))) == ["2026-01-02", "2026-01-03"]


def test_signs_are_one_column_wide_and_no_two_alike() -> None:
    for signs in ([s.ascii for s in views.SIGNS.values()], [s.full for s in views.SIGNS.values()]):
        assert len(set(signs)) == len(Mark)
        assert {len(sign) for sign in signs} == {1}
    assert all(s.ascii.isascii() for s in views.SIGNS.values())


@pytest.mark.parametrize(
    ("month", "year", "first", "count"),
    [
        ("2024-02", None, (2024, 2), 1),
        ("9999-12", None, (9999, 12), 1),
        (None, "0001", (1, 1), 12),
        (None, "9999", (9999, 1), 12),
        (None, None, (2025, 11), 3),
    ],
)
def test_the_months_that_are_meant(
    month: str | None, year: str | None, first: tuple[int, int], count: int
) -> None:
    meant = views.months_meant(month, year, TODAY)
    assert (meant[0], len(meant)) == (first, count)
    assert next(views.days_of(meant)) == f"{first[0]:04}-{first[1]:02}-01"


def test_the_latest_months_of_the_first_year_there_is() -> None:
    assert views.months_meant(None, None, date(1, 2, 3)) == [(1, 1), (1, 2)]


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13", "2026-00", "0000-01", "2026-1", "٢٠٢٦-01", "2026-01-01", "x\n"]
)
def test_what_is_no_month_is_wrong_usage(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"is not a month\. Write YYYY-MM"):
        views.months_meant(text, None, TODAY)


@pytest.mark.parametrize("text", ["", "0000", "26", "20260", "-026", "٢٠٢٦", "2026\n"])
def test_what_is_no_year_is_wrong_usage(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"is not a year\. Write YYYY"):
        views.months_meant(None, text, TODAY)


def test_a_month_and_a_year_exclude_each_other() -> None:
    with pytest.raises(WrongUsage, match="exclude each other"):
        views.months_meant("2026-01", "2026", TODAY)
