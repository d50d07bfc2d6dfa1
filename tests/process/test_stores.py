"""The ledger on a real disk: one step with its check, whole or not at all, and never where it must not be."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.stores import FileLedger
from sendonce.core.errors import ClaimLost, InvariantBroken, LedgerDamaged, StateUnusable, Stopped, Temporary
from sendonce.core.model import Batch, Entry, Page, Reset, State
from support import ordinary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

DAY = "2026-01-05"
API = "us19.api.mailchimp.com"
CRASH_CHILD = Path(ordinary.__file__).with_name("crash_child.py")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave something that is not ours")


class Claim:
    def __init__(self) -> None:
        self.ours = True

    def is_ours(self) -> bool:
        return self.ours


class FastClock(SystemClock):
    """Naps take no time but count."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return self.slept_s

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def path(state: Path) -> Path:
    return state / "daily.json"


def store_on(path: Path, *, claim: Claim | None = None, api: str = API, job: str = "daily") -> FileLedger:
    return FileLedger(path, job=job, api=api, claim=claim or Claim(), clock=SystemClock())


def planned(date: str = DAY, nonce: str = "5e0e96f7") -> Batch:
    return Batch(date, State.PLANNED, nonce=nonce)


def ready() -> Batch:
    return Batch(DAY, State.READY, campaigns=(Entry("c1", "daily 2026-01-05"),))


def written(path: Path, *batches: Batch) -> bytes:
    """Have the store write `batches`, one after the other; what stands in the file then."""
    store = store_on(path)
    for batch in batches or (planned(), ready()):
        store.save(store.load(batch.date), batch)
    return path.read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def traces(folder: Path) -> list[tuple[str, int, int]]:
    """Everything that a change in the folder would change."""
    found = [folder, *folder.iterdir()]
    return sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_ino) for p in found)


# ---- reading and writing ----


def test_a_first_start_has_a_folder_and_no_ledger(state: Path, path: Path) -> None:
    page = store_on(path).load(DAY)

    assert page.batch == Batch(DAY, State.NONE)
    assert (page.forgotten, page.open_earlier) == ((), ())
    assert (store_on(path).batches(), store_on(path).resets()) == ((), ())
    assert names(state) == []


def test_what_is_saved_is_read_by_the_next_run(state: Path, path: Path) -> None:
    store = store_on(path)

    page = store.save(store.load(DAY), planned())
    page = store.save(page, ready())

    assert page.batch == ready()
    assert store_on(path).load(DAY).batch == ready()
    assert store_on(path).batches() == (ready(),)
    store.check(page)


def test_the_version_before_the_last_write_is_kept(state: Path, path: Path) -> None:
    first = written(path, planned())
    assert names(state) == ["daily.json", "daily.json.guard"]

    written(path, ready())

    assert names(state) == ["daily.json", "daily.json.bak", "daily.json.guard"]
    assert (state / "daily.json.bak").read_bytes() == first


def test_ledger_and_backup_are_ours_alone_whatever_the_umask(state: Path, path: Path) -> None:
    before = os.umask(0)
    try:
        written(path, planned(), ready())
    finally:
        os.umask(before)

    assert [(state / name).stat().st_mode & 0o777 for name in ("daily.json", "daily.json.bak")] == [
        0o600,
        0o600,
    ]


def test_open_batches_and_forgotten_ones_come_with_the_page(path: Path) -> None:
    asked = Entry("c0", "daily 2026-01-03", requested_at=datetime(2026, 1, 3, 8, tzinfo=UTC))
    open_one = Batch("2026-01-03", State.SENDING, campaigns=(asked,))
    written(
        path, Batch("2026-01-03", State.READY, campaigns=(asked,)), open_one, planned("2026-01-04"), ready()
    )
    store = store_on(path)
    store.reset(
        store.load(DAY), Reset(DAY, datetime(2026, 1, 5, 9, tzinfo=UTC), "root@web1", "wrong list", {})
    )

    page = store.load(DAY)

    assert page.batch == Batch(DAY, State.NONE)
    assert page.forgotten == (ready(),)
    assert page.open_earlier == (open_one,)
    assert [(reset.date, reset.by, reset.reason) for reset in store.resets()] == [
        (DAY, "root@web1", "wrong list")
    ]


def test_one_record_can_be_read_without_the_page_around_it(path: Path) -> None:
    store = store_on(path)
    assert store.glance(DAY).batch == Batch(DAY, State.NONE)
    written(path)

    assert store.glance(DAY).batch == ready()
    with pytest.raises(StateUnusable, match="memory of"):
        store_on(path, api="127.0.0.1:8025").glance(DAY)
    path.write_bytes(b"")
    with pytest.raises(LedgerDamaged, match="it is empty"):
        store.glance(DAY)


def test_an_earlier_batch_is_saved_within_the_page_of_a_later_date(path: Path) -> None:
    written(path, planned("2026-01-04"), planned())
    store = store_on(path)

    page = store.save(store.load(DAY), Batch("2026-01-04", State.SKIPPED, reason="holiday"))

    assert page.batch == planned()
    assert store.glance("2026-01-04").batch.reason == "holiday"
    store.save(page, ready())


def test_fields_that_a_person_added_survive_a_reset(path: Path) -> None:
    document = json.loads(written(path))
    document["x_note"] = document["batches"][DAY]["x_note"] = "kept by a person"
    path.write_text(json.dumps(document))
    store = store_on(path)

    store.reset(store.load(DAY), Reset(DAY, datetime(2026, 1, 5, 9, tzinfo=UTC), "", "", {}))

    after = json.loads(path.read_bytes())
    assert after["x_note"] == "kept by a person"
    assert after["resets"][0]["was"]["x_note"] == "kept by a person"


def test_reading_needs_nothing_that_is_heavy(path: Path) -> None:
    written(path)
    code = (
        "import sys; before = set(sys.modules); from sendonce.adapters.stores import FileLedger;"
        "store = FileLedger(sys.argv[1], job='daily', api=sys.argv[2], claim=None, clock=None);"
        "store.load('2026-01-05'); print(*set(sys.modules) - before)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code, path, API], capture_output=True, text=True, check=True
    )

    assert "sendonce.core.ledger" in loaded.stdout
    heavy = {
        "filelock",
        "hashlib",
        "logging",
        "requests",
        "subprocess",
        "tempfile",
        "socket",
        "ssl",
        "signal",
    }
    assert not heavy & set(loaded.stdout.split())


# ---- one step with its check ----


def test_a_page_that_another_run_has_outdated_cannot_be_saved(path: Path) -> None:
    frozen, successor = store_on(path), store_on(path)
    page = frozen.load(DAY)
    successor.save(successor.load(DAY), ready())
    before = path.read_bytes()

    for attempt in (
        lambda: frozen.check(page),
        lambda: frozen.save(page, planned()),
        lambda: frozen.reset(page, Reset(DAY, datetime(2026, 1, 5, 9, tzinfo=UTC), "", "", {})),
    ):
        with pytest.raises(ClaimLost, match="was changed by somebody else"):
            attempt()

    assert path.read_bytes() == before


def test_a_ledger_that_was_taken_away_meanwhile_is_not_made_anew(path: Path) -> None:
    written(path)
    store = store_on(path)
    page = store.load(DAY)
    path.unlink()

    with pytest.raises(ClaimLost):
        store.save(page, ready())

    assert not path.exists()


def test_without_the_lease_nothing_is_written(path: Path) -> None:
    before = written(path)
    claim = Claim()
    store = store_on(path, claim=claim)
    page = store.load(DAY)
    claim.ours = False

    for attempt in (
        lambda: store.check(page),
        lambda: store.save(page, ready()),
        lambda: store.reset(page, Reset(DAY, datetime(2026, 1, 5, 9, tzinfo=UTC), "", "", {})),
        lambda: store.rebuild([]),
    ):
        with pytest.raises(ClaimLost, match="no longer this run's"):
            attempt()

    assert path.read_bytes() == before


def test_of_many_writers_with_one_page_one_gets_through(path: Path) -> None:
    written(path)
    code = (
        "import sys; from sendonce.adapters.clock import SystemClock; from sendonce.adapters.stores import FileLedger;"
        "from sendonce.core.model import Batch, State; from sendonce.core.errors import ClaimLost\n"
        "class Ours:\n def is_ours(self): return True\n"
        "store = FileLedger(sys.argv[1], job='daily', api=sys.argv[2], claim=Ours(), clock=SystemClock())\n"
        "page = store.load('2026-01-05'); print('ready', flush=True); sys.stdin.read()\n"
        "try:\n store.save(page, Batch('2026-01-05', State.SKIPPED, reason=sys.argv[3])); print('saved')\n"
        "except ClaimLost: print('lost')\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, path, API, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    said = [writer.communicate()[0].strip() for writer in writers]

    assert sorted(said) == ["lost", "lost", "lost", "saved"]
    assert store_on(path).load(DAY).batch.reason == str(said.index("saved"))


def test_a_store_for_reading_cannot_write(path: Path) -> None:
    store = FileLedger(path, job="daily", api=API, claim=None, clock=SystemClock())
    page = store.load(DAY)

    for attempt in (lambda: store.save(page, ready()), lambda: store.check(page), lambda: store.rebuild([])):
        with pytest.raises(InvariantBroken, match="opened for reading"):
            attempt()

    assert not path.exists()


def test_a_page_belongs_to_its_store_and_its_date(path: Path) -> None:
    store = store_on(path)
    page = store.load(DAY)

    with pytest.raises(InvariantBroken, match="not one of this store"):
        store.save(Page(stamp=b"", batch=page.batch), ready())
    with pytest.raises(InvariantBroken, match="the reset that of 2026-01-06"):
        store.reset(page, Reset("2026-01-06", datetime(2026, 1, 5, 9, tzinfo=UTC), "", "", {}))


def test_an_illegal_change_is_not_written(path: Path) -> None:
    before = written(path, Batch(DAY, State.SKIPPED, reason="holiday"))
    store = store_on(path)

    with pytest.raises(InvariantBroken, match="skipped may not become ready"):
        store.save(store.load(DAY), ready())

    assert path.read_bytes() == before


def test_a_guard_that_somebody_holds_is_waited_for_ten_seconds(path: Path) -> None:
    before = written(path)
    clock = FastClock()
    store = FileLedger(path, job="daily", api=API, claim=Claim(), clock=clock)
    page = store.load(DAY)
    with path.with_name("daily.json.guard").open() as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with pytest.raises(Temporary, match=r"has held .*daily\.json\.guard for 10 s"):
            store.save(page, ready())
        fcntl.flock(guard, fcntl.LOCK_UN)
        assert path.read_bytes() == before
        assert 10 <= clock.slept_s < 10.2

        store.save(page, ready())


def test_a_guard_that_is_swapped_while_it_is_taken_is_not_trusted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path)
    store = store_on(path)
    page = store.load(DAY)
    guard = path.with_name("daily.json.guard")
    real = fcntl.flock
    swapped: list[int] = []

    def swap_once(descriptor: int, how: int) -> None:
        if not swapped:
            swapped.append(descriptor)
            guard.unlink()
            guard.touch()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", swap_once)
    store.save(page, ready())

    assert swapped


def test_a_file_system_without_locks_is_named_as_such(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    store = store_on(path)
    page = store.load(DAY)
    monkeypatch.setattr(fcntl, "flock", no_locks)

    with pytest.raises(StateUnusable, match=r"can lock files \(flock\)"):
        store.save(page, ready())


# ---- crashes and signals ----


def test_a_crash_at_any_call_leaves_the_old_ledger_or_the_new_one(
    tmp_path: Path, state: Path, path: Path
) -> None:
    old = written(path).decode()
    lines = subprocess.run(
        [sys.executable, CRASH_CHILD, path, "daily", API, "2026-01-06"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    crashes = [json.loads(line) for line in lines]

    assert len(crashes) > 20
    new = crashes[0]["saved"]
    assert json.loads(new)["batches"]["2026-01-06"]["state"] == "skipped"
    assert {crash["crashed"] for crash in crashes} == {old, new}
    assert all(crash["saved"] == new for crash in crashes)
    assert all(crash["names"] == ["daily.json", "daily.json.bak", "daily.json.guard"] for crash in crashes)


def test_a_file_is_on_the_disk_before_it_takes_its_place_and_its_folder_after(
    state: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path)
    store = store_on(path)
    page = store.load(DAY)
    force, replace = os.fsync, os.replace
    steps: list[tuple[str, int]] = []

    def noted_force(descriptor: int) -> None:
        force(descriptor)
        steps.append(("forced", os.fstat(descriptor).st_ino))

    def noted_replace(source: Path, target: Path) -> None:
        steps.append(("placed", source.stat().st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_force)
    monkeypatch.setattr(os, "replace", noted_replace)
    store.save(page, Batch(DAY, State.SKIPPED, reason="holiday"))

    backup, new, folder = (found.stat().st_ino for found in (path.with_name("daily.json.bak"), path, state))
    assert steps == [
        ("forced", backup),
        ("placed", backup),
        ("forced", folder),
        ("forced", new),
        ("placed", new),
        ("forced", folder),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_a_write_takes_effect_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    written(path)
    store = store_on(path)
    page = store.load(DAY)
    real = os.fsync

    def interrupted(descriptor: int) -> None:
        signal.raise_signal(number)
        real(descriptor)

    def stop(received: int, _frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(received).name)

    before = signal.signal(number, stop)
    monkeypatch.setattr(os, "fsync", interrupted)
    try:
        with pytest.raises(Stopped, match=number.name):
            store.save(page, Batch(DAY, State.SKIPPED, reason="all of it"))
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)

    assert store_on(path).load(DAY).batch.reason == "all of it"
    assert names(path.parent) == ["daily.json", "daily.json.bak", "daily.json.guard"]


def test_a_signal_that_is_ignored_stays_ignored_during_a_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = os.fsync, set()

    def look(descriptor: int) -> None:
        seen.add(signal.getsignal(signal.SIGHUP))
        real(descriptor)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(os, "fsync", look)
    try:
        written(path)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert seen == {signal.SIG_IGN}


def test_the_thread_that_ends_a_run_can_write_too(path: Path) -> None:
    import threading

    thread = threading.Thread(target=written, args=(path, planned()))
    thread.start()
    thread.join()

    assert store_on(path).load(DAY).batch == planned()


# ---- damage ----


def damages() -> dict[str, Callable[[bytes], bytes]]:
    return {
        "empty": lambda _good: b"",
        "NULs": lambda good: b"\0" * len(good),
        "NULs at the end": lambda good: good + b"\0" * 512,
        "half": lambda good: good[: len(good) // 2],
        "all but the last byte": lambda good: good.rstrip()[:-1],
        "twice": lambda good: good * 2,
        "UTF-16": lambda good: good.decode().encode("utf-16"),
        "Latin-1": lambda good: good.rstrip()[:-1] + b', "note": "caf\xe9"}',
        "deep": lambda _good: b"[" * 100_000 + b"]" * 100_000,
        "a huge number": lambda good: good.rstrip()[:-1] + b', "x": ' + b"9" * 5000 + b"}",
    }


@pytest.mark.parametrize("kind", damages())
def test_a_damaged_ledger_stops_everything_and_is_left_as_it_is(state: Path, path: Path, kind: str) -> None:
    bad = damages()[kind](written(path))
    path.write_bytes(bad)
    before = traces(state)
    store = store_on(path)

    for attempt in (lambda: store.load(DAY), store.batches, store.resets):
        with pytest.raises(LedgerDamaged) as caught:
            attempt()
        said = caught.value.message
        assert f"The ledger {path} ({len(bad)} bytes) is damaged: line " in said
        assert re.search(r"line \d+, byte \d+", said)
        assert f"{path}.bak is the version before" in said
        assert "`sendonce ledger rebuild`" in said

    assert traces(state) == before
    assert path.read_bytes() == bad


def test_a_backup_that_is_not_there_is_not_spoken_of(path: Path) -> None:
    path.write_bytes(b"")

    with pytest.raises(LedgerDamaged) as caught:
        store_on(path).load(DAY)

    assert ".bak" not in caught.value.message


def test_an_odd_field_of_the_batch_in_question_is_damage_too(path: Path) -> None:
    document = json.loads(written(path))
    document["batches"][DAY]["campaigns"][0]["title"] = 7
    path.write_text(json.dumps(document))

    with pytest.raises(LedgerDamaged, match=r"\d+ bytes\) is damaged: 2026-01-05.campaigns.title"):
        store_on(path).load(DAY)


def test_a_ledger_of_a_newer_sendonce_is_neither_used_nor_rebuilt(path: Path) -> None:
    document = json.loads(written(path)) | {"version": 99}
    path.write_text(json.dumps(document))
    before = path.read_bytes()
    store = store_on(path)

    for attempt in (lambda: store.load(DAY), store.batches, lambda: store.rebuild([])):
        with pytest.raises(StateUnusable, match="a newer sendonce wrote it") as caught:
            attempt()
        assert "rebuild" not in caught.value.message

    assert path.read_bytes() == before


def test_the_ledger_of_another_api_host_silences_nothing(path: Path) -> None:
    before = written(path)
    store = store_on(path, api="127.0.0.1:8025")

    for attempt in (lambda: store.load(DAY), lambda: store.rebuild([])):
        with pytest.raises(
            StateUnusable, match=r"memory of us19\.api\.mailchimp\.com, .* settings say 127\.0\.0\.1:8025"
        ):
            attempt()

    assert store.batches() == (ready(),)
    assert path.read_bytes() == before


def test_the_ledger_of_another_job_is_not_taken_for_ours(state: Path, path: Path) -> None:
    written(path)
    path.rename(state / "weekly.json")

    with pytest.raises(StateUnusable, match="is that of the job 'daily', and this is the job 'weekly'"):
        store_on(state / "weekly.json", job="weekly").load(DAY)


# ---- rebuilding ----


def test_a_rebuild_replaces_a_damaged_ledger_and_keeps_it_and_its_backup(state: Path, path: Path) -> None:
    written(path)
    backup = (state / "daily.json.bak").read_bytes()
    path.write_bytes(b"{ damaged")
    sent = Batch(DAY, State.SENT, campaigns=(Entry("c1", "daily 2026-01-05", by="by hand"),))

    kept = [store_on(path).rebuild([sent])]
    path.write_bytes(b"damaged again")
    kept.append(store_on(path).rebuild([sent]))

    assert store_on(path).batches() == (sent,)
    assert [Path(name).read_bytes() for name in kept] == [b"{ damaged", b"damaged again"]
    assert all(name.startswith(f"{path}.replaced-2") for name in kept)
    assert (state / "daily.json.bak").read_bytes() == backup
    assert len(names(state)) == 5


def test_a_rebuild_without_a_ledger_makes_one(path: Path) -> None:
    assert store_on(path).rebuild([planned()]) == ""
    assert store_on(path).batches() == (planned(),)


def test_two_rebuilds_in_one_second_keep_both_ledgers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class StandingClock(SystemClock):
        def now(self) -> datetime:
            return datetime(2026, 1, 5, 8, 0, 4, tzinfo=UTC)

    store = FileLedger(path, job="daily", api=API, claim=Claim(), clock=StandingClock())
    written(path)

    kept = [store.rebuild([planned()]), store.rebuild([])]

    assert kept == [f"{path}.replaced-20260105T080004Z-1", f"{path}.replaced-20260105T080004Z-2"]
    assert json.loads(Path(kept[1]).read_bytes())["batches"][DAY]["state"] == "planned"


def test_a_rebuild_keeps_resets_and_skipped_dates_of_a_ledger_that_can_be_read(path: Path) -> None:
    written(path, Batch("2026-01-01", State.SKIPPED, reason="holiday"), ready())
    store = store_on(path)
    store.reset(store.load(DAY), Reset(DAY, datetime(2026, 1, 5, 9, tzinfo=UTC), "root@web1", "x", {}))

    store.rebuild([planned("2026-01-04")])

    assert [batch.date for batch in store.batches()] == ["2026-01-01", "2026-01-04"]
    assert store.load(DAY).forgotten == (ready(),)


@pytest.mark.parametrize(
    "was", [{"state": "ready", "nonce": 7}, {"state": "ready", "campaigns": [{"id": "c", "title": 7}]}]
)
def test_a_rebuild_does_not_take_over_a_reset_that_cannot_be_read(path: Path, was: dict[str, Any]) -> None:
    document = json.loads(written(path))
    document["resets"] = [{"date": DAY, "at": "2026-01-05T09:00:00Z", "by": "", "reason": "", "was": was}]
    path.write_text(json.dumps(document))
    with pytest.raises(LedgerDamaged):
        store_on(path).load(DAY)

    store_on(path).rebuild([])

    assert store_on(path).load(DAY).forgotten == ()


# ---- links ----


@pytest.fixture
def linked(tmp_path: Path, path: Path) -> Path:
    """The file that `path` is a link to, by way of a second link."""
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o700)
    real = volume / "real.json"
    written(real)
    (tmp_path / "second").symlink_to(real)
    path.symlink_to(tmp_path / "second")
    return real


def test_a_link_is_followed_and_kept(path: Path, linked: Path) -> None:
    store = store_on(path)
    before = linked.read_bytes()

    store.save(store.load(DAY), Batch(DAY, State.SKIPPED, reason="holiday"))

    assert path.is_symlink()
    assert json.loads(linked.read_bytes())["batches"][DAY]["reason"] == "holiday"
    assert path.with_name("daily.json.bak").read_bytes() == before
    assert names(path.parent) == ["daily.json", "daily.json.bak"]
    assert names(linked.parent) == ["real.json", "real.json.bak", "real.json.guard"]


def test_two_links_to_one_ledger_meet_at_one_guard(tmp_path: Path, path: Path, linked: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / "daily.json").symlink_to(linked)
    first, second = store_on(path), store_on(other / "daily.json")
    page = first.load(DAY)
    second.save(second.load(DAY), Batch(DAY, State.SKIPPED, reason="second"))

    with pytest.raises(ClaimLost):
        first.save(page, ready())


def test_a_dangling_link_is_no_first_start(path: Path, linked: Path) -> None:
    linked.unlink()

    with pytest.raises(StateUnusable, match=r"is a link to .*, and nothing is there"):
        store_on(path).load(DAY)


def test_a_link_in_a_circle_is_refused(path: Path) -> None:
    path.symlink_to(path.name)

    for attempt in (lambda: store_on(path).load(DAY), store_on(path).check_writable):
        with pytest.raises(StateUnusable, match="leads in a circle"):
            attempt()


# ---- impossible places ----


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return "is a pipe"


def folder(path: Path) -> str:
    path.mkdir()
    return "is a folder"


def device(path: Path) -> str:
    path.symlink_to("/dev/null")
    return "is a device"


@pytest.mark.parametrize("obstacle", [fifo, folder, device])
def test_what_is_no_file_in_the_ledgers_place_is_refused_at_once(
    state: Path, path: Path, obstacle: Callable[[Path], str]
) -> None:
    said = obstacle(path)
    store = store_on(path)

    for attempt in (lambda: store.load(DAY), store.check_writable, lambda: store.rebuild([])):
        with pytest.raises(StateUnusable, match=f"{said}.*, not a file"):
            attempt()

    assert names(state) == ["daily.json"]


@pytest.mark.parametrize(
    "name", ["daily.json.guard", "daily.json.tmp", "daily.json.bak", "daily.json.bak.tmp"]
)
def test_a_folder_in_the_place_of_a_file_beside_the_ledger_is_named(
    state: Path, path: Path, name: str
) -> None:
    before = written(path)
    (state / name).unlink(missing_ok=True)
    (state / name).mkdir()
    store = store_on(path)

    with pytest.raises(StateUnusable, match=re.escape(str(state))):
        store.save(store.load(DAY), Batch(DAY, State.SKIPPED, reason="holiday"))

    assert path.read_bytes() == before


def test_a_link_in_the_place_of_the_guard_is_not_followed(state: Path, path: Path) -> None:
    path.with_name("daily.json.guard").symlink_to(state / "elsewhere")

    with pytest.raises(StateUnusable, match=r"guard is a link, not a file"):
        store_on(path).check_writable()

    assert names(state) == ["daily.json.guard"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("missing/daily.json", "does not exist. An unmounted volume looks like this"),
        (f"{'n' * 300}/daily.json", "File name too long"),
        ("a-file/daily.json", "Not a directory"),
    ],
)
def test_a_state_folder_that_is_not_there_is_not_made(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "a-file").touch()
    store = store_on(tmp_path / place)

    for attempt in (lambda: store.load(DAY), store.check_writable, store.batches):
        with pytest.raises(StateUnusable) as caught:
            attempt()
        assert said in caught.value.message

    assert names(tmp_path) == ["a-file"]


# ---- whose it is ----


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of an ordinary user, whom we are meanwhile."""
    with ordinary.ordinary_user_and_folder() as made:
        made.chmod(0o700)
        yield made
        made.chmod(0o700)


def refused(path: Path, attempt: str = "check_writable") -> str:
    """What is said of a ledger that cannot be written, of which nothing may change."""
    before = traces(path.parent)
    store = store_on(path)
    with pytest.raises(StateUnusable) as caught:
        store.batches() if attempt == "batches" else store.check_writable()
    assert traces(path.parent) == before
    assert f"we are uid {os.geteuid()}" in caught.value.message
    return caught.value.message


def test_a_place_that_can_be_written_is_found_so_without_a_change(home: Path) -> None:
    path = home / "daily.json"
    store_on(path).check_writable()
    assert names(home) == []
    written(path)
    before = traces(home)

    store_on(path).check_writable()

    assert traces(home) == before


@needs_root
def test_a_ledger_that_root_left_unreadable_is_refused_by_the_first_look(home: Path) -> None:
    path = home / "daily.json"
    with ordinary.root_for_a_moment():
        path.touch(mode=0o600)
        os.chown(path, 0, 0)

    said = refused(path, "batches")

    assert f"The ledger {path} cannot be read: Permission denied ({path}: owner uid 0, mode 0600, and" in said


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o1777])
def test_a_ledger_of_somebody_else_is_not_replaced_though_the_folder_would_allow_it(
    home: Path, mode: int
) -> None:
    path = home / "daily.json"
    before = written(path)
    with ordinary.root_for_a_moment():
        path.chmod(0o644)
        os.chown(path, 0, 0)
        home.chmod(mode)

    said = refused(path)
    store = store_on(path)
    with pytest.raises(StateUnusable):
        store.save(store.load(DAY), Batch(DAY, State.SKIPPED, reason="holiday"))

    assert f"{path} may not be written: owner uid 0, mode 0644" in said
    assert path.read_bytes() == before


@needs_root
def test_root_does_not_take_over_the_ledger_of_a_user(state: Path, path: Path) -> None:
    written(path)
    os.chown(path, ordinary.NOBODY, ordinary.NOBODY)

    assert f"owner uid {ordinary.NOBODY}, mode 0600" in refused(path)


@needs_root
def test_a_state_folder_of_somebody_else_is_refused(state: Path, path: Path) -> None:
    os.chown(state, ordinary.NOBODY, ordinary.NOBODY)

    assert f"The state folder {state} belongs to somebody else: owner uid {ordinary.NOBODY}" in refused(path)


@needs_root
def test_a_state_folder_that_another_group_may_write_is_refused(state: Path, path: Path) -> None:
    os.chown(state, 0, ordinary.NOBODY)
    state.chmod(0o770)

    assert f"The state folder {state} may be written by other users" in refused(path)


def test_a_state_folder_that_anybody_may_write_is_refused(state: Path, path: Path) -> None:
    state.chmod(0o777)

    said = refused(path)

    assert "mode 0777" in said
    assert f"chmod go-w {state}" in said


def test_a_state_folder_that_our_own_group_may_write_is_fine(state: Path, path: Path) -> None:
    os.chown(state, -1, os.getegid())
    state.chmod(0o770)

    store_on(path).check_writable()


def test_a_folder_that_may_not_be_written_is_refused(home: Path) -> None:
    path = home / "daily.json"
    written(path)
    home.chmod(0o500)

    assert f"The ledger {path} cannot be written: {home}: Permission denied ({home}: owner uid" in refused(
        path
    )


def test_a_ledger_of_our_own_that_was_made_read_only_is_not_replaced_even_by_root(path: Path) -> None:
    before = written(path)
    path.chmod(0o444)
    store = store_on(path)

    assert "mode 0444" in refused(path)
    with pytest.raises(StateUnusable):
        store.save(store.load(DAY), Batch(DAY, State.SKIPPED, reason="holiday"))

    assert path.read_bytes() == before


def test_a_write_that_does_not_fit_leaves_the_old_ledger_and_no_rest(state: Path, path: Path) -> None:
    before = written(path)
    store = store_on(path)
    page = store.load(DAY)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
    try:
        with pytest.raises(StateUnusable, match="File too large"):
            store.save(page, Batch(DAY, State.REFUSED, campaigns=page.batch.campaigns, reason="r" * 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert path.read_bytes() == before
    assert names(state) == ["daily.json", "daily.json.bak", "daily.json.guard"]
    store.save(page, Batch(DAY, State.SKIPPED, reason="holiday"))


@pytest.mark.parametrize(
    ("code", "is_fine"), [(errno.EINVAL, True), (errno.EOPNOTSUPP, True), (errno.EIO, False)]
)
def test_a_folder_that_cannot_be_forced_to_the_disk_is_a_fault_only_where_it_could_be(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_fine: bool
) -> None:
    real = os.fsync

    def no_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        real(descriptor)

    store = store_on(path)
    page = store.load(DAY)
    monkeypatch.setattr(os, "fsync", no_folders)
    if is_fine:
        assert store.save(page, ready()).batch == ready()
    else:
        with pytest.raises(StateUnusable, match=r"Input/output error.*see what ails that file system"):
            store.save(page, ready())


# ---- on file systems of their own ----


@pytest.mark.system
def test_a_full_disk_leaves_the_old_ledger_and_no_rest(state: Path, path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k,mode=700", "tmpfs", state], check=True)
    try:
        before = written(path)
        store = store_on(path)
        page = store.load(DAY)
        (state / "filler").write_bytes(b"x" * 4096)
        batch = Batch(DAY, State.REFUSED, campaigns=page.batch.campaigns, reason="r" * 30_000)
        with pytest.raises(StateUnusable, match=r"No space left on device.*free some space"):
            store.save(page, batch)
        assert path.read_bytes() == before
        assert names(state) == ["daily.json", "daily.json.bak", "daily.json.guard", "filler"]
    finally:
        subprocess.run(["umount", state], check=True)


@pytest.mark.system
def test_a_read_only_file_system_is_found_before_anything_is_sent(state: Path, path: Path) -> None:
    written(path)
    subprocess.run(["mount", "--bind", "-o", "ro", state, state], check=True)
    try:
        assert "Read-only file system" in refused(path)
    finally:
        subprocess.run(["umount", state], check=True)


@pytest.mark.system
def test_a_single_mounted_file_is_refused_with_what_to_mount_instead(
    tmp_path: Path, state: Path, path: Path
) -> None:
    before = written(path)
    volume = tmp_path / "volume.json"
    volume.write_bytes(before)
    subprocess.run(["mount", "--bind", volume, path], check=True)
    try:
        store = store_on(path)
        with pytest.raises(StateUnusable, match="mount the folder instead of the single file"):
            store.save(store.load(DAY), Batch(DAY, State.SKIPPED, reason="holiday"))
        assert path.read_bytes() == before
        assert "daily.json.tmp" not in names(state)
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_ledger_of_ten_years_is_saved_and_read(path: Path) -> None:
    first = datetime(2016, 1, 1, tzinfo=UTC)
    days = [(first + timedelta(days=number)).date().isoformat() for number in range(3650)]
    store = store_on(path)
    store.rebuild(Batch(day, State.SENT, campaigns=(Entry(f"c{day}", day, emails_sent=1),)) for day in days)

    page = store.save(store.load(DAY), ready())

    assert len(store.batches()) == 3651
    assert page.open_earlier == ()
