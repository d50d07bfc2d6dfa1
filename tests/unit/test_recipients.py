"""Who got it: how people are named, which campaigns count, and when a report is whole. Expected values by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sendonce.core.campaigns import Campaign
from sendonce.core.model import Batch, Entry, State
from sendonce.core.recipients import (
    Recipient,
    ReportPage,
    Verdict,
    buried,
    email_id_of,
    entries_of,
    fault_of,
    is_nameable,
    pages_of,
    parsed_ids,
    status_at,
    tombstone_of,
    verdict,
)

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
SALT = bytes(range(32))
READER = "83542c5ab47d1bdb5e4f58fe5df3b7b6"
SENT = Campaign(
    "1a2b3c4d5e", "daily", "sent", "regular", "", None, send_time=NOW - timedelta(hours=1), emails_sent=1200
)


def page(total: int, *numbers: int) -> ReportPage:
    return ReportPage(total, tuple(Recipient(n.to_bytes(16), "sent") for n in numbers))


@pytest.mark.parametrize("address", ["freddie@example.com", "Freddie@Example.COM", " freddie@example.com\n"])
def test_a_person_is_named_as_mailchimp_names_them_however_the_address_is_written(address: str) -> None:
    # `printf freddie@example.com | md5sum`
    assert email_id_of(address).hex() == "a27d287ece304faf3da8de511cc8b5a8"


@pytest.mark.parametrize(
    "address",
    [
        "o'brien@example.com",
        "!#$%&'*+/=?^_{|}~-a.b@example.com",
        '"a(b)"@example.co.uk',
        "jürgen@münchen.de",
        "`@a.b",
    ],
)
def test_whatever_mailchimp_takes_before_the_sign_is_an_address(address: str) -> None:
    assert is_nameable(address)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "@example.com",
        "a@b",
        "a@.com",
        "a@b.",
        "a@b..c",
        "a@b@c.d",
        "a b@c.d",
        "a\x00@c.d",
        "a\x9f@c.d",
        "a@c d.e",
    ],
)
def test_what_lacks_a_part_or_has_white_space_is_no_address(text: str) -> None:
    assert not is_nameable(text)


def test_an_id_of_a_report_is_read_and_anything_else_is_not() -> None:
    assert parsed_ids([READER, READER.upper()]) == 2 * [bytes.fromhex(READER)]
    assert parsed_ids([]) == []
    for text in ("", READER[:-2], READER + "00", "z" * 32):
        with pytest.raises(ValueError):
            parsed_ids([READER, text])


def test_a_tombstone_is_the_same_each_time_and_another_with_another_salt_or_for_another_person() -> None:
    person, other = bytes(16), bytes([1] * 16)
    assert tombstone_of(person, SALT) == tombstone_of(person, SALT)
    assert (
        len(
            {
                person,
                other,
                tombstone_of(person, SALT),
                tombstone_of(person, SALT[::-1]),
                tombstone_of(other, SALT),
            }
        )
        == 5
    )
    assert len(tombstone_of(person, SALT)) == 16


def test_of_a_date_those_campaigns_count_that_were_mailed_or_may_have_been() -> None:
    main, draft = Entry("a", "main"), Entry("b", "former", role="former")
    asked = Entry("c", "twin", role="twin", requested_at=NOW)
    seen, planned = Entry("d", "x", role="twin", sent_at=NOW), Entry("e", "x", role="twin", scheduled_for=NOW)
    everything = (main, draft, asked, seen, planned)
    found = {
        state: "".join(e.id for e in entries_of(Batch("2026-01-05", state, campaigns=everything)))
        for state in State
    }
    assert found[State.SENT] == found[State.SENDING] == "acde"
    assert found[State.READY] == found[State.NONE] == found[State.REFUSED] == found[State.SKIPPED] == "cde"


@pytest.mark.parametrize(
    ("campaign", "total", "wanted"),
    [
        (None, None, Verdict.NOT_MAILED),
        (replace(SENT, status="save"), 1200, Verdict.NOT_MAILED),
        (replace(SENT, status="schedule"), None, Verdict.NOT_MAILED),
        (replace(SENT, status="sending"), 1200, Verdict.NOT_YET),
        (replace(SENT, status="a new word"), 1200, Verdict.NOT_YET),
        (SENT, None, Verdict.NOT_YET),
        (SENT, 1199, Verdict.NOT_YET),
        (SENT, 0, Verdict.NOT_YET),
        (SENT, 1200, Verdict.COMPLETE),
        (SENT, 1201, Verdict.COMPLETE),
        (replace(SENT, status="canceled"), 1200, Verdict.COMPLETE),
        (replace(SENT, emails_sent=None), 0, Verdict.COMPLETE),
        (replace(SENT, send_time=None), 1199, Verdict.NOT_YET),
        (replace(SENT, send_time=NOW - timedelta(hours=23, minutes=59)), 1199, Verdict.NOT_YET),
        (replace(SENT, send_time=NOW - timedelta(hours=24)), 1199, Verdict.COMPLETE),
    ],
)
def test_a_report_is_whole_when_all_mails_are_in_it_or_a_day_has_passed(
    campaign: Campaign | None, total: int | None, wanted: Verdict
) -> None:
    assert verdict(campaign, total, NOW) is wanted


@pytest.mark.parametrize(
    ("total", "last"), [(0, 0), (1, 0), (500, 0), (501, 1), (1000, 1), (1_000_000, 1999)]
)
def test_a_report_has_pages_of_five_hundred_and_at_least_one(total: int, last: int) -> None:
    assert list(pages_of(total)) == list(range(last + 1))


def test_a_page_that_is_as_it_must_be_has_no_fault() -> None:
    assert fault_of(page(2, 1, 2), 0, 2) == ""
    assert fault_of(page(0), 0, 0) == ""
    assert fault_of(page(502, 7, 8), 1, 502) == ""
    assert fault_of(page(502, *range(500)), 0, 502) == ""


def test_a_report_that_shrinks_grows_or_repeats_is_found_out() -> None:
    assert fault_of(page(1, 1, 2), 0, 2) == "it had 2 recipients and now has 1"
    assert fault_of(page(3, 1, 2), 0, 2) == "it had 2 recipients and now has 3"
    assert fault_of(page(2, 1), 0, 2) == "its page 1 has 1 rows in place of 2"
    assert fault_of(page(502, 1, 2, 3), 1, 502) == "its page 2 has 3 rows in place of 2"
    assert fault_of(page(2, 1, 1), 0, 2) == "its page 1 names somebody twice"


def test_who_was_forgotten_is_kept_as_the_tombstone_alone_and_others_as_they_are() -> None:
    gone, there = (
        Recipient(bytes(16), "hard", "gone@example.com"),
        Recipient(bytes([1] * 16), "sent", "a@example.com"),
    )
    stone = tombstone_of(gone.email_id, SALT)
    assert buried([gone, there], {stone}, SALT) == (Recipient(stone, "hard"), there)
    assert buried([gone, there], set(), SALT) == (gone, there)


def test_a_status_is_kept_as_its_place_and_another_place_is_damage() -> None:
    assert [status_at(place) for place in range(3)] == ["sent", "hard", "soft"]
    for place in (-1, 9, "1", None):
        with pytest.raises(ValueError, match=str(place)):
            status_at(place)
