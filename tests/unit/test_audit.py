"""`ledger verify` and `ledger rebuild`: where ledger and Mailchimp differ, and a ledger made anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sendonce.core.audit import Finding, arrival, compared, merge, rebuild, verify
from sendonce.core.campaigns import Campaign
from sendonce.core.ledger import empty, parse
from sendonce.core.model import Attempt, Batch, Ending, Entry, Glance, State, settled

PATTERN = "Digest {date}"
JOB = "digest"
DAY = "2026-11-30"
KEY = "Digest 2026-11-30"
NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
SENT_AT = datetime(2026, 11, 30, 8, 0, 5, tzinfo=UTC)
ASKED_AT = datetime(2026, 11, 30, 8, 0, 4, tzinfo=UTC)
A, B = "aaaaaa", "bbbbbb"


def campaign(id: str = A, status: str = "sent", title: str = KEY, **fields: Any) -> Campaign:  # noqa: A002 - as the API names it
    shown: dict[str, Any] = {"type": "regular", "list_id": "list1", "create_time": None, "web_id": 4711}
    if status in {"sent", "sending", "schedule"}:
        shown["send_time"] = SENT_AT
    if status == "sent":
        shown["emails_sent"] = 4812
    return Campaign(id, title, status, **(shown | fields))


def batch(state: State, *entries: Entry, date: str = DAY, **fields: Any) -> Batch:
    return Batch(date, state, campaigns=entries, **fields)


def entry(id: str = A, **fields: Any) -> Entry:  # noqa: A002 - as the ledger names it
    return Entry(id, KEY, **fields)


# ------------------------------------------------------------------------------------------------------------- verify


def said(batches: list[Batch], campaigns: list[Campaign]) -> list[str]:
    """Return what verify says of DAY; anything it says of another date fails."""
    found = verify(batches, campaigns, PATTERN, JOB)
    assert all(finding.date == DAY for finding in found)
    return [finding.said for finding in found]


@pytest.mark.parametrize("status", ["sent", "sending"])
def test_a_batch_that_both_call_sent_is_no_finding(status: str) -> None:
    assert said([batch(State.SENT, entry())], [campaign(status=status)]) == []


@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.SENDING, State.REFUSED])
@pytest.mark.parametrize("status", ["save", "schedule", "paused"])
def test_a_batch_that_was_not_mailed_is_no_finding(state: State, status: str) -> None:
    assert said([batch(state, entry())], [campaign(status=status)]) == []


def test_a_sent_batch_whose_campaign_is_not_there_is_a_finding() -> None:
    assert said([batch(State.SENT, entry())], []) == [
        "the ledger says sent, and campaign aaaaaa is not in Mailchimp's list under the date's title"
    ]


def test_a_sent_batch_whose_campaign_has_another_title_now_is_a_finding() -> None:
    found = said([batch(State.SENT, entry())], [campaign(title="Renamed")])
    assert len(found) == 1
    assert "not in Mailchimp's list" in found[0]


@pytest.mark.parametrize("status", ["save", "schedule", "paused", "no such word"])
def test_a_sent_batch_whose_campaign_was_not_mailed_is_a_finding(status: str) -> None:
    assert said([batch(State.SENT, entry())], [campaign(status=status)]) == [
        f'the ledger says sent, and Mailchimp shows campaign aaaaaa as "{status}"'
    ]


@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.SENDING, State.REFUSED, State.SKIPPED])
def test_a_campaign_that_was_mailed_and_is_not_recorded_as_sent_is_a_finding(state: State) -> None:
    assert said([batch(state)], [campaign()]) == [
        f"the ledger says {state.value}, and Mailchimp has mailed aaaaaa (sent)"
    ]


def test_a_second_campaign_that_was_mailed_is_a_finding() -> None:
    found = said([batch(State.SENT, entry(A))], [campaign(A), campaign(B, "sending")])
    assert found == ["Mailchimp has mailed more than the ledger knows: bbbbbb"]


def test_two_campaigns_that_were_mailed_stay_a_finding_though_both_are_recorded() -> None:
    both = batch(State.SENT, entry(A), entry(B, role="twin"))
    assert said([both], [campaign(A), campaign(B)]) == ["more than one campaign was mailed: aaaaaa, bbbbbb"]


def test_a_draft_beside_the_campaign_that_was_mailed_is_no_finding() -> None:
    assert said([batch(State.SENT, entry(A))], [campaign(A), campaign(B, "save")]) == []


def test_a_date_without_record_whose_campaign_was_mailed_is_a_finding() -> None:
    assert said([], [campaign(A), campaign(B, "paused")]) == [
        "the ledger has no record, Mailchimp has aaaaaa (sent), bbbbbb (paused)"
    ]


def test_a_date_without_record_that_has_only_drafts_is_no_finding() -> None:
    assert said([], [campaign(status="save")]) == []


def test_campaigns_of_other_names_are_nobodys_business() -> None:
    names = [
        "Newsletter",
        "Digest",
        "Digest 2026-11-31",
        "Digest 2026-11-30 (copy 01)",
        "Digest 2026-11-30 [x]",
    ]
    assert said([], [campaign(title=name) for name in names]) == []


def test_a_title_with_a_nonce_is_of_the_date_too() -> None:
    assert said([batch(State.SENT, entry())], [campaign(title=f"{KEY} [5e0e96f7]")]) == []


def test_campaigns_of_another_job_of_the_account_are_nobodys_business_either() -> None:
    both = [campaign(A, title="digest 2026-11-30"), campaign(B, title="weekly 2026-11-30")]
    found = verify([], both, "{job} {date}", JOB)
    assert found == (Finding(DAY, "the ledger has no record, Mailchimp has aaaaaa (sent)"),)
    (made,) = rebuild(both, "{job} {date}", JOB, NOW)
    assert [e.id for e in made.campaigns] == [A]


def test_findings_come_in_the_order_of_their_dates() -> None:
    batches = [batch(State.SENT, Entry("c", "x"), date=day) for day in ("2026-11-29", "2026-12-02")]
    campaigns = [campaign("d", title="Digest 2026-12-01"), campaign("e", title="Digest 2026-11-28")]
    found = verify(batches, campaigns, PATTERN, JOB)
    assert [f.date for f in found] == ["2026-11-28", "2026-11-29", "2026-12-01", "2026-12-02"]
    assert found[0] == Finding("2026-11-28", "the ledger has no record, Mailchimp has e (sent)")


def test_a_sent_record_without_a_campaign_and_a_mailed_one_is_a_finding() -> None:
    assert said([batch(State.SENT)], [campaign()]) == [
        "the ledger says sent, and Mailchimp has mailed aaaaaa (sent)"
    ]


# ------------------------------------------------------------------------------------------------------------ rebuild


def rebuilt(*campaigns: Campaign) -> Batch:
    """Return the one batch that these campaigns make; more or less than one fails."""
    (only,) = rebuild(campaigns, PATTERN, JOB, NOW)
    return only


def test_a_sent_campaign_makes_a_sent_batch() -> None:
    assert rebuilt(campaign()) == Batch(
        DAY,
        State.SENT,
        campaigns=(Entry(A, KEY, web_id=4711, by="unknown", sent_at=SENT_AT, emails_sent=4812),),
    )


def test_a_campaign_that_is_being_mailed_makes_a_sent_batch_with_its_number_open() -> None:
    made = rebuilt(campaign(status="sending", emails_sent=0, send_time=None))
    assert (made.state, made.campaigns[0].emails_sent, made.campaigns[0].sent_at) == (State.SENT, None, NOW)


def test_two_that_were_mailed_are_main_and_twin_the_sent_one_first() -> None:
    made = rebuilt(campaign(A, "sending"), campaign(B, "sent"))
    assert [(e.id, e.role) for e in made.campaigns] == [(B, "main"), (A, "twin")]


@pytest.mark.parametrize("other", ["save", "schedule", "paused"])
def test_what_was_mailed_comes_before_everything_else(other: str) -> None:
    made = rebuilt(campaign(A, other), campaign(B, "sent"))
    assert (made.state, [e.id for e in made.campaigns]) == (State.SENT, [B])


def test_a_scheduled_campaign_is_planned_and_keeps_its_time() -> None:
    planned = Batch(DAY, State.PLANNED, campaigns=(Entry(B, KEY, web_id=4711, scheduled_for=SENT_AT),))
    assert rebuilt(campaign(B, "schedule")) == planned
    assert rebuilt(campaign(A, "paused"), campaign(B, "schedule")) == planned


@pytest.mark.parametrize("status", ["paused", "canceled", "archived", "no such word"])
def test_any_other_status_past_save_is_refused_with_its_reason(status: str) -> None:
    # of what was stopped half-way some have it
    sent_at = NOW if status in {"canceled", "archived"} else None
    assert rebuilt(campaign(A, status)) == Batch(
        DAY,
        State.REFUSED,
        campaigns=(Entry(A, KEY, web_id=4711, sent_at=sent_at),),
        reason=f'Campaign aaaaaa is "{status}" in Mailchimp.',
    )


def test_drafts_and_other_names_make_nothing() -> None:
    assert rebuild([campaign(status="save"), campaign(title="Newsletter")], PATTERN, JOB, NOW) == ()


def test_a_date_that_has_only_drafts_does_not_hide_the_dates_after_it() -> None:
    campaigns = [campaign(A, "save", "Digest 2026-11-28"), campaign(B)]
    assert [b.date for b in rebuild(campaigns, PATTERN, JOB, NOW)] == [DAY]


def test_batches_come_in_the_order_of_their_dates() -> None:
    campaigns = [
        campaign("c", title="Digest 2026-12-01"),
        campaign("d", title="Digest 2026-11-28 [5e0e96f7]"),
    ]
    assert [b.date for b in rebuild(campaigns, PATTERN, JOB, NOW)] == ["2026-11-28", "2026-12-01"]


# -------------------------------------------------------------------------------------------------------------- merge

ASKED = entry(requested_at=ASKED_AT)
DONE = entry(requested_at=ASKED_AT, sent_at=SENT_AT, emails_sent=4812)
ATTEMPTS = (Attempt("r1", "web1", 812, started_at=ASKED_AT),)
FROM_MAILCHIMP = rebuilt(campaign())


@pytest.mark.parametrize(
    "old",
    [
        batch(State.SENDING, ASKED, attempts=ATTEMPTS),
        batch(State.SENT, DONE, attempts=ATTEMPTS),
        batch(State.SENT, entry(by="by hand", sent_at=SENT_AT)),
        batch(State.SKIPPED, reason="a holiday"),
        batch(State.READY, ASKED),
        batch(State.REFUSED, ASKED, reason="400."),
    ],
    ids=[
        "an open send",
        "a sent date",
        "a date sent by hand",
        "a skipped date",
        "a send that was answered",
        "a send that was refused",
    ],
)
@pytest.mark.parametrize(
    "new", [(), (rebuilt(campaign(status="paused")),), (rebuilt(campaign(status="schedule")),)],
    ids=["nothing", "paused", "scheduled"],
)  # fmt: skip
def test_what_mailchimp_cannot_know_stays_as_long_as_it_shows_nothing_mailed(
    old: Batch, new: tuple[Batch, ...]
) -> None:
    assert merge([old], new) == (old,)


@pytest.mark.parametrize("state", [State.PLANNED, State.READY, State.REFUSED])
def test_what_a_run_finds_again_by_itself_is_left_out(state: State) -> None:
    assert merge([batch(state, entry(), nonce="5e0e96f7")], []) == ()


def test_a_sent_date_keeps_its_times_and_tries_where_mailchimp_says_the_same() -> None:
    old = batch(State.SENT, DONE, attempts=ATTEMPTS)
    assert merge([old], [FROM_MAILCHIMP]) == (old,)


def test_a_sent_date_of_which_mailchimp_knows_another_campaign_is_as_mailchimp_says() -> None:
    old = batch(State.SENT, entry(B, sent_at=SENT_AT))
    (made,) = merge([old], [FROM_MAILCHIMP])
    assert (made.state, made.main and made.main.id) == (State.SENT, A)


@pytest.mark.parametrize("state", [State.SENDING, State.READY, State.REFUSED])
def test_a_date_that_was_mailed_is_sent_and_keeps_what_was_requested(state: State) -> None:
    old = batch(state, ASKED, nonce="5e0e96f7", attempts=ATTEMPTS)
    (made,) = merge([old], [FROM_MAILCHIMP])
    assert made == Batch(
        DAY,
        State.SENT,
        nonce="5e0e96f7",
        campaigns=(
            Entry(
                A,
                KEY,
                web_id=4711,
                by="sendonce",
                requested_at=ASKED_AT,
                sent_at=SENT_AT,
                emails_sent=4812,
            ),
        ),
        attempts=ATTEMPTS,
    )


def test_when_a_run_gave_up_waiting_for_the_mailed_campaign_stays_on_record() -> None:
    old = batch(State.SENDING, entry(requested_at=ASKED_AT, gave_up_at=NOW))
    (made,) = merge([old], [FROM_MAILCHIMP])
    assert [(e.requested_at, e.gave_up_at) for e in made.campaigns] == [(ASKED_AT, NOW)]


def test_a_request_for_another_campaign_than_the_mailed_one_stays_on_record() -> None:
    old = batch(State.SENDING, entry(B, requested_at=ASKED_AT))
    (made,) = merge([old], [FROM_MAILCHIMP])
    assert [(e.id, e.role, e.requested_at) for e in made.campaigns] == [
        (A, "main", None),
        (B, "former", ASKED_AT),
    ]


def test_a_skipped_date_that_was_mailed_all_the_same_is_sent() -> None:
    (made,) = merge([batch(State.SKIPPED, reason="a holiday")], [FROM_MAILCHIMP])
    assert (made.state, made.reason) == (State.SENT, "")


def test_a_merged_ledger_can_be_written_and_is_in_the_order_of_its_dates() -> None:
    old = [batch(State.SENDING, ASKED), batch(State.SKIPPED, date="2026-12-03", reason="a holiday")]
    new = [rebuilt(campaign()), rebuilt(campaign(B, title="Digest 2026-12-01"))]
    merged = merge(old, new)
    assert [b.date for b in merged] == [DAY, "2026-12-01", "2026-12-03"]
    assert empty(JOB, "us19.api.mailchimp.com").rebuilt(merged).batches() == merged


# ------------------------------------------------------------------------------------------------------------ arrival


@pytest.mark.parametrize(
    ("emails", "recipients", "text"),
    [
        (4790, None, "4790 emails"),
        (4790, 4812, "4790 emails to 4812 recipients counted before the send (22 fewer)"),
        (4812, 4812, "4812 emails to 4812 recipients counted before the send"),
        (4815, 4812, "4815 emails to 4812 recipients counted before the send (3 more)"),
        (0, 0, "0 emails to 0 recipients counted before the send"),
    ],
)
def test_emails_are_compared_with_the_recipients_that_were_counted(
    emails: int, recipients: int | None, text: str
) -> None:
    assert compared(emails, recipients, "before the send") == text


def test_both_numbers_are_told_whether_it_is_over_or_not() -> None:
    for status in ("sending", "sent"):
        outcome = arrival(
            [campaign(status=status, emails_sent=7, recipient_count=9)], DAY, KEY, ZoneInfo("UTC")
        )
        assert (outcome.emails_sent, outcome.recipients) == (7, 9)


def arrived(*campaigns: Campaign) -> tuple[Ending, str]:
    """Return what `check` makes of these, in Berlin."""
    outcome = arrival(campaigns, DAY, KEY, ZoneInfo("Europe/Berlin"))
    return outcome.ending, outcome.message


@pytest.mark.parametrize(
    ("campaigns", "ending", "text"),
    [
        ([campaign()], Ending.FOUND_SENT, '2026-11-30: "Digest 2026-11-30" (aaaaaa) is sent, 4812 emails.'),
        (
            [campaign(emails_sent=4790, recipient_count=4812)],
            Ending.FOUND_SENT,
            (
                '2026-11-30: "Digest 2026-11-30" (aaaaaa) is sent, '
                "4790 emails to 4812 recipients counted by Mailchimp (22 fewer)."
            ),
        ),
        (
            [campaign(emails_sent=0, recipient_count=5)],
            Ending.ALARM,
            (
                '2026-11-30: "Digest 2026-11-30" (aaaaaa) is sent, '
                "0 emails to 5 recipients counted by Mailchimp (5 fewer): it was mailed to nobody."
            ),
        ),
        (
            [campaign(status="sending", emails_sent=0, recipient_count=4812)],
            Ending.FOUND_SENT,
            '2026-11-30: "Digest 2026-11-30" (aaaaaa) is sending, 0 emails so far.',
        ),
        (
            [campaign(status="sending"), campaign(B, "save")],
            Ending.FOUND_SENT,
            '2026-11-30: "Digest 2026-11-30" (aaaaaa) is sending.',
        ),
        (
            [campaign(emails_sent=0)],
            Ending.ALARM,
            '2026-11-30: "Digest 2026-11-30" (aaaaaa) is sent, 0 emails: it was mailed to nobody.',
        ),
        (
            [campaign(emails_sent=None)],
            Ending.ALARM,
            '2026-11-30: "Digest 2026-11-30" (aaaaaa) is sent: it was mailed to nobody.',
        ),
        (
            [campaign(status="sending"), campaign(B)],
            Ending.ALARM,
            "2026-11-30: more than one campaign was mailed: bbbbbb (sent), aaaaaa (sending).",
        ),
        ([], Ending.REFUSED, '2026-11-30: not sent: there is no campaign named "Digest 2026-11-30".'),
        (
            [campaign(title="Digest 2026-11-29")],
            Ending.REFUSED,
            '2026-11-30: not sent: there is no campaign named "Digest 2026-11-30".',
        ),
        (
            [campaign(status="save"), campaign(B, "schedule"), campaign("cccccc", "paused")],
            Ending.REFUSED,
            (
                '2026-11-30: not sent: "Digest 2026-11-30" (bbbbbb) is scheduled for 2026-11-30 09:00+01:00; '
                '"Digest 2026-11-30" (aaaaaa) is a draft; "Digest 2026-11-30" (cccccc) is "paused" in Mailchimp.'
            ),
        ),
        (
            [campaign(status="schedule", send_time=None)],
            Ending.REFUSED,
            '2026-11-30: not sent: "Digest 2026-11-30" (aaaaaa) is "schedule" in Mailchimp.',
        ),
    ],
)
def test_only_what_is_sent_or_being_sent_once_has_left(
    campaigns: list[Campaign], ending: Ending, text: str
) -> None:
    assert arrived(*campaigns) == (ending, text)


# --------------------------------------------------------------------------- what was ordered beside the day's campaign

REPAIR = Entry(
    "cccccc",
    f"{KEY} (remaining 1) [00000003]",
    role="remaining 1",
    state=State.SENT,
    nonce="00000003",
    order="root@web1: canceled half-way",
    requested_at=ASKED_AT,
    sent_at=SENT_AT,
    emails_sent=3,
)
REPAIR_TWIN = Entry("cccccd", f"{KEY} (remaining 1) [00000004]", role="remaining 1 twin", sent_at=SENT_AT)
PLANNED = Entry("", "", role="again 1", state=State.PLANNED, nonce="00000005", order="root@web1: wrong link")
ORDERED = (REPAIR, REPAIR_TWIN, PLANNED)
REPAIR_SHOWN = campaign("cccccc", title=REPAIR.title, emails_sent=3)


@pytest.mark.parametrize("status", ["sent", "sending"])
def test_a_repair_that_mailchimp_shows_as_mailed_is_no_finding(status: str) -> None:
    recorded = [batch(State.SENT, entry(), *ORDERED)]
    assert said(recorded, [campaign(), campaign("cccccc", status, REPAIR.title)]) == []


def test_a_repair_whose_first_campaign_is_gone_keeps_its_date_from_being_mailed_anew() -> None:
    assert said([], [REPAIR_SHOWN]) == []
    (found,) = rebuild([REPAIR_SHOWN], PATTERN, JOB, NOW)
    assert [(e.id, e.role, e.state, e.nonce) for e in found.campaigns] == [
        ("cccccc", "remaining 1", State.SENT, "00000003")
    ]
    outcome = settled(Glance(found), DAY)
    assert outcome is not None
    assert outcome.ending is Ending.ALREADY_SENT
    assert "was sent in two parts" in outcome.message


def test_two_repairs_of_one_number_are_both_found() -> None:
    other = replace(REPAIR_SHOWN, id="dddddd", title=f"{KEY} (remaining 1) [00000004]")
    again = replace(REPAIR_SHOWN, id="eeeeee", title=f"{KEY} (again 1)")
    draft = replace(REPAIR_SHOWN, id="ffffff", title=f"{KEY} (again 2)", status="save")
    (found,) = rebuild([campaign(), REPAIR_SHOWN, other, again, draft], PATTERN, JOB, NOW)
    assert [(e.id, e.role) for e in found.campaigns] == [
        ("aaaaaa", "main"), ("cccccc", "remaining 1"), ("dddddd", "remaining 1 twin"), ("eeeeee", "again 1")
    ]  # fmt: skip
    assert merge([], (found,)) == (found,)


@pytest.mark.parametrize(
    ("old", "shown", "own"),
    [
        pytest.param(
            batch(State.SENT, entry(requested_at=ASKED_AT), *ORDERED),
            [campaign()],
            [("aaaaaa", "main")],
            id="sent as on record",
        ),
        pytest.param(
            batch(State.SENDING, entry(requested_at=ASKED_AT), *ORDERED),
            [campaign()],
            [("aaaaaa", "main")],
            id="sent, and not on record as that",
        ),
        pytest.param(
            batch(State.SENT, entry(requested_at=ASKED_AT), *ORDERED),
            [campaign(B)],
            [("bbbbbb", "main"), ("aaaaaa", "former")],
            id="another was sent",
        ),
        pytest.param(
            batch(State.REFUSED, entry(), *ORDERED),
            [campaign(B)],
            [("bbbbbb", "main")],
            id="another was sent, and the recorded one never asked for",
        ),
        pytest.param(
            batch(State.REFUSED, entry(), REPAIR._replace(requested_at=None), PLANNED),
            [campaign(status="canceled")],
            [("aaaaaa", "main")],
            id="canceled",
        ),
        pytest.param(batch(State.REFUSED, entry(), PLANNED), [], [("aaaaaa", "main")], id="gone"),
    ],
)
def test_a_rebuilt_ledger_keeps_every_order_as_it_was(
    old: Batch, shown: list[Campaign], own: list[tuple[str, str]]
) -> None:
    (merged,) = merge([old], rebuild([*shown, REPAIR_SHOWN], PATTERN, JOB, NOW))
    ordered = tuple(e for e in old.campaigns if e.role not in {"main", "former", "twin"})
    assert merged.campaigns[len(own) :][: len(ordered)] == ordered
    assert "cccccc" in {e.id for e in merged.campaigns}
    assert [(e.id, e.role) for e in merged.campaigns[: len(own)]] == own
    # and it is one that can be written, and read again
    written = empty(JOB, "us19.api.mailchimp.com").rebuilt([merged])
    assert parse(written.dump()).batch(DAY) == merged


STOPPED = campaign(status="canceled", emails_sent=1812)


def test_a_mailing_that_was_canceled_and_completed_has_left_and_both_parts_are_named() -> None:
    second = campaign("dddddd", title=f"{KEY} (remaining 2) [00000004]", emails_sent=2000)
    outcome = arrival([STOPPED, second, replace(REPAIR_SHOWN, status="canceled")], DAY, KEY, UTC)
    assert (outcome.ending, outcome.campaign_id, outcome.emails_sent) == (Ending.FOUND_SENT, A, 3815)
    assert outcome.message == (
        f'{DAY}: "{KEY}" (aaaaaa) is canceled, 1812 emails; "{REPAIR.title}" (cccccc) is canceled, 3 emails; '
        f'"{KEY} (remaining 2) [00000004]" (dddddd) is sent, 2000 emails.'
    )
    without_number = arrival([STOPPED, campaign("dddddd", "sending", f"{KEY} (remaining 1)")], DAY, KEY, UTC)
    assert without_number.message.endswith(f'"{KEY} (remaining 1)" (dddddd) is sending.')


def test_a_mailing_whose_repair_was_stopped_too_has_not_left() -> None:
    outcome = arrival([STOPPED, replace(REPAIR_SHOWN, status="canceled")], DAY, KEY, UTC)
    assert outcome.ending is Ending.REFUSED
    assert "1812 emails (send-batch --remaining mails it to the others)" in outcome.message
