"""What every store of lease and ledger does, each over real files, connections and servers: the same, to the letter."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from sendonce import compose, upkeep
from sendonce.adapters.clock import SystemClock
from sendonce.adapters.holder import Standing, describe
from sendonce.adapters.shared.backend import PAGE_ROWS, Head, Owner
from sendonce.adapters.shared.lease import SharedLease
from sendonce.adapters.shared.sql import SqlBackend
from sendonce.adapters.stores import FileLedger
from sendonce.core import ledger as ledgers
from sendonce.core.errors import (
    ClaimLost,
    InvariantBroken,
    LeaseBusy,
    LedgerDamaged,
    Refused,
    StateUnusable,
)
from sendonce.core.model import Attempt, Batch, Entry, Page, Pause, Reset, State
from sendonce.settings import load
from support import places, servers
from support.places import API, KINDS, SHARED, SQL, Place, Recorder, new_place
from support.runs import wait_until
from support.sandbox import API_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from sendonce.adapters.lease import FileLease
    from sendonce.adapters.shared.ledger import SharedLedger

CHILD = Path(places.__file__).with_name("store_child.py")
DAY = "2026-01-05"
ASKED_AT = datetime(2026, 1, 5, 8, 0, 4, tzinfo=UTC)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for a job that no other test knows, in each of the stores."""
    return new_place(request.param, tmp_path)


in_every_store = pytest.mark.parametrize("place", KINDS, indirect=True)
on_every_server = pytest.mark.parametrize("place", SHARED, indirect=True)


@contextmanager
def held(place: Place, *, lease_s: float = 60, wait_s: float = 0) -> Iterator[FileLease | SharedLease]:
    """Hold the lease."""
    lease = place.lease(lease_s=lease_s, wait_s=wait_s)
    try:
        lease.acquire(None)
        yield lease
    finally:
        lease.release()


@contextmanager
def writing(place: Place) -> Iterator[FileLedger | SharedLedger]:
    """A ledger to write to, with the lease that this needs."""
    with held(place) as lease:
        yield place.ledger(lease)


def written(place: Place, *batches: Batch) -> None:
    """Have batches on record, each by legal steps."""
    with writing(place) as store:
        store.replace(lambda old: old.rebuilt(batches))


class Child:
    """Another process with the lease; see support/store_child.py."""

    def __init__(self, place: Place, *, lease_s: float, wait_s: float = 0) -> None:
        arguments = [str(CHILD), place.kind, place.where, place.job, str(lease_s), str(wait_s), DAY]
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(CHILD.parents[1])},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def asked(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.hears()


def planned(date: str = DAY, nonce: str = "5e0e96f7") -> Batch:
    return Batch(date, State.PLANNED, nonce=nonce)


def sending(date: str = DAY, id_: str = "1a2b3c4d5e") -> Batch:
    return Batch(date, State.SENDING, campaigns=(Entry(id_, f"daily {date}", requested_at=ASKED_AT),))


def sent(date: str = DAY, id_: str = "1a2b3c4d5e", emails: int | None = 4812) -> Batch:
    entry = Entry(id_, f"daily {date}", requested_at=ASKED_AT, sent_at=ASKED_AT, emails_sent=emails)
    return Batch(date, State.SENT, campaigns=(entry,))


def full(date: str = DAY) -> Batch:
    """Everything that a record can hold, with texts that a database could get wrong."""
    entry = Entry(
        "1a2b3c4d5e",
        "Früh­stück ☕ 日本 \U0001f600 'quoted' \"%s\" {0} \\ \u2028",
        web_id=4711,
        requested_at=ASKED_AT,
        gave_up_at=ASKED_AT + timedelta(seconds=9),
        sent_at=ASKED_AT + timedelta(seconds=10),
        emails_sent=4812,
        scheduled_for=ASKED_AT + timedelta(hours=1),
        recipients=4813,
    )
    other = Entry("ffffffffff", "half a pair \ud83d and a NUL \x00", role="also mailed", by="by hand")
    attempts = tuple(
        Attempt(f"run{n}", "wéb1", 812 + n, ASKED_AT, ASKED_AT + timedelta(seconds=n), "sent", "détail")
        for n in range(3)
    )
    return Batch(date, State.SENT, "5e0e96f7", (entry, other), attempts, reason="because – so")


# ---- reading and writing ----


@in_every_store
def test_a_first_start_finds_no_record(place: Place) -> None:
    store = place.ledger()

    assert store.load(DAY)[1:] == (Batch(DAY, State.NONE), (), (), None, ())
    assert store.glance(DAY).batch == Batch(DAY, State.NONE)
    assert (store.batches(), store.resets()) == ((), ())
    assert (store.whole().rows(), store.whole().reset_rows()) == ({}, [])


@in_every_store
def test_what_is_saved_is_read_by_the_next_run_field_by_field(place: Place) -> None:
    with writing(place) as store:
        page = store.save(store.load(DAY), planned())
        page = store.save(page, full())

        assert page.batch == full()
        store.check(page)

    assert place.ledger().load(DAY).batch == full()
    assert place.ledger().glance(DAY).batch == full()
    assert place.ledger().batches() == (full(),)


@in_every_store
def test_fields_that_nobody_here_knows_survive_a_rewrite(place: Place) -> None:
    written(place, planned())
    odd = {
        "state": "planned",
        "nonce": "5e0e96f7",
        "campaigns": [],
        "attempts": [],
        "later": {"é": [1, None]},
    }
    place.put_record(DAY, json.dumps(odd))

    with writing(place) as store:
        store.save(store.load(DAY), planned(nonce="00000000"))

    assert place.record(DAY) == odd | {"nonce": "00000000"}


@in_every_store
def test_a_change_that_is_not_legal_is_not_written(place: Place) -> None:
    written(place, sent())
    before = place.record(DAY)

    with writing(place) as store, pytest.raises(InvariantBroken, match="sent may not become planned"):
        store.save(store.load(DAY), planned())

    assert place.record(DAY) == before


@in_every_store
def test_an_earlier_open_batch_is_written_with_the_page_of_another_date(place: Place) -> None:
    written(place, sending("2026-01-03"))

    with writing(place) as store:
        page = store.load(DAY)
        page = store.save(page, sent("2026-01-03"))
        page = store.save(page, sent("2026-01-03")._replace(reason="said again"))
        store.save(page, planned())

    assert page[1:] == (Batch(DAY), (), (), None, ())
    assert place.ledger().batches() == (sent("2026-01-03")._replace(reason="said again"), planned())


@on_every_server
def test_a_batch_that_the_page_was_not_read_with_is_not_written(place: Place) -> None:
    written(place, sent("2026-01-03"))

    # what stands there was not read, so nobody could say whether the change is legal
    with writing(place) as store, pytest.raises(InvariantBroken):
        store.save(store.load(DAY), planned("2026-01-03"))

    assert place.ledger().glance("2026-01-03").batch == sent("2026-01-03")


# ---- the check and the write are one step ----


@in_every_store
def test_a_page_read_before_somebody_elses_write_cannot_be_saved(place: Place) -> None:
    with held(place) as lease:
        store, other = place.ledger(lease), place.ledger(lease)
        old, page = store.load(DAY), other.load(DAY)
        other.save(page, planned(nonce="11111111"))

        for write in (
            lambda: store.save(old, planned(nonce="22222222")),
            lambda: store.check(old),
            lambda: store.reset(old, Reset(DAY, ASKED_AT, "me", "why", {})),
        ):
            with pytest.raises(ClaimLost, match="changed by somebody else"):
                write()

    assert place.ledger().batches() == (planned(nonce="11111111"),)
    assert place.ledger().resets() == ()


@in_every_store
def test_a_write_to_another_date_makes_a_page_old_too(place: Place) -> None:
    with held(place) as lease:
        store = place.ledger(lease)
        old = store.load(DAY)
        store.save(store.load("2026-01-06"), planned("2026-01-06"))

        with pytest.raises(ClaimLost):
            store.save(old, planned())

    assert place.ledger().batches() == (planned("2026-01-06"),)


@in_every_store
def test_a_ledger_that_was_lost_and_written_anew_is_not_the_one_that_was_read(place: Place) -> None:
    with held(place) as lease:
        store = place.ledger(lease)
        old = store.save(store.load(DAY), planned(nonce="11111111"))
        store.replace(lambda _: ledgers.empty(place.job, API))
        store.save(store.load(DAY), planned(nonce="33333333"))

        with pytest.raises(ClaimLost):
            store.save(old, planned(nonce="22222222"))

    assert place.ledger().glance(DAY).batch.nonce == "33333333"


def _writes(store: FileLedger | SharedLedger, page: Page) -> tuple[Callable[[], object], ...]:
    return (
        lambda: store.save(page, planned(nonce="22222222")),
        lambda: store.check(page),
        lambda: store.reset(page, Reset(DAY, ASKED_AT, "me", "why", {})),
        lambda: store.rebuild([planned(nonce="22222222")]),
    )


@in_every_store
@pytest.mark.parametrize("how", ["released", "abandoned", "broken by hand", "taken over"])
def test_without_the_lease_nothing_can_be_written(place: Place, how: str) -> None:
    lease = place.lease(lease_s=60)
    lease.acquire(None)
    other = place.lease(lease_s=60)
    try:
        store = place.ledger(lease)
        page = store.save(store.load(DAY), planned(nonce="11111111"))
        match how:
            case "released":
                lease.release()
            case "abandoned":
                lease.abandon()
            case "broken by hand":
                place.lease().break_lock(force=True)
            case _:
                place.lease().break_lock(force=True)
                other.acquire(None)

        assert not lease.is_ours()
        for write in _writes(store, page):
            with pytest.raises(ClaimLost, match="no longer this run's"):
                write()
    finally:
        lease.release()
        other.release()

    assert place.ledger().batches() == (planned(nonce="11111111"),)
    assert place.ledger().resets() == ()


@in_every_store
def test_a_ledger_that_was_opened_for_reading_is_not_written(place: Place) -> None:
    store = place.ledger()
    page = store.load(DAY)

    for write in _writes(store, page):
        with pytest.raises(InvariantBroken, match="opened for reading"):
            write()

    assert place.ledger().batches() == ()


@in_every_store
def test_a_page_of_another_store_is_no_page_of_this_one(place: Place) -> None:
    with writing(place) as store, pytest.raises(InvariantBroken, match="not one of this store"):
        store.save(Page(None, Batch(DAY)), planned())


# ---- the lease ----


@in_every_store
def test_the_lease_is_free_until_taken_and_free_again_when_released(place: Place) -> None:
    assert place.lease().peek() is None
    with held(place) as lease:
        holder = place.lease().peek()

        assert holder is not None
        assert holder.standing is Standing.LIVE
        assert holder.lease_s == 60
        assert "held by pid" in describe(holder)
        assert lease.is_ours()
    assert place.lease().peek() is None
    assert not lease.is_ours()


@in_every_store
def test_two_jobs_do_not_stand_in_each_others_way(place: Place) -> None:
    other = Place(place.kind, place.where, f"{place.job[:30]}-b")

    with writing(place) as store, writing(other) as others:
        others.save(others.load(DAY), planned(nonce="bbbbbbbb"))
        store.save(store.load(DAY), planned(nonce="aaaaaaaa"))

    assert place.ledger().batches() == (planned(nonce="aaaaaaaa"),)
    assert other.ledger().batches() == (planned(nonce="bbbbbbbb"),)


@in_every_store
def test_who_waits_gets_the_lease_when_it_is_released(place: Place) -> None:
    asked = threading.Event()

    class Clock(SystemClock):
        def sleep(self, seconds: float) -> None:
            asked.set()
            super().sleep(seconds)

    second = place.lease(lease_s=60, wait_s=50, clock=Clock())
    with held(place):
        waiting = threading.Thread(target=second.acquire, args=(None,))
        waiting.start()
        assert asked.wait(30)
        assert not second.is_ours()
    waiting.join(50)

    assert second.is_ours()
    second.release()


@in_every_store
def test_who_waited_in_vain_is_told_who_has_it(place: Place) -> None:
    with held(place) as lease:
        for wait_s, give_up_at in ((0.2, None), (600, SystemClock().monotonic() + 0.2)):
            with pytest.raises(LeaseBusy, match=r"held by pid \d+ on host .*Nothing was sent; run again"):
                place.lease(lease_s=60, wait_s=wait_s).acquire(give_up_at)

        assert lease.is_ours()


@in_every_store
def test_only_one_of_many_has_it_at_any_time(place: Place) -> None:
    counts = {"in": 0, "most": 0, "done": 0}

    def run() -> None:
        with held(place, wait_s=100):
            counts["in"] += 1
            counts["most"] = max(counts["most"], counts["in"])
            counts["in"] -= 1
            counts["done"] += 1

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(110)

    assert counts == {"in": 0, "most": 1, "done": 4}


@in_every_store
def test_a_holder_that_lives_keeps_it_over_several_leases(place: Place) -> None:
    with held(place, lease_s=2) as lease:
        with pytest.raises(LeaseBusy):
            place.lease(lease_s=2, wait_s=5).acquire(None)

        assert lease.is_ours()
        store = place.ledger(lease)
        store.save(store.load(DAY), planned())


@in_every_store
def test_a_frozen_holder_loses_it_and_cannot_write_over_its_successor(place: Place) -> None:
    with Child(place, lease_s=1) as child:
        assert child.hears().startswith("held")
        child.process.send_signal(signal.SIGSTOP)

        with held(place, lease_s=1, wait_s=30) as lease:
            store = place.ledger(lease)
            store.save(store.load(DAY), planned(nonce="99999999"))
            child.process.send_signal(signal.SIGCONT)

            assert child.asked("ours") == "no"
            assert child.asked("save") == "lost"
            assert lease.is_ours()

    assert place.ledger().glance(DAY).batch == planned(nonce="99999999")


@in_every_store
def test_a_frozen_holder_that_wakes_when_the_lease_is_free_again_cannot_write(place: Place) -> None:
    with Child(place, lease_s=1) as child:
        assert child.hears().startswith("held")
        child.process.send_signal(signal.SIGSTOP)
        with held(place, lease_s=1, wait_s=30):
            pass
        child.process.send_signal(signal.SIGCONT)

        assert child.asked("save") == "lost"

    assert place.ledger().batches() == ()


@in_every_store
def test_a_killed_holder_is_replaced(place: Place) -> None:
    with Child(place, lease_s=1) as child:
        assert child.hears().startswith("held")

    with held(place, lease_s=1, wait_s=30) as lease:
        assert lease.is_ours()


@in_every_store
def test_a_release_by_who_does_not_hold_it_changes_nothing(place: Place) -> None:
    first = place.lease(lease_s=60)
    first.acquire(None)
    place.lease().break_lock(force=True)

    with held(place) as second:
        first.release()
        place.lease().release()

        assert second.is_ours()


@in_every_store
def test_a_live_holder_is_broken_only_by_force(place: Place) -> None:
    assert place.lease().break_lock(force=False) is None
    with held(place) as lease:
        with pytest.raises(Refused, match="--yes breaks it anyway"):
            place.lease().break_lock(force=False)
        assert lease.is_ours()

        holder = place.lease().break_lock(force=True)

        assert holder is not None
        assert holder.standing is Standing.LIVE
        assert not lease.is_ours()
        assert place.lease().peek() is None


@in_every_store
@pytest.mark.parametrize("ahead_s", [-600, 600])
def test_two_machines_whose_clocks_differ_by_ten_minutes_agree_on_the_lease(
    place: Place, ahead_s: float
) -> None:
    class Clock(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(seconds=ahead_s)

        def monotonic(self) -> float:
            return super().monotonic() + ahead_s

    with held(place, lease_s=2):
        with pytest.raises(LeaseBusy):
            place.lease(lease_s=2, wait_s=0, clock=Clock()).acquire(None)
        holder = place.lease(clock=Clock()).peek()
        if place.is_shared:
            assert holder is not None
            assert holder.standing is Standing.LIVE
            assert 0 <= holder.renewed_s <= 2
    fast = place.lease(lease_s=2, clock=Clock())
    fast.acquire(None)
    with pytest.raises(LeaseBusy):
        place.lease(lease_s=2).acquire(None)
    fast.release()


@on_every_server
def test_the_fence_grows_with_each_acquisition_and_never_shrinks(place: Place) -> None:
    fences: list[object] = []
    for how in ("released", "broken", "forgotten by the server", "last"):
        witness = Recorder()
        lease = place.lease(lease_s=60, witness=witness)
        lease.acquire(None)
        fences.append(witness.fence())
        store = place.ledger(lease)
        store.save(store.load(DAY), planned(nonce=f"{len(fences):08x}"))
        if how == "broken":
            place.lease().break_lock(force=True)
        if how == "forgotten by the server":
            _forget_lease(place)
        lease.release()

    assert fences == [1, 2, 3, 4]


def _forget_lease(place: Place) -> None:
    if place.kind == "redis":
        place._redis().delete(place._key("lease"), place._key("fence"))
    else:
        place._sql("DELETE FROM sendonce_leases WHERE job = :job")


@on_every_server
def test_a_number_is_not_enough_to_write_and_neither_is_a_token(place: Place) -> None:
    backend = place.backend()
    owner = Owner("aa" * 16, "web1", 812)
    fence = backend.take(owner, 60).fence
    head = Head(1, place.job, API, "bb" * 16)

    assert backend.check("", owner.token, fence).value == "done"
    assert backend.check("", owner.token, fence + 1).value == "claim lost"
    assert backend.check("", owner.token, fence - 1).value == "claim lost"
    assert backend.check("", "cc" * 16, fence).value == "claim lost"
    assert backend.check(head.stamp, owner.token, fence).value == "changed by somebody else"


@on_every_server
def test_who_holds_a_lease_older_than_the_last_write_cannot_write(place: Place) -> None:
    with held(place) as lease:
        store = place.ledger(lease)
        page = store.save(store.load(DAY), planned(nonce="11111111"))
        # as if a later holder had written, and the server then got its leases back from a backup
        if place.kind == "redis":
            place._redis().hset(place._key("head"), "fence", 2)
        else:
            place._sql("UPDATE sendonce_ledgers SET fence = 2 WHERE job = :job")

        with pytest.raises(ClaimLost, match="no longer this run's"):
            store.save(page, planned(nonce="22222222"))

    assert place.ledger().glance(DAY).batch.nonce == "11111111"


@on_every_server
def test_a_lease_that_has_expired_is_no_right_to_write_even_if_nobody_took_it(place: Place) -> None:
    backend = place.backend()
    fence = backend.take(Owner("aa" * 16, "web1", 812), 0.1).fence
    # Redis rounds what is left down to 0 while there is a part of a millisecond; it forgets an expired one by itself
    is_sql = place.kind != "redis"
    wait_until(lambda: (grip := backend.grip()) is None or (is_sql and grip.left_s <= 0))

    assert backend.check("", "aa" * 16, fence).value == "claim lost"
    assert not backend.renew("aa" * 16, 60)
    holder = place.lease().peek()
    if place.kind == "redis":
        assert holder is None
    else:
        assert holder is not None
        assert holder.standing is Standing.EXPIRED
        assert place.lease().break_lock(force=False) is not None
        assert place.lease().peek() is None


@on_every_server
def test_asking_twice_for_a_lease_gives_the_same_one(place: Place) -> None:
    backend = place.backend()
    owner, other = Owner("aa" * 16, "web1", 812), Owner("bb" * 16, "web2", 813)

    first = backend.take(owner, 60)
    again = backend.take(owner, 60)

    assert (again.owner, again.fence) == (owner, first.fence)
    assert backend.take(other, 60).owner == owner
    assert not backend.renew(other.token, 60)
    assert not backend.give_back(other.token)
    assert backend.renew(owner.token, 60)
    assert backend.give_back(owner.token)
    assert not backend.give_back(owner.token)
    assert not backend.renew(owner.token, 60)
    assert backend.grip() is None


@on_every_server
def test_of_many_that_ask_for_a_first_lease_at_the_same_moment_one_gets_it(place: Place) -> None:
    for n in range(3):
        at = Place(place.kind, place.where, f"{place.job[:30]}-{n}")
        together = threading.Barrier(6)
        told: list[tuple[Owner, Owner]] = []

        def ask(
            number: int,
            at: Place = at,
            together: threading.Barrier = together,
            told: list[tuple[Owner, Owner]] = told,
        ) -> None:
            backend, owner = at.backend(), Owner(f"{number:032x}", "web1", number)
            together.wait(30)
            told.append((backend.take(owner, 60).owner, owner))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert len(told) == 6
        assert len({holder for holder, _ in told}) == 1
        assert sum(holder == owner for holder, owner in told) == 1


@on_every_server
def test_an_abandoned_lease_is_not_renewed(place: Place) -> None:
    lease = place.lease(lease_s=60)
    assert isinstance(lease, SharedLease)
    lease.acquire(None)
    assert lease.renew()
    lease.abandon()

    assert not lease.renew()
    lease.release()


@on_every_server
def test_a_lease_taken_again_after_its_release_is_renewed_again(place: Place) -> None:
    lease = place.lease(lease_s=1)
    lease.acquire(None)
    lease.release()
    lease.acquire(None)
    try:
        with pytest.raises(LeaseBusy):
            place.lease(lease_s=1, wait_s=2.5).acquire(None)
        assert lease.is_ours()
    finally:
        lease.release()


# ---- resets ----


@in_every_store
def test_a_reset_keeps_what_it_forgets_and_resets_stay_in_their_order(place: Place) -> None:
    written(place, sent("2026-01-03"), planned(DAY), sent("2026-01-04", "c4"))
    with writing(place) as store:
        page = store.load(DAY)
        page = store.reset(page, Reset(DAY, ASKED_AT, "root@web1", "wröng", {}))
        assert page.batch == Batch(DAY)
        assert page.forgotten == (planned(DAY),)
        page = store.save(page, planned(DAY, "77777777"))
        store.reset(store.load("2026-01-03"), Reset("2026-01-03", ASKED_AT, "root@web1", "2nd", {}))
        store.reset(store.load(DAY), Reset(DAY, ASKED_AT, "root@web1", "3rd", {}))

    store = place.ledger()
    assert [(r.date, r.by, r.reason) for r in store.resets()] == [
        (DAY, "root@web1", "wröng"),
        ("2026-01-03", "root@web1", "2nd"),
        (DAY, "root@web1", "3rd"),
    ]
    assert store.resets()[0].was["nonce"] == "5e0e96f7"
    assert store.batches() == (sent("2026-01-04", "c4"),)
    page = store.load(DAY)
    assert page.batch == Batch(DAY)
    assert page.forgotten == (planned(DAY), planned(DAY, "77777777"))
    assert store.load("2026-01-04").forgotten == ()


@in_every_store
def test_a_reset_of_another_date_than_the_pages_is_not_made(place: Place) -> None:
    written(place, planned(DAY), planned("2026-01-06"))

    with writing(place) as store, pytest.raises(InvariantBroken, match="the page is that of"):
        store.reset(store.load(DAY), Reset("2026-01-06", ASKED_AT, "me", "why", {}))

    assert len(place.ledger().batches()) == 2


# ---- which batches a run reads ----


@in_every_store
def test_open_are_those_that_mailchimp_is_yet_to_be_asked_about_before_the_date(place: Place) -> None:
    scheduled = Entry("c7", "daily", scheduled_for=ASKED_AT)
    open_ones = (
        Batch("2025-12-31", State.REFUSED, campaigns=(scheduled,), reason="scheduled"),
        sending("2026-01-02", "c2"),
        sent("2026-01-03", "c3", emails=None),
    )
    written(
        place,
        *open_ones,
        planned("2025-12-30"),
        sent("2026-01-01", "c1"),
        sent("2026-01-04", "c4", emails=0),
        Batch("2025-12-29", State.SKIPPED, reason="holiday"),
        Batch("2025-12-28", State.READY, campaigns=(Entry("c8", "daily"),)),
        sending(DAY, "c5"),
        sending("2026-01-06", "c6"),
    )

    page = place.ledger().load(DAY)

    assert page.open_earlier == open_ones
    assert page.batch == sending(DAY, "c5")
    with writing(place) as store:
        page = store.load(DAY)
        page = store.save(page, sent("2026-01-02", "c2"))
        assert page.open_earlier == (open_ones[0], open_ones[2])
    assert place.ledger().load(DAY).open_earlier == (open_ones[0], open_ones[2])


@in_every_store
def test_batches_are_those_from_the_first_date_to_the_last_oldest_first(place: Place) -> None:
    days = ["2025-12-31", "2026-01-01", "2026-01-02", "2026-01-03"]
    written(place, *(planned(day) for day in reversed(days)))
    store = place.ledger()

    assert [b.date for b in store.batches()] == days
    assert [b.date for b in store.batches("2026-01-01", "2026-01-02")] == days[1:3]
    assert [b.date for b in store.batches(first="2026-01-02")] == days[2:]
    assert [b.date for b in store.batches("", "2026-01-01")] == days[:2]
    assert store.batches("2026-01-04", "2026-01-09") == ()


# ---- a new ledger in place of the old one ----


@in_every_store
def test_a_rebuilt_ledger_keeps_resets_and_skipped_dates_and_the_old_one_aside(place: Place) -> None:
    skipped = Batch("2026-01-02", State.SKIPPED, reason="holiday")
    written(place, planned(), skipped, sent("2026-01-03", "c3"))
    with writing(place) as store:
        store.reset(store.load(DAY), Reset(DAY, ASKED_AT, "me", "why", {}))
        kept = store.rebuild([sent("2026-01-04", "c4")])

    assert place.ledger().batches() == (skipped, sent("2026-01-04", "c4"))
    assert [r.reason for r in place.ledger().resets()] == ["why"]
    old = ledgers.parse(place.kept(kept).encode())
    assert old.batches() == (skipped, sent("2026-01-03", "c3"))
    assert [r.reason for r in old.resets()] == ["why"]


@in_every_store
def test_a_ledger_that_is_put_in_place_has_nothing_of_the_old_one(place: Place) -> None:
    written(place, planned(), sending("2026-01-03", "c3"), planned("2026-01-04"))
    with writing(place) as store:
        store.reset(store.load(DAY), Reset(DAY, ASKED_AT, "me", "why", {}))
        store.replace(lambda _: ledgers.empty(place.job, API))

    store = place.ledger()
    assert store.load(DAY)[1:] == (Batch(DAY), (), (), None, ())
    assert (store.batches(), store.resets(), store.whole().reset_rows()) == ((), (), [])


@in_every_store
def test_a_first_rebuild_has_nothing_to_keep(place: Place) -> None:
    with writing(place) as store:
        assert store.rebuild([sent()]) == ""

    assert place.ledger().batches() == (sent(),)


@in_every_store
def test_a_damaged_ledger_is_rebuilt_and_what_was_there_is_kept_aside(place: Place) -> None:
    written(place, planned(), sent("2026-01-03", "c3"))
    place.put_record(DAY, '{"state": "planned", "no')

    with writing(place) as store:
        kept = store.rebuild([sent(DAY, "c5")])

    assert place.ledger().batches() == (sent(DAY, "c5"),)
    assert '{"state": "planned", "no' in place.kept(kept)
    assert "c3" in place.kept(kept)


# ---- what cannot be used ----


@in_every_store
def test_a_ledger_of_another_api_host_is_not_used_to_send(place: Place) -> None:
    written(place, sent())
    store = place.ledger(api="127.0.0.1")

    for read in (lambda: store.load(DAY), lambda: store.glance(DAY)):
        with pytest.raises(StateUnusable, match=f"is the memory of {API}, and the settings say 127.0.0.1"):
            read()
    with held(place) as lease, pytest.raises(StateUnusable, match="is the memory of"):
        place.ledger(lease, api="127.0.0.1").rebuild([])

    assert store.batches() == place.ledger().batches() == (sent(),)


@in_every_store
def test_a_ledger_of_a_newer_sendonce_is_left_alone(place: Place) -> None:
    written(place, sent())
    place.set_version(99)
    store = place.ledger()

    for read in (lambda: store.load(DAY), lambda: store.glance(DAY), store.batches, store.whole):
        with pytest.raises(StateUnusable, match=r"version is 99, .* a newer sendonce wrote it"):
            read()
    with writing(place) as writable, pytest.raises(StateUnusable, match="version is 99"):
        writable.rebuild([])
    assert place.record(DAY)["state"] == "sent"


@in_every_store
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"state": "planned", "no', "JSON|ends in the middle"),
        ('{"state": "mailed"}', f"{DAY}.state: no state is called 'mailed'"),
        ('{"state": "planned", "state": "sent"}', "the key 'state' stands twice"),
        ('["sent"]', f"{DAY}: an object is wanted, and it is a list"),
        ('{"state": "sent", "campaigns": [{"id": ""}]}', f"{DAY}.campaigns: a campaign without an id"),
    ],
)
def test_a_damaged_record_is_named_and_left_as_it_is(place: Place, text: str, said: str) -> None:
    written(place, planned(), sent("2026-01-03", "c3"))
    place.put_record(DAY, text)
    store = place.ledger()

    for read in (lambda: store.load(DAY), lambda: store.glance(DAY), store.batches, store.whole):
        with pytest.raises(LedgerDamaged, match=said) as damaged:
            read()
        if place.is_shared:
            assert DAY in damaged.value.message
            assert place.job in damaged.value.message
    if place.is_shared:  # each record stands alone there
        assert store.glance("2026-01-03").batch == sent("2026-01-03", "c3")


@pytest.mark.parametrize("place", ["redis"], indirect=True)
@pytest.mark.parametrize("of", [DAY, "2026-01-03"])
def test_a_record_that_the_server_evicted_is_damage_and_can_be_rebuilt(place: Place, of: str) -> None:
    written(place, Batch(DAY, State.SKIPPED, reason="holiday"), sending("2026-01-03", "c3"))
    place._redis().delete(place._key(f"batch:{of}"))
    store = place.ledger()

    for read in (lambda: store.load(DAY), store.batches, lambda: store.glance(of)):
        with pytest.raises(LedgerDamaged, match=f"the row of {of}: .*it is empty"):
            read()
    with writing(place) as writable:
        writable.rebuild([sent("2026-01-03", "c3")])

    assert place.ledger().batches() == (sent("2026-01-03", "c3"),)


# ---- copies ----


@pytest.mark.parametrize(("of", "to"), list(permutations(KINDS, 2)))
def test_a_copy_is_the_same_record_by_record_and_the_source_stays(tmp_path: Path, of: str, to: str) -> None:
    place, other = new_place(of, tmp_path), new_place(to, tmp_path)
    other = Place(other.kind, other.where, place.job)
    written(other, planned("2020-01-01"))
    written(
        place,
        full(),
        sending("2026-01-03", "c3"),
        Batch("2026-01-02", State.SKIPPED, reason="é"),
        planned("2026-01-01"),
    )
    with writing(place) as store:
        store.reset(store.load("2026-01-01"), Reset("2026-01-01", ASKED_AT, "me", "why", {}))
    odd = place.record(DAY) | {"later": [1.5, {"é": "\U0001f600"}]}
    place.put_record(DAY, json.dumps(odd))
    before = place.ledger().whole()

    copied, kept = upkeep.copy_ledger(_job(place), _job(other), may_replace=True)

    assert copied == 3
    assert json.loads(other.kept(kept))["batches"].keys() == {"2020-01-01"}
    there = other.ledger().whole()
    assert (there.rows(), there.reset_rows()) == (before.rows(), before.reset_rows())
    assert other.record(DAY) == odd
    assert other.ledger().load(DAY)[1:] == place.ledger().load(DAY)[1:]
    assert place.ledger().whole() == before
    assert (place.lease().peek(), other.lease().peek()) == (None, None)


def _job(place: Place) -> compose.Job:
    environ = {
        "SENDONCE_STATE": place.where,
        "SENDONCE_TIMEZONE": "Europe/Berlin",
        "SENDONCE_JOB": place.job,
        "SENDONCE_LEASE_SECONDS": "3",
        "MAILCHIMP_API_KEY": API_KEY.replace("us1", "us19"),
    }
    return compose.open_job(load(None, None, environ, Path("/nowhere")), talk=None)


# ---- a hundred years ----

MANY = 36_500
LAST_OF_MANY = "2026-01-06"


def _hundred_years(job: str) -> ledgers.Ledger:
    first = datetime(1926, 2, 1, tzinfo=UTC)  # 36,499 days before the last
    days = ((first + timedelta(days=n)).strftime("%Y-%m-%d") for n in range(MANY))
    record = {"state": "sent", "campaigns": [{"id": "1a2b3c4d5e", "title": "daily", "emails_sent": 4812}]}
    batches: dict[str, Any] = dict.fromkeys(days, record)
    batches[LAST_OF_MANY] = {
        "state": "sending",
        "campaigns": [{"id": "c1", "requested_at": "2026-01-04T08:00:00Z"}],
    }
    return ledgers.Ledger({**ledgers.empty(job, API).document, "batches": batches})


@pytest.mark.parametrize("place", ["redis", "sqlite", "postgresql"], indirect=True)
def test_a_run_reads_its_date_and_the_open_ones_and_not_a_hundred_years(
    place: Place, request: pytest.FixtureRequest
) -> None:
    with writing(place) as store:
        store.replace(lambda _: _hundred_years(place.job))

    counted = _redis_reads if place.kind == "redis" else _sql_reads
    page, rows = counted(place, lambda store: store.load("2026-01-03"))
    assert isinstance(page, Page)
    assert (page.batch.state, page.batch.date) == (State.SENT, "2026-01-03")
    assert page.open_earlier == ()
    assert rows == 1

    last = place.ledger().load("2026-02-01").open_earlier
    assert [(b.date, b.state) for b in last] == [(LAST_OF_MANY, State.SENDING)]
    batch, rows = counted(place, lambda store: store.glance("1999-12-31").batch)
    assert isinstance(batch, Batch)
    assert (batch.state, rows) == (State.SENT, 1)
    days, rows = counted(place, lambda store: [b.date for b in store.batches("1999-12-31", "2004-01-01")])
    assert isinstance(days, list)
    assert (len(days), days[0], days[-1]) == (1463, "1999-12-31", "2004-01-01")
    assert rows == 1463
    pages = [len(rows.batches) for rows in place.backend().pages("0000-00-00", "9999-99-99")]
    assert sum(pages) == MANY
    assert max(pages) == PAGE_ROWS


def _redis_reads(place: Place, read: Callable[[Any], object]) -> tuple[object, int]:
    """How many records the server was asked for, as it saw it itself."""
    seen: list[str] = []
    client = place._redis()
    with client.monitor() as monitor:
        told = monitor.listen()
        done = read(place.ledger())
        client.ping()
        for command in told:
            if command["command"] == "PING":
                break
            seen.append(command["command"])
    ours = [command.split() for command in seen if f"{{{place.job}}}" in command]
    assert not [command for command in ours if command[0] in {"HGETALL", "HMGET"} and "batch:" in command[1]]
    return done, sum(command[0] == "HGET" for command in ours)


def _sql_reads(place: Place, read: Callable[[Any], object]) -> tuple[object, int]:
    """How many records the statements ask for, each carried out once more and counted."""
    import sqlalchemy

    store = place.ledger()
    assert not isinstance(store, FileLedger)
    backend = store._backend
    assert isinstance(backend, SqlBackend)
    asked: list[tuple[str, Any]] = []

    def note(_db: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if "FROM sendonce_batches" in statement:
            asked.append((statement, values))

    sqlalchemy.event.listen(backend._engine, "before_cursor_execute", note)
    done = read(store)
    sqlalchemy.event.remove(backend._engine, "before_cursor_execute", note)
    with backend._engine.connect() as db:
        return done, sum(len(db.exec_driver_sql(statement, values).all()) for statement, values in asked)


# ---- the tables ----


@pytest.mark.parametrize("place", SQL, indirect=True)
def test_making_ready_again_changes_nothing(place: Place) -> None:
    written(place, sent())

    place.backend().prepare()

    assert place.ledger().batches() == (sent(),)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_many_that_make_tables_at_once_all_leave_them_ready(kind: str) -> None:
    server = servers.shared(kind)
    place = Place(kind, server.url(server.new_database()), "daily")
    failed: list[BaseException] = []

    def prepare() -> None:
        try:
            place.backend().prepare()
        except compose_errors as error:
            failed.append(error)

    compose_errors = (Exception,)
    threads = [threading.Thread(target=prepare) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert [str(error) for error in failed] == []
    written(place, sent())
    assert place.ledger().batches() == (sent(),)


# ---- the pause ----


@in_every_store
def test_a_pause_stands_in_the_ledger_through_every_other_write_until_it_is_taken_back(place: Place) -> None:
    ordered = Pause("Umzug \u2013 \U0001f4e6", "root@web1", ASKED_AT, "2026-02-01")
    with writing(place) as store:
        page = store.set_pause(store.load(DAY), ordered)
        assert page.pause == ordered
        page = store.save(page, planned())
        store.reset(page, Reset(DAY, ASKED_AT, "me", "why", {}))
        store.rebuild([sent("2026-01-03")])

    assert place.ledger().load(DAY).pause == ordered
    assert place.ledger().glance(DAY).pause == ordered
    assert place.ledger().whole().pauses() == place.ledger().pauses() == (ordered,)

    over = ordered._replace(ended_at=ASKED_AT + timedelta(hours=1), ended_by="ann@web1")
    with writing(place) as store:
        assert store.set_pause(store.load(DAY), over).pause is None
    assert place.ledger().glance(DAY).pause is None
    assert place.ledger().whole().pauses() == place.ledger().pauses() == (over,)


@in_every_store
def test_a_pause_that_comes_between_reading_and_writing_stops_the_write(place: Place) -> None:
    with writing(place) as store:
        page = store.load(DAY)
        store.set_pause(store.load("2026-01-06"), Pause("stop", "root@web1", ASKED_AT))
        with pytest.raises(ClaimLost, match="changed by somebody else"):
            store.check(page)
        with pytest.raises(ClaimLost, match="changed by somebody else"):
            store.save(page, planned())

    assert place.ledger().batches() == ()


@on_every_server
def test_a_pause_that_cannot_be_read_is_damage(place: Place) -> None:
    written(place, planned())
    if place.kind == "redis":
        place._redis().hset(place._key("head"), "pause", '{"reason": 5')
    else:
        place._sql("UPDATE sendonce_ledgers SET pause = '{\"reason\": 5' WHERE job = :job")

    with pytest.raises(LedgerDamaged, match="the pause"):
        place.ledger().glance(DAY)


@on_every_server
def test_a_rebuild_of_a_damaged_ledger_keeps_a_pause_that_can_be_read_and_mends_one_that_cannot(
    place: Place,
) -> None:
    ordered = Pause("legal hold", "root@web1", ASKED_AT)
    written(place, planned())
    with writing(place) as store:
        store.set_pause(store.load(DAY), ordered)
    place.put_record(DAY, '{"state": "planned", "no')
    with writing(place) as store:
        store.rebuild([])
    assert place.ledger().glance(DAY).pause == ordered

    if place.kind == "redis":
        place._redis().hset(place._key("head"), "pause", '{"reason": 5')
    else:
        place._sql("UPDATE sendonce_ledgers SET pause = '{\"reason\": 5' WHERE job = :job")
    with writing(place) as store:
        store.rebuild([])
    assert place.ledger().glance(DAY).pause is None


@in_every_store
def test_a_glance_says_while_paused_whether_an_earlier_date_is_open(place: Place) -> None:
    written(place, sending("2026-01-03"))
    assert place.ledger().glance(DAY).has_open_earlier is False
    with writing(place) as store:
        store.set_pause(store.load(DAY), Pause("stop", "root@web1", ASKED_AT))
    assert place.ledger().glance(DAY).has_open_earlier is True
    assert place.ledger().glance("2026-01-02").has_open_earlier is False
