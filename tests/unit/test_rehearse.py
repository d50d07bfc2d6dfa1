"""A dry run: it reads only, and ends as the run would end that is started in its place."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from sendonce.core.batch import Run
from sendonce.core.campaigns import Checklist, No, NotSent
from sendonce.core.decide import Forget, Look, LookAgain
from sendonce.core.errors import CredentialsRejected, InvariantBroken, NoAnswer, Refused
from sendonce.core.model import Attempt, Batch, Ending, Entry, Source, State
from sendonce.core.rehearse import draft_of, foretell, rehearse
from support.world import (
    DAY,
    KEY,
    LIST,
    START,
    Crash,
    World,
    after,
    answering,
    before,
    spec_of,
    unclear,
    world_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sendonce.core.batch import Ports
    from sendonce.core.decide import Rules, Step
    from support.world import Made

CREATED = f"{KEY} [00000001]"
READS = {
    "store.load",
    "store.check_writable",
    "mailer.campaign",
    "mailer.listing",
    "mailer.checklist",
    "mailer.audience_size",
    "mailer.now",
    "source.spec",
    "witness.warn",
}
EARLIER = "2026-11-27"


def first(world: World) -> Made:
    return next(iter(world.account.campaigns.values()))


# ---- worlds in which a run may find itself; each changes one in which a run would send ----


def crashed_at_the_send(world: World) -> None:
    world.run(on={"mailer.send": [before(Crash())]})


def settled(world: World) -> None:
    crashed_at_the_send(world)
    world.pass_time(310)


def sent_without_an_answer(world: World) -> None:
    world.run(on={"mailer.send": [after(Crash())]})


def deleted_while_open(world: World) -> None:
    crashed_at_the_send(world)
    world.account.campaigns.clear()


def renamed_while_open(world: World) -> None:
    crashed_at_the_send(world)
    first(world).title = "Not today"


def paused_while_open(world: World) -> None:
    crashed_at_the_send(world)
    first(world).status = "paused"


def scheduled_while_open(world: World) -> None:
    crashed_at_the_send(world)
    world.account.schedule(first(world), world.now_s + 60)


def checklist_says_no_while_open(world: World) -> None:
    settled(world)
    world.account.not_ready = ("Subject is missing",)


def throttled(world: World) -> None:
    world.run(on={"mailer.send": [answering(NotSent(No.THROTTLED, "429."))]})


def reset_while_open(world: World) -> None:
    crashed_at_the_send(world)
    world.reset()


def reset_and_settled(world: World) -> None:
    settled(world)
    world.reset()


def reset_after_it_was_sent(world: World) -> None:
    sent_without_an_answer(world)
    world.reset()


def recorded_draft_deleted(world: World) -> None:
    throttled(world)
    world.disk.put(world.record()._replace(campaigns=(Entry("dead00", KEY),)))


def recorded_draft_deleted_and_none_left(world: World) -> None:
    recorded_draft_deleted(world)
    world.account.campaigns.clear()


def recorded_draft_deleted_and_an_open_send_reset(world: World) -> None:
    reset_while_open(world)
    world.disk.put(Batch(DAY, State.READY, campaigns=(Entry("dead00", KEY),)))


def recorded_draft_deleted_and_a_former_one_sent_under_another_name(world: World) -> None:
    asked = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)
    former = world.account.add("Renamed", status="sent")
    entries = (Entry("dead00", KEY), Entry(former.id, KEY, role="former", requested_at=asked))
    world.disk.put(Batch(DAY, State.READY, campaigns=entries))


def sent(world: World) -> None:
    world.run()


def skipped(world: World) -> None:
    world.disk.put(Batch(DAY, State.SKIPPED, reason="a holiday"))


def ledger_lost(world: World) -> None:
    world.run()
    world.disk.data = None


def sent_by_hand(world: World) -> None:
    world.account.add(status="sent")


def being_mailed(world: World) -> None:
    world.account.mailing_s = 3600
    world.account.add(status="sending")


def mailed_twice(world: World) -> None:
    world.account.add(status="sent")
    world.account.add(CREATED, status="sent")


def mailed_to_nobody(world: World) -> None:
    world.account.add(status="sent", emails_sent=0)


def scheduled(world: World) -> None:
    world.account.schedule(world.account.add(CREATED), 3600)


def scheduled_elsewhen(world: World) -> None:
    world.account.schedule(world.account.add(CREATED), 24 * 3600)


def scheduled_at_no_time(world: World) -> None:
    world.account.add(CREATED, status="schedule")


def paused(world: World) -> None:
    world.account.add(status="paused")


def no_such_status(world: World) -> None:
    world.account.add(status="reticulating")


def two_drafts(world: World) -> None:
    world.account.add()
    world.account.add()


def two_audiences(world: World) -> None:
    world.account.add(list_id="list1")
    world.account.add(list_id="list2")


def another_type(world: World) -> None:
    world.account.campaigns.clear()
    world.account.add(kind="rss")


def nothing_at_all(world: World) -> None:
    world.account.campaigns.clear()


def a_draft_of_a_person(world: World) -> None:
    world.account.campaigns.clear()
    world.account.add()


def a_draft_without_create_time(world: World) -> None:
    world.account.campaigns.clear()
    world.account.add(is_undated=True)


def crashed_before_the_create(world: World) -> None:
    world.run(on={"mailer.create": [before(Crash())], "mailer.checklist": [before(Crash())]})


def crashed_after_the_create(world: World) -> None:
    world.run(on={"mailer.create": [after(Crash())], "mailer.checklist": [before(Crash())]})


def refused_before(world: World) -> None:
    world.run(on={"mailer.listing": [before(Refused("403."))]})


def temporary_before(world: World) -> None:
    world.run(on={"mailer.listing": [before(NoAnswer("503."))]})


def disk_full(world: World) -> None:
    world.disk.is_full = True


def earlier(state: State, *, audience: int, status: str = "sent") -> Callable[[World], None]:
    """An earlier batch whose number of recipients is still open."""

    def world(world: World) -> None:
        world.account.mailing_s = 3600 if status == "sending" else 0
        made = world.account.add("Digest 2026-11-27", status=status, emails_sent=audience)
        asked = datetime(2026, 11, 27, 8, tzinfo=UTC)
        world.disk.put(Batch(EARLIER, state, campaigns=(Entry(made.id, made.title, requested_at=asked),)))

    return world


def no_draft_and_an_earlier_alarm(world: World) -> None:
    earlier(State.SENT, audience=0)(world)
    paused(world)


def open_send_and_an_earlier_alarm(world: World) -> None:
    crashed_at_the_send(world)
    earlier(State.SENT, audience=0)(world)


WORLDS: Mapping[str, Callable[[World], object]] = {
    "nothing but what a run would send": lambda _: None,
    "earlier batch sent to somebody": earlier(State.SENT, audience=7),
    "earlier batch sent to nobody": earlier(State.SENT, audience=0),
    "earlier batch open and sent to nobody": earlier(State.SENDING, audience=0),
    "earlier batch not sent": earlier(State.SENDING, audience=0, status="save"),
    "earlier batch still being mailed": earlier(State.SENT, audience=0, status="sending"),
} | {
    world.__name__.replace("_", " "): world
    for world in (
        crashed_at_the_send, settled, sent_without_an_answer, deleted_while_open, renamed_while_open, paused_while_open,
        scheduled_while_open, checklist_says_no_while_open, throttled, reset_while_open, reset_and_settled,
        reset_after_it_was_sent, recorded_draft_deleted, recorded_draft_deleted_and_none_left,
        recorded_draft_deleted_and_an_open_send_reset,
        recorded_draft_deleted_and_a_former_one_sent_under_another_name,
        sent, skipped, ledger_lost, sent_by_hand, being_mailed, mailed_twice, mailed_to_nobody, scheduled,
        scheduled_elsewhen, scheduled_at_no_time, paused, no_such_status, two_drafts, two_audiences, another_type,
        nothing_at_all, a_draft_of_a_person, a_draft_without_create_time, crashed_before_the_create,
        crashed_after_the_create, refused_before, temporary_before, disk_full, no_draft_and_an_earlier_alarm,
        open_send_and_an_earlier_alarm,
    )
}  # fmt: skip

EVERY_WORLD = pytest.mark.parametrize("change", WORLDS.values(), ids=WORLDS)


@EVERY_WORLD
@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("list_id", ["", LIST])
def test_a_dry_run_ends_as_the_run_does_and_changes_nothing(
    change: Callable[[World], object], source: Source, list_id: str
) -> None:
    world = world_of(source, list_id=list_id)
    change(world)
    was = (world.disk.data, deepcopy(world.account.campaigns), world.now_s)
    foretold = world.rehearse()
    assert (world.disk.data, world.account.campaigns, world.now_s) == was
    assert set(foretold.calls) <= READS
    ended = world.run()
    assert foretold.code == ended.code
    if foretold.outcome is not None and ended.outcome is not None:
        assert foretold.ending is (Ending.WOULD_SEND if ended.ending is Ending.SENT else ended.ending)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("mailer.listing", NoAnswer("503.")),
        ("mailer.listing", Refused("403.")),
        ("mailer.listing", CredentialsRejected("401.")),
        ("mailer.now", NoAnswer("no Date header.")),
        ("source.spec", Refused("The HTML file is empty.")),
    ],
    ids=["no answer", "refused", "key rejected", "no date", "no file"],
)
def test_a_read_that_fails_ends_both_alike(call: str, error: Exception, source: Source) -> None:
    foretold = world_of(source).rehearse(on={call: [before(error)]})
    assert foretold.code == world_of(source).run(on={call: [before(error)]}).code


def test_a_file_that_is_missing_ends_both_alike_where_a_draft_is_there_already() -> None:
    world = world_of(Source.HTML, has_draft=True)
    missing = {"source.spec": [before(Refused("The HTML file is empty."))]}
    assert world.rehearse(on=missing).code == 1
    assert world.run(on=missing).code == 1


@pytest.mark.parametrize(("made_at_s", "code"), [(-1799.0, 75), (-1800.0, 1)])
def test_recipients_that_are_not_ready_are_temporary_until_the_draft_is_half_an_hour_old(
    made_at_s: float, code: int
) -> None:
    world = World()
    world.account.add(made_at_s=made_at_s)
    world.account.ready_from_s = 10_000
    foretold = world.rehearse()
    assert foretold.code == code
    assert "recipients" in foretold.message.lower()


def test_a_checklist_that_says_no_is_shown() -> None:
    world = world_of(Source.DRAFT)
    world.account.not_ready = ("Subject is missing", "No reply-to address")
    foretold = world.rehearse()
    assert foretold.code == world.run().code == 1
    assert foretold.message == (
        'Mailchimp\'s checklist does not call "Digest 2026-11-30" (ffffff) ready: Subject is missing; No reply-to address'
    )


def test_a_checklist_without_a_reason_is_a_no_too() -> None:
    foretold = world_of(Source.DRAFT).rehearse(
        on={"mailer.checklist": [answering(Checklist(is_ready=False))]}
    )
    assert (foretold.code, "no reason given" in foretold.message) == (1, True)


# ------------------------------------------------------------------------------------------------ what it says


def test_it_says_what_would_be_sent_to_how_many() -> None:
    foretold = world_of(Source.DRAFT).rehearse()
    assert foretold.message == (
        'Would send "Digest 2026-11-30" (ffffff) to 4812 people; Mailchimp\'s checklist is ready.'
    )
    assert foretold.outcome is not None
    assert (foretold.outcome.campaign_id, foretold.outcome.recipients) == ("ffffff", 4812)


def test_it_says_what_would_be_written_anew() -> None:
    world = world_of(Source.HTML)
    world.account.add()
    assert (
        world.rehearse().message
        == 'Would write "Digest 2026-11-30" (ffffff) anew and send it to 4812 people.'
    )


@pytest.mark.parametrize(
    ("recipients", "whom", "size"),
    [
        ({"list_id": LIST}, "4812 people", 4812),
        ({"list_id": LIST, "segment_opts": {"saved_segment_id": 7}}, "70 people", 70),
        (
            {"list_id": LIST, "segment_opts": {"match": "any", "conditions": [{}]}},
            "a segment of 4812 people",
            4812,
        ),
        ({"list_id": "list9"}, "an unknown number of people", None),
    ],
    ids=["audience", "saved segment", "conditions", "unknown"],
)
def test_it_says_what_would_be_created_and_for_whom(
    recipients: dict[str, object], whom: str, size: int | None
) -> None:
    world = world_of(Source.HTML)
    world.spec = replace(spec_of(), recipients=recipients)
    foretold = world.rehearse()
    assert foretold.message == (
        f'Would create "Digest 2026-11-30 […]" for {whom} (audience {recipients["list_id"]}) and send it: "News".'
    )
    assert foretold.outcome is not None
    assert foretold.outcome.recipients == size


def test_it_says_until_when_an_open_send_would_not_be_repeated() -> None:
    world = world_of(Source.DRAFT, zone=ZoneInfo("America/New_York"))
    crashed_at_the_send(world)
    assert world.rehearse().message == (
        'An earlier send of "Digest 2026-11-30" (ffffff) is not confirmed; '
        "it would not be sent again before 2026-11-30 03:05:10 EST."
    )


def unfinished(world: World) -> None:
    world.account.add()
    world.account.not_ready = ("Subject is missing",)


def without_recipients_yet(world: World) -> None:
    world.account.add()
    world.account.ready_from_s = 10_000


def open_send(world: World) -> None:
    world.account.add()
    crashed_at_the_send(world)


@pytest.mark.parametrize(
    ("change", "source", "said"),
    [
        (sent_by_hand, Source.DRAFT, f'Mailchimp shows "{KEY}" (ffffff) as sent; nothing would be sent.'),
        (mailed_to_nobody, Source.DRAFT, f'"{KEY}" (ffffff) was mailed to nobody (0 emails sent); nothing would be sent.'),
        (mailed_twice, Source.DRAFT, "More than one campaign of the date was mailed: fffffe, ffffff."),
        (
            scheduled, Source.DRAFT,
            f'"{CREATED}" (ffffff) is scheduled in Mailchimp for 2026-11-30 09:00:00 UTC; nothing would be sent.',
        ),
        (
            scheduled_at_no_time, Source.DRAFT,
            f'"{CREATED}" (ffffff) is scheduled in Mailchimp for an unknown time; nothing would be sent.',
        ),
        (paused, Source.DRAFT, 'Campaign ffffff is "paused" in Mailchimp. A run would refuse.'),
        (open_send, Source.DRAFT, f'An earlier send of "{KEY}" (ffffff) is not confirmed'),
        (unfinished, Source.DRAFT, f'Mailchimp\'s checklist does not call "{KEY}" (ffffff) ready'),
        (without_recipients_yet, Source.DRAFT, f'Mailchimp is not done with the recipients of "{KEY}" (ffffff)'),
        (a_draft_of_a_person, Source.HTML, f'Would write "{KEY}" (ffffff) anew'),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_it_says_how_the_run_would_end_and_names_the_campaign(
    change: Callable[[World], None], source: Source, said: str
) -> None:
    world = World(source)
    change(world)
    ended = world.rehearse()
    assert ended.message.startswith(said)
    assert ended.outcome is not None
    shown = "fffffe" if change is mailed_twice else "ffffff"
    title = world.account.campaigns[shown].title
    assert (ended.outcome.date, ended.outcome.campaign_id, ended.outcome.title) == (DAY, shown, title)


def test_it_says_to_how_many_a_campaign_went_that_is_sent_already() -> None:
    world = World()
    sent_by_hand(world)
    outcome = world.rehearse().outcome
    assert outcome is not None
    assert outcome.emails_sent == 4812


def test_where_there_is_no_campaign_yet_it_names_the_date() -> None:
    outcome = World(Source.HTML).rehearse().outcome
    assert outcome is not None
    assert (outcome.date, outcome.campaign_id) == (DAY, "")


def test_a_recorded_draft_that_is_gone_is_not_foretold_from_a_listing_that_still_shows_it() -> None:
    world = world_of()
    world.disk.put(Batch(DAY, State.READY, campaigns=(Entry("ffffff", KEY),)))
    ended = world.rehearse(on={"mailer.campaign": [answering(None)]})
    assert (ended.code, ended.ending) == (1, Ending.REFUSED)


def test_it_names_both_that_were_mailed() -> None:
    world = World()
    mailed_twice(world)
    assert world.rehearse().message.startswith(
        "More than one campaign of the date was mailed: fffffe, ffffff."
    )


def test_a_number_of_recipients_that_mailchimp_does_not_give_is_not_made_up() -> None:
    world = world_of(Source.DRAFT)
    listing = [
        lambda effect: replace(effect(), campaigns=(replace(effect().campaigns[0], recipient_count=None),))
    ]
    assert world.rehearse(on={"mailer.listing": listing}).message == (
        'Would send "Digest 2026-11-30" (ffffff) to an unknown number of people; Mailchimp\'s checklist is ready.'
    )


def test_a_created_source_that_is_not_given_is_a_bug() -> None:
    drafts, created = World(Source.DRAFT), World(Source.HTML)
    without_source = drafts.begin()
    with pytest.raises(InvariantBroken, match="a draft source creates nothing"):
        rehearse(created.rules(), without_source.ports)
    with pytest.raises(InvariantBroken, match="a draft source creates nothing"):
        Run(created.rules(), without_source.ports, Attempt("run1", "web1", 812, START)).go()


@pytest.mark.parametrize("step", [Forget("ffffff"), LookAgain(START)], ids=lambda step: type(step).__name__)
def test_a_step_that_no_run_begins_with_is_a_bug(step: Step) -> None:
    world = world_of(Source.HTML)
    process = world.begin()
    page = process.ports.store.load(DAY)
    with pytest.raises(
        InvariantBroken, match=f"{type(step).__name__} cannot be the first step of a rehearsal"
    ):
        foretell(step, page, Look(START, ()), world.rules(), process.ports)


# ---- the draft of the day, for a test mail ----


def test_the_draft_of_the_day_is_the_one_that_a_run_would_send() -> None:
    world = world_of()
    assert draft_of(world.rules(), world.begin().ports).id == "ffffff"
    world.run(on={"mailer.send": [unclear(acts=False)]})
    assert draft_of(world.rules(), world.begin().ports).id == "ffffff"
    assert draft_of(*of(world_of(Source.HTML, has_draft=True))).id == "ffffff"


def of(world: World) -> tuple[Rules, Ports]:
    return world.rules(), world.begin().ports


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (World(), "There is no campaign named"),
        (World(Source.HTML), "There is no draft of 2026-11-30 yet"),
    ],
    ids=["draft", "html"],
)
def test_where_there_is_none_it_is_said_why(world: World, said: str) -> None:
    with pytest.raises(Refused, match=said):
        draft_of(*of(world))


def test_a_date_that_is_done_with_has_no_draft() -> None:
    sent = world_of()
    sent.run()
    mailed = world_of()
    mailed.account.mail(mailed.account.campaigns["ffffff"])
    for world in (sent, mailed):
        with pytest.raises(Refused, match="needs no mailing now"):
            draft_of(*of(world))
