"""One run against a world in memory: what is on the disk before each act, what each answer leads to, what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from sendonce.core.batch import Run
from sendonce.core.campaigns import Campaign, Content, No, NotSent
from sendonce.core.errors import (
    ClaimLost,
    CredentialsRejected,
    InvariantBroken,
    NoAnswer,
    Refused,
    Stopped,
)
from sendonce.core.model import Batch, Ending, Entry, Outcome, Pause, Source, State
from support.world import (
    DAY,
    KEY,
    LIST,
    UNCLEAR,
    Crash,
    World,
    after,
    answering,
    before,
    effects,
    meanwhile,
    only_campaign,
    parsed,
    spec_of,
    time_at,
    unclear,
    world_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.world import Fault, Made

CREATED = f"{KEY} [00000001]"
"""What the first run of a world calls the draft that it creates."""
SOURCES = [Source.DRAFT, Source.HTML]
FAILED_READS = [
    pytest.param(before(NoAnswer("503.")), id="no answer"),
    pytest.param(before(Refused("403.")), id="refused"),
    pytest.param(before(CredentialsRejected("401.")), id="key rejected"),
]


def states(world: World) -> list[State]:
    """Every state that the day's record was in on the disk, one for each write."""
    return [parsed(data).batch(DAY).state for data in world.disk.history[1:]]


def on_disk_at_the_first(call: str, world: World, **how: Any) -> Batch:
    """What the disk holds when a run makes this call."""
    found: list[Batch] = []
    world.run(on={call: [meanwhile(lambda: found.append(world.record()))]}, **how)
    (batch,) = found
    return batch


# ------------------------------------------------------------------------------------------------- a send that works


def test_a_draft_is_sent_and_recorded() -> None:
    world = world_of()
    ended = world.run()
    assert (ended.code, ended.ending) == (0, Ending.SENT)
    assert ended.message == 'Sent: "Digest 2026-11-30" (ffffff) for 2026-11-30, 4812 emails.'
    assert world.deliveries() == 1
    batch = world.record()
    assert batch.state is State.SENT
    assert batch.nonce == ""
    # 08:00:00.25, of which Mailchimp's Date header keeps the whole second
    assert batch.campaigns == (
        Entry(
            "ffffff",
            KEY,
            web_id=0xFFFFFF,
            by="sendonce",
            requested_at=datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC),
            sent_at=datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC),
            emails_sent=4812,
            recipients=4812,
        ),
    )


@pytest.mark.parametrize("source", [Source.HTML, Source.REPLICATE])
def test_a_campaign_is_created_under_its_nonce_waited_for_and_sent(source: Source) -> None:
    world = world_of(source)
    ended = world.run()
    assert ended.code == 0
    made = only_campaign(world)
    assert (made.title, made.status, made.deliveries, made.content) == (
        CREATED,
        "sent",
        1,
        Content("<p>Hello</p>"),
    )
    batch = world.record()
    assert (batch.state, batch.nonce) == (State.SENT, "00000001")
    # created at 08:00:00, LISTING is 30 s and a second more for what create_time leaves out
    assert batch.campaigns[0].requested_at == datetime(2026, 11, 30, 8, 0, 31, tzinfo=UTC)


def test_a_draft_is_recorded_then_sending_is_recorded_then_the_claim_is_checked_then_it_is_sent() -> None:
    assert effects(world_of().run()) == [
        "store.save",  # ready
        "store.save",  # sending
        "store.check",
        "mailer.send",
        "store.save",  # sent
        "store.save",  # the attempt
    ]


def test_a_created_campaign_goes_through_intent_id_and_content_before_it_is_sent() -> None:
    world = world_of(Source.HTML)
    assert effects(world.run()) == [
        "store.save",  # intent
        "store.check",
        "mailer.create",
        "store.save",  # id
        "store.check",
        "mailer.write_content",
        "store.save",  # ready
        "store.save",  # sending
        "store.check",
        "mailer.send",
        "store.save",  # sent
        "store.save",  # the attempt
    ]
    assert states(world) == ["planned", "planned", "ready", "sending", "sent", "sent"]


def test_a_draft_that_is_found_is_written_anew_settings_and_content() -> None:
    world = world_of(Source.HTML)
    found = world.account.add()
    assert [name for name in effects(world.run()) if name.startswith("mailer")] == [
        "mailer.write_settings",
        "mailer.write_content",
        "mailer.send",
    ]
    assert (found.spec.settings, found.content.html) == ({"subject_line": "News"}, "<p>Hello</p>")
    assert found.title == KEY


def test_the_intent_is_on_the_disk_before_anything_is_created() -> None:
    batch = on_disk_at_the_first("mailer.create", world_of(Source.HTML))
    assert (batch.state, batch.nonce, batch.campaigns) == (State.PLANNED, "00000001", ())
    assert [a.run for a in batch.attempts] == ["run1"]


def test_the_id_is_on_the_disk_before_the_content_is_written() -> None:
    batch = on_disk_at_the_first("mailer.write_content", world_of(Source.HTML))
    assert (batch.state, [(e.id, e.web_id) for e in batch.campaigns]) == (
        State.PLANNED,
        [("ffffff", 0xFFFFFF)],
    )


@pytest.mark.parametrize("source", SOURCES)
def test_sending_and_the_time_of_the_request_are_on_the_disk_before_the_post(source: Source) -> None:
    world = world_of(source)
    batch = on_disk_at_the_first("mailer.send", world)
    assert batch.state is State.SENDING
    assert batch.main is not None
    assert batch.main.requested_at == time_at(31 if source is Source.HTML else 0).replace(microsecond=0)
    assert batch.main.gave_up_at is None


def test_that_it_was_sent_is_on_the_disk_before_anything_more_is_read() -> None:
    batch = on_disk_at_the_first("mailer.campaign", world_of())
    (entry,) = batch.campaigns
    assert (batch.state, entry.by, entry.sent_at) == (
        State.SENT,
        "sendonce",
        datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("entry", "shown", "recorded"),
    [
        pytest.param(Entry("ffffff", KEY, recipients=70), None, (0xFFFFFF, 4812), id="the read says more"),
        pytest.param(
            Entry("ffffff", KEY, web_id=4711, recipients=70),
            Campaign("ffffff", KEY, "save", "regular", LIST, time_at(-1000)),
            (4711, 70),
            id="the record says more",
        ),
    ],
)
def test_number_and_recipients_on_record_at_the_post_are_those_of_the_read_or_else_what_was_known(
    entry: Entry, shown: Campaign | None, recorded: tuple[int, int]
) -> None:
    world = world_of()
    world.disk.put(Batch(DAY, State.READY, campaigns=(entry,)))
    found: list[Batch] = []
    faults: dict[str, list[Fault | None]] = {
        "mailer.campaign": [answering(shown) if shown else None],
        "mailer.send": [meanwhile(lambda: found.append(world.record()))],
    }
    world.run(on=faults)
    (at_post,) = found[0].campaigns
    assert (at_post.web_id, at_post.recipients) == recorded


@pytest.mark.parametrize(
    ("source", "has_draft", "record", "call"),
    [
        pytest.param(Source.HTML, False, (State.REFUSED, ()), "mailer.create", id="intent"),
        pytest.param(Source.HTML, True, (State.REFUSED, ()), "mailer.write_settings", id="adopted"),
        pytest.param(Source.HTML, True, (State.REFUSED, ("ffffff",)), "mailer.checklist", id="written"),
        pytest.param(Source.DRAFT, True, (State.REFUSED, ("ffffff",)), "mailer.checklist", id="ready"),
        pytest.param(Source.DRAFT, True, (State.READY, ("ffffff",)), "mailer.send", id="sending"),
    ],
)
def test_why_an_earlier_run_refused_leaves_the_record_with_the_next_step(
    source: Source, has_draft: bool, record: tuple[State, tuple[str, ...]], call: str
) -> None:
    world = world_of(source, has_draft=has_draft)
    state, ids = record
    entries = tuple(Entry(id_, KEY) for id_ in ids)
    world.disk.put(Batch(DAY, state, campaigns=entries, reason="Said by an earlier run."))
    assert on_disk_at_the_first(call, world).reason == ""


@pytest.mark.parametrize(
    "on",
    [
        pytest.param({}, id="sent"),
        pytest.param({"mailer.send": [answering(NotSent(No.REFUSED, "400."))]}, id="refused"),
        pytest.param({"mailer.send": [answering(NotSent(No.THROTTLED, "429."))]}, id="temporary"),
    ],
)
def test_an_outcome_names_the_date_the_campaign_and_how_many_it_is_for(on: dict[str, list[Fault]]) -> None:
    outcome = world_of().run(on=on).outcome
    assert outcome is not None
    assert (outcome.date, outcome.campaign_id, outcome.title, outcome.recipients) == (
        DAY,
        "ffffff",
        KEY,
        4812,
    )
    assert outcome.emails_sent == (None if on else 4812)


def test_an_outcome_without_a_campaign_names_the_date() -> None:
    outcome = World().run().outcome
    assert outcome is not None
    assert (outcome.ending, outcome.date, outcome.campaign_id) == (Ending.REFUSED, DAY, "")


def test_an_attempt_says_who_when_and_how_it_ended() -> None:
    world = world_of()
    world.run()
    (attempt,) = world.record().attempts
    assert (attempt.run, attempt.host, attempt.pid, attempt.outcome) == ("run1", "web1", 812, "sent")
    assert attempt.started_at == attempt.ended_at == datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC)
    assert attempt.detail == 'Sent: "Digest 2026-11-30" (ffffff) for 2026-11-30, 4812 emails.'


def test_emails_sent_stays_open_until_a_read_shows_sent() -> None:
    world = world_of()
    world.account.mailing_s = 3600
    ended = world.run()
    assert ended.message == 'Sent: "Digest 2026-11-30" (ffffff) for 2026-11-30.'
    assert world.record().campaigns[0].emails_sent is None


@pytest.mark.parametrize("fault", [*FAILED_READS, pytest.param(answering(None), id="gone")])
def test_a_read_that_fails_after_a_yes_takes_nothing_back(fault: Fault) -> None:
    world = world_of()
    ended = world.run(on={"mailer.campaign": [fault]})
    assert (ended.code, world.record().state) == (0, State.SENT)


def test_a_read_that_still_shows_a_draft_after_a_yes_takes_nothing_back() -> None:
    world = world_of()
    world.account.status_lag_s = 60
    assert (world.run().code, world.record().state) == (0, State.SENT)


def test_a_sent_record_without_a_campaign_is_believed() -> None:
    world = world_of()
    world.disk.data = (
        b'{"version": 1, "job": "digest", "api": "us19.api.mailchimp.com", '
        b'"batches": {"2026-11-30": {"state": "sent", "campaigns": []}}}'
    )
    ended = world.run()
    assert ended.code == 0
    assert ended.outcome == Outcome(Ending.ALREADY_SENT, DAY, "2026-11-30 was already sent.")


@pytest.mark.parametrize("source", SOURCES)
def test_a_second_run_says_already_sent_and_does_nothing_but_read_the_ledger(source: Source) -> None:
    world = world_of(source)
    world.run()
    title = only_campaign(world).title
    again = world.run()
    assert (again.code, again.ending) == (0, Ending.ALREADY_SENT)
    assert again.outcome == Outcome(
        Ending.ALREADY_SENT,
        DAY,
        f'2026-11-30 was already sent: "{title}" (ffffff).',
        campaign_id="ffffff",
        title=title,
        emails_sent=4812,
        recipients=4812,
    )
    assert again.calls == ("store.load",)


def test_a_skipped_date_is_left_alone_on_a_full_disk_too() -> None:
    world = world_of()
    world.disk.put(Batch(DAY, State.SKIPPED, reason="a holiday"))
    world.disk.is_full = True
    ended = world.run()
    assert ended.code == 0
    assert ended.outcome == Outcome(Ending.SKIPPED, DAY, "2026-11-30 is skipped: a holiday.")
    assert ended.calls == ("store.load",)


def test_a_disk_that_cannot_be_written_stops_a_run_before_it_asks_mailchimp_anything() -> None:
    world = world_of()
    world.disk.is_full = True
    ended = world.run()
    assert ended.code == 78
    assert ended.calls == ("store.load", "store.check_writable")


# ----------------------------------------------------------------------------------------- finding what others did


def test_a_campaign_that_a_person_sent_is_recorded_as_sent_by_hand() -> None:
    world = World()
    world.account.add(status="sent")
    ended = world.run()
    assert (ended.code, ended.ending) == (0, Ending.FOUND_SENT)
    assert ended.message == (
        'Mailchimp shows it as sent by hand: "Digest 2026-11-30" (ffffff) for 2026-11-30, 4812 emails.'
    )
    (entry,) = world.record().campaigns
    assert (entry.by, entry.emails_sent, entry.sent_at) == (
        "by hand",
        4812,
        datetime(2026, 11, 30, 8, tzinfo=UTC),
    )


def test_a_date_that_was_refused_and_then_sent_by_hand_is_on_record_as_sent_without_the_reason() -> None:
    world = World()
    world.account.add(status="sent")
    world.disk.put(Batch(DAY, State.REFUSED, reason="Said by an earlier run."))
    world.run()
    assert (world.record().state, world.record().reason) == (State.SENT, "")


def test_a_campaign_that_is_being_mailed_counts_as_sent_and_its_number_stays_open() -> None:
    world = World()
    world.account.mailing_s = 7200
    world.account.add(status="sending")
    assert world.run().ending is Ending.FOUND_SENT
    assert (world.record().state, world.record().campaigns[0].emails_sent) == (State.SENT, None)


def test_a_lost_ledger_costs_nothing_the_campaign_is_found_and_recorded() -> None:
    world = world_of(Source.HTML)
    world.run()
    world.disk.data = None
    ended = world.run()
    assert (ended.code, ended.posts, world.deliveries()) == (0, (), 1)
    assert world.record().campaigns[0].by == "by hand"


def test_a_draft_that_a_reset_forgot_before_any_send_counts_for_nothing_and_may_be_renamed() -> None:
    world = world_of()
    world.run(on={"mailer.checklist": [before(NoAnswer("503."))]})
    assert world.record().state is State.READY
    world.reset()
    world.account.campaigns["ffffff"].title = "Not today's any more"
    world.account.add(KEY)
    ended = world.run()
    assert (ended.code, ended.posts) == (0, ("fffffe",))


def test_a_draft_that_a_reset_forgot_and_a_person_gave_another_audience_counts_for_nothing() -> None:
    world = world_of(Source.HTML, list_id=LIST)
    world.run(on={"mailer.checklist": [before(NoAnswer("503."))]})
    only_campaign(world).list_id = "list2"
    world.reset()
    ended = world.run()
    assert (ended.code, ended.posts) == (0, ("fffffe",))


def test_a_campaign_that_a_reset_forgot_before_any_send_counts_once_a_person_has_mailed_it() -> None:
    world = world_of()
    world.run(on={"mailer.checklist": [before(NoAnswer("503."))]})
    world.reset()
    forgotten = only_campaign(world)
    forgotten.title = "Renamed by a person"
    world.account.mail(forgotten)
    world.account.add(KEY)
    ended = world.run()
    assert (ended.code, ended.ending, ended.posts) == (0, Ending.FOUND_SENT, ())


def test_a_reset_that_forgot_two_campaigns_lets_neither_out_of_sight() -> None:
    world = world_of()
    former = world.account.add("Something else")
    asked = Entry(former.id, KEY, role="former", requested_at=time_at(0))
    world.disk.put(Batch(DAY, State.READY, campaigns=(Entry("ffffff", KEY), asked)))
    world.reset()
    # the first of the two becomes the day's again, then a person mails the other
    world.run(on={"mailer.checklist": [before(NoAnswer("503."))]})
    world.account.mail(former)
    ended = world.run()
    assert (ended.code, ended.ending, ended.posts) == (0, Ending.FOUND_SENT, ())


def test_a_campaign_that_a_reset_forgot_is_recorded_with_what_was_known_of_it() -> None:
    world = world_of()
    world.account.mailing_s = 0
    world.run(on={"mailer.send": [after(Crash())]})
    asked_at = world.record().campaigns[0].requested_at
    only_campaign(world).title = "Renamed by a person"
    world.reset()
    ended = world.run()
    assert (ended.code, ended.posts) == (0, ())
    (entry,) = world.record().campaigns
    assert (entry.by, entry.requested_at, entry.title) == ("sendonce", asked_at, "Renamed by a person")


def test_two_that_were_mailed_are_both_recorded_and_alarm() -> None:
    world = World()
    world.account.add(status="sent")
    world.account.add(CREATED, status="sent")
    ended = world.run()
    assert (ended.code, ended.ending) == (1, Ending.ALARM)
    assert "More than one campaign of 2026-11-30 was mailed: fffffe, ffffff." in ended.message
    batch = world.record()
    assert batch.state is State.SENT
    assert [(e.id, e.role) for e in batch.campaigns] == [("fffffe", "main"), ("ffffff", "twin")]
    assert batch.attempts[-1].outcome == "alarm"
    assert world.run().code == 0


def test_of_two_that_were_mailed_the_recorded_one_stays_the_main_one() -> None:
    world = World()
    mine = world.account.add()
    world.disk.put(Batch(DAY, State.READY, campaigns=(Entry(mine.id, KEY),)))
    mine.status = "sent"
    world.account.add(CREATED, status="sent")
    world.run()
    assert [(e.id, e.role) for e in world.record().campaigns] == [("ffffff", "main"), ("fffffe", "twin")]


def test_a_former_campaign_that_was_mailed_too_is_a_twin_and_one_that_was_not_stays_a_former_one() -> None:
    world = world_of()
    twin, left = world.account.add("A former one"), world.account.add("Another former one")
    asked: Any = {"role": "former", "requested_at": time_at(-60)}
    entries = (Entry("ffffff", KEY), Entry(twin.id, KEY, **asked), Entry(left.id, KEY, **asked))
    world.disk.put(Batch(DAY, State.READY, campaigns=entries))
    world.account.mail(world.account.campaigns["ffffff"])
    world.account.mail(twin)
    assert world.run().ending is Ending.ALARM
    assert [(e.id, e.role) for e in world.record().campaigns] == [
        ("ffffff", "main"),
        (twin.id, "twin"),
        (left.id, "former"),
    ]


def test_a_campaign_mailed_to_nobody_alarms_once_and_is_not_sent_again() -> None:
    world = world_of()
    world.account.audience = 0
    ended = world.run()
    assert (ended.code, ended.ending) == (1, Ending.ALARM)
    assert "Campaign ffffff was mailed to nobody (0 emails sent)." in ended.message
    assert (world.record().state, world.record().campaigns[0].emails_sent) == (State.SENT, 0)
    assert world.run().code == 0
    assert world.deliveries() == 1


@pytest.mark.parametrize("status", ["paused", "canceled", "archived", "no such word"])
def test_a_status_for_a_human_refuses_and_sends_nothing(status: str) -> None:
    world = World()
    world.account.add(status=status)
    ended = world.run()
    assert (ended.code, ended.posts) == (1, ())
    assert ended.message.startswith(f'Campaign ffffff is "{status}" in Mailchimp.')
    assert "Nothing was sent by this run." in ended.message
    assert world.record().state is State.REFUSED
    assert world.record().reason.startswith(f'Campaign ffffff is "{status}" in Mailchimp.')


def test_a_refused_date_is_tried_again() -> None:
    world = World()
    assert world.run().code == 1
    assert world.record().state is State.REFUSED
    world.account.add()
    assert (world.run().code, world.record().state, world.record().reason) == (0, State.SENT, "")


# --------------------------------------------------------------------------------------------------------- schedules


def test_a_schedule_on_the_date_is_left_alone_and_read_again_until_it_is_mailed() -> None:
    world = World(zone=ZoneInfo("Europe/Berlin"))
    made = world.account.add()
    world.account.schedule(made, 3600)
    ended = world.run()
    assert (ended.code, ended.ending) == (0, Ending.SCHEDULED)
    # 08:00:00.25 UTC and an hour is 10:00:00 in Berlin
    assert ended.message == (
        '"Digest 2026-11-30" (ffffff) is scheduled in Mailchimp for 2026-11-30 10:00:00 CET. This run sent nothing.'
    )
    assert ended.outcome is not None
    assert (ended.outcome.campaign_id, ended.outcome.title) == ("ffffff", KEY)
    batch = world.record()
    assert (batch.state, batch.campaigns[0].scheduled_for) == (
        State.PLANNED,
        datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC),
    )
    world.pass_time(3600)
    again = world.run()
    assert (again.ending, again.posts, world.deliveries()) == (Ending.FOUND_SENT, (), 1)
    assert world.record().campaigns[0].by == "by hand"


def test_a_schedule_for_another_date_is_for_a_human() -> None:
    world = World()
    world.account.schedule(world.account.add(), 24 * 3600)
    ended = world.run()
    assert (ended.code, ended.ending) == (1, Ending.SCHEDULED_ELSEWHEN)
    assert ended.message.endswith("That is not 2026-11-30: mend the schedule in Mailchimp.")
    assert world.record().state is State.PLANNED


def test_a_schedule_without_a_time_is_for_a_human() -> None:
    world = World()
    world.account.add(status="schedule")
    ended = world.run()
    assert ended.ending is Ending.SCHEDULED_ELSEWHEN
    assert "is scheduled in Mailchimp for an unknown time." in ended.message


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_unscheduled_again_is_sent_by_the_next_run(source: Source) -> None:
    world = World(source)
    made = world.account.add()
    world.account.schedule(made, 3600)
    assert world.run().code == 0
    world.account.unschedule(made)
    assert (world.run().ending, world.deliveries()) == (Ending.SENT, 1)


def test_a_schedule_leaves_a_ready_batch_ready() -> None:
    world = world_of()
    world.account.not_ready = ("No subject",)
    world.run()
    world.disk.put(world.record()._replace(state=State.READY))
    world.account.schedule(only_campaign(world), 3600)
    world.run()
    assert world.record().state is State.READY


def test_a_schedule_never_takes_a_batch_out_of_sending() -> None:
    world = world_of()
    world.run(on={"mailer.send": [before(Crash())]})
    world.account.schedule(only_campaign(world), 3600)
    ended = world.run()
    assert (ended.code, world.record().state) == (0, State.SENDING)
    assert world.record().campaigns[0].requested_at is not None


def test_another_campaign_that_is_scheduled_leaves_the_recorded_id_in_sending() -> None:
    world = world_of()
    world.run(on={"mailer.send": [before(Crash())]})
    world.account.schedule(world.account.add(CREATED), 3600)
    ended = world.run()
    assert ended.code == 0
    assert [(e.id, e.role) for e in world.record().campaigns] == [("ffffff", "main")]
    assert "(fffffe) is scheduled" in ended.message


def test_another_campaign_that_is_scheduled_takes_the_place_of_the_recorded_draft() -> None:
    world = world_of()
    world.account.ready_from_s = 10_000
    world.run()
    other = world.account.add(CREATED)
    world.account.schedule(other, 3600)
    assert world.run().ending is Ending.SCHEDULED
    assert [(e.id, e.role) for e in world.record().campaigns] == [(other.id, "main")]


# ---------------------------------------------------------------------------------------------- a clear no to the POST

NOES = [
    pytest.param(No.UNREACHABLE, 75, State.READY, id="unreachable"),
    pytest.param(No.THROTTLED, 75, State.READY, id="throttled"),
    pytest.param(No.RECIPIENTS_NOT_READY, 75, State.READY, id="recipients not ready"),
    pytest.param(No.CERTIFICATE, 78, State.READY, id="certificate"),
    pytest.param(No.CREDENTIALS, 78, State.READY, id="credentials"),
    pytest.param(No.REFUSED, 1, State.REFUSED, id="refused"),
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("why", "code", "state"), NOES)
def test_a_clear_no_ends_the_run_as_the_table_says_and_the_next_run_sends(
    why: No, code: int, state: State, source: Source
) -> None:
    world = world_of(source)
    ended = world.run(on={"mailer.send": [answering(NotSent(why, "Mailchimp said no."))]})
    assert (ended.code, world.deliveries()) == (code, 0)
    assert "Mailchimp said no." in ended.message
    batch = world.record()
    assert batch.state is state
    assert batch.campaigns[0].requested_at is not None
    assert (world.run().code, world.deliveries()) == (0, 1)


def test_a_rejected_key_at_the_send_leaves_an_attempt_that_says_so() -> None:
    world = world_of()
    ended = world.run(on={"mailer.send": [answering(NotSent(No.CREDENTIALS, "401: API key disabled."))]})
    assert isinstance(ended.error, CredentialsRejected)
    (attempt,) = world.record().attempts
    assert (attempt.outcome, attempt.detail) == (
        "unusable",
        "Campaign ffffff was not sent: 401: API key disabled.",
    )


ALL_NOES = pytest.mark.parametrize("why", list(No), ids=lambda why: why.value)


@ALL_NOES
def test_after_a_no_a_read_that_shows_it_mailed_counts_as_sent(why: No) -> None:
    world = world_of()
    ended = world.run(on={"mailer.send": [answering(NotSent(why, "No."), acts=True)]})
    assert (ended.code, ended.ending, world.deliveries()) == (0, Ending.FOUND_SENT, 1)
    assert (world.record().state, world.record().campaigns[0].by) == (State.SENT, "sendonce")


@ALL_NOES
@pytest.mark.parametrize("fault", FAILED_READS)
def test_after_a_no_a_read_that_fails_leaves_the_batch_in_sending(why: No, fault: Fault) -> None:
    world = world_of()
    ended = world.run(on={"mailer.send": [answering(NotSent(why, "No."))], "mailer.campaign": [fault]})
    assert (ended.code, world.record().state) == (75, State.SENDING)
    assert ended.message.startswith(
        "The send of campaign ffffff was answered with no (No.), and the campaign could not be read afterwards ("
    )
    # the next run waits as after a run that died: TIMEOUT and SETTLE, 310 s
    assert world.run().code == 75
    world.pass_time(311)
    assert (world.run().code, world.deliveries()) == (0, 1)


@ALL_NOES
def test_after_a_no_a_campaign_that_is_gone_is_for_a_human_and_stays_in_sending(why: No) -> None:
    world = world_of()
    ended = world.run(
        on={"mailer.send": [answering(NotSent(why, "No."))], "mailer.campaign": [answering(None)]}
    )
    assert (ended.code, world.record().state) == (1, State.SENDING)
    assert ended.message.startswith(
        "Campaign ffffff is gone from Mailchimp (404). No. Whether it was sent for 2026-11-30 is not known"
    )


@ALL_NOES
def test_after_a_no_a_schedule_is_left_alone_and_the_batch_stays_in_sending(why: No) -> None:
    world = world_of()

    def scheduled() -> None:
        world.account.schedule(only_campaign(world), 3600)

    ended = world.run(
        on={"mailer.send": [answering(NotSent(why, "No."))], "mailer.campaign": [meanwhile(scheduled)]}
    )
    assert (ended.code, ended.ending, world.record().state) == (0, Ending.SCHEDULED, State.SENDING)
    assert "Whether this run's own send took effect is not known." in ended.message
    world.pass_time(3600)
    assert (world.run().code, world.deliveries()) == (0, 1)


def test_after_a_no_a_paused_campaign_is_for_a_human_and_stays_in_sending() -> None:
    world = world_of()

    def pause() -> None:
        only_campaign(world).status = "paused"

    ended = world.run(
        on={"mailer.send": [answering(NotSent(No.REFUSED, "No."))], "mailer.campaign": [meanwhile(pause)]}
    )
    assert (ended.code, world.record().state) == (1, State.SENDING)
    assert ended.message.startswith(
        'Campaign ffffff is "paused" in Mailchimp. Whether it was sent for 2026-11-30 is not known'
    )


# --------------------------------------------------------------------------------------------- an answer that is unclear


def test_an_unclear_send_that_took_effect_is_found_out_in_the_same_run() -> None:
    world = world_of()
    ended = world.run(on={"mailer.send": [unclear(acts=True)]})
    assert (ended.code, ended.ending, ended.posts, world.deliveries()) == (
        0,
        Ending.FOUND_SENT,
        ("ffffff",),
        1,
    )
    assert ended.message == (
        'Mailchimp shows it as sent: "Digest 2026-11-30" (ffffff) for 2026-11-30, 4812 emails.'
    )
    (entry,) = world.record().campaigns
    assert (world.record().state, entry.by, entry.emails_sent) == (State.SENT, "sendonce", 4812)


def test_an_unclear_send_is_read_until_it_shows() -> None:
    world = world_of()
    world.account.status_lag_s = 100
    ended = world.run(on={"mailer.send": [unclear(acts=True)]})
    assert (ended.code, ended.ending) == (0, Ending.FOUND_SENT)
    # pauses of 0.5, 1, 2, 4 and from then on 8 s: the first read after 100 s comes at 7.5 + 12 x 8
    assert world.now_s == 103.5


def test_an_unclear_send_that_never_shows_ends_the_run_after_settle() -> None:
    world = world_of()
    ended = world.run(on={"mailer.send": [unclear(acts=False)]})
    assert (ended.code, world.record().state) == (75, State.SENDING)
    assert ended.message == (
        "The send of campaign ffffff was requested and is not confirmed: The connection was reset. "
        "Mailchimp still shows it as not sent. Its outcome is not known yet; "
        "the next run reads it again before anything else. Run again, that is safe."
    )
    # until 08:03:01 by Mailchimp's Date: SETTLE, and a second for what Date leaves out. The last read but one comes
    # at 7.5 + 21 x 8 = 175.5 s, when it is 08:02:55.75 and Date says 55: six seconds are left
    assert world.now_s == 181.5


def test_that_a_run_gave_up_waiting_is_on_the_disk_before_it_reads() -> None:
    world = world_of()
    found: list[Batch] = []
    world.run(
        on={
            "mailer.send": [unclear(acts=False)],
            "mailer.campaign": [meanwhile(lambda: found.append(world.record()))],
        }
    )
    (entry,) = found[0].campaigns
    assert entry.gave_up_at == datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC)


def test_the_run_after_an_unclear_one_sends_the_same_id_once_it_is_settled() -> None:
    world = world_of(Source.HTML)
    world.run(on={"mailer.send": [unclear(acts=False)]})
    world.account.add(CREATED, made_at_s=-1000)
    ended = world.run()
    assert (ended.code, ended.posts, world.deliveries()) == (0, ("ffffff",), 1)
    # nothing but the send is written to a campaign in `sending`
    assert [name for name in effects(ended) if name.startswith("mailer")] == ["mailer.send"]


def test_a_second_request_is_recorded_anew_and_clears_the_giving_up() -> None:
    world = world_of()
    world.run(on={"mailer.send": [unclear(acts=False)]})
    batch = on_disk_at_the_first("mailer.send", world)
    (entry,) = batch.campaigns
    assert (entry.requested_at, entry.gave_up_at) == (datetime(2026, 11, 30, 8, 3, 1, tzinfo=UTC), None)


def test_the_reads_of_an_unclear_send_go_on_up_to_the_very_end_of_settle() -> None:
    world = world_of()
    world.settle_s = 7
    world.run(on={"mailer.send": [unclear(acts=False)]})
    # until 08:00:08 by Mailchimp's Date; at 0.5 + 1 + 2 + 4 = 7.5 s it says 07, and one second is left
    assert world.now_s == 8.5


@pytest.mark.parametrize(
    ("fault", "said"),
    [(before(NoAnswer("503.")), "503."), (answering(None), "It cannot be found (404).")],
    ids=["no answer", "gone"],
)
def test_an_unclear_send_ends_with_what_the_last_read_came_to(fault: Fault, said: str) -> None:
    ended = world_of().run(on={"mailer.send": [unclear(acts=False)], "mailer.campaign": [fault] * 100})
    assert f"The connection was reset. {said} Its outcome is not known yet" in ended.message


def test_an_unclear_send_whose_campaign_is_scheduled_for_the_date_is_left_to_mailchimp() -> None:
    world = world_of()

    def schedule() -> None:
        world.account.schedule(only_campaign(world), 3600)

    ended = world.run(on={"mailer.send": [unclear(acts=False)], "mailer.campaign": [meanwhile(schedule)]})
    assert (ended.code, ended.ending, world.record().state) == (0, Ending.SCHEDULED, State.SENDING)


def test_no_answer_after_the_post_never_ends_with_nothing_was_sent() -> None:
    calls = world_of().run().calls
    after_the_post = calls.index("mailer.now", calls.index("mailer.send")) + 1
    world = world_of()
    ended = world.run(at={after_the_post: before(NoAnswer("No Date header."))})
    assert (ended.code, ended.message) == (75, "No Date header. Run again, that is safe.")
    assert (world.run().code, world.deliveries()) == (0, 1)


@pytest.mark.parametrize(("seconds", "code"), [(309, 75), (310, 0)])
def test_the_run_after_one_that_died_at_its_post_waits_for_timeout_and_settle(
    seconds: float, code: int
) -> None:
    world = world_of()
    world.run(on={"mailer.send": [before(Crash())]})
    world.pass_time(seconds)
    ended = world.run()
    assert (ended.code, len(ended.posts), world.deliveries()) == (code, code == 0, code == 0)


def test_while_a_send_is_open_the_message_says_when_it_would_be_repeated() -> None:
    world = world_of(zone=ZoneInfo("Asia/Kolkata"))
    world.run(on={"mailer.send": [before(Crash())]})
    assert world.run().message == (
        "A send of campaign ffffff was requested earlier and its outcome is not known yet; Mailchimp shows it as not sent. "
        "If it still does after 2026-11-30 13:35:10 IST, the next run sends this same campaign. "
        "Run again, that is safe."
    )


@pytest.mark.parametrize("fault", [*FAILED_READS, pytest.param(answering(None), id="gone")])
def test_reads_that_fail_while_a_send_is_unclear_never_end_otherwise_than_75(fault: Fault) -> None:
    world = world_of()
    ended = world.run(on={"mailer.send": [unclear(acts=False)], "mailer.campaign": [fault] * 100})
    assert (ended.code, world.record().state) == (75, State.SENDING)
    assert ended.posts == ("ffffff",)


def test_a_read_that_fails_while_a_send_is_unclear_is_followed_by_others() -> None:
    world = world_of()
    faults = [before(NoAnswer("503.")), answering(None)]
    ended = world.run(on={"mailer.send": [unclear(acts=True)], "mailer.campaign": faults})
    assert (ended.code, ended.ending) == (0, Ending.FOUND_SENT)


@pytest.mark.parametrize(("status", "code"), [("schedule", 1), ("paused", 1), ("no such word", 1)])
def test_an_unclear_send_whose_campaign_is_past_save_otherwise_stays_in_sending(
    status: str, code: int
) -> None:
    world = world_of()

    def change() -> None:
        only_campaign(world).status = status

    ended = world.run(on={"mailer.send": [unclear(acts=False)], "mailer.campaign": [meanwhile(change)]})
    assert (ended.code, world.record().state) == (code, State.SENDING)
    assert "not known" in ended.message


def test_a_late_send_and_its_repetition_mail_once() -> None:
    world = world_of()

    def later(effect: Callable[[], object]) -> object:
        world.account.later.append((world.now_s + 1000, effect))
        return UNCLEAR

    assert world.run(on={"mailer.send": [later]}).code == 75
    assert world.run().code == 0
    world.pass_time(2000)
    assert (world.run().code, world.deliveries()) == (0, 1)


# --------------------------------------------------------------------------- creating, writing, and what comes back


@pytest.mark.parametrize(
    "fault", [before(NoAnswer("504.")), after(NoAnswer("504."))], ids=["not created", "created"]
)
def test_a_create_without_an_answer_ends_the_run_and_the_next_one_looks_first(fault: Fault) -> None:
    world = world_of(Source.HTML)
    ended = world.run(on={"mailer.create": [fault]})
    assert (ended.code, ended.message[:4]) == (75, "504.")
    assert (world.record().state, world.record().nonce, world.record().campaigns) == (
        State.PLANNED,
        "00000001",
        (),
    )
    assert (world.run().code, world.deliveries()) == (0, 1)
    assert only_campaign(world).title == CREATED


def test_a_created_draft_that_no_listing_shows_yet_gets_a_twin_and_the_earlier_one_is_sent() -> None:
    world = world_of(Source.HTML)
    world.account.listing_lag_s = 29
    world.run(on={"mailer.create": [after(NoAnswer("504."))]})
    world.pass_time(5)
    ended = world.run()
    assert (ended.code, ended.posts, world.deliveries()) == (0, ("ffffff",), 1)
    assert [m.status for m in world.account.campaigns.values()] == ["sent", "save"]
    assert [(e.id, e.role) for e in world.record().campaigns] == [("ffffff", "main")]
    assert ended.warnings == (
        'Another draft of 2026-11-30 exists: "Digest 2026-11-30 [00000001]" (fffffe); it is left alone.',
    )


def test_a_run_that_finds_the_date_sent_names_the_draft_that_was_made_in_vain() -> None:
    world = world_of(Source.HTML)
    world.run(on={"mailer.send": [before(NoAnswer("503."))]})
    (ours,) = world.account.campaigns.values()
    world.account.mail(world.account.add(KEY))
    ended = world.run()
    assert (ended.code, ended.ending, ended.posts) == (0, Ending.FOUND_SENT, ())
    assert ended.warnings == (
        f'Another draft of 2026-11-30 exists: "{CREATED}" ({ours.id}); it is left alone.',
    )


def test_a_release_by_hand_is_named_once_where_the_day_has_a_draft_of_its_own() -> None:
    world = world_of(Source.HTML)
    world.run(on={"mailer.checklist": [before(NoAnswer("503."))]})
    twin = world.account.add(KEY)
    ended = world.run()
    assert (ended.code, ended.posts) == (0, ("ffffff",))
    assert ended.warnings == (f'Another draft of 2026-11-30 exists: "{KEY}" ({twin.id}); it is left alone.',)


def test_a_draft_source_has_nothing_to_say_of_drafts_that_are_called_otherwise() -> None:
    world = world_of()
    world.account.add(CREATED)
    ended = world.run()
    assert (ended.code, ended.posts, ended.warnings) == (0, ("ffffff",), ())


@pytest.mark.parametrize("call", ["mailer.create", "mailer.write_settings", "mailer.write_content"])
@pytest.mark.parametrize(
    ("error", "code", "state"),
    [
        (NoAnswer("504."), 75, State.PLANNED),
        (Refused("400: no."), 1, State.REFUSED),
        (CredentialsRejected("401: no."), 78, State.PLANNED),
    ],
)
def test_an_answer_to_a_write_ends_the_run_as_the_table_says(
    call: str, error: Exception, code: int, state: State
) -> None:
    world = world_of(Source.HTML)
    if call == "mailer.write_settings":
        world.account.add()
    ended = world.run(on={call: [before(error)]})
    assert (ended.code, world.record().state, ended.posts) == (code, state, ())
    assert world.record().attempts[-1].outcome == {75: "temporary", 1: "refused", 78: "unusable"}[code]
    assert (world.run().code, world.deliveries()) == (0, 1)


def test_a_draft_that_vanishes_after_its_creation_ends_the_run_and_is_created_by_the_next() -> None:
    world = world_of(Source.HTML)

    def vanish() -> None:
        world.account.campaigns.clear()

    ended = world.run(on={"mailer.campaign": [meanwhile(vanish)]})
    assert (ended.code, effects(ended).count("mailer.create")) == (75, 1)
    assert "not in Mailchimp any more" in ended.message
    assert (world.run().code, world.deliveries()) == (0, 1)


def test_a_title_that_mailchimp_does_not_keep_as_written_is_refused_for_good() -> None:
    world = world_of(Source.HTML)
    world.account.keeps_title_as = lambda title: title.replace("Digest", "digest")
    ended = world.run()
    assert (ended.code, world.record().state) == (1, State.REFUSED)
    assert ended.message.startswith(
        'Campaign ffffff was created as "Digest 2026-11-30 [00000001]" and reads "digest 2026-11-30 [00000001]": '
        "it could not be found again by its name. Nothing was sent by this run."
    )
    assert [(e.id, e.title) for e in world.record().campaigns] == [("ffffff", CREATED)]
    again = world.run()
    assert (again.code, effects(again).count("mailer.create")) == (1, 0)


@pytest.mark.parametrize(
    "shown",
    [Content("<p>Hallo</p>"), Content(""), Content("<p>Hello</p> <p>and more</p>")],
    ids=["other", "none", "more"],
)
def test_html_that_does_not_read_back_as_written_is_refused(shown: Content) -> None:
    world = world_of(Source.HTML)
    world.account.shows_content_as = lambda _: shown
    ended = world.run()
    assert (ended.code, world.record().state, ended.posts) == (1, State.REFUSED, ())
    assert "The html content of campaign ffffff does not read back as it was written." in ended.message


def test_plain_text_that_does_not_read_back_as_written_is_refused() -> None:
    world = world_of(Source.REPLICATE)
    world.spec = replace(world.spec, type="plaintext", content=Content(plain_text="Hello"))
    world.account.shows_content_as = lambda _: Content("", "Hallo")
    assert "The plain_text content of campaign ffffff" in world.run().message


@pytest.mark.parametrize(
    ("wrote", "reads"),
    [
        ("<p>one\ntwo</p>\n", "\n<p>one\r\ntwo</p>"),
        ("<p>one\r\ntwo</p>\r\n", "<p>one\ntwo</p>"),
    ],
    ids=["line feeds", "as Windows writes them"],
)
def test_line_ends_and_outer_white_space_are_no_difference(wrote: str, reads: str) -> None:
    world = world_of(Source.HTML)
    world.spec = replace(world.spec, content=Content(wrote))
    world.account.shows_content_as = lambda _: Content(reads, "made by Mailchimp")
    assert world.run().code == 0


def test_settings_that_do_not_read_back_as_written_are_refused() -> None:
    world = world_of(Source.HTML)
    world.account.show_settings_with = {"subject_line": "Newz"}
    ended = world.run()
    assert (ended.code, world.record().state, ended.posts) == (1, State.REFUSED, ())
    assert "does not read back as it was written (settings.subject_line)" in ended.message


def test_a_file_that_is_missing_refuses_before_anything_is_created() -> None:
    world = world_of(Source.HTML)
    ended = world.run(on={"source.spec": [before(Refused("The HTML file is empty."))]})
    assert (ended.code, world.account.campaigns) == (1, {})
    assert ended.message.startswith("The HTML file is empty. Nothing was sent by this run.")
    assert (world.record().state, world.record().nonce) == (State.REFUSED, "00000001")


def test_the_days_file_is_read_once_in_a_run() -> None:
    assert world_of(Source.HTML).run().calls.count("source.spec") == 1


def test_a_draft_that_an_earlier_run_left_gets_todays_content() -> None:
    world = world_of(Source.HTML)
    world.run(on={"mailer.send": [answering(NotSent(No.THROTTLED, "429."))]})
    world.spec = replace(spec_of(subject_line="Corrected"), content=Content("<p>Corrected</p>"))
    assert world.run().code == 0
    made = only_campaign(world)
    assert (made.content.html, made.spec.settings["subject_line"]) == ("<p>Corrected</p>", "Corrected")


def test_a_created_draft_is_looked_at_again_when_a_listing_came_out_too_early() -> None:
    world = world_of(Source.HTML)
    old = world.account.add(made_at_s=-100)
    early = [None, lambda effect: replace(effect(), at=time_at(-90))]
    ended = world.run(on={"mailer.listing": early})
    assert (ended.code, ended.posts) == (0, (old.id,))
    assert ended.calls.count("mailer.listing") == 3
    # no tight loop: a second passes between the two looks
    assert world.now_s == 1.0


# ------------------------------------------------------------------------------------------------- reads that fail

READS = ["mailer.listing", "mailer.checklist", "mailer.content", "mailer.now"]


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize(
    ("error", "code", "outcome"),
    [
        (NoAnswer("503."), 75, "temporary"),
        (Refused("403: no."), 1, "refused"),
        (CredentialsRejected("401: no."), 78, "unusable"),
    ],
)
def test_a_read_that_fails_before_the_post_sends_nothing(
    call: str, error: Exception, code: int, outcome: str
) -> None:
    world = world_of(Source.HTML)
    ended = world.run(on={call: [before(error)]})
    assert (ended.code, ended.posts) == (code, ())
    assert world.record().attempts[-1].outcome == outcome
    assert (world.run().code, world.deliveries()) == (0, 1)


def test_no_answer_before_the_post_ends_with_nothing_was_sent() -> None:
    ended = world_of().run(on={"mailer.checklist": [before(NoAnswer("503."))]})
    assert (ended.code, ended.message) == (
        75,
        "503. Nothing was sent by this run. Run again, that is safe.",
    )


def test_a_recorded_campaign_that_cannot_be_read_sends_nothing() -> None:
    world = world_of()
    world.account.ready_from_s = 10_000
    world.run()
    assert world.record().state is State.READY
    world.account.ready_from_s = 0
    ended = world.run(on={"mailer.campaign": [before(NoAnswer("503."))]})
    assert (ended.code, ended.posts) == (75, ())


def test_a_fault_of_the_settings_is_raised_even_where_it_cannot_be_recorded() -> None:
    world = world_of()

    def fill_up() -> None:
        world.disk.is_full = True

    def reject(_: Callable[[], object]) -> object:
        fill_up()
        raise CredentialsRejected("401: no.")

    ended = world.run(on={"mailer.listing": [reject]})
    assert isinstance(ended.error, CredentialsRejected)
    assert world.record().state is State.NONE


def test_a_bug_is_not_caught_and_recorded_as_something_else() -> None:
    world = world_of()
    with pytest.raises(InvariantBroken, match="boom"):
        world.run(on={"mailer.listing": [before(InvariantBroken("boom"))]})


# ------------------------------------------------------------------------------------------ recipients not ready


def test_recipients_that_become_ready_within_two_minutes_are_waited_for() -> None:
    world = world_of()
    world.account.ready_from_s = 118
    ended = world.run()
    assert (ended.code, ended.posts) == (0, ("ffffff",))
    # asked every 5 s
    assert world.now_s == 120


def test_recipients_that_are_not_ready_after_two_minutes_end_the_run() -> None:
    world = world_of()
    world.account.ready_from_s = 121
    ended = world.run()
    assert (ended.code, ended.posts, world.record().state) == (75, (), State.READY)
    assert ended.message == (
        "Campaign ffffff was not sent, Mailchimp is not done with its recipients: Recipients not ready "
        "Run again, that is safe."
    )
    assert world.now_s == 120


@pytest.mark.parametrize(("made_at_s", "code"), [(-1679.0, 75), (-1680.0, 1)])
@pytest.mark.parametrize("says", ["checklist", "send"])
def test_recipients_of_a_draft_that_is_half_an_hour_old_are_for_a_human(
    made_at_s: float, code: int, says: str
) -> None:
    # both ways end at 120 s, and half an hour is 1800 s
    world = World()
    world.account.add(made_at_s=made_at_s)
    if says == "checklist":
        world.account.ready_from_s = 10_000
        ended = world.run()
    else:
        world.pass_time(120)
        ended = world.run(
            on={"mailer.send": [answering(NotSent(No.RECIPIENTS_NOT_READY, "recipients not ready"))]}
        )
    assert (ended.code, world.record().state) == (code, State.READY)
    assert ended.outcome is not None
    assert ended.outcome.campaign_id == "ffffff"
    world.account.ready_from_s = 0
    assert (world.run().code, world.deliveries()) == (0, 1)


def test_a_draft_without_create_time_keeps_being_waited_for() -> None:
    world = World()
    world.account.add(made_at_s=-1_000_000, is_undated=True)
    world.account.ready_from_s = 10_000
    assert world.run().code == 75


def test_any_other_item_of_the_checklist_refuses_at_once() -> None:
    world = world_of()
    world.account.not_ready = ("Recipients not ready", "Subject is missing")
    ended = world.run()
    assert (ended.code, ended.posts, world.record().state, world.now_s) == (1, (), State.REFUSED, 0.0)
    assert ended.message.startswith(
        "Mailchimp's send checklist does not call campaign ffffff ready: Recipients not ready; Subject is missing "
        "Nothing was sent by this run."
    )


def test_a_checklist_that_gives_no_reason_refuses() -> None:
    from sendonce.core.campaigns import Checklist

    ended = world_of().run(on={"mailer.checklist": [answering(Checklist(is_ready=False))]})
    assert ended.code == 1
    assert "ready: no reason given" in ended.message


def test_a_checklist_that_says_no_to_a_send_that_is_open_leaves_it_open() -> None:
    world = world_of()
    world.run(on={"mailer.send": [before(Crash())]})
    world.pass_time(310)
    world.account.not_ready = ("Subject is missing",)
    ended = world.run()
    assert (ended.code, ended.posts, world.record().state) == (1, (), State.SENDING)
    assert "whether it left is not known; this run sent nothing." in ended.message


# ----------------------------------------------------------------------------------- the 404 rules and lost titles


def test_a_recorded_draft_that_was_deleted_is_forgotten_and_another_is_taken() -> None:
    world = world_of()
    world.account.ready_from_s = 10_000
    world.run()
    world.account.campaigns.clear()
    other = world.account.add()
    world.account.ready_from_s = 0
    ended = world.run()
    assert (ended.code, ended.posts) == (0, (other.id,))
    assert [e.id for e in world.record().campaigns] == [other.id]


def test_a_recorded_draft_that_is_gone_is_not_taken_from_a_listing_that_still_shows_it() -> None:
    world = world_of()
    world.disk.put(Batch(DAY, State.READY, campaigns=(Entry("ffffff", KEY),)))
    ended = world.run(on={"mailer.campaign": [answering(None)]})
    assert (ended.code, ended.posts, world.record().campaigns) == (1, (), ())


def test_a_deleted_draft_whose_send_was_requested_is_never_replaced() -> None:
    world = world_of(Source.HTML)
    world.run(on={"mailer.send": [before(Crash())]})
    world.account.campaigns.clear()
    ended = world.run()
    assert (ended.code, world.record().state, world.account.campaigns) == (1, State.SENDING, {})
    assert "whether it left is not known" in ended.message


@pytest.mark.parametrize("source", SOURCES)
def test_a_recorded_draft_that_lost_its_title_is_refused_and_not_replaced(source: Source) -> None:
    world = world_of(source)
    world.run(on={"mailer.send": [answering(NotSent(No.THROTTLED, "429."))]})
    only_campaign(world).title = "Not today"
    world.account.add()
    ended = world.run()
    assert (ended.code, ended.posts, world.deliveries()) == (1, (), 0)
    assert 'is named "Not today" now' in ended.message


# ----------------------------------------------------------------------- campaigns that were asked to be sent before


def asked_and_superseded(world: World) -> tuple[Made, Made]:
    """A campaign that Mailchimp refused to send, and an older draft that was then given the day's name."""
    world.run(on={"mailer.send": [answering(NotSent(No.THROTTLED, "429."))]})
    first = only_campaign(world)
    older = world.account.add(made_at_s=-60)
    world.account.ready_from_s = 100_000
    assert world.run().code == 75
    world.account.ready_from_s = 0
    assert [(e.id, e.role) for e in world.record().campaigns] == [(older.id, "main"), (first.id, "former")]
    return first, older


def test_a_campaign_that_was_asked_to_be_sent_stays_on_record_when_another_is_elected() -> None:
    world = world_of(Source.HTML)
    first, older = asked_and_superseded(world)
    assert world.run().posts == (older.id,)
    assert [(e.id, e.role) for e in world.record().campaigns] == [(older.id, "main"), (first.id, "former")]


def test_a_campaign_that_was_asked_to_be_sent_can_become_the_days_again() -> None:
    world = world_of(Source.HTML)
    first, older = asked_and_superseded(world)
    del world.account.campaigns[older.id]
    asked_at = world.record().campaigns[1].requested_at
    batch = on_disk_at_the_first("mailer.write_content", world)
    assert [(e.id, e.role, e.requested_at) for e in batch.campaigns] == [(first.id, "main", asked_at)]
    assert (world.deliveries(), world.record().state) == (1, State.SENT)


def test_a_former_campaign_that_was_mailed_after_all_becomes_the_days() -> None:
    world = world_of(Source.HTML)
    first, older = asked_and_superseded(world)
    world.account.mail(first)
    ended = world.run()
    assert (ended.code, ended.posts, ended.outcome and ended.outcome.campaign_id) == (0, (), first.id)
    assert [(e.id, e.role, e.by) for e in world.record().campaigns] == [(first.id, "main", "sendonce")]
    assert older.deliveries == 0


def test_a_former_campaign_that_was_renamed_and_mailed_is_found_by_its_id() -> None:
    world = world_of(Source.HTML)
    first, _ = asked_and_superseded(world)
    world.account.mail(first)
    first.title = "Renamed by a person"
    assert (world.run().ending, world.record().state) == (Ending.FOUND_SENT, State.SENT)


def test_a_former_campaign_that_is_scheduled_becomes_the_days_and_keeps_its_request() -> None:
    world = world_of(Source.HTML)
    first, _ = asked_and_superseded(world)
    world.account.schedule(first, world.now_s + 3600)
    assert world.run().ending is Ending.SCHEDULED
    (entry,) = world.record().campaigns
    assert (entry.id, entry.role, entry.requested_at is not None) == (first.id, "main", True)


def test_the_requested_campaign_stays_on_record_when_another_was_mailed() -> None:
    world = world_of()
    world.run(on={"mailer.send": [before(Crash())]})
    other = world.account.add(CREATED, status="sent")
    ended = world.run()
    assert (ended.code, ended.posts) == (0, ())
    assert [(e.id, e.role) for e in world.record().campaigns] == [(other.id, "main"), ("ffffff", "former")]


# ------------------------------------------------------------------------------------------------- earlier batches

EARLIER = "2026-11-27"
BEFORE_KEY = "Digest 2026-11-27"


def with_earlier(state: State, **fields: Any) -> tuple[World, Made]:
    """A world with an open batch of an earlier date; today's draft is there, too."""
    world = world_of()
    earlier = world.account.add(BEFORE_KEY)
    world.disk.put(Batch(EARLIER, state, campaigns=(Entry(earlier.id, BEFORE_KEY, **fields),)))
    return world, earlier


ASKED: Any = {"requested_at": datetime(2026, 11, 27, 8, 0, tzinfo=UTC)}
SENT = {**ASKED, "sent_at": datetime(2026, 11, 27, 8, 1, tzinfo=UTC)}
REBUILT = {"by": "unknown", "sent_at": SENT["sent_at"]}
SCHEDULED = {"scheduled_for": datetime(2026, 11, 28, 8, 0, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("state", "fields", "by"),
    [
        (State.SENDING, ASKED, "sendonce"),
        (State.SENT, SENT, "sendonce"),
        (State.SENT, REBUILT, "unknown"),
        (State.PLANNED, SCHEDULED, "by hand"),
        (State.READY, SCHEDULED, "by hand"),
    ],
)
def test_an_earlier_batch_that_was_mailed_meanwhile_is_recorded(state: State, fields: Any, by: str) -> None:
    world, earlier = with_earlier(state, **fields)
    world.account.mail(earlier)
    world.pass_time(3600)
    ended = world.run()
    assert (ended.code, ended.posts, ended.warnings) == (0, ("ffffff",), ())
    batch = world.record(EARLIER)
    assert batch.state is State.SENT
    (entry,) = batch.campaigns
    assert (entry.emails_sent, entry.by, entry.web_id) == (4812, by, 0xFFFFFE)
    assert entry.sent_at == fields.get("sent_at", datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC))
    assert "mailer.campaign" not in world.run().calls


def test_an_earlier_batch_that_is_still_being_mailed_is_recorded_and_read_again() -> None:
    world, earlier = with_earlier(State.SENDING, **ASKED)
    world.account.mailing_s = 3600
    world.account.mail(earlier)
    world.run()
    assert (world.record(EARLIER).state, world.record(EARLIER).campaigns[0].emails_sent) == (State.SENT, None)
    before = world.disk.data
    again = world.run(day="2026-12-01")
    assert world.record(EARLIER).campaigns[0].emails_sent is None
    assert effects(again) == ["store.save"]  # the attempt; the earlier batch is as it was
    assert before is not None
    world.pass_time(3600)
    world.run(day="2026-12-01")
    assert world.record(EARLIER).campaigns[0].emails_sent == 4812


def test_an_earlier_batch_that_was_refused_and_mailed_after_all_is_on_record_without_the_reason() -> None:
    world, earlier = with_earlier(State.REFUSED, **SCHEDULED)
    world.disk.put(world.record(EARLIER)._replace(reason="Said by an earlier run."))
    world.account.mail(earlier)
    world.run()
    assert (world.record(EARLIER).state, world.record(EARLIER).reason) == (State.SENT, "")


def test_an_earlier_batch_mailed_to_nobody_alarms_in_the_run_that_first_reads_it() -> None:
    world, earlier = with_earlier(State.SENT, **SENT)
    world.account.audience = 0
    world.account.mail(earlier)
    world.account.audience = 4812
    ended = world.run()
    assert (ended.code, ended.ending, world.deliveries()) == (1, Ending.ALARM, 1)
    assert "Campaign fffffe of 2026-11-27 was mailed to nobody (0 emails sent)." in ended.message
    assert world.record().state is State.SENT
    assert world.run(day="2026-12-01").ending is not Ending.ALARM


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoAnswer("503."), 75),
        (CredentialsRejected("401."), 78),
        (ClaimLost("gone."), 75),
        (Stopped("SIGTERM"), 75),
        (Crash(), -9),
    ],
    ids=["no answer", "key rejected", "claim lost", "signal", "crash"],
)
def test_the_alarm_of_an_earlier_batch_is_not_lost_in_a_run_that_comes_to_no_end(
    error: BaseException, code: int
) -> None:
    world, earlier = with_earlier(State.SENT, **SENT)
    world.account.audience = 0
    world.account.mail(earlier)
    world.account.audience = 4812
    assert world.run(on={"mailer.listing": [before(error)]}).code == code
    ended = world.run()
    assert (ended.code, ended.ending, world.deliveries()) == (1, Ending.ALARM, 1)
    assert "of 2026-11-27 was mailed to nobody" in ended.message


@pytest.mark.parametrize("when", [before, after])
def test_a_signal_while_an_earlier_batch_is_being_recorded_changes_nothing_of_the_day(
    when: Callable[[BaseException], Fault],
) -> None:
    world, earlier = with_earlier(State.SENDING, **ASKED)
    world.account.mail(earlier)
    ready, sending, sent, ended = None, None, None, None
    day = world.run(on={"store.save": [ready, sending, sent, ended, when(Stopped("SIGTERM"))]})
    assert (day.code, day.ending, world.record().state) == (0, Ending.SENT, State.SENT)
    # what the signal left open is read again, and recorded then
    world.run(day="2026-12-01")
    assert world.record(EARLIER).state is State.SENT


def test_a_refusal_carries_the_alarm_of_an_earlier_batch_and_is_said() -> None:
    world, earlier = with_earlier(State.SENT, **SENT)
    del world.account.campaigns["ffffff"]
    world.account.audience = 0
    world.account.mail(earlier)
    ended = world.run()
    assert (ended.code, ended.ending) == (1, Ending.REFUSED)
    assert "no campaign named" in ended.message
    assert "of 2026-11-27 was mailed to nobody" in ended.message
    assert world.record(EARLIER).campaigns[0].emails_sent == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "save",
            "campaign fffffe is not sent although the ledger says sending; nothing is sent for an earlier date",
        ),
        ("gone", "campaign fffffe is gone from Mailchimp although the ledger says sending"),
        ("paused", 'campaign fffffe is "paused" in Mailchimp'),
    ],
)
def test_an_earlier_batch_that_was_not_mailed_is_one_warning_and_never_sent(change: str, said: str) -> None:
    world, earlier = with_earlier(State.SENDING, **ASKED)
    if change == "gone":
        del world.account.campaigns[earlier.id]
    else:
        earlier.status = change
    ended = world.run()
    assert (ended.code, ended.posts, len(ended.warnings)) == (0, ("ffffff",), 1)
    assert said in ended.warnings[0]
    assert world.record(EARLIER).state is State.SENDING


def test_an_earlier_batch_that_is_still_scheduled_is_no_news() -> None:
    world, earlier = with_earlier(State.PLANNED, **SCHEDULED)
    world.account.schedule(earlier, 1_000_000)
    ended = world.run()
    assert (ended.code, ended.warnings) == (0, ())


@pytest.mark.parametrize("error", [NoAnswer("503."), Refused("403."), CredentialsRejected("401.")])
def test_an_earlier_batch_that_cannot_be_read_holds_nothing_up(error: Exception) -> None:
    world, _ = with_earlier(State.SENDING, **ASKED)
    ended = world.run(on={"mailer.campaign": [before(error)]})
    assert (ended.code, ended.posts, len(ended.warnings)) == (0, ("ffffff",), 1)
    assert "2026-11-27: campaign fffffe could not be read." in ended.warnings[0]


def test_an_earlier_batch_is_sent_with_its_own_date() -> None:
    world, earlier = with_earlier(State.SENDING, **ASKED)
    ended = world.run(day=EARLIER)
    assert (ended.code, ended.posts, earlier.deliveries) == (0, (earlier.id,), 1)


def test_an_earlier_record_without_a_campaign_holds_nothing_up() -> None:
    world, earlier = with_earlier(State.SENDING, **ASKED)
    world.account.mail(earlier)
    document = json.loads(world.disk.data or b"")
    document["batches"]["2026-11-26"] = {"state": "sent", "campaigns": []}
    world.disk.data = json.dumps(document).encode()
    assert world.run().code == 0
    assert world.record(EARLIER).state is State.SENT


def test_an_earlier_batch_whose_read_is_refused_does_not_keep_the_others_from_being_read() -> None:
    world, earlier = with_earlier(State.SENDING, **ASKED)
    world.account.mail(earlier)
    refused = Entry("dead00", "Digest 2026-11-26", **ASKED)
    world.disk.put(Batch("2026-11-26", State.SENDING, campaigns=(refused,)))
    ended = world.run(on={"mailer.campaign": [before(Refused("403."))]})
    assert (ended.code, len(ended.warnings)) == (0, 1)
    assert "2026-11-26: campaign dead00 could not be read. 403." in ended.warnings[0]
    assert world.record(EARLIER).state is State.SENT


def test_not_more_than_the_last_seven_open_batches_are_read() -> None:
    world = world_of()
    for day in range(10, 20):
        made = world.account.add(f"Digest 2026-11-{day}")
        entry = Entry(made.id, made.title, requested_at=datetime(2026, 11, day, 8, tzinfo=UTC))
        world.disk.put(Batch(f"2026-11-{day}", State.SENDING, campaigns=(entry,)))
    ended = world.run()
    assert [said[:10] for said in ended.warnings] == [f"2026-11-{day}" for day in range(13, 20)]


def test_an_earlier_batch_that_cannot_be_recorded_takes_nothing_back_and_is_read_again() -> None:
    world, earlier = with_earlier(State.SENDING, **ASKED)
    world.account.mail(earlier)
    # ready, sending, sent, the end of the run, and then the earlier batch
    ended = world.run(on={"store.save": [None, None, None, None, meanwhile(world.take_over)]})
    assert (ended.code, ended.ending, world.deliveries()) == (0, Ending.SENT, 1)
    assert ended.outcome is not None
    assert ended.outcome.notes
    assert world.record(EARLIER).state is State.SENDING
    assert world.run(day="2026-12-01").code == 1
    assert world.record(EARLIER).state is State.SENT


# ------------------------------------------------------------------------------------------------ what -q keeps quiet


def test_a_first_75_is_hushed_and_a_second_one_is_not() -> None:
    world = world_of()
    hushed = []
    for _ in range(2):
        ended = world.run(on={"mailer.listing": [before(NoAnswer("503."))]})
        assert ended.outcome is not None
        hushed.append(ended.outcome.is_hushed)
    assert hushed == [True, False]


def test_a_refusal_is_hushed_only_when_it_was_said_before_in_the_same_words() -> None:
    world = World()
    hushed = []
    for titles in ([], [], [KEY, KEY], [], []):
        for title in titles:
            world.account.add(title)
        ended = world.run()
        assert (ended.code, ended.outcome is None) == (1, False)
        hushed.append(ended.outcome.is_hushed if ended.outcome else None)
        if titles == [KEY, KEY]:
            world.account.campaigns.clear()
    assert hushed == [False, True, False, False, True]


def test_a_75_between_two_equal_refusals_changes_nothing() -> None:
    world = World()
    assert world.run().code == 1
    assert world.run(on={"mailer.listing": [before(NoAnswer("503."))]}).code == 75
    ended = world.run()
    assert ended.outcome is not None
    assert ended.outcome.is_hushed


def test_a_refusal_that_differs_only_in_the_number_of_mailchimps_answer_is_the_same_refusal() -> None:
    world = world_of()
    hushed = []
    for said in (
        "400: no (instance 1a).",
        "400: no (instance 2b).",
        "400: never (instance 2b).",
        "400: never.",
    ):
        ended = world.run(on={"mailer.send": [answering(NotSent(No.REFUSED, said))]})
        assert ended.outcome is not None
        hushed.append(ended.outcome.is_hushed)
    assert hushed == [False, True, False, True]


def test_a_schedule_for_another_date_is_said_once() -> None:
    world = World()
    world.account.schedule(world.account.add(), 24 * 3600)
    outcomes = [world.run().outcome for _ in range(2)]
    assert [outcome.is_hushed for outcome in outcomes if outcome] == [False, True]


def test_a_success_is_never_hushed() -> None:
    outcome = world_of().run().outcome
    assert outcome is not None
    assert not outcome.is_hushed


# ------------------------------------------------------------------------------------------------ two state folders


@pytest.mark.parametrize("source", SOURCES)
def test_two_state_folders_that_share_nothing_mail_once(source: Source) -> None:
    world = world_of(source, disks=2)
    world.account.listing_lag_s = 29
    ended = world.run(on={"mailer.content": [meanwhile(lambda: world.run(disk=1))], "mailer.checklist": [
        meanwhile(lambda: world.run(disk=1))
    ]})  # fmt: skip
    assert ended.code == 0
    assert world.run(disk=1).code == 0
    assert world.deliveries() == 1


@pytest.mark.parametrize("call", ["mailer.write_settings", "mailer.write_content", "mailer.checklist"])
def test_a_no_to_a_run_that_another_folders_run_overtook_is_not_the_days_outcome(call: str) -> None:
    world = world_of(Source.HTML, has_draft=True, disks=2)

    def overtake() -> None:
        assert world.run(disk=1).code == 0
        world.account.not_ready = ("It was sent already",)

    ended = world.run(on={call: [meanwhile(overtake)]})
    assert (ended.code, ended.ending, ended.posts, world.deliveries()) == (0, Ending.FOUND_SENT, (), 1)


def test_the_audience_of_the_settings_hides_what_others_of_the_same_name_do() -> None:
    world = world_of(list_id=LIST)
    world.account.add(status="sent", list_id="list2")
    assert (world.run().ending, world.deliveries()) == (Ending.SENT, 2)


# ---------------------------------------------------------------------------------------------------------- a pause


@pytest.mark.parametrize("source", SOURCES)
def test_a_paused_job_sends_nothing_and_asks_nobody_until_it_is_resumed(source: Source) -> None:
    world = world_of(source)
    world.pause(Pause("server move", "root@web1", time_at(world.now_s)))
    paused = world.run()
    assert (paused.code, world.deliveries()) == (0, 0)
    assert paused.outcome is not None
    assert paused.outcome.ending is Ending.PAUSED
    assert (
        "the job is paused until `sendonce resume`. root@web1 gave as reason: server move."
        in paused.outcome.message
    )
    assert world.disk.ledger.batches() == ()

    world.pause(None)
    assert world.runs_until_done()[-1] == 0
    assert world.deliveries() == 1


def test_a_pause_that_comes_in_mid_run_stops_the_send() -> None:
    world = world_of(Source.DRAFT)
    order = Pause("stop the press", "root@web1", time_at(world.now_s))

    def pause_then(effect: Callable[[], Any]) -> Any:
        holder = world.disk.holder
        world.pause(order)
        world.disk.holder = (
            holder  # as if it had come from the same run's lease: the ledger alone must hold it back
        )
        return effect()

    ended = world.run(on={"mailer.checklist": [pause_then]})
    assert (ended.code, world.deliveries()) == (75, 0)
    assert world.run().code == 0
    assert world.deliveries() == 0


def test_a_paused_dry_run_ends_as_the_run_would() -> None:
    world = world_of(Source.DRAFT)
    world.pause(Pause("server move", "root@web1", time_at(world.now_s), "2099-01-01"))
    ended = world.rehearse()
    assert ended.code == 0
    assert ended.outcome is not None
    assert "the job is paused until 2099-01-01, or until `sendonce resume`." in ended.outcome.message


def test_a_paused_job_looks_after_earlier_dates_whose_end_is_open() -> None:
    world = world_of(Source.DRAFT)
    earlier = world.account.add(BEFORE_KEY)
    asked = Entry(earlier.id, BEFORE_KEY, requested_at=time_at(-600))
    world.disk.put(Batch(EARLIER, State.SENDING, campaigns=(asked,)))
    world.account.mail(earlier)
    world.pause(Pause("server move", "root@web1", time_at(world.now_s)))
    paused = world.run()
    assert (paused.code, paused.ending, paused.posts) == (0, Ending.PAUSED, ())
    assert world.record(EARLIER).state is State.SENT
    assert world.run().calls.count("mailer.campaign") == 0


def test_a_paused_run_says_that_an_earlier_date_reached_nobody() -> None:
    world = world_of(Source.DRAFT)
    earlier = world.account.add(BEFORE_KEY)
    asked = Entry(earlier.id, BEFORE_KEY, requested_at=time_at(-600))
    world.disk.put(Batch(EARLIER, State.SENDING, campaigns=(asked,)))
    world.account.mail(earlier)
    earlier.emails_sent = 0
    world.pause(Pause("server move", "root@web1", time_at(world.now_s)))
    assert "was mailed to nobody" in world.run().message


def test_a_campaign_that_was_half_mailed_by_hand_is_not_forgotten_when_somebody_deletes_it() -> None:
    world = world_of(Source.HTML)
    made = world.account.add(KEY, status="sent", emails_sent=1)
    made.status = "canceled"
    assert world.run().code == 1
    world.account.delete(made)
    for _ in range(2):
        ended = world.run()
        assert (ended.code, "although it was mailed, or due" in ended.message) == (1, True)
    assert world.account.campaigns == {}


def test_a_campaign_whose_schedule_has_passed_is_not_forgotten_when_it_is_gone() -> None:
    world = world_of(Source.HTML)
    made = world.account.add(KEY)
    world.account.schedule(made, 600)
    assert world.run().code == 0
    world.pass_time(700)
    world.account.delete(made)
    ended = world.run()
    assert (ended.code, "although it was mailed, or due" in ended.message) == (1, True)


def test_a_campaign_that_was_unscheduled_and_deleted_in_time_makes_room_for_another() -> None:
    world = world_of(Source.HTML)
    made = world.account.add(KEY)
    world.account.schedule(made, 600)
    assert world.run().code == 0
    world.account.delete(made)
    assert world.runs_until_done()[-1] == 0
    assert world.deliveries() == 1


def test_a_draft_that_was_unscheduled_is_on_record_as_scheduled_no_more() -> None:
    world = world_of(Source.DRAFT)
    made = only_campaign(world)
    world.account.schedule(made, 600)
    assert world.run().code == 0
    assert world.record().campaigns[0].scheduled_for is not None
    world.account.unschedule(made)
    world.account.not_ready = ("Subject",)
    assert world.run().code == 1
    assert world.record().campaigns[0].scheduled_for is None


@pytest.mark.parametrize("later_s", [10, 600])
def test_a_date_that_the_calendar_skips_is_not_requested_again(later_s: float) -> None:
    world = world_of(Source.DRAFT)
    world.run(on={"mailer.send": [before(Crash())]})
    world.pass_time(later_s)
    world.skipped = f"{DAY} is skipped: Christmas."
    ended = world.run()
    assert (ended.code, ended.posts) == (75 if later_s == 10 else 1, ())
    assert "requested again: 2026-11-30 is skipped: Christmas." in ended.message


def test_before_it_is_settled_a_paused_open_send_does_not_promise_to_be_sent() -> None:
    world = world_of(Source.DRAFT)
    world.run(on={"mailer.send": [before(Crash())]})
    world.pause(Pause("server move", "root@web1", time_at(world.now_s)))
    ended = world.run()
    assert (ended.code, "the next run sends" in ended.message) == (75, False)
    assert "not requested again: the job is paused" in ended.message


def test_a_draft_that_waited_for_its_writers_is_named_by_the_next_dates_run() -> None:
    world = world_of(Source.DRAFT)
    world.guards = world.guards._replace(draft_quiet_s=900)
    assert world.run().ending is Ending.WAITING
    world.account.add("Digest 2026-12-01")
    warned = world.run(day="2026-12-01").warnings
    assert any("nothing is sent for an earlier date without --date 2026-11-30" in said for said in warned)


def test_an_answer_of_the_store_that_is_lost_after_a_second_mailing_does_not_invite_a_third() -> None:
    for role, said in (("again 1", "before you order it again"), ("remaining 1", "that is safe")):
        world = world_of(Source.HTML)
        process = world.begin()
        run = Run(replace(world.rules(), role=role), process.ports, process.run._attempt)
        assert said in run._what_next()


def test_a_paused_date_that_mailchimp_has_scheduled_says_that_it_goes_out_all_the_same() -> None:
    world = world_of(Source.DRAFT)
    world.account.schedule(only_campaign(world), 600)
    assert world.run().code == 0
    world.pause(Pause("strike", "root@web1", time_at(world.now_s)))
    assert "was scheduled in Mailchimp, which mails it all the same" in world.run().message
