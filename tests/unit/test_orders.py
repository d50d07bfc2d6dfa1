"""The rest of a mailing and a second one: what is ordered next, and that no person gets two mails by a repair.

The world counts mails by person. Each fault run is followed by the same order again until it comes to an end.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sendonce.core.batch import Run
from sendonce.core.campaigns import Campaign
from sendonce.core.errors import ClaimLost, InvariantBroken, NoAnswer, Refused, Stopped, Temporary
from sendonce.core.guards import NO_GUARDS, Scope
from sendonce.core.model import Attempt, Batch, Ending, Entry, Glance, Page, Pause, Source, State, settled
from sendonce.core.orders import Kind, PartOfLedger, order_of, with_first
from support import tally
from support.world import (
    DAY,
    KEY,
    LIST,
    UNCLEAR,
    Crash,
    Gate,
    MemoryStore,
    World,
    after,
    answering,
    before,
    effects,
    meanwhile,
    parsed,
    spec_of,
    time_at,
    world_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.world import Ended, Fault, Made

PEOPLE = 5
REACHED = 2
ONCE = dict.fromkeys(range(PEOPLE), 1)
REPAIR = f"{KEY} (remaining 1)"
LAG_S = 29.0
SOURCES = [Source.DRAFT, Source.HTML]


def half_canceled(source: Source = Source.DRAFT, *, disks: int = 1, status: str = "canceled") -> World:
    """A date whose campaign reached two of five people; every folder has it on record."""
    world = world_of(source, disks=disks)
    world.account.audience = PEOPLE
    for disk in range(disks):
        assert world.run(disk=disk).code == 0
    world.account.cut(first(world), REACHED, status)
    world.account.listing_lag_s = LAG_S
    return world


def first(world: World) -> Made:
    return next(iter(world.account.campaigns.values()))


def repairs(world: World) -> list[Made]:
    return list(world.account.ever.values())[1:]


def entry(world: World, role: str = "remaining 1", disk: int = 0) -> Entry:
    (found,) = (e for e in world.record(disk=disk).campaigns if e.role == role)
    return found


def ordered_until_done(world: World, disk: int = 0, kind: Kind = Kind.REMAINING) -> Ended:
    """Order the same again, as after each 75, until there is an outcome."""
    said = ""
    for _ in range(8):
        ended = world.order(kind, disk=disk)
        if ended.code not in {75, -9}:
            return ended
        said = ended.message
        world.pass_time(600)
    raise AssertionError(said)


def each_got_one(world: World) -> None:
    tally.add_judged("repairs in memory", max(world.mails().values()))
    assert world.mails() == ONCE


def other_parts_stay(world: World, role: str = "remaining 1") -> None:
    """In the whole history of each disk, no order is lost or changes its nonce or who ordered it once it is there."""
    for disk in world.disks:
        known: Entry | None = None
        for data in disk.history:
            found = [e for e in parsed(data).batch(DAY).campaigns if e.role == role]
            assert len(found) <= 1
            assert known is None or found
            if found and known is not None:
                assert (known.nonce, known.order) == (found[0].nonce, found[0].order)
            known = found[0] if found else known


# ------------------------------------------------------------------------------------------------------- one that works


@pytest.mark.parametrize("source", SOURCES)
def test_the_rest_is_a_campaign_of_its_own_that_leaves_out_who_was_sent_the_first(source: Source) -> None:
    world = half_canceled(source)
    main = world.record().main
    ended = world.order()
    assert (ended.code, ended.ending) == (0, Ending.SENT)
    (made,) = repairs(world)
    assert made.title == f"{REPAIR} [{entry(world).nonce}]"
    assert made.content == first(world).content
    assert made.reached == {2, 3, 4}
    assert world.mails() == ONCE
    assert (world.record().main, world.record().state) == (main, State.SENT)
    repair = entry(world)
    assert (repair.id, repair.state, repair.by, repair.emails_sent) == (made.id, State.SENT, "sendonce", 3)
    assert (repair.recipients, repair.order) == (3, "root@web1: a test")
    assert [a.outcome for a in world.record().attempts] == ["sent", "sent"]


def test_the_intent_the_id_and_about_to_send_of_a_repair_are_on_the_disk_before_the_calls() -> None:
    assert effects(half_canceled().order()) == [
        "store.save",  # planned
        "store.check",
        "mailer.create",
        "store.save",  # its id
        "store.check",
        "mailer.write_content",
        "store.save",  # ready
        "store.save",  # sending
        "store.check",
        "mailer.send",
        "store.save",  # sent
        "store.save",  # the end
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_a_plain_run_neither_sees_nor_touches_a_repair(source: Source) -> None:
    world = half_canceled(source)
    world.order(on={"mailer.send": [before(Crash())]})
    known = entry(world)
    assert world.run().ending is Ending.ALREADY_SENT
    # and on a folder that knows nothing, it takes the canceled one for the day's, and not the repair
    world.disk.data = None
    ended = world.run()
    assert (ended.code, f'Campaign {first(world).id} is "canceled"' in ended.message) == (1, True)
    assert [e.id for e in world.record().campaigns] == [first(world).id]
    assert known.id not in {e.id for e in world.record().campaigns}


def test_a_mailing_that_ended_with_fewer_than_counted_is_repaired() -> None:
    world = half_canceled(status="sent")
    assert world.order().code == 0
    assert world.mails() == ONCE


def test_a_date_that_was_mailed_twice_is_repaired_without_those_who_got_either() -> None:
    world = half_canceled(Source.HTML)
    twin = world.account.add(f"{KEY} [0000000f]", status="sent", emails_sent=1)
    twin.reached = frozenset({4})
    world.disk.put(
        world.record()._replace(
            campaigns=(
                *world.record().campaigns,
                Entry(twin.id, twin.title, role="twin", sent_at=time_at(0).replace(microsecond=0)),
            )
        )
    )
    assert world.order().code == 0
    assert repairs(world)[1].reached == {2, 3}
    assert world.mails() == ONCE
    assert [e.role for e in world.record().campaigns] == ["main", "twin", "remaining 1"]


def test_a_campaign_that_was_canceled_before_the_ledger_knew_it_is_put_on_record_and_repaired() -> None:
    world = half_canceled()
    world.disk.data = None
    refused = world.run()
    assert (refused.code, refused.ending) == (1, Ending.REFUSED)
    main = world.record().main
    assert main is not None
    assert (main.id, main.by, main.requested_at) == (first(world).id, "sendonce", None)
    assert world.order().code == 0
    assert world.mails() == ONCE


def test_a_canceled_campaign_that_is_put_on_record_stays_the_days_whatever_it_is_called_then() -> None:
    world = half_canceled(Source.HTML)
    world.disk.data = None
    world.run()
    first(world).title = "Renamed"
    assert world.run().code == 1
    assert world.mails().total() == REACHED


def test_a_status_for_a_human_of_a_campaign_that_reached_nobody_is_not_put_on_record() -> None:
    world = world_of()
    first(world).status = "paused"
    assert world.run().code == 1
    assert world.record().campaigns == ()


def test_a_canceled_campaign_takes_the_place_of_nothing_that_is_being_sent() -> None:
    world = world_of(Source.HTML)
    world.run(on={"mailer.send": [answering(UNCLEAR)]})
    sending = world.record().main
    assert sending is not None
    world.account.cut(world.account.add(f"{KEY} [0000000f]"), 0)
    assert world.run().code == 1
    assert (world.record().state, world.record().main) == (State.SENDING, sending)


def test_the_second_order_of_a_kind_begins_when_the_first_is_through() -> None:
    world = half_canceled()
    world.order()
    world.account.cut(repairs(world)[0], 1)
    assert world.order().code == 0
    assert [m.reached for m in repairs(world)] == [{2}, {3, 4}]
    assert [e.role for e in world.record().campaigns] == ["main", "remaining 1", "remaining 2"]
    assert world.mails() == ONCE


def test_where_nobody_remains_the_next_order_refuses_and_sends_nothing() -> None:
    world = half_canceled()
    world.order()
    ended = world.order()
    assert ended.code == 1
    assert "would reach nobody" in ended.message
    assert f"were sent {repairs(world)[0].id}, {first(world).id} already" in ended.message
    assert world.mails() == ONCE


def test_a_second_mailing_goes_to_all_and_each_one_is_ordered_anew() -> None:
    world = half_canceled(status="sent")
    assert world.order(Kind.AGAIN).code == 0
    assert world.mails() == {0: 2, 1: 2, 2: 1, 3: 1, 4: 1}
    for _ in range(3):
        assert world.run().ending is Ending.ALREADY_SENT
    assert world.mails().total() == 7
    assert entry(world, "again 1").state is State.SENT
    # and who got it has no need of the rest
    assert "would reach nobody" in world.order().message


def test_a_second_mailing_whose_answer_was_lost_is_not_repeated_by_the_same_order() -> None:
    world = half_canceled(status="sent")
    world.order(Kind.AGAIN, on={"mailer.send": [after(Crash())]})
    assert world.order(Kind.AGAIN).ending is Ending.FOUND_SENT
    assert world.mails() == {0: 2, 1: 2, 2: 1, 3: 1, 4: 1}


def test_a_second_mailing_that_is_on_record_as_sent_is_not_to_be_ordered_again_after_a_signal() -> None:
    world = half_canceled(status="sent")
    # the second read by id after the request is the one that counts the mails
    gate = world.order(Kind.AGAIN).calls
    reads = [name for name in gate if name == "mailer.campaign"]
    world = half_canceled(status="sent")
    ended = world.order(
        Kind.AGAIN, on={"mailer.campaign": [None] * (len(reads) - 1) + [before(Stopped("SIGTERM"))]}
    )
    assert ended.code == 75
    assert ended.message.endswith("Do not order it again: that would be one more mailing to all.")
    assert "Run again" not in ended.message
    assert entry(world, "again 1").state is State.SENT


def test_a_tag_stays_the_limit_of_a_repair() -> None:
    world = world_of(Source.HTML)
    world.account.audience, world.account.tags = PEOPLE, {7: frozenset({0, 1, 2})}
    world.account.segment_types = {7: "static"}
    spec = spec_of()
    world.spec = type(spec)(
        spec.type, {"list_id": LIST, "segment_opts": {"saved_segment_id": 7}}, spec.settings, {}, spec.content
    )
    world.run()
    world.account.cut(first(world), 1)
    assert world.order().code == 0
    assert world.mails() == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0}


def test_a_saved_segment_refuses_a_repair_in_a_run_and_in_a_rehearsal() -> None:
    world = half_canceled()
    first(world).spec = type(spec_of())(
        "regular", {"segment_opts": {"saved_segment_id": 9}}, {}, {}, first(world).content
    )
    world.account.segment_types = {9: "saved"}
    with pytest.raises(Refused, match="Use a tag instead"):
        raise world.rehearse(kind=Kind.REMAINING).error or AssertionError
    ended = world.order()
    assert (ended.code, "Use a tag instead" in ended.message) == (1, True)
    assert entry(world).state is State.REFUSED
    assert world.mails().total() == REACHED


def test_a_paused_job_repairs_nothing() -> None:
    world = half_canceled()
    world.pause(Pause("strike", "root@web1", time_at(0)))
    assert world.order().ending is Ending.PAUSED
    assert world.mails().total() == REACHED


def test_a_rehearsal_says_how_many_remain_and_changes_nothing() -> None:
    world = half_canceled()
    data = world.disk.data
    told = world.rehearse(kind=Kind.REMAINING)
    assert told.ending is Ending.WOULD_SEND
    assert (
        f'Would create "{REPAIR} […]" for about 3 people, leaving out who was sent {first(world).id}'
        in told.message
    )
    assert world.disk.data == data


def test_a_gap_between_mailings_does_not_hold_up_the_rest_of_the_same_date() -> None:
    world = half_canceled(status="sent")
    world.guards = NO_GUARDS._replace(min_gap_h=20)
    assert world.order().code == 0


def test_a_repair_that_does_not_leave_out_a_later_mailing_is_not_sent_and_a_reset_is_the_way_out() -> None:
    world = half_canceled()
    world.order(on={"mailer.send": [before(Crash())]})
    world.order(Kind.AGAIN)
    world.account.cut(repairs(world)[1], 3)
    world.pass_time(600)
    ended = world.order()
    assert (ended.code, "does not leave out who was sent" in ended.message) == (1, True)
    assert entry(world).state is State.SENDING
    world.reset()
    world.run()
    assert world.order().code == 0
    assert [m.reached for m in repairs(world)] == [{3, 4}, {0, 1, 2}]


# -------------------------------------------------------------------------------------------------- what is ordered next


def next_order(world: World, kind: Kind = Kind.REMAINING) -> str:
    process = world.begin()
    return order_of(kind, world.record(), KEY, process.mailer).role


def refusal(world: World, kind: Kind = Kind.REMAINING) -> str:
    with pytest.raises(Refused) as caught:
        next_order(world, kind)
    assert world.order(kind).code == 1
    return caught.value.message


def test_a_date_without_a_campaign_on_record_has_nothing_to_repair() -> None:
    assert "Neither has the ledger a campaign of 2026-11-30" in refusal(world_of())


def test_a_campaign_that_the_ledger_does_not_know_is_found_by_its_title_if_it_is_the_only_one() -> None:
    world = half_canceled()
    world.disk.data = None
    assert next_order(world) == "remaining 1"
    world.account.add(KEY, status="sent", emails_sent=1)
    assert "(2 campaigns)" in refusal(world)


def test_a_skipped_date_has_nothing_to_repair() -> None:
    world = world_of()
    world.disk.put(Batch(DAY, State.SKIPPED, reason="a holiday"))
    assert refusal(world) == (
        "2026-11-30 is skipped: a holiday. Nothing was sent that could be repaired or repeated."
    )


def test_a_campaign_that_is_gone_has_no_rest() -> None:
    world = half_canceled()
    world.account.delete(first(world))
    assert "is gone from Mailchimp (404)" in refusal(world)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("status", ["sending", "canceling"])
def test_while_the_first_is_being_mailed_nothing_is_ordered(status: str, kind: Kind) -> None:
    world = half_canceled()
    world.account.mailing_s = 3600
    first(world).status, first(world).mailed_at_s = status, world.now_s
    ended = world.order(kind)
    assert (ended.code, "is still being mailed" in ended.message) == (75, True)


@pytest.mark.parametrize("status", ["save", "schedule", "paused", "archived", "no such word"])
def test_a_campaign_that_is_neither_sent_nor_canceled_is_for_the_days_own_run(status: str) -> None:
    world = half_canceled()
    first(world).status = status
    assert f'is "{status}" in Mailchimp, neither sent nor canceled' in refusal(world, Kind.AGAIN)


def test_of_a_mailing_that_reached_all_who_were_counted_nobody_remains() -> None:
    world = world_of()
    world.run()
    assert refusal(world) == (
        "Campaign ffffff of 2026-11-30 was sent to 4812, and 4812 were counted before: nobody remains. "
        "Nothing was sent by this run."
    )
    assert next_order(world, Kind.AGAIN) == "again 1"


@pytest.mark.parametrize(
    ("recipients", "emails", "status"),
    [(None, 5, "sent"), (6, 5, "sent"), (5, None, "sent"), (5, 5, "canceled"), (0, 5, "canceled")],
)
def test_what_may_have_left_somebody_over_can_be_repaired(
    recipients: int | None, emails: int | None, status: str
) -> None:
    world = half_canceled()
    first(world).status, first(world).emails_sent = status, emails
    main = world.record().main
    assert main is not None
    world.disk.put(world.record()._replace(campaigns=(main._replace(recipients=recipients),)))
    assert next_order(world) == "remaining 1"


def on_record(world: World, *orders: tuple[str, State, str], kind: str = "remaining") -> None:
    """Put orders on record: number, state, and how Mailchimp shows its campaign ("" for none, "gone")."""
    entries = list(world.record().campaigns)
    for number, state, status in orders:
        made = world.account.add(f"{KEY} ({kind} {number})", status=status or "save")
        if status == "gone":
            world.account.delete(made)
        sent_at = time_at(0).replace(microsecond=0) if state is State.SENT else None
        asked = time_at(0).replace(microsecond=0) if state is State.SENDING else None
        entries.append(
            Entry(
                made.id if status else "",
                made.title,
                role=f"{kind} {number}",
                state=state,
                sent_at=sent_at,
                requested_at=asked,
            )
        )
    world.disk.put(world.record()._replace(campaigns=tuple(entries)))


@pytest.mark.parametrize(
    ("orders", "role"),
    [
        pytest.param([], "remaining 1", id="none"),
        pytest.param([("1", State.PLANNED, "")], "remaining 1", id="no campaign yet"),
        pytest.param([("1", State.REFUSED, "")], "remaining 1", id="refused without a campaign"),
        pytest.param([("1", State.READY, "save")], "remaining 1", id="a draft"),
        pytest.param([("1", State.SENDING, "save")], "remaining 1", id="not settled"),
        pytest.param([("1", State.SENDING, "sent")], "remaining 1", id="not yet on record as sent"),
        pytest.param([("1", State.SENDING, "gone")], "remaining 1", id="gone while asked for"),
        pytest.param([("1", State.SENT, "sent")], "remaining 2", id="sent"),
        pytest.param([("1", State.SENT, "canceled")], "remaining 2", id="canceled"),
        pytest.param([("1", State.REFUSED, "canceled")], "remaining 2", id="canceled after a refusal"),
        pytest.param([("1", State.SENDING, "canceled")], "remaining 2", id="canceled while asked for"),
        pytest.param([("1", State.SENT, "gone")], "remaining 2", id="sent and then deleted"),
        pytest.param(
            [("9", State.SENT, "sent"), ("10", State.SENT, "sent"), ("2", State.READY, "save")],
            "remaining 11",
            id="by number, not by place",
        ),
    ],
)
def test_an_open_order_goes_on_and_a_new_one_begins_after_it(
    orders: list[tuple[str, State, str]], role: str
) -> None:
    world = half_canceled()
    on_record(world, *orders)
    assert next_order(world) == role


def test_the_orders_of_the_other_kind_do_not_count() -> None:
    world = half_canceled()
    on_record(world, ("3", State.SENT, "sent"), kind="again")
    assert next_order(world) == "remaining 1"
    assert next_order(world, Kind.AGAIN) == "again 4"


def test_while_an_order_is_being_mailed_no_other_begins() -> None:
    world = half_canceled()
    world.account.mailing_s = 3600
    world.order()
    with pytest.raises(Temporary, match=r'\(remaining 1\) is "sending" in Mailchimp: another can begin only'):
        next_order(world)


def test_a_second_mailing_that_was_sent_and_then_deleted_keeps_no_other_from_being_ordered() -> None:
    world = half_canceled(status="sent")
    world.order(Kind.AGAIN)
    world.account.delete(repairs(world)[0])
    assert world.order(Kind.AGAIN).code == 0
    assert entry(world, "again 2").state is State.SENT


def test_who_was_sent_a_repair_that_was_deleted_cannot_be_left_out_of_the_next() -> None:
    world = half_canceled()
    world.order()
    gone = repairs(world)[0]
    world.account.cut(gone, 1)
    world.account.delete(gone)
    ended = world.order()
    assert (ended.code, f"{gone.id} of this date is gone from Mailchimp (404)" in ended.message) == (1, True)
    assert world.rehearse(kind=Kind.REMAINING).code == 1
    assert world.mails().total() == REACHED + 1


def test_a_repair_found_canceled_by_a_folder_that_did_not_order_it_gives_way_to_the_next() -> None:
    world = half_canceled(disks=2)
    world.order()
    world.account.cut(repairs(world)[0], 1)
    refused = world.order(disk=1)
    assert (refused.code, 'is "canceled"' in refused.message) == (1, True)
    assert world.order(disk=1).code == 0
    assert world.mails() == ONCE
    assert [e.role for e in world.record(disk=1).campaigns] == ["main", "remaining 1", "remaining 2"]


# ---------------------------------------------------------------------------------------------------------- whatever fails


def length(make: Callable[[], World], kind: Kind = Kind.REMAINING) -> int:
    """How many calls an undisturbed order makes."""
    return len(make().order(kind).calls)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("when", [before, after])
@pytest.mark.parametrize("pause_s", [0.0, 600.0])
def test_a_crash_at_any_call_of_a_repair_leaves_each_person_with_one_mail(
    source: Source, when: Callable[[BaseException], Fault], pause_s: float
) -> None:
    for n in range(1, length(lambda: half_canceled(source)) + 1):
        world = half_canceled(source)
        assert world.order(at={n: when(Crash())}).code in {-9, 0}
        world.pass_time(pause_s)
        assert world.run().ending is Ending.ALREADY_SENT  # a plain run of the date in between
        assert ordered_until_done(world).code in {0, 1}
        each_got_one(world)
        assert entry(world).state is State.SENT
        other_parts_stay(world)


@pytest.mark.parametrize("error", [NoAnswer("504."), Stopped("SIGTERM")], ids=["no answer", "signal"])
@pytest.mark.parametrize("when", [before, after])
def test_a_lost_answer_or_a_signal_at_any_call_of_a_repair_leaves_each_person_with_one_mail(
    error: Exception, when: Callable[[BaseException], Fault]
) -> None:
    calls = half_canceled().order().calls
    for n, name in enumerate(calls, 1):
        fault = when(error)
        if isinstance(error, NoAnswer):
            if not name.startswith("mailer."):
                continue
            if name == "mailer.send":
                fault = answering(UNCLEAR, acts=when is after)
        elif name.startswith(("witness", "new_nonce", "clock.now", "clock.monotonic")):
            continue
        world = half_canceled()
        with suppress(Stopped):  # where nothing of the run is at work yet, the command answers for it
            world.order(at={n: fault})
        world.run()
        ordered_until_done(world)
        each_got_one(world)
        other_parts_stay(world)


@pytest.mark.parametrize("when", [before, after])
def test_a_crash_at_any_call_of_a_second_mailing_mails_it_once_if_it_is_ordered_until_it_is_on_record(
    when: Callable[[BaseException], Fault],
) -> None:
    for n in range(1, length(lambda: half_canceled(status="sent"), Kind.AGAIN) + 1):
        world = half_canceled(status="sent")
        world.order(Kind.AGAIN, at={n: when(Crash())})
        for _ in range(6):
            if any(e.role == "again 1" and e.state is State.SENT for e in world.record().campaigns):
                break
            world.pass_time(600)
            world.run()
            world.order(Kind.AGAIN)
        assert world.mails() == {0: 2, 1: 2, 2: 1, 3: 1, 4: 1}


@pytest.mark.parametrize("first_code", [None, "crash"])
@pytest.mark.parametrize("lag_s", [0.0, LAG_S])
def test_two_folders_that_share_nothing_repair_side_by_side_and_each_person_gets_one_mail(
    first_code: str | None, lag_s: float
) -> None:
    def make() -> World:
        world = half_canceled(Source.HTML, disks=2)
        world.account.listing_lag_s = lag_s
        return world

    for n in range(1, length(make) + 1):
        world = make()

        def other(world: World = world) -> None:
            world.order(disk=1)
            if first_code:
                raise Crash

        world.order(at={n: meanwhile(other)})
        for disk in (0, 1):
            world.run(disk=disk)
            ordered_until_done(world, disk)
        each_got_one(world)
        other_parts_stay(world)


@pytest.mark.parametrize("call", ["mailer.create", "mailer.send", "mailer.listing"])
def test_a_folder_that_dies_anywhere_within_the_repair_of_another_adds_no_mail(call: str) -> None:
    for n in range(1, length(lambda: half_canceled(disks=2)) + 1):
        world = half_canceled(disks=2)

        def other(world: World = world) -> None:
            world.order(disk=1, on={call: [after(Crash())]})

        world.order(at={n: meanwhile(other)})
        world.pass_time(600)
        for disk in (1, 0):
            ordered_until_done(world, disk)
        each_got_one(world)


def test_a_plain_run_on_a_folder_that_knows_nothing_mails_nobody_at_any_moment_of_a_repair() -> None:
    def make() -> World:
        world = half_canceled(Source.HTML, disks=2)
        world.disks[1].data = None
        return world

    for n in range(1, length(make) + 1):
        world = make()

        def other(world: World = world) -> None:
            assert world.run(disk=1).code == 1

        world.order(at={n: meanwhile(other)})
        ordered_until_done(world)
        each_got_one(world)
        assert {e.role for e in world.record(disk=1).campaigns} == {"main"}


def test_a_ledger_that_was_lost_or_restored_in_mid_repair_adds_no_mail() -> None:
    for n in range(1, length(half_canceled) + 1):
        for back in (0, 1, 2, 3):
            world = half_canceled()
            world.order(at={n: before(Crash())})
            history = world.disk.history
            world.disk.data = history[max(2, len(history) - 1 - back)]
            world.pass_time(600)
            ordered_until_done(world)
            assert max(world.mails().values()) == 1


def test_a_reset_between_a_repair_and_its_rerun_adds_no_mail() -> None:
    for n in range(1, length(half_canceled) + 1):
        world = half_canceled()
        world.order(at={n: after(Crash())})
        world.reset()
        assert world.run().code == 1  # canceled: and on record again
        ordered_until_done(world)
        ordered_until_done(world)
        each_got_one(world)


# --------------------------------------------------------------------------------- others of the audience on the same date


def audience_world() -> World:
    world = world_of(Source.HTML, list_id=LIST)
    world.account.audience, world.scope = PEOPLE, Scope.AUDIENCE
    return world


def test_another_campaign_that_the_audience_got_on_the_date_is_left_out() -> None:
    world = audience_world()
    offer = world.account.add("Special offer")
    world.account.mail(offer)
    world.account.cut(offer, 2, "sent")
    assert world.run().code == 0
    assert repairs(world)[0].reached == {2, 3, 4}
    assert world.mails() == ONCE


@pytest.mark.parametrize("mailing_s", [0.0, 40.0, 900.0])
def test_another_campaign_that_is_mailed_at_any_moment_up_to_the_last_look_is_left_out(
    mailing_s: float,
) -> None:
    total = len(audience_world().run().calls)
    late = 0
    for n in range(1, total + 1):
        world = audience_world()
        world.account.mailing_s = mailing_s
        offer = world.account.add("Special offer")

        def mailed(world: World = world, offer: Made = offer) -> None:
            world.account.mail(offer)
            offer.reached, offer.emails_sent = frozenset({0, 1}), 2

        ended = world.run(at={n: meanwhile(mailed)})
        calls = ended.calls
        if ended.code == 75:
            world.pass_time(1000)
            world.runs_until_done()
        last_look = max(i for i, name in enumerate(calls, 1) if name == "mailer.listing")
        if n <= last_look or ended.code == 75:
            assert world.mails() == ONCE, (n, calls[n - 1])
        else:
            late += 1  # nothing showed it to the run any more: a few calls before the send
    assert 0 < late < 20


def test_what_is_mailed_while_the_recipients_are_waited_for_is_left_out() -> None:
    world = audience_world()
    offer = world.account.add("Special offer")
    world.account.ready_from_s = 60.0

    def mailed() -> None:
        if world.now_s > 32:
            world.account.mail(offer)
            offer.reached, offer.emails_sent = frozenset({0, 1}), 2

    world.account.later.append((45.0, mailed))
    assert world.run().code == 0
    assert world.mails() == ONCE


def test_without_a_scope_a_wait_for_recipients_costs_no_second_look() -> None:
    world = world_of(Source.HTML)
    world.account.ready_from_s = 60.0
    assert world.run().calls.count("mailer.listing") == 2


def test_a_rehearsal_says_that_another_campaign_is_still_being_mailed() -> None:
    world = audience_world()
    world.account.mailing_s = 900
    world.account.mail(world.account.add("Special offer"))
    told = world.rehearse()
    assert (told.code, "is still being mailed" in told.message) == (75, True)
    assert world.run().code == 75


def test_a_campaign_of_another_audience_or_another_day_is_not_left_out() -> None:
    world = world_of(Source.HTML)
    world.account.audience, world.scope = PEOPLE, Scope.AUDIENCE
    world.account.mail(world.account.add("Elsewhere", list_id="list2"))
    world.account.mail(world.account.add("Special offer"))
    for made in world.account.ever.values():
        made.mailed_at_s = -100_000 if made.title == "Special offer" else 0
    assert world.run().code == 0
    assert repairs(world)[1].spec.recipients == {"list_id": LIST}


@pytest.mark.parametrize("kind", ["rss", "automation"])
def test_a_campaign_that_is_in_sending_for_ever_holds_nothing_up(kind: str) -> None:
    """What it mails are campaigns of their own, and those count."""
    world = audience_world()
    world.account.mailing_s = 10**9
    world.account.mail(world.account.add("Blog posts", kind=kind))
    assert world.run().code == 0


def test_a_draft_that_everybody_was_sent_already_is_refused() -> None:
    world = audience_world()
    world.account.mail(world.account.add("Special offer"))
    ended = world.run()
    assert (ended.code, "would reach nobody" in ended.message) == (1, True)
    assert world.mails() == ONCE


def test_an_open_send_is_not_repeated_once_another_campaign_was_mailed_that_it_does_not_leave_out() -> None:
    world = audience_world()
    world.run(on={"mailer.send": [before(Crash())]})
    offer = world.account.add("Special offer")
    world.account.mail(offer)
    world.pass_time(600)
    ended = world.run()
    assert ended.code == 1
    assert f"does not leave out who was sent {offer.id} on this date" in ended.message
    assert world.mails() == ONCE


def test_an_open_repair_is_not_sent_again_once_the_first_is_gone() -> None:
    """What a condition on a campaign that is not there comes to, nobody knows: it may be everybody."""
    world = half_canceled()
    world.order(on={"mailer.send": [before(Crash())]})
    process = world.begin(kind=Kind.REMAINING)
    rules, ports = process.prepared()
    world.account.delete(first(world))
    world.pass_time(600)
    ended = process.ended(
        Run(rules, ports, Attempt("run9", "web1", 812, time_at(0).replace(microsecond=0))).go
    )
    assert (ended.code, "is gone from Mailchimp (404)" in ended.message) == (1, True)
    assert world.mails().total() == REACHED


# -------------------------------------------------------------------- by what record and what title others are known


def test_a_second_mailing_that_another_folder_ordered_is_known_by_its_title() -> None:
    world = half_canceled(disks=2)
    world.order(Kind.AGAIN, disk=1)
    world.account.cut(repairs(world)[0], 4)
    repairs(world)[0].mailed_at_s = 90_000.0  # on the day after
    world.pass_time(100)
    assert world.order().code == 0
    assert repairs(world)[1].reached == {4}


def test_a_second_mailing_that_a_reset_forgot_and_a_person_renamed_is_known_by_the_record() -> None:
    world = half_canceled()
    world.order(Kind.AGAIN)
    world.account.cut(repairs(world)[0], 4)
    repairs(world)[0].title = "Renamed"
    world.reset()
    world.run()
    assert world.order().code == 0
    assert repairs(world)[1].reached == {4}


def test_a_repair_that_a_person_sent_and_deleted_cannot_be_left_out() -> None:
    world = half_canceled()
    world.order(on={"mailer.create": [after(Crash())]})
    (made,) = repairs(world)
    made.content = first(world).content
    world.account.mail(made)
    world.account.cut(made, 1, "sent")
    world.pass_time(600)
    assert world.order().ending is Ending.FOUND_SENT
    assert (entry(world).requested_at, entry(world).by) == (None, "by hand")
    world.account.delete(made)
    assert f"{made.id} of this date is gone" in world.order().message


def test_an_order_that_was_never_sent_and_is_gone_holds_up_no_other() -> None:
    world = half_canceled(status="sent")
    world.order(Kind.AGAIN, on={"mailer.write_content": [before(Crash())]})
    world.account.delete(repairs(world)[0])
    assert world.order().code == 0
    assert world.mails() == ONCE


def test_with_the_scope_of_the_job_other_campaigns_of_the_day_are_not_left_out() -> None:
    world = half_canceled()
    offer = world.account.add("Special offer")
    world.account.mail(offer)
    assert world.order().code == 0
    assert repairs(world)[-1].reached == {2, 3, 4}


def test_with_the_scope_of_the_job_a_campaign_that_a_reset_forgot_and_that_is_gone_is_for_a_human() -> None:
    world = world_of(Source.HTML)
    world.scope = Scope.JOB
    world.run()
    world.account.delete(first(world))
    world.reset()
    ended = world.run()
    assert (ended.code, "is gone from Mailchimp (404): who was sent it" in ended.message) == (1, True)


# ------------------------------------------------------------------------------------------------- the ledger as one part


def store_of(world: World) -> MemoryStore:
    world.disk.holder = "operator"
    return MemoryStore(world.disk, "operator", Gate())


def test_a_page_of_the_whole_ledger_is_none_of_a_part() -> None:
    world = half_canceled()
    store = store_of(world)
    with pytest.raises(InvariantBroken, match="not one of a part"):
        PartOfLedger(store, "remaining 1").check(store.load(DAY))


def test_an_earlier_batch_that_was_not_read_with_the_page_is_not_written() -> None:
    world = half_canceled()
    part = PartOfLedger(store_of(world), "main")
    with pytest.raises(InvariantBroken, match="2026-11-01 was not read with the page of 2026-11-30"):
        part.save(part.load(DAY), Batch("2026-11-01", State.PLANNED))


def test_an_earlier_batch_keeps_what_was_ordered_beside_it() -> None:
    world = world_of()
    moment = time_at(0).replace(microsecond=0)
    made = world.account.add("Digest 2026-11-27", status="sent", emails_sent=7)
    order = Entry("bbbbbb", "x", role="remaining 1", state=State.SENDING, requested_at=moment)
    world.disk.put(Batch("2026-11-27", State.SENT, campaigns=(Entry(made.id, made.title), order)))
    assert world.run().code == 0
    main, kept = world.record("2026-11-27").campaigns
    assert (main.emails_sent, kept) == (7, order)


def test_an_order_reads_no_earlier_batches() -> None:
    world = half_canceled()
    world.disk.put(Batch("2026-11-27", State.SENT, campaigns=(Entry("cccccc", "x"),)))
    page: Page = PartOfLedger(store_of(world), "remaining 1").load(DAY)
    assert (page.open_earlier, [e.role for e in page.beside]) == ((), ["main"])
    assert len(PartOfLedger(store_of(world), "main").load(DAY).open_earlier) == 1


@pytest.mark.parametrize("role", ["main", "remaining 1"])
def test_what_somebody_else_wrote_is_seen_by_each_part(role: str) -> None:
    world = half_canceled()
    part = PartOfLedger(store_of(world), role, "me")
    page = part.load(DAY)
    world.disk.put(Batch("2026-11-27", State.PLANNED))
    with pytest.raises(ClaimLost):
        part.check(page)
    with pytest.raises(ClaimLost):
        part.save(page, page.batch)


@pytest.mark.parametrize(("status", "state"), [("sent", State.SENT), ("canceled", State.REFUSED)])
def test_a_record_that_was_lost_gets_the_days_own_campaign_as_mailchimp_shows_it(
    status: str, state: State
) -> None:
    shown = Campaign(
        "ffffff", KEY, status, "regular", LIST, None, web_id=4711, send_time=time_at(0), emails_sent=3
    )
    found = with_first(Batch(DAY), shown)
    assert (found.state, found.main) == (
        state, Entry("ffffff", KEY, web_id=4711, by="unknown", sent_at=time_at(0), emails_sent=3)
    )  # fmt: skip


def test_of_two_jobs_that_made_their_drafts_at_the_same_time_the_earlier_goes_first() -> None:
    world = audience_world()
    world.account.later.append((1.0, lambda: world.account.create(spec_of(), "Other job [00000009]")))
    assert world.run().code == 0

    world = audience_world()
    other = world.account.create(spec_of(), "Other job [00000009]")
    world.pass_time(5)
    waits = world.run()
    assert (waits.code, "was made earlier for the same audience" in waits.message) == (75, True)
    world.account.mail(other)
    assert world.run().code == 1  # everybody has the other one
    assert world.mails() == ONCE


def test_a_draft_that_a_crash_left_behind_holds_another_job_up_for_half_an_hour_at_the_most() -> None:
    world = audience_world()
    world.account.create(spec_of(), "Other job [00000009]")
    world.pass_time(5)
    assert world.run().code == 75
    world.pass_time(1800)
    assert world.run().code == 0


def test_conditions_that_somebody_takes_away_during_the_checklist_are_not_sent_without() -> None:
    world = audience_world()
    offer = world.account.add("Special offer")
    world.account.mail(offer)
    world.account.cut(offer, 2, "sent")

    def taken_away(effect: Callable[[], Any]) -> Any:
        made = next(m for m in world.account.campaigns.values() if m.title.startswith(KEY))
        made.spec = replace(made.spec, recipients={"list_id": LIST})
        return effect()

    ended = world.run(on={"mailer.checklist": [taken_away]})
    assert (ended.code, "does not read back as it was written" in ended.message) == (1, True)


def test_what_is_caught_up_leaves_out_who_was_sent_another_campaign_today() -> None:
    world = audience_world()
    world.today = "2026-12-03"
    offer = world.account.add("Special offer")
    world.account.mail(offer)
    offer.mailed_at_s = 3 * 86400.0
    world.pass_time(3 * 86400)
    world.account.cut(offer, 2, "sent")
    assert world.run().code == 0
    assert world.mails() == ONCE


def test_a_repair_that_would_reach_nobody_is_refused_by_the_rehearsal_too() -> None:
    world = audience_world()
    world.account.mail(world.account.add("Special offer"))
    told = world.rehearse()
    assert (told.code, "it would reach nobody" in told.message) == (1, True)


def test_a_repair_that_is_archived_is_for_a_human() -> None:
    world = half_canceled()
    assert world.order().code == 0
    repairs(world)[-1].status = "archived"
    assert "who was sent it is not known" in refusal(world)


def test_a_date_that_was_completed_by_a_repair_is_sent_though_its_own_campaign_was_canceled() -> None:
    world = half_canceled()
    world.disk.data = None
    assert world.run().code == 1
    assert world.record().state is State.REFUSED
    assert world.order().code == 0
    outcome = settled(Glance(world.record()), DAY)
    assert outcome is not None
    assert (outcome.ending, "was sent in two parts" in outcome.message) == (Ending.ALREADY_SENT, True)


def test_a_send_that_was_stopped_half_way_and_completed_is_open_no_more() -> None:
    world = half_canceled()
    record = world.record()
    asked = record.campaigns[0]._replace(requested_at=time_at(0), sent_at=None)
    world.disk.put(record._replace(state=State.SENDING, campaigns=(asked, *record.campaigns[1:])))
    assert [b.date for b in world.disk.ledger.open_before("2026-12-31")] == [DAY]
    assert world.order().code == 0
    assert world.disk.ledger.open_before("2026-12-31") == ()


def test_a_checklist_that_calls_the_audience_empty_is_told_as_what_it_is() -> None:
    world = audience_world()
    world.account.mail(world.account.add("Special offer"))
    world.account.not_ready = ("Recipients: the audience or segment is empty",)
    ended = world.run()
    assert (ended.code, "would reach nobody" in ended.message) == (1, True)
