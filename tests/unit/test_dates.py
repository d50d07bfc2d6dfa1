"""Dates as people write them, and titles as campaigns carry them."""

from __future__ import annotations

import subprocess
import sys
from datetime import date

import pytest

from sendonce.core import dates
from sendonce.core.errors import InvariantBroken, WrongUsage

TODAY = date(2026, 3, 1)
MONDAY = date(2026, 1, 5)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-01-05", date(2026, 1, 5)),
        ("2024-02-29", date(2024, 2, 29)),
        ("0001-01-01", date(1, 1, 1)),
        ("today", date(2026, 3, 1)),
        ("yesterday", date(2026, 2, 28)),
    ],
)
def test_a_date_is_read_as_written(text: str, day: date) -> None:
    assert dates.parse_day(text, TODAY) == day


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "2026-1-5",
        "20260105",
        "2026-W01-1",
        "2026-005",
        "2026-02-30",
        "2025-02-29",
        "0000-01-01",
        "05/01/2026",
        "2026-01-05T23:30-05:00",
        "٢٠٢٦-٠١-٠٥",
        "２０２６-01-05",
        " 2026-01-05",
        "2026-01-05\n",
        "2026-01-05\x00",
        "2026-01-05\u200b",
        "+2026-01-05",
        "Today",
        "TODAY",
        "tomorrow",
        "now",
        "\ud800",
        "1" * 100_000,
    ],
)
def test_any_other_spelling_of_a_date_is_wrong_usage_and_names_the_wanted_form(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"YYYY-MM-DD .*, today or yesterday") as caught:
        dates.parse_day(text, TODAY)
    assert caught.value.message.isprintable()
    assert caught.value.message.isascii()
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The date '' is empty. Write YYYY-MM-DD (2026-01-05), today or yesterday."),
        ("5.1.2026", "The date '5.1.2026' is not a date in the wanted form. Write YYYY-MM-DD"),
        ("2026-02-30", "The date '2026-02-30' is not a day of the calendar. Write YYYY-MM-DD"),
        ("1" * 41, f"The date '{'1' * 40}' is not a date in the wanted form."),
    ],
    ids=["empty", "of another form", "no such day", "cut to 40 characters"],
)
def test_a_wrong_date_is_shown_with_what_is_wrong_with_it(text: str, said: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        dates.parse_day(text, TODAY)
    assert caught.value.message.startswith(said)


def test_yesterday_of_a_new_year_is_in_the_old_one() -> None:
    assert dates.parse_day("yesterday", date(2027, 1, 1)) == date(2026, 12, 31)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("{job} {date}", "digest 2026-01-05"),
        ("{date:%d %B %Y}", "05 January 2026"),
        ("{date:%A, %-d.%-m.%y}", "Monday, 5.1.26"),
        (
            "{date:%a %b %d}, week {date:%V} of {date:%G}, day {date:%j} ({date:%u})",
            "Mon Jan 05, week 02 of 2026, day 005 (1)",
        ),
        ("{{{job}}} {date:%m}", "{digest} 01"),
        ("100%% {date:%d%%}", "100%% 05%"),
        ("plain", "plain"),
        ("Größe ✓ {job}", "Größe ✓ digest"),
    ],
)
def test_a_pattern_is_rendered_in_english(pattern: str, text: str) -> None:
    assert dates.render(pattern, "digest", MONDAY) == text


def test_every_month_and_weekday_has_its_english_name() -> None:
    first_days = [date(2026, month, 1) for month in range(1, 13)]
    assert [dates.render("{date:%B/%b}", "x", day) for day in first_days] == [
        *("January/Jan", "February/Feb", "March/Mar", "April/Apr", "May/May", "June/Jun"),
        *("July/Jul", "August/Aug", "September/Sep", "October/Oct", "November/Nov", "December/Dec"),
    ]
    week = [date(2026, 1, day) for day in range(5, 12)]
    assert [dates.render("{date:%A/%a}", "x", day) for day in week] == [
        *("Monday/Mon", "Tuesday/Tue", "Wednesday/Wed", "Thursday/Thu", "Friday/Fri"),
        *("Saturday/Sat", "Sunday/Sun"),
    ]


def test_iso_week_and_year_differ_from_the_calendar_at_the_turn_of_the_year() -> None:
    # 1 January 2027 is a Friday, in the last week (53) of the ISO year 2026.
    assert dates.render("{date:%G-W%V-%u %Y}", "x", date(2027, 1, 1)) == "2026-W53-5 2027"


@pytest.mark.parametrize(
    "pattern",
    [
        "{date}",
        "{job} {date}",
        "{date:%d %B %Y}",
        "{date:%d} {date:%m} {date:%Y}",
        "{date:%Y%m%d}",
        "{date:%-d.%-m.%Y}",
        "{date:%b %-d, %Y}",
        "{date:%d%m%y}",
        "{date:%A} {date}",
        "{date:%Y}/{date:%j}",
        "{date:%G-W%V-%u}",
        "{date:%A of week %V, %G}",
        "{date} again {date:%d %B}",
        "News [{date:%Y%m%d}]",
        "{{{date}}}",
        "{date:%-d%B%Y}",
    ],
)
def test_a_title_that_leads_back_to_the_date_is_right(pattern: str) -> None:
    assert dates.pattern_fault(pattern, must_identify_date=True) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "Daily news",
        "{job}",
        "{date:%d %B}",
        "{date:%B %Y}",
        "{date:%d %Y}",
        "{date:%A}",
        "{date:%j}",
        "{date:%d}.{date:%Y}",
        "{date:%-d%-m%Y}",
        "{date:%-m%-d%Y}",
        "{date:%Y-W%V-%u}",
        "{date:%G-%m-%d}",
        "{date:%V %u}",
    ],
)
def test_a_title_that_two_dates_could_share_is_wrong(pattern: str) -> None:
    fault = dates.pattern_fault(pattern, must_identify_date=True)
    assert fault is not None
    assert fault.startswith("does not identify the date")
    assert dates.pattern_fault(pattern, must_identify_date=False) is None


def test_the_fault_of_an_ambiguous_title_shows_a_date_that_it_loses() -> None:
    fault = dates.pattern_fault("{date:%d %B}", must_identify_date=True)
    assert fault is not None
    assert '"01 January" does not lead back to 2027-01-01' in fault


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("", "is empty"),
        (" \t", "is empty"),
        ("{}", "unknown field {}"),
        ("{0}", "unknown field {0}"),
        ("{name}", "unknown field {name}"),
        ("{Date}", "unknown field {Date}"),
        ("{ date }", "unknown field { date }"),
        ("{date.year}", "unknown field {date.year}"),
        ("{date[0]}", "unknown field {date[0]}"),
        ("{job.__class__}", "unknown field {job.__class__}"),
        ("{date!r}", "conversion !r"),
        ("{job!s}", "conversion !s"),
        ("{job:>10}", "format for {job}"),
        ("{date:%H:%M}", "has %H in"),
        ("{date:%}", "has % in"),
        ("{date:%-}", "has %- in"),
        ("{date:%-Y}", "has %-Y in"),
        ("{date:%Y-%Q}", "has %Q in"),
        ("{date:%x}", "has %x in"),
        ("{date:%\n}", "has %"),
        ("{date:YYYY-MM-DD}", "has no date in"),
        ("{date:{job}}", "has no date in"),
        ("{date:%Y{job}}", "has no date in"),
        ("{date", "brace without its partner"),
        ("date}", "brace without its partner"),
        ("{date:%Y", "brace without its partner"),
        ("{date!}", "brace without its partner"),
        (" {date}", "white space at its beginning or end"),
        ("{date} ", "white space at its beginning or end"),
        ("{date}\u00a0", "white space at its beginning or end"),
        ("{date: %Y}", "white space at its beginning or end"),
        ("a\tb {date}", "control character U+0009 at character 2"),
        ("a\tb\t{date}", "control character U+0009 at character 2"),
        ("{date}\n", "control character U+000A at character 11"),
        ("\x1b[31m{date}", "control character U+001B at character 1"),
        ("a\x85b{date}", "control character U+0085 at character 2"),
        ("a\u2028b{date}", "control character U+2028 at character 2"),
        ("a\udcffb{date}", "control character U+DCFF at character 2"),
        ("\x00{date}", "control character U+0000 at character 1"),
    ],
)
@pytest.mark.parametrize("must_identify_date", [True, False])
def test_a_pattern_that_cannot_be_meant_is_named(
    pattern: str, said: str, *, must_identify_date: bool
) -> None:
    fault = dates.pattern_fault(pattern, must_identify_date=must_identify_date)
    assert fault is not None
    assert said in fault


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_a_text_of_nothing_but_white_space_is_empty(text: str) -> None:
    assert dates.text_fault(text) == "is empty"


@pytest.mark.parametrize("pattern", ["{date:%H}", "{name}", "{date", ""])
def test_a_pattern_that_was_never_checked_is_a_bug_and_no_odd_title(pattern: str) -> None:
    with pytest.raises(InvariantBroken, match="used unchecked"):
        dates.render(pattern, "digest", MONDAY)
    with pytest.raises(InvariantBroken, match="used unchecked"):
        dates.day_of_title("digest", pattern, "digest")


@pytest.mark.parametrize(
    "title", ["Digest 2026-01-05", "Digest 2026-01-05 [5e0e96f7]", "Digest 2026-01-05 [00000000]"]
)
def test_a_campaign_belongs_to_the_date_by_its_title_key_or_any_nonce_after_it(title: str) -> None:
    assert dates.belongs(title, "Digest 2026-01-05")


@pytest.mark.parametrize(
    "title",
    [
        "",
        "Digest 2026-01-0",
        "Digest 2026-01-05 ",
        " Digest 2026-01-05",
        "digest 2026-01-05",
        "Digest 2026-01-05 (copy 01)",
        "Digest 2026-01-05 [5e0e96f]",
        "Digest 2026-01-05 [5e0e96f70]",
        "Digest 2026-01-05 [5E0E96F7]",
        "Digest 2026-01-05 [5g0e96f7]",
        "Digest 2026-01-05 [５e0e96f7]",
        "Digest 2026-01-05 []",
        "Digest 2026-01-05 [draft]",
        "Digest 2026-01-05[5e0e96f7]",
        "Digest 2026-01-05  [5e0e96f7]",
        "Digest 2026-01-05 [5e0e96f7] ",
        "Digest 2026-01-05 [5e0e96f7]\n",
        "Digest 2026-01-05\n",
        "Digest 2026-01-05 (5e0e96f7)",
        "Digest 2026-01-05 [5e0e96f7] [5e0e96f7]",
        "X Digest 2026-01-05 [5e0e96f7]",
        "Digest 2026x01-05 [5e0e96f7]",
    ],
)
def test_no_other_title_belongs_to_the_date(title: str) -> None:
    assert not dates.belongs(title, "Digest 2026-01-05")


def test_a_title_key_with_signs_of_regular_expressions_is_taken_literally() -> None:
    assert dates.belongs("News (a+b)? 2026 [5e0e96f7]", "News (a+b)? 2026")
    assert not dates.belongs("News aab 2026 [5e0e96f7]", "News (a+b)? 2026")


def test_a_created_campaign_carries_the_nonce_behind_its_title_key() -> None:
    assert dates.created_title("Digest 2026-01-05", "5e0e96f7") == "Digest 2026-01-05 [5e0e96f7]"


@pytest.mark.parametrize("nonce", ["", "5E0E96F7", "5e0e96f", "5e0e96f70", "5e0e96f7\n", "draft123"])
def test_a_nonce_that_would_not_be_found_again_is_a_bug(nonce: str) -> None:
    with pytest.raises(InvariantBroken, match="is no nonce"):
        dates.created_title("Digest 2026-01-05", nonce)


@pytest.mark.parametrize(
    ("title", "pattern", "day"),
    [
        ("digest 2026-01-05", "{job} {date}", MONDAY),
        ("digest 2026-01-05 [5e0e96f7]", "{job} {date}", MONDAY),
        ("Monday 05 January 2026", "{date:%A %d %B %Y}", MONDAY),
        ("5.1.26 [5e0e96f7]", "{date:%-d.%-m.%y}", MONDAY),
        ("02 2026 Mon", "{date:%V %G %a}", MONDAY),
        ("005 2026", "{date:%j %Y}", MONDAY),
        ("366 2024", "{date:%j %Y}", date(2024, 12, 31)),
        ("01.01.69", "{date:%d.%m.%y}", date(1969, 1, 1)),
        ("01.01.68", "{date:%d.%m.%y}", date(2068, 1, 1)),
        ("News [20260105]", "News [{date:%Y%m%d}]", MONDAY),
        ("News [20260105] [5e0e96f7]", "News [{date:%Y%m%d}]", MONDAY),
        ("2026-01-05 and 2026-01-05", "{date} and {date}", MONDAY),
    ],
)
def test_a_title_leads_back_to_its_date(title: str, pattern: str, day: date) -> None:
    assert dates.day_of_title(title, pattern, "digest") == day


@pytest.mark.parametrize(
    ("title", "pattern"),
    [
        ("", "{job} {date}"),
        ("weekly 2026-01-05", "{job} {date}"),
        ("digest 2026-02-30", "{job} {date}"),
        ("digest 2026-01-05 [draft]", "{job} {date}"),
        ("digest 2026-01-05\n", "{job} {date}"),
        ("digest ٢٠٢٦-٠١-٠٥", "{job} {date}"),
        ("Tuesday 05 January 2026", "{date:%A %d %B %Y}"),
        ("05.1.2026", "{date:%-d.%-m.%Y}"),
        ("366 2026", "{date:%j %Y}"),
        ("999 9999", "{date:%j %Y}"),
        ("000 2026", "{date:%j %Y}"),
        ("2026-W54-1", "{date:%G-W%V-%u}"),
        ("2026-01-05 and 2026-01-06", "{date} and {date}"),
        ("0000-01-01", "{date}"),
        ("05 January", "{date:%d %B}"),
    ],
)
def test_a_title_of_another_kind_leads_to_no_date(title: str, pattern: str) -> None:
    assert dates.day_of_title(title, pattern, "digest") is None


def test_names_stay_english_whatever_the_locale() -> None:
    """A child whose C library is made to speak another language, where the machine has one."""
    code = (
        "import locale, datetime\n"
        "for name in ('de_DE.UTF-8', 'fr_FR.UTF-8', 'C'):\n"
        "    try:\n"
        "        locale.setlocale(locale.LC_ALL, name); break\n"
        "    except locale.Error: pass\n"
        "from sendonce.core import dates\n"
        "print(dates.render('{date:%A %d %B %Y}', 'x', datetime.date(2026, 5, 1)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "Friday 01 May 2026\n"
