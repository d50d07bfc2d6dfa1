"""The tables of the protocol, line by line: what the record says and Mailchimp shows, and the one step that follows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from sendonce.core.campaigns import Campaign, Content, Spec
from sendonce.core.decide import (
    Adopt,
    Build,
    Create,
    Done,
    Forget,
    GiveWay,
    Intend,
    Look,
    LookAgain,
    RecordSent,
    Refuse,
    Rules,
    Scheduled,
    Send,
    Settle,
    Step,
    decide,
    differences,
    old_enough_at,
    settled_at,
)
from sendonce.core.errors import InvariantBroken
from sendonce.core.guards import Scope
from sendonce.core.model import Batch, Entry, Page, Pause, Source, State

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY = "2026-11-30"
KEY = "Digest 2026-11-30"
NONCE = "5e0e96f7"
CREATED = f"{KEY} [{NONCE}]"
NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
MADE = datetime(2026, 11, 30, 11, 0, 0, tzinfo=UTC)
A, B, C = "aaaaaa", "bbbbbb", "cccccc"
SPEC = Spec(
    "regular", {"list_id": "list1"}, {"subject_line": "News"}, {"opens": True}, Content("<p>Hello</p>")
)

CREATED_SOURCES = [Source.REPLICATE, Source.HTML]
OPEN_STATES = [State.NONE, State.PLANNED, State.READY, State.REFUSED]


def at(text: str) -> datetime:
    """Return a time of the day, UTC."""
    return datetime.fromisoformat(f"{DAY}T{text}+00:00")


def rules(source: Source = Source.DRAFT, **changes: Any) -> Rules:
    whole = Rules(
        job="digest",
        date=DAY,
        zone=UTC,
        source=source,
        title_key=KEY,
        list_id="",
        settle_s=180,
        listing_s=30,
        timeout_s=130,
        today=DAY,
    )
    return replace(whole, **changes)


def campaign(id: str = A, title: str = KEY, status: str = "save", **fields: Any) -> Campaign:  # noqa: A002 - as the API names it
    shown: dict[str, Any] = {
        "type": "regular",
        "list_id": "list1",
        "create_time": MADE,
        "settings": {"subject_line": "News", "title": title},
        "recipients": {"list_id": "list1"},
        "tracking": {"opens": True},
    }
    return Campaign(id, title, status, **(shown | fields))


def entry(id: str = A, title: str = KEY, **fields: Any) -> Entry:  # noqa: A002 - as the ledger names it
    return Entry(id, title, **fields)


def page(
    state: State = State.NONE,
    *entries: Entry,
    nonce: str = "",
    forgotten: tuple[Batch, ...] = (),
    pause: Pause | None = None,
) -> Page:
    return Page(None, Batch(DAY, state, nonce, entries), forgotten, pause=pause)


def look(*listed: Campaign, by_id: Mapping[str, Campaign | None] | None = None, **fields: Any) -> Look:
    return Look(**({"at": NOON} | fields), listed=listed, by_id=by_id or {})


def step(page: Page, look: Look, rules: Rules, *, now: datetime = NOON, done: Done | None = None) -> Step:
    return decide(page, look, now, rules, done or Done())


def refused(page: Page, look: Look, rules: Rules, *, done: Done | None = None) -> str:
    """Return the reason of a refusal; anything else fails."""
    found = step(page, look, rules, done=done)
    assert isinstance(found, Refuse), found
    return found.reason


# ------------------------------------------------------------------------------- which campaign is the day's: titles


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("title", [KEY, CREATED, f"{KEY} [00000000]", f"{KEY} [ffffffff]"])
def test_a_campaign_past_save_counts_in_both_forms_of_the_name_for_every_source(
    source: Source, title: str
) -> None:
    mailed = campaign(title=title, status="sent")
    assert step(page(), look(mailed), rules(source)) == RecordSent((mailed,))


def test_a_draft_source_takes_the_draft_of_the_title_key() -> None:
    draft = campaign(title=KEY)
    assert step(page(), look(draft), rules()) == Adopt(draft)


def test_a_draft_source_takes_no_draft_with_a_nonce() -> None:
    reason = refused(page(), look(campaign(title=CREATED)), rules())
    assert reason == (
        'There is no campaign named "Digest 2026-11-30" in Mailchimp. '
        "A finished campaign is released for the day by giving it exactly this name."
    )


def test_a_draft_source_without_any_campaign_refuses() -> None:
    assert 'no campaign named "Digest 2026-11-30"' in refused(page(), look(), rules())


def test_a_draft_source_refuses_two_drafts_of_the_title_key() -> None:
    two = look(campaign(B), campaign(A))
    assert refused(page(), two, rules()) == 'Several drafts are named "Digest 2026-11-30": aaaaaa, bbbbbb.'


def test_a_draft_with_a_nonce_beside_the_draft_of_the_title_key_does_not_count_for_a_draft_source() -> None:
    draft = campaign(A)
    assert step(page(), look(campaign(B, CREATED), draft), rules()) == Adopt(draft)


@pytest.mark.parametrize("state", [State.PLANNED, State.REFUSED])
def test_of_several_drafts_the_recorded_one_stands_and_is_made_ready(state: State) -> None:
    mine = campaign(B)
    assert step(page(state, entry(B)), look(campaign(A), mine, by_id={B: mine}), rules()) == Adopt(mine)


def test_of_several_drafts_the_recorded_ready_one_is_sent() -> None:
    mine = campaign(B)
    assert step(page(State.READY, entry(B)), look(campaign(A), mine, by_id={B: mine}), rules()) == Send(mine)


def test_a_recorded_draft_that_a_listing_does_not_show_yet_is_sent_all_the_same() -> None:
    mine = campaign(A)
    assert step(page(State.READY, entry(A)), look(by_id={A: mine}), rules()) == Send(mine)


@pytest.mark.parametrize("source", CREATED_SOURCES)
@pytest.mark.parametrize("state", OPEN_STATES)
def test_a_created_source_without_campaign_and_nonce_records_its_intent(source: Source, state: State) -> None:
    assert step(page(state), look(), rules(source)) == Intend()


@pytest.mark.parametrize("source", CREATED_SOURCES)
@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.REFUSED])
def test_a_created_source_with_a_nonce_and_no_campaign_creates(source: Source, state: State) -> None:
    assert step(page(state, nonce=NONCE), look(), rules(source)) == Create()


@pytest.mark.parametrize("source", CREATED_SOURCES)
@pytest.mark.parametrize("title", [KEY, CREATED, f"{KEY} [0123abcd]"])
def test_a_created_source_takes_a_draft_of_either_form_whoever_made_it(source: Source, title: str) -> None:
    draft = campaign(title=title)
    assert step(page(State.PLANNED, nonce=NONCE), look(draft), rules(source)) == Adopt(draft)


@pytest.mark.parametrize(
    ("first", "second", "elected"),
    [
        ((A, "11:00:05"), (B, "11:00:04"), B),
        ((A, "11:00:04"), (B, "11:00:05"), A),
        ((B, "11:00:04"), (A, "11:00:04"), A),
        ((A, "11:00:04"), (B, "11:00:04"), A),
    ],
    ids=["later one first", "earlier one first", "a tie goes by id", "a tie goes by id, the other way round"],
)
@pytest.mark.parametrize("titles", [(KEY, CREATED), (CREATED, KEY), (CREATED, f"{KEY} [0123abcd]")])
def test_a_created_source_elects_the_earliest_draft_by_create_time_and_id(
    first: tuple[str, str], second: tuple[str, str], elected: str, titles: tuple[str, str]
) -> None:
    drafts = [
        campaign(id_, title, create_time=at(time))
        for (id_, time), title in zip((first, second), titles, strict=True)
    ]
    found = step(page(State.PLANNED, nonce=NONCE), look(*drafts), rules(Source.HTML))
    assert isinstance(found, Adopt)
    assert found.campaign.id == elected


@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.REFUSED])
def test_before_sending_the_day_is_elected_anew_and_an_earlier_draft_takes_the_place_of_the_recorded_one(
    state: State,
) -> None:
    mine = campaign(B, CREATED, create_time=at("11:00:05"))
    earlier = campaign(A, f"{KEY} [0123abcd]", create_time=at("11:00:04"))
    recorded = page(state, entry(B, CREATED), nonce=NONCE)
    done = Done(created_id=B, built_id=B, spec=SPEC)
    assert step(recorded, look(mine, earlier, by_id={B: mine}), rules(Source.HTML), done=done) == Adopt(
        earlier
    )


def test_from_sending_on_the_recorded_id_stands_whatever_draft_is_earlier() -> None:
    mine = campaign(B, CREATED, create_time=at("11:00:05"))
    earlier = campaign(A, KEY, create_time=at("11:00:04"))
    recorded = page(State.SENDING, entry(B, CREATED, requested_at=at("11:30:00"), gave_up_at=at("11:32:00")))
    assert step(recorded, look(mine, earlier, by_id={B: mine}), rules(Source.HTML)) == Send(mine)


def test_a_draft_without_create_time_cannot_be_elected() -> None:
    undated = campaign(B, create_time=None)
    assert refused(page(), look(campaign(A), undated), rules(Source.HTML)) == (
        "Mailchimp gives no create_time for campaign bbbbbb."
    )


def test_a_draft_that_this_run_created_and_that_is_gone_again_is_not_created_a_second_time() -> None:
    found = step(page(State.PLANNED, nonce=NONCE), look(), rules(Source.HTML), done=Done(created_id=A))
    assert found == GiveWay("The draft that this run created is not in Mailchimp any more.")


def test_a_draft_that_only_a_read_by_id_shows_is_elected_too() -> None:
    mine = campaign(A, CREATED)
    recorded = page(State.PLANNED, entry(A, CREATED), nonce=NONCE)
    assert step(recorded, look(by_id={A: mine}), rules(Source.HTML)) == Build(mine)


# --------------------------------------------------------------------- which campaign is the day's: audience and type


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize(
    "statuses", [("save", "save"), ("save", "sent"), ("sent", "save"), ("sent", "schedule")]
)
def test_two_audiences_and_no_list_id_in_the_settings_refuse(
    source: Source, statuses: tuple[str, str]
) -> None:
    mine = campaign(A, status=statuses[0], list_id="list1")
    other = campaign(B, status=statuses[1], list_id="list2")
    assert refused(page(), look(mine, other), rules(source)) == (
        "Campaigns of this date are in more than one audience and SENDONCE_LIST_ID is not set: aaaaaa, bbbbbb."
    )


def test_a_recorded_campaign_that_was_mailed_is_recorded_though_another_audience_has_a_campaign_of_the_name() -> (
    None
):
    mailed = campaign(A, status="sent", list_id="list1")
    other = campaign(B, list_id="list2")
    recorded = page(State.SENDING, entry(A, requested_at=at("11:00:00")))
    assert step(recorded, look(mailed, other, by_id={A: mailed}), rules()) == RecordSent((mailed,))


def test_a_recorded_campaign_in_sending_is_not_sent_again_while_two_audiences_clash() -> None:
    mine = campaign(A, list_id="list1")
    other = campaign(B, list_id="list2")
    recorded = page(State.SENDING, entry(A, requested_at=at("09:00:00")))
    assert "more than one audience" in refused(recorded, look(mine, other, by_id={A: mine}), rules())


@pytest.mark.parametrize("source", Source)
def test_one_audience_and_no_list_id_in_the_settings_is_fine(source: Source) -> None:
    draft = campaign(list_id="list2")
    assert step(page(), look(draft), rules(source)) == Adopt(draft)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("state", [State.NONE, State.READY])
def test_a_draft_of_another_audience_than_that_of_the_settings_is_refused(
    source: Source, state: State
) -> None:
    other = campaign(list_id="list2")
    recorded = page(state, *([entry()] if state is State.READY else []))
    assert refused(
        recorded,
        look(by_id={A: other}) if state is State.READY else look(other),
        rules(source, list_id="list1"),
    ) == ('Campaign aaaaaa is for audience "list2", not for SENDONCE_LIST_ID "list1".')


def test_the_list_id_of_the_settings_settles_what_two_audiences_leave_open() -> None:
    draft = campaign(list_id="list1")
    assert step(page(), look(draft), rules(list_id="list1")) == Adopt(draft)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("kind", ["rss", "variate", "absplit", "multivariate", "automation", ""])
def test_only_regular_and_plaintext_campaigns_are_sent(source: Source, kind: str) -> None:
    assert refused(page(), look(campaign(type=kind)), rules(source)) == (
        f'Campaign aaaaaa is of type "{kind}"; sendonce sends only regular and plaintext.'
    )


def test_a_draft_whose_type_was_changed_while_its_send_was_open_is_not_sent_again() -> None:
    changed = campaign(type="rss")
    recorded = page(State.SENDING, entry(requested_at=at("09:00:00")))
    assert 'of type "rss"' in refused(recorded, look(by_id={A: changed}), rules())


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("kind", ["regular", "plaintext"])
def test_a_regular_or_plaintext_draft_is_the_days(source: Source, kind: str) -> None:
    draft = campaign(type=kind)
    assert step(page(), look(draft), rules(source)) == Adopt(draft)


# ------------------------------------------------------------------------------------------------------- Statuses

RECORDS = {
    "no record": page(),
    "planned": page(State.PLANNED, entry(), nonce=NONCE),
    "ready": page(State.READY, entry(), nonce=NONCE),
    "refused": page(State.REFUSED, entry(), nonce=NONCE),
    "sending": page(State.SENDING, entry(requested_at=at("11:59:59")), nonce=NONCE),
}


def shown_as(status: str, record: Page) -> tuple[Campaign, Look]:
    """Show the date's one campaign under that status, read by id if it is recorded."""
    only = campaign(status=status, send_time=at("09:00:00"))
    return only, look(only, by_id={A: only} if record.batch.main else {})


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("status", ["sending", "sent"])
def test_what_mailchimp_has_mailed_or_is_mailing_is_recorded_as_sent(
    status: str, record: Page, source: Source
) -> None:
    mailed, shown = shown_as(status, record)
    assert step(record, shown, rules(source)) == RecordSent((mailed,))


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_what_is_scheduled_is_left_to_mailchimp(record: Page, source: Source) -> None:
    scheduled, shown = shown_as("schedule", record)
    assert step(record, shown, rules(source)) == Scheduled(scheduled, is_on_date=True)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize(
    "status", ["paused", "canceling", "canceled", "archived", "Sent", "SAVE", "save ", "reticulating", ""]
)
def test_every_other_status_and_every_unknown_word_is_for_a_human(
    status: str, record: Page, source: Source
) -> None:
    odd, shown = shown_as(status, record)
    found = step(record, shown, rules(source))
    assert isinstance(found, Refuse)
    assert found.campaign == odd
    said, _, way_out = found.reason.partition(" To send it to those alone")
    assert said == f'Campaign aaaaaa is "{status}" in Mailchimp.'
    assert bool(way_out) == (status == "canceled")


def past(*statuses: str) -> tuple[Campaign, ...]:
    """Campaigns of the date with these statuses, ids from the end of the alphabet so that order is not by luck."""
    ids = ["ffffff", "eeeeee", "dddddd", "cccccc"]
    return tuple(
        campaign(id_, status=status, send_time=at("09:00:00"))
        for id_, status in zip(ids, statuses, strict=False)
    )


@pytest.mark.parametrize("statuses", [("sending", "sent"), ("sent", "sending")])
def test_sent_comes_before_sending_and_two_that_were_mailed_are_both_recorded(
    statuses: tuple[str, str],
) -> None:
    found = step(page(), look(*past(*statuses)), rules())
    assert isinstance(found, RecordSent)
    assert [c.status for c in found.campaigns] == ["sent", "sending"]


def test_two_that_were_sent_are_both_recorded_in_the_order_of_their_ids() -> None:
    first, second = past("sent", "sent")
    assert step(page(), look(first, second), rules()) == RecordSent((second, first))


@pytest.mark.parametrize("mailed", ["sent", "sending"])
@pytest.mark.parametrize("other", ["schedule", "paused", "no such word"])
def test_what_was_mailed_comes_before_everything_else_past_save(mailed: str, other: str) -> None:
    first, second = past(other, mailed)
    assert step(page(), look(first, second), rules()) == RecordSent((second,))


@pytest.mark.parametrize("other", ["paused", "canceled", "no such word"])
@pytest.mark.parametrize("is_smaller", [True, False], ids=["smaller id", "greater id"])
def test_what_is_scheduled_comes_before_the_rest(other: str, is_smaller: bool) -> None:
    both = past(other, "schedule") if is_smaller else past("schedule", other)
    (scheduled,) = (c for c in both if c.status == "schedule")
    assert step(page(), look(*both), rules()) == Scheduled(scheduled, is_on_date=True)


def test_of_two_for_a_human_the_one_with_the_smaller_id_is_named() -> None:
    assert (
        refused(page(), look(*past("paused", "archived")), rules())
        == 'Campaign eeeeee is "archived" in Mailchimp.'
    )


def test_a_campaign_past_save_comes_before_the_recorded_draft() -> None:
    draft, mailed = campaign(A), campaign(B, CREATED, "sent")
    assert step(page(State.READY, entry(A)), look(draft, mailed, by_id={A: draft}), rules()) == RecordSent(
        (mailed,)
    )


@pytest.mark.parametrize(("by_id", "listed"), [("save", "sent"), ("sent", "save"), ("sent", "sent")])
def test_a_campaign_that_either_read_shows_past_save_is_past_it(by_id: str, listed: str) -> None:
    read, in_list = campaign(status=by_id), campaign(status=listed)
    found = step(page(State.READY, entry()), look(in_list, by_id={A: read}), rules())
    assert isinstance(found, RecordSent)
    assert [c.status for c in found.campaigns] == ["sent"]


def test_a_campaign_that_both_reads_show_past_save_counts_once_as_the_read_by_id_shows_it() -> None:
    read, in_list = campaign(status="sent", emails_sent=5), campaign(status="sending")
    assert step(page(State.READY, entry()), look(in_list, by_id={A: read}), rules()) == RecordSent((read,))


BERLIN = ZoneInfo("Europe/Berlin")
AUCKLAND = ZoneInfo("Pacific/Auckland")
HONOLULU = ZoneInfo("Pacific/Honolulu")


@pytest.mark.parametrize(
    ("zone", "send_time", "is_on_date"),
    [
        # Berlin is at UTC+1 on that day: 29 November 23:00 UTC is midnight
        (BERLIN, datetime(2026, 11, 29, 22, 59, 59, tzinfo=UTC), False),
        (BERLIN, datetime(2026, 11, 29, 23, 0, 0, tzinfo=UTC), True),
        (BERLIN, datetime(2026, 11, 30, 22, 59, 59, tzinfo=UTC), True),
        (BERLIN, datetime(2026, 11, 30, 23, 0, 0, tzinfo=UTC), False),
        # Auckland is at UTC+13: 30 November there ends at 11:00 UTC
        (AUCKLAND, datetime(2026, 11, 29, 11, 0, 0, tzinfo=UTC), True),
        (AUCKLAND, datetime(2026, 11, 30, 10, 59, 59, tzinfo=UTC), True),
        (AUCKLAND, datetime(2026, 11, 30, 11, 0, 0, tzinfo=UTC), False),
        # Honolulu is at UTC-10: it begins there at 10:00 UTC and ends on the next day
        (HONOLULU, datetime(2026, 11, 30, 9, 59, 59, tzinfo=UTC), False),
        (HONOLULU, datetime(2026, 12, 1, 9, 59, 59, tzinfo=UTC), True),
        (UTC, datetime(2026, 12, 1, 0, 0, 0, tzinfo=UTC), False),
        # a send_time with an offset of its own: 1 December 01:00 at +02:00 is 30 November 23:00 UTC
        (UTC, datetime(2026, 12, 1, 1, 0, 0, tzinfo=timezone(timedelta(hours=2))), True),
        (UTC, datetime(2025, 11, 30, 12, 0, 0, tzinfo=UTC), False),
        (UTC, None, False),
    ],
)
def test_a_schedule_is_on_the_date_if_its_time_lies_on_it_in_the_jobs_zone(
    zone: ZoneInfo, send_time: datetime | None, is_on_date: bool
) -> None:
    scheduled = campaign(status="schedule", send_time=send_time)
    assert step(page(), look(scheduled), rules(zone=zone)) == Scheduled(scheduled, is_on_date)


# ----------------------------------------------------------------------------------------------- the 404 rules

GONE: dict[str, Campaign | None] = {A: None}


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.REFUSED])
def test_a_recorded_id_that_is_gone_and_was_never_requested_is_forgotten(
    source: Source, state: State
) -> None:
    assert step(page(state, entry()), look(by_id=GONE), rules(source)) == Forget(A)


def test_it_is_forgotten_even_where_a_lagging_listing_still_shows_it() -> None:
    assert step(page(State.READY, entry()), look(campaign(), by_id=GONE), rules()) == Forget(A)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.REFUSED, State.SENDING])
@pytest.mark.parametrize("listed", [(), (campaign(A),), (campaign(B),)], ids=["nothing", "itself", "another"])
def test_a_recorded_id_that_is_gone_and_was_requested_is_never_replaced(
    source: Source, state: State, listed: tuple[Campaign, ...]
) -> None:
    recorded = page(state, entry(requested_at=at("09:00:00")), nonce=NONCE)
    assert refused(recorded, look(*listed, by_id=GONE), rules(source)) == (
        "The recorded campaign aaaaaa is gone from Mailchimp (404) although its send was requested."
    )


def test_a_requested_id_that_is_gone_gives_way_to_a_campaign_that_was_mailed() -> None:
    mailed = campaign(B, status="sent")
    recorded = page(State.SENDING, entry(requested_at=at("09:00:00")))
    assert step(recorded, look(mailed, by_id=GONE), rules()) == RecordSent((mailed,))


@pytest.mark.parametrize("source", Source)
def test_a_look_at_which_the_recorded_campaign_was_not_read_is_a_bug_and_decides_nothing(
    source: Source,
) -> None:
    recorded = page(State.SENDING, entry(requested_at=at("09:00:00")), nonce=NONCE)
    with pytest.raises(InvariantBroken, match="its campaign aaaaaa was not read"):
        step(recorded, look(campaign(B)), rules(source))


def reset_of(state: State, *entries: Entry) -> tuple[Batch, ...]:
    return (Batch(DAY, state, NONCE, entries),)


OPEN_SEND = reset_of(State.SENDING, entry(B, requested_at=at("11:59:00"), gave_up_at=at("12:00:00")))


@pytest.mark.parametrize("forgotten", [OPEN_SEND, reset_of(State.READY, entry(B))], ids=["sending", "ready"])
def test_an_id_under_resets_that_is_gone_counts_for_nothing(forgotten: tuple[Batch, ...]) -> None:
    draft = campaign(A)
    assert step(page(forgotten=forgotten), look(draft, by_id={B: None}), rules()) == Adopt(draft)
    assert step(page(forgotten=forgotten), look(draft), rules()) == Adopt(draft)


def test_an_id_under_resets_that_was_mailed_is_recorded_whatever_its_title_is_now() -> None:
    mailed = campaign(B, "An old name", "sent")
    draft = campaign(A)
    assert step(page(forgotten=OPEN_SEND), look(draft, by_id={B: mailed}), rules()) == RecordSent((mailed,))


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize(("now", "is_open"), [("12:02:59", True), ("12:03:00", False)])
def test_a_send_that_a_reset_forgot_is_waited_out_before_any_draft_is_taken(
    source: Source, now: str, is_open: bool
) -> None:
    draft = campaign(B)
    shown = look(draft, by_id={B: draft})
    found = step(page(forgotten=OPEN_SEND), shown, rules(source), now=at(now))
    assert found == (Settle(draft, at("12:03:00")) if is_open else Adopt(draft))


def test_a_reset_that_forgot_no_open_send_holds_nothing_up() -> None:
    draft = campaign(B)
    forgotten = reset_of(State.REFUSED, entry(B, requested_at=at("11:59:59")))
    assert step(
        page(forgotten=forgotten), look(draft, by_id={B: draft}), rules(), now=at("12:00:00")
    ) == Adopt(draft)


def test_a_reset_record_without_a_campaign_holds_nothing_up() -> None:
    draft = campaign(A)
    assert step(page(forgotten=reset_of(State.PLANNED)), look(draft), rules()) == Adopt(draft)


# ------------------------------------------------------------------------------------------------- the lost title


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.REFUSED, State.SENDING])
@pytest.mark.parametrize(
    "title", ["Something else", f"{KEY} ", f"{KEY} [5E0E96F7]", f"{KEY} [draft]", "digest 2026-11-30"]
)
def test_a_recorded_draft_that_lost_its_title_is_refused(source: Source, state: State, title: str) -> None:
    renamed = campaign(title=title)
    requested_at = at("09:00:00") if state is State.SENDING else None
    recorded = page(state, entry(requested_at=requested_at))
    assert refused(recorded, look(campaign(B), by_id={A: renamed}), rules(source)) == (
        f'The recorded campaign aaaaaa is named "{title}" now, not "Digest 2026-11-30" as recorded, '
        "and so is not the campaign of this date any more."
    )


@pytest.mark.parametrize("source", CREATED_SOURCES)
def test_a_created_draft_whose_title_does_not_read_back_byte_for_byte_is_refused(source: Source) -> None:
    renamed = campaign(title=f"{KEY} [0123abcd]")
    recorded = page(State.PLANNED, entry(title=CREATED), nonce=NONCE)
    assert refused(recorded, look(by_id={A: renamed}), rules(source)) == (
        'Campaign aaaaaa does not read back as it was written: its title is "Digest 2026-11-30 [0123abcd]", '
        'not "Digest 2026-11-30 [5e0e96f7]".'
    )


def test_a_former_draft_that_lost_its_title_is_never_elected_however_early_it_was_made() -> None:
    mine = campaign(A, CREATED)
    former = campaign(B, "Something else", create_time=at("08:00:00"))
    recorded = page(
        State.PLANNED, entry(A, CREATED), entry(B, role="former", requested_at=at("09:00:00")), nonce=NONCE
    )
    assert step(recorded, look(mine, by_id={A: mine, B: former}), rules(Source.HTML)) == Build(mine)


def test_a_draft_source_does_not_go_on_with_a_recorded_draft_that_was_given_a_nonce() -> None:
    recorded = page(State.READY, entry())
    assert "is named" in refused(recorded, look(by_id={A: campaign(title=CREATED)}), rules())


# ------------------------------------------------------------------------------------------------ SETTLE, by the second


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize(
    ("gave_up_at", "now", "until"),
    [
        # a run that gave up waiting at 12:00:00 says so; SETTLE is 180 s
        ("12:00:00", "12:02:59", "12:03:00"),
        ("12:00:00", "12:03:00", ""),
        ("12:00:00", "12:03:01", ""),
        # a run that died says nothing; it could have waited for TIMEOUT (130 s) from 11:58:00 on
        (None, "12:03:09", "12:03:10"),
        (None, "12:03:10", ""),
        (None, "11:00:00", "12:03:10"),
    ],
)
def test_an_open_send_is_repeated_for_the_same_id_only_once_it_is_settled(
    source: Source, gave_up_at: str | None, now: str, until: str
) -> None:
    draft = campaign(title=CREATED if source is not Source.DRAFT else KEY)
    asked = entry(
        title=draft.title, requested_at=at("11:58:00"), gave_up_at=at(gave_up_at) if gave_up_at else None
    )
    found = step(page(State.SENDING, asked), look(by_id={A: draft}), rules(source), now=at(now))
    assert found == (Settle(draft, at(until)) if until else Send(draft))


@pytest.mark.parametrize(
    ("until", "is_held"), [("", True), ("2099-01-01", True), (DAY, False), ("2020-01-01", False)]
)
def test_a_pause_keeps_an_open_send_from_being_requested_again(until: str, is_held: bool) -> None:
    asked = entry(requested_at=at("11:00:00"), gave_up_at=at("11:01:00"))
    paused = page(State.SENDING, asked, pause=Pause("server move", "root@web1", NOON, until))
    shown = look(by_id={A: campaign()})
    found = step(paused, shown, rules())
    if is_held:
        assert isinstance(found, Refuse)
        assert "not requested again: the job is paused" in found.reason
        assert "root@web1 gave as reason: server move." in found.reason
    else:
        assert found == Send(campaign())


def test_a_pause_does_not_keep_from_the_record_what_was_mailed() -> None:
    asked = entry(requested_at=at("11:00:00"))
    paused = page(State.SENDING, asked, pause=Pause("server move", "root@web1", NOON))
    mailed = campaign(status="sent")
    assert step(paused, look(by_id={A: mailed}), rules()) == RecordSent((mailed,))


def test_a_paused_job_is_not_asked_about_a_date_that_nothing_was_requested_for() -> None:
    with pytest.raises(InvariantBroken, match="which is paused"):
        step(page(State.READY, entry(), pause=Pause("x", "y", NOON)), look(by_id={A: campaign()}), rules())


def test_settle_is_counted_in_microseconds_too() -> None:
    recorded = page(State.SENDING, entry(requested_at=at("11:58:00"), gave_up_at=at("12:00:00")))
    shown, until = look(by_id={A: campaign()}), at("12:03:00")
    assert isinstance(step(recorded, shown, rules(), now=until - timedelta(microseconds=1)), Settle)
    assert isinstance(step(recorded, shown, rules(), now=until), Send)


def test_settle_and_timeout_are_those_of_the_settings() -> None:
    asked = entry(requested_at=at("12:00:00"))
    assert settled_at(asked, rules(settle_s=5, timeout_s=2.5)) == at("12:00:07.500")
    assert settled_at(asked._replace(gave_up_at=at("12:00:01")), rules(settle_s=5, timeout_s=2.5)) == at(
        "12:00:06"
    )


def test_a_record_in_sending_without_a_request_is_a_bug_and_not_a_send() -> None:
    with pytest.raises(InvariantBroken, match="without requested_at"):
        step(page(State.SENDING, entry(gave_up_at=at("09:00:00"))), look(by_id={A: campaign()}), rules())


# ----------------------------------------------------------------------------------------------- LISTING, by the second

BUILT = Done(built_id=A, spec=SPEC)
MINE = page(State.READY, entry(title=CREATED), nonce=NONCE)


@pytest.mark.parametrize("source", CREATED_SOURCES)
@pytest.mark.parametrize(
    ("create_time", "looked_at", "is_ripe"),
    [
        # LISTING is 30 s, and a create_time may be a second older than it says
        ("11:59:29", "12:00:00", True),
        ("11:59:29", "11:59:59", False),
        ("11:59:30", "12:00:00", False),
        ("11:00:00", "12:00:00", True),
        ("12:00:10", "12:00:00", False),
    ],
)
def test_a_created_draft_is_sent_only_after_a_look_at_which_it_was_older_than_listing(
    source: Source, create_time: str, looked_at: str, is_ripe: bool
) -> None:
    draft = campaign(title=CREATED, create_time=at(create_time))
    shown = look(draft, by_id={A: draft}, at=at(looked_at))
    ripe_at = at(create_time) + timedelta(seconds=31)
    assert step(MINE, shown, rules(source), now=at("23:00:00"), done=BUILT) == (
        Send(draft) if is_ripe else LookAgain(ripe_at)
    )


def test_listing_is_that_of_the_settings() -> None:
    assert old_enough_at(at("12:00:00"), rules(listing_s=1)) == at("12:00:02")
    assert old_enough_at(at("12:00:00"), rules(listing_s=90.5)) == at("12:01:31.500")


def test_a_draft_source_does_not_wait_for_listings() -> None:
    young = campaign(create_time=NOON)
    assert step(page(State.READY, entry()), look(young, by_id={A: young}), rules()) == Send(young)


def test_a_look_from_before_the_last_write_is_not_enough_however_old_the_draft_is() -> None:
    draft = campaign(title=CREATED)
    stale = look(draft, by_id={A: draft}, is_stale=True)
    assert step(MINE, stale, rules(Source.HTML), done=BUILT) == LookAgain(at("11:00:31"))


# ------------------------------------------------------------------------------- written anew, and what reads back


@pytest.mark.parametrize("source", CREATED_SOURCES)
@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.REFUSED])
@pytest.mark.parametrize("done", [Done(), Done(built_id=B, spec=SPEC), Done(created_id=A)])
def test_every_run_writes_the_elected_draft_anew_whatever_an_earlier_one_wrote(
    source: Source, state: State, done: Done
) -> None:
    draft = campaign(title=CREATED)
    recorded = page(state, entry(title=CREATED), nonce=NONCE)
    assert step(recorded, look(draft, by_id={A: draft}), rules(source), done=done) == Build(draft)


def test_in_sending_nothing_is_written_any_more() -> None:
    draft = campaign(title=CREATED, settings={"subject_line": "Somebody changed this"})
    asked = entry(title=CREATED, requested_at=at("09:00:00"))
    assert step(page(State.SENDING, asked), look(draft, by_id={A: draft}), rules(Source.HTML)) == Send(draft)


@pytest.mark.parametrize(
    ("shows", "names"),
    [
        ({"settings": {"subject_line": "Newz"}}, "settings.subject_line"),
        ({"settings": {}}, "settings.subject_line"),
        ({"recipients": {"list_id": "list2"}}, "recipients.list_id"),
        ({"tracking": {"opens": False}}, "tracking.opens"),
        ({"type": "plaintext"}, "type"),
        ({"settings": {}, "tracking": {}}, "settings.subject_line, tracking.opens"),
    ],
)
def test_a_draft_that_does_not_read_back_as_written_is_refused(shows: dict[str, Any], names: str) -> None:
    draft = campaign(title=CREATED, **shows)
    assert refused(MINE, look(draft, by_id={A: draft}), rules(Source.HTML), done=BUILT) == (
        f"Campaign aaaaaa does not read back as it was written ({names})."
    )


IN_SENDING = page(State.SENDING, entry(title=CREATED, requested_at=at("09:00:00")))


@pytest.mark.parametrize(
    ("record", "source", "shows"),
    [
        pytest.param(page(), Source.DRAFT, {"type": "rss"}, id="a draft that is none to be sent"),
        pytest.param(page(), Source.HTML, {"type": "rss"}, id="an elected draft that is none to be sent"),
        pytest.param(page(), Source.HTML, {"create_time": None}, id="a draft without create_time"),
        pytest.param(
            MINE, Source.HTML, {"title": "Something else"}, id="a recorded draft that lost its title"
        ),
        pytest.param(MINE, Source.HTML, {"tracking": {}}, id="a draft that does not read back as written"),
        pytest.param(IN_SENDING, Source.HTML, {"type": "rss"}, id="a draft whose send is open"),
    ],
)
def test_a_refusal_names_the_draft_that_a_person_must_look_at(
    record: Page, source: Source, shows: dict[str, Any]
) -> None:
    odd = campaign(**({"title": KEY if source is Source.DRAFT else CREATED} | shows))
    shown = look(odd, by_id={A: odd} if record.batch.main else {})
    found = step(record, shown, rules(source), done=BUILT)
    assert isinstance(found, Refuse)
    assert found.campaign == odd


def test_what_mailchimp_adds_on_its_own_is_no_difference() -> None:
    shown = campaign(
        settings={"subject_line": "News", "title": CREATED, "inline_css": False},
        recipients={"list_id": "list1", "recipient_count": 4812},
    )
    assert differences(SPEC, shown) == ()


def test_differences_are_named_by_their_path_into_nested_objects() -> None:
    spec = replace(
        SPEC,
        recipients={
            "list_id": "list1",
            "segment_opts": {"saved_segment_id": 7, "conditions": [{"op": "is"}]},
        },
    )
    reads = {
        "list_id": "list1",
        "segment_opts": {"saved_segment_id": 8, "conditions": [{"op": "is"}], "match": "any"},
    }
    assert differences(spec, campaign(recipients=reads)) == ("recipients.segment_opts.saved_segment_id",)
    assert differences(spec, campaign(recipients={"list_id": "list1"})) == ("recipients.segment_opts",)
    assert differences(spec, campaign(recipients=reads | {"list_id": "list2"})) == (
        "recipients.list_id",
        "recipients.segment_opts.saved_segment_id",
    )


# ----------------------------------------------------------------------------------- where a crash leaves things

IN_LISTING = campaign(title=CREATED)


@pytest.mark.parametrize(
    ("record", "shown", "now", "then"),
    [
        pytest.param(page(), look(), NOON, Intend(), id="after taking the lease: starts over"),
        pytest.param(page(State.PLANNED, nonce=NONCE), look(), NOON, Create(), id="after the intent: creates"),
        pytest.param(
            page(State.PLANNED, nonce=NONCE), look(IN_LISTING), NOON, Adopt(IN_LISTING),
            id="after create, before its answer: finds it by its title",
        ),
        pytest.param(
            page(State.PLANNED, entry(title=CREATED), nonce=NONCE), look(IN_LISTING, by_id={A: IN_LISTING}), NOON,
            Build(IN_LISTING), id="after the content: writes and reads it again",
        ),
        pytest.param(
            page(State.SENDING, entry(title=CREATED, requested_at=NOON)), look(by_id={A: IN_LISTING}),
            at("12:05:09"), Settle(IN_LISTING, at("12:05:10")), id='after "sending", before the POST: waits',
        ),
        pytest.param(
            page(State.SENDING, entry(title=CREATED, requested_at=NOON)), look(by_id={A: IN_LISTING}),
            at("12:05:10"), Send(IN_LISTING), id='after "sending", before the POST: sends that id',
        ),
        pytest.param(
            page(State.SENDING, entry(title=CREATED, requested_at=NOON)),
            look(by_id={A: replace(IN_LISTING, status="sending")}), at("12:00:01"),
            RecordSent((replace(IN_LISTING, status="sending"),)), id="the POST, before its answer: records sent",
        ),
    ],
)  # fmt: skip
def test_the_next_run_after_a_crash(record: Page, shown: Look, now: datetime, then: Step) -> None:
    assert step(record, shown, rules(Source.HTML), now=now) == then


@pytest.mark.parametrize(("state", "said"), [(State.SENT, "already sent"), (State.SKIPPED, "skipped")])
def test_a_date_that_is_settled_is_never_decided_on(state: State, said: str) -> None:
    with pytest.raises(InvariantBroken, match=f"asked what to do next for 2026-11-30, which is {said}"):
        step(page(state, entry()), look(campaign()), rules())


def test_a_draft_that_is_gone_is_not_adopted_from_a_listing_that_still_shows_it() -> None:
    """A person deleted the recorded draft and made a new one: the listing lags behind both."""
    gone = Campaign("0" * 10, "Digest", "save", "regular", "", None)
    sent = Campaign("1" * 10, "Digest", "sent", "regular", "", None)
    look = Look(datetime(2026, 1, 5, tzinfo=UTC), (gone, sent), {gone.id: None, sent.id: None})
    assert look.without(gone.id) == Look(look.at, (sent,), {sent.id: None})
    # what is past `save` was mailed, or may be, whatever a read by id says
    assert look.without(sent.id) == Look(look.at, (gone, sent), {gone.id: None})


# ------------------------------------------------------- others of the date whose recipients a campaign shall leave out

NOSENT_B = {"condition_type": "Aim", "field": "aim", "op": "nosent", "value": "4712"}
LEAVES_OUT_B = {"list_id": "list1", "segment_opts": {"match": "all", "conditions": [NOSENT_B]}}


def other(status: str = "sent", **fields: Any) -> Campaign:
    """Another campaign of the date, `bbbbbb`."""
    return campaign(B, "Special offer", status, **({"web_id": 4712} | fields))


def reaching(*reached: Campaign, lost: tuple[str, ...] = (), drafts: tuple[Campaign, ...] = ()) -> Look:
    return look(*drafts, by_id={c.id: c for c in drafts}, reached=reached, lost=lost)


def html(**changes: Any) -> Rules:
    return rules(Source.HTML, **({"scope": Scope.JOB, "list_id": "list1"} | changes))


@pytest.mark.parametrize("status", ["sending", "canceling"])
def test_while_another_of_the_date_is_being_mailed_nothing_is_created_or_sent(status: str) -> None:
    drafts = (campaign(A, CREATED),)
    for seen in (reaching(other(status)), reaching(other(status), drafts=drafts)):
        assert step(page(), seen, html()) == GiveWay(
            "bbbbbb of this date is still being mailed: who was not sent it is known only afterwards."
        )


def test_another_of_the_date_whose_status_tells_nothing_is_for_a_human() -> None:
    assert step(page(), reaching(other("archived")), html()) == Refuse(
        'Campaign bbbbbb of this date is "archived" in Mailchimp: whether who was sent it would be left out of another '
        "is not known."
    )


def test_another_of_the_date_that_is_gone_is_for_a_human_unless_its_recipients_are_known_otherwise() -> None:
    seen = reaching(lost=(C, B))
    assert step(page(), seen, html(covered=frozenset({B}))) == Refuse(
        "cccccc of this date is gone from Mailchimp (404): who was sent it cannot be left out of another."
    )
    assert step(page(), seen, html(covered=frozenset({B, C}))) == Intend()


@pytest.mark.parametrize("status", ["sending", "archived"])
def test_another_of_another_audience_holds_up_nothing(status: str) -> None:
    elsewhere = other(status, list_id="list2")
    assert step(page(), reaching(elsewhere), html()) == Intend()
    # which audience it will be is not known yet
    assert step(page(), reaching(elsewhere), html(list_id="")) != Intend()


def test_a_draft_is_written_again_when_another_was_mailed_since() -> None:
    ready = page(State.READY, entry(title=CREATED), nonce=NONCE)
    draft = campaign(A, CREATED)
    seen = reaching(other(), drafts=(draft,))
    for left_out in (frozenset[str](), frozenset({C})):
        done = Done(built_id=A, spec=SPEC, left_out=left_out)
        assert step(ready, seen, html(), done=done) == Build(draft)
    leaving = replace(SPEC, recipients=LEAVES_OUT_B)
    done = Done(built_id=A, spec=leaving, left_out=frozenset({B}))
    assert step(ready, seen, html(), done=done) == Refuse(
        "Campaign aaaaaa does not read back as it was written (recipients.segment_opts).", draft
    )
    written = campaign(A, CREATED, recipients=LEAVES_OUT_B)
    assert step(ready, reaching(other(), drafts=(written,)), html(), done=done) == Send(written)
    elsewhere = other(list_id="list2")
    done = Done(built_id=A, spec=SPEC)
    assert step(ready, reaching(elsewhere, drafts=(draft,)), html(), done=done) == Send(draft)


SENDING = entry(title=CREATED, requested_at=at("11:50:00"), gave_up_at=at("11:50:00"))


def open_send(recipients: Mapping[str, object], *reached: Campaign, lost: tuple[str, ...] = ()) -> Step:
    """What follows on a send that was asked for ten minutes ago, and shows as a draft."""
    draft = campaign(A, CREATED, recipients=recipients)
    seen = reaching(*reached, lost=lost, drafts=(draft,))
    return step(page(State.SENDING, SENDING, nonce=NONCE), seen, html())


def test_an_open_send_is_repeated_only_if_it_leaves_out_whom_it_must() -> None:
    assert isinstance(open_send(LEAVES_OUT_B, other()), Send)
    assert isinstance(open_send({"list_id": "list1"}, other(list_id="list2")), Send)
    refused = open_send({"list_id": "list1"}, other())
    assert isinstance(refused, Refuse)
    assert refused.reason == "Campaign aaaaaa does not leave out who was sent bbbbbb on this date."


def test_an_open_send_is_not_repeated_while_or_after_it_cannot_be_said_who_was_sent_another() -> None:
    assert isinstance(open_send(LEAVES_OUT_B, other("sending")), GiveWay)
    assert isinstance(open_send(LEAVES_OUT_B, other("archived")), Refuse)
    assert open_send(LEAVES_OUT_B, lost=(B,)) == Refuse(
        "bbbbbb of this date is gone from Mailchimp (404): who was sent it cannot be left out of another."
    )


@pytest.mark.parametrize(("tag", "is_sent"), [(7, True), (8, False), (0, False)])
def test_an_open_send_is_repeated_past_a_lost_campaign_only_if_it_leaves_out_the_tag_that_covers_it(
    tag: int, is_sent: bool
) -> None:
    outside = {"condition_type": "StaticSegment", "field": "static_segment", "op": "static_not", "value": 7}
    shown = campaign(recipients={"segment_opts": {"match": "all", "conditions": [outside]}})
    asked = entry(requested_at=at("11:00:00"), gave_up_at=at("11:01:00"))
    of_rest = rules(scope=Scope.JOB, tag=tag, covered=frozenset({"bbbbbb"}))
    found = step(page(State.SENDING, asked), look(by_id={A: shown}, lost=("bbbbbb",)), of_rest)
    assert isinstance(found, Send if is_sent else Refuse)
