"""A run that is cut short: at every call that it makes, whatever it is doing, by whatever it may be.

The claim is lost, the process freezes, gets a signal, reaches its deadline, dies; the disk is full. Then the runs
after it come to "sent", and nobody gets the mail twice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from sendonce.core.campaigns import No, NotSent
from sendonce.core.errors import ClaimLost, NoAnswer, NotRecorded, Refused, StateUnusable, Stopped, Temporary
from sendonce.core.model import Batch, Ending, Source, State
from support.world import (
    Crash,
    World,
    after,
    answering,
    before,
    effects,
    meanwhile,
    unclear,
    world_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.world import Ended, Fault

# ------------------------------------------------------------------------------- at every call: the claim is lost


SITUATIONS: list[tuple[str, Callable[[], World]]] = [
    ("draft", lambda: world_of(Source.DRAFT)),
    ("created", lambda: world_of(Source.HTML)),
    ("found", lambda: world_of(Source.HTML, has_draft=True)),
]
CALLS = [
    (name, make, number, call)
    for name, make in SITUATIONS
    for number, call in enumerate(make().run().calls, 1)
]
EVERY_CALL = pytest.mark.parametrize(
    ("make", "number"),
    [pytest.param(make, number, id=f"{name}-{number}-{call}") for name, make, number, call in CALLS],
)
EVERY_CALL_OF_THE_STORE = pytest.mark.parametrize(
    ("make", "number"),
    [
        pytest.param(make, number, id=f"{name}-{number}-{call}")
        for name, make, number, call in CALLS
        if call in {"store.save", "store.check"}
    ],
)


@EVERY_CALL_OF_THE_STORE
def test_a_claim_that_is_lost_at_a_call_of_the_store_writes_nothing_and_sends_nothing_further(
    make: Callable[[], World], number: int
) -> None:
    world = make()
    left: list[bytes | None] = []

    def lose() -> None:
        world.take_over()
        left.append(world.disk.data)

    ended = world.run(at={number: meanwhile(lose)})
    assert "mailer.send" not in ended.calls[number:]
    assert "mailer.create" not in ended.calls[number:]
    assert [world.disk.data] == left
    was_recorded = world.record().state is State.SENT
    assert ended.code == (0 if was_recorded else 75)
    assert isinstance(ended.error, NotRecorded if ended.posts else ClaimLost) or was_recorded
    assert world.runs_until_done()[-1] == 0
    assert world.deliveries() == 1


@EVERY_CALL
@pytest.mark.parametrize("pause_s", [0, 400])
def test_a_run_that_freezes_anywhere_while_another_one_does_its_work_mails_once(
    make: Callable[[], World], number: int, pause_s: float
) -> None:
    world = make()

    def successor() -> None:
        world.pass_time(pause_s)
        world.run()
        world.pass_time(pause_s)

    ended = world.run(at={number: meanwhile(successor)})
    assert ended.code in {0, 75}
    assert world.runs_until_done()[-1] == 0
    assert world.deliveries() == 1


def test_a_ledger_that_was_changed_under_the_run_stops_it_though_the_claim_is_its_own() -> None:
    world = world_of()

    def edit() -> None:
        world.disk.put(Batch("2026-01-01", State.SKIPPED, reason="by an editor"))

    ended = world.run(on={"mailer.checklist": [meanwhile(edit)]})
    assert (type(ended.error), ended.posts) == (ClaimLost, ())


def test_a_run_that_lost_its_claim_does_not_try_to_write_anything_more() -> None:
    world = world_of()
    ended = world.run(on={"store.check": [before(ClaimLost("The lease is somebody else's."))]})
    assert (ended.code, ended.calls[-1]) == (75, "store.check")
    assert world.record().attempts[-1].ended_at is None


def test_a_claim_that_is_lost_after_sent_was_recorded_is_a_note_and_no_failure() -> None:
    world = world_of()
    ended = world.run(on={"mailer.campaign": [meanwhile(world.take_over)]})
    assert (ended.code, ended.ending) == (0, Ending.SENT)
    assert ended.outcome is not None
    assert ended.outcome.notes == (
        "The end of this run could not be recorded. The lease is not run1's any more.",
    )


# ------------------------------------------------------------------------------- at every call: a signal, the deadline


def check_stopped(world: World, ended: Ended, said: str) -> None:
    """What must hold of a run that was cut short, whatever it was doing."""
    batch = world.record()
    assert ended.code in {0, 75}
    assert len(ended.posts) <= 1
    if "Nothing was sent by this run" in said:
        assert ended.posts == ()
    if ended.posts and batch.state is State.SENDING:
        assert batch.main is not None
        assert batch.main.gave_up_at is not None
        assert "not known yet" in said
    if batch.state is State.SENT:
        assert batch.main is not None
        assert batch.main.sent_at is not None
        assert batch.main.gave_up_at is None
        assert "not known" not in said
    assert world.runs_until_done()[-1] == 0
    assert world.deliveries() == 1


@EVERY_CALL
@pytest.mark.parametrize("when", [before, after])
def test_a_signal_at_any_call_ends_the_run_in_an_orderly_way(
    make: Callable[[], World], number: int, when: Callable[[BaseException], Fault]
) -> None:
    world = make()
    ended = world.run(at={number: when(Stopped("SIGTERM"))})
    if ended.calls[-1] in {"store.load", "store.check_writable"}:
        assert isinstance(ended.error, Stopped)
        assert ended.posts == ()
    else:
        assert ended.error is None
        assert world.record().attempts[-1].ended_at is not None
    check_stopped(world, ended, ended.message)


def test_a_signal_during_an_unclear_send_leaves_the_time_at_which_it_was_given_up() -> None:
    world = world_of()
    ended = world.run(
        on={"mailer.send": [unclear(acts=False)], "clock.sleep": [None, None, before(Stopped("SIGTERM"))]}
    )
    assert (ended.code, world.record().state) == (75, State.SENDING)
    assert world.record().campaigns[0].gave_up_at == datetime(2026, 11, 30, 8, 0, 0, tzinfo=UTC)
    assert ended.message == (
        "This run was ended by SIGTERM. The outcome of the send of campaign ffffff is not known yet. "
        "Run again, that is safe."
    )


def test_a_signal_at_the_very_end_of_an_unclear_send_says_that_its_outcome_is_not_known() -> None:
    world = world_of()
    ended = world.run(on={"mailer.send": [unclear(acts=False)], "clock.now": [before(Stopped("SIGTERM"))]})
    assert (ended.code, world.record().state, len(world.record().attempts)) == (75, State.SENDING, 1)
    assert "The outcome of the send of campaign ffffff is not known yet." in ended.message


def test_a_signal_while_an_earlier_send_is_open_says_that_it_is() -> None:
    world = world_of()
    world.run(on={"mailer.send": [before(Crash())]})
    ended = world.run(on={"mailer.listing": [before(Stopped("SIGINT"))]})
    assert ended.code == 75
    assert ended.message == (
        "This run was ended by SIGINT. Nothing was sent by this run. A send of campaign ffffff is on record as "
        "requested: the next run asks Mailchimp what became of it. Run again, that is safe."
    )


def test_a_signal_before_any_send_was_asked_for_says_that_nothing_was_sent() -> None:
    ended = world_of().run(on={"mailer.checklist": [before(Stopped("SIGTERM"))]})
    assert (ended.code, ended.message) == (
        75,
        "This run was ended by SIGTERM. Nothing was sent by this run. Run again, that is safe.",
    )


def test_a_signal_while_a_rejected_key_is_being_recorded_ends_the_run_as_any_other() -> None:
    world = world_of()
    no = answering(NotSent(No.CREDENTIALS, "401."))
    ended = world.run(on={"mailer.send": [no], "store.save": [None, None, before(Stopped("SIGTERM"))]})
    assert (ended.code, world.record().state) == (75, State.SENDING)
    assert "This run was ended by SIGTERM. Nothing was sent by this run." in ended.message


@pytest.mark.parametrize("when", [before, after])
@pytest.mark.parametrize(
    ("error", "code"), [(NoAnswer("503."), 75), (Refused("403."), 1)], ids=["temporary", "refused"]
)
def test_a_signal_while_the_end_of_a_run_is_being_recorded_changes_nothing(
    error: Exception, code: int, when: Callable[[BaseException], Fault]
) -> None:
    world = world_of()
    faults = {"mailer.listing": [before(error)], "store.save": [when(Stopped("SIGTERM"))]}
    ended = world.run(on=faults)
    assert (ended.code, ended.posts, len(world.record().attempts)) == (code, (), 1)
    assert world.record().attempts[-1].outcome == {75: "temporary", 1: "refused"}[code]


@EVERY_CALL
@pytest.mark.parametrize("is_done", [False, True], ids=["before its effect", "after its effect"])
def test_a_deadline_at_any_call_records_what_it_can(
    make: Callable[[], World], number: int, is_done: bool
) -> None:
    world = make()
    said: list[str] = []

    def cut(effect: Callable[[], object]) -> object:
        if is_done:
            effect()
        said.append(process.run.last_words("This run was ended by its own deadline."))
        raise Crash

    process = world.begin(at={number: cut})
    try:
        ended = process.go()
    except Temporary:  # the hung call did its work, and the main thread has not taken note of it
        ended = process.ended(lambda: (_ for _ in ()).throw(Crash()))
    check_stopped_by_deadline(world, ended, said)


def check_stopped_by_deadline(world: World, ended: Ended, said: list[str]) -> None:
    batch = world.record()
    if "Nothing was sent by this run" in "".join(said):
        assert ended.posts == ()
    if ended.posts and said and "not known yet" in said[0]:
        assert batch.main is not None
        assert batch.main.gave_up_at is not None
    assert world.runs_until_done()[-1] == 0
    assert world.deliveries() == 1


def test_a_deadline_in_the_post_records_that_the_run_gave_up() -> None:
    world = world_of()
    process = world.begin(on={"mailer.send": [before(Crash())]})
    process.go()
    world.pass_time(130)
    said = process.run.last_words("Time is up.")
    assert (
        said
        == "Time is up. The outcome of the send of campaign ffffff is not known yet. Run again, that is safe."
    )
    (entry,) = world.record().campaigns
    assert entry.gave_up_at == datetime(2026, 11, 30, 8, 2, 10, tzinfo=UTC)
    assert world.record().attempts[-1].outcome == "temporary"


@pytest.mark.parametrize("source", [Source.DRAFT, Source.HTML])
def test_a_deadline_after_the_send_says_that_it_is_sent_and_writes_nothing(source: Source) -> None:
    world = world_of(source)
    process = world.begin()
    process.go()
    said = process.run.last_words("Time is up.")
    assert said == "Time is up. The campaign was sent and is recorded. Run again, that is safe."
    assert world.record().attempts[-1].outcome == "sent"


@pytest.mark.parametrize("source", [Source.DRAFT, Source.HTML])
def test_a_run_whose_deadline_came_before_it_began_does_not_post_any_more(source: Source) -> None:
    """Else the thread that ends the process would have said "nothing was sent" while the mail goes out."""
    world = world_of(source)
    process = world.begin()
    assert process.run.last_words("Time is up.") == ""
    process.go()
    assert (world.deliveries(), "mailer.send" in process.gate.calls) == (0, False)


def test_a_deadline_between_the_last_check_and_the_post_keeps_the_run_from_posting() -> None:
    world = world_of()
    said: list[str] = []

    def ends(effect: Callable[[], object]) -> object:
        checked = effect()
        said.append(process.run.last_words("Time is up."))
        return checked

    process = world.begin(on={"store.check": [ends]})
    process.go()
    assert world.deliveries() == 0
    assert "Nothing was sent by this run." in said[0]


def test_a_deadline_whose_last_words_cannot_be_written_keeps_the_run_from_posting_too() -> None:
    world = world_of()

    def ends(effect: Callable[[], object]) -> object:
        checked = effect()
        world.disk.is_full = True
        with pytest.raises(NotRecorded, match="could not be recorded"):
            process.run.last_words("Time is up.")
        world.disk.is_full = False
        return checked

    process = world.begin(on={"store.check": [ends]})
    ended = process.go()
    assert (ended.code, ended.posts, world.deliveries()) == (75, (), 0)
    assert (
        ended.message
        == "This run is past its deadline. Nothing was sent by this run. Run again, that is safe."
    )


def test_a_deadline_after_the_claim_was_lost_writes_nothing() -> None:
    world = world_of()
    process = world.begin(on={"mailer.send": [before(Crash())]})
    process.go()
    world.take_over()
    was = world.disk.data
    with pytest.raises(NotRecorded, match=r"not known yet.* could not be recorded"):
        process.run.last_words("Time is up.")
    assert world.disk.data == was


# --------------------------------------------------------------------------------------- at every call: the process dies


@EVERY_CALL
@pytest.mark.parametrize("when", [before, after])
def test_a_crash_at_any_call_is_mended_by_the_next_runs(
    make: Callable[[], World], number: int, when: Callable[[BaseException], Fault]
) -> None:
    world = make()
    ended = world.run(at={number: when(Crash())})
    assert isinstance(ended.error, Crash)
    codes = world.runs_until_done()
    assert set(codes) <= {0, 75}
    assert (codes[-1], world.deliveries()) == (0, 1)
    assert world.record().state is State.SENT


CRASHES = [
    # after what, what the ledger says, what Mailchimp has, what the next run does first and how it ends
    pytest.param({"store.check_writable": [after(Crash())]}, State.NONE, "", "", 0, id="taking the lease"),
    pytest.param({"mailer.create": [before(Crash())]}, State.PLANNED, "", "mailer.create", 0, id="the intent"),
    pytest.param(
        {"mailer.create": [after(Crash())]}, State.PLANNED, "save", "mailer.write_settings", 0,
        id="create, before its answer",
    ),
    pytest.param(
        {"mailer.write_content": [after(Crash())]}, State.PLANNED, "save", "mailer.write_settings", 0, id="content"
    ),
    pytest.param({"mailer.send": [before(Crash())]}, State.SENDING, "save", "", 75, id='"sending", before the POST'),
    pytest.param({"mailer.send": [after(Crash())]}, State.SENDING, "sent", "", 0, id="the POST, before its answer"),
    pytest.param({"mailer.campaign": [None, after(Crash())]}, State.SENT, "sent", "", 0, id='"sent"'),
]  # fmt: skip


@pytest.mark.parametrize(("crash", "state", "status", "first", "code"), CRASHES)
def test_where_a_crash_leaves_things(
    crash: dict[str, list[Fault | None]], state: State, status: str, first: str, code: int
) -> None:
    world = world_of(Source.HTML)
    world.run(on=crash)
    assert world.record().state is state
    assert [m.status for m in world.account.campaigns.values()] == ([status] if status else [])
    ended = world.run()
    assert ended.code == code
    written = [name for name in effects(ended) if name.startswith("mailer")]
    assert not first or written[0] == first
    assert len(world.account.campaigns) == 1
    assert len(ended.posts) == (1 if state in {State.NONE, State.PLANNED} else 0)


def test_a_run_that_died_is_in_the_attempts_without_an_end() -> None:
    world = world_of()
    world.run(on={"mailer.send": [before(Crash())]})
    (attempt,) = world.record().attempts
    assert (attempt.run, attempt.ended_at, attempt.outcome) == ("run1", None, "")
    world.run()
    assert [a.run for a in world.record().attempts] == ["run1", "run2"]


# ------------------------------------------------------------------------------------------ writes that fail


def filling(world: World) -> Fault:
    """The disk is full from here on."""

    def fill() -> None:
        world.disk.is_full = True

    return meanwhile(fill)


@pytest.mark.parametrize(
    "answer",
    [None, unclear(acts=True), unclear(acts=False), answering(NotSent(No.THROTTLED, "429.")), answering(NotSent(No.REFUSED, "400."))],
    ids=["yes", "unclear, sent", "unclear, not sent", "throttled", "refused"],
)  # fmt: skip
def test_a_write_that_fails_after_the_post_is_75_and_the_next_run_asks_mailchimp(
    answer: Fault | None,
) -> None:
    world = world_of()
    fill = filling(world)

    def post(effect: Callable[[], object]) -> object:
        fill(lambda: None)
        return effect() if answer is None else answer(effect)

    ended = world.run(on={"mailer.send": [post]})
    assert isinstance(ended.error, NotRecorded)
    assert (ended.code, world.record().state) == (75, State.SENDING)
    assert "no space left" in ended.message
    world.disk.is_full = False
    world.pass_time(311)
    assert (world.run().code, world.deliveries()) == (0, 1)


def test_the_message_of_a_send_that_could_not_be_recorded_says_what_to_do() -> None:
    world = world_of()
    ended = world.run(on={"mailer.send": [filling(world)]})
    assert ended.message == (
        "The send of campaign ffffff was requested, and then: The ledger cannot be written: no space left on device. "
        "Run the same command again, that is safe: it asks Mailchimp first."
    )


@pytest.mark.parametrize("why", [No.CREDENTIALS, No.CERTIFICATE])
def test_a_rejected_key_that_cannot_be_recorded_leaves_sending_and_says_that_the_ledger_fails(
    why: No,
) -> None:
    world = world_of()
    fill = filling(world)

    def post(_: Callable[[], object]) -> object:
        fill(lambda: None)
        return NotSent(why, "no.")

    ended = world.run(on={"mailer.send": [post]})
    assert isinstance(ended.error, StateUnusable)
    assert (ended.code, world.record().state) == (78, State.SENDING)
    world.disk.is_full = False
    world.pass_time(311)
    assert (world.run().code, world.deliveries()) == (0, 1)


@pytest.mark.parametrize("save", [1, 2])
def test_a_write_that_fails_before_the_post_sends_nothing(save: int) -> None:
    world = world_of()
    faults: list[Fault | None] = [None] * (save - 1) + [filling(world)]
    ended = world.run(on={"store.save": faults})
    assert isinstance(ended.error, StateUnusable)
    assert (ended.code, ended.posts) == (78, ())


def test_an_outcome_that_could_not_be_recorded_is_not_claimed() -> None:
    world = World()
    world.account.add(status="sent")
    ended = world.run(on={"store.save": [filling(world)]})
    assert isinstance(ended.error, StateUnusable)
    assert world.record().state is State.NONE
