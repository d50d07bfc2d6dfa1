"""The lease between real processes: who gets it, from whom, when, and what becomes of odd markers."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.holder import Standing, describe
from sendonce.adapters.lease import FileLease
from sendonce.core.errors import LeaseBusy, Refused, StateUnusable, Stopped
from support import markers
from support.ordinary import NOBODY, ordinary_user_and_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

CHILD = Path(markers.__file__).with_name("lease_child.py")


class CountingClock(SystemClock):
    """The real clock, `ahead_s` fast; counts the naps, and does `at_nap` in them."""

    def __init__(self, ahead_s: float = 0.0, at_nap: Callable[[], None] = lambda: None) -> None:
        self.naps: list[float] = []
        self._made_at = self.monotonic()
        self._ahead_s = ahead_s
        self._at_nap = at_nap

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._ahead_s)

    def waited_s(self) -> float:
        """How long ago this clock was made: a test may say that it is long enough, never that it is short."""
        return self.monotonic() - self._made_at

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self._at_nap()
        super().sleep(seconds)


class Recorder:
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.events: list[str] = []

    def note(self, event: str, **_facts: object) -> None:
        self.events.append(event)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


class Child:
    """A process that takes the lease; see support/lease_child.py."""

    def __init__(self, lock: Path, *, lease_s: float, wait_s: float = 0.0, held: Path | None = None) -> None:
        arguments = [str(CHILD), str(lock), str(lease_s), str(wait_s), *([str(held)] if held else [])]
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def asked(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.hears()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "daily.lock"


def lease_on(
    lock: Path,
    *,
    lease_s: float = 1.0,
    wait_s: float = 60.0,
    clock: SystemClock | None = None,
    witness: Recorder | None = None,
) -> FileLease:
    return FileLease(
        lock, lease_s=lease_s, wait_s=wait_s, clock=clock or SystemClock(), witness=witness or Recorder()
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def held(lease: FileLease) -> Iterator[FileLease]:
    lease.acquire(None)
    try:
        yield lease
    finally:
        lease.release()


# ---- a free lease, and one that is in use ----


def test_a_free_lease_is_taken_without_a_wait_and_gives_its_place_free_again(lock: Path) -> None:
    clock = CountingClock()
    lease = lease_on(lock, clock=clock)
    assert not lease.is_ours()

    with held(lease):
        assert lease.is_ours()
        assert clock.naps == []

    assert not lease.is_ours()
    assert list(lock.parent.iterdir()) == []


def test_one_lease_can_be_taken_again_and_released_more_than_once(lock: Path) -> None:
    lease = lease_on(lock)
    lease.release()
    for _ in range(2):
        lease.acquire(None)
        assert lease.is_ours()
        lease.release()
        lease.release()

    assert not lock.exists()


def test_a_live_holder_is_waited_for_but_never_replaced(lock: Path) -> None:
    with Child(lock, lease_s=3) as child:
        assert child.hears() == "held"
        with pytest.raises(LeaseBusy) as caught:
            lease_on(lock, lease_s=3, wait_s=4).acquire(None)
        assert child.asked("ours") == "yes"
        said = caught.value.message

    assert f"held by pid {child.process.pid} on host {socket.gethostname()}" in said
    assert f" since {datetime.now(UTC):%Y-%m-}" in said
    assert "renewed 0 s ago" in said or "renewed 1 s ago" in said
    assert "Nothing was sent; run again." in said
    assert "\n" not in said


def test_the_lease_is_taken_as_soon_as_its_holder_gives_it_back(lock: Path) -> None:
    with Child(lock, lease_s=60) as child:
        assert child.hears() == "held"
        clock = CountingClock(at_nap=lambda: None if len(clock.naps) > 1 else assert_released(child))
        with held(lease_on(lock, lease_s=60, clock=clock)) as lease:
            assert lease.is_ours()
            assert len(clock.naps) == 1


def assert_released(child: Child) -> None:
    assert child.asked("release") == "released"


def test_waiting_is_a_look_every_half_second_and_not_a_spin(lock: Path) -> None:
    with Child(lock, lease_s=60) as child:
        assert child.hears() == "held"
        clock = CountingClock()
        with pytest.raises(LeaseBusy):
            lease_on(lock, lease_s=60, wait_s=1.6, clock=clock).acquire(None)

    assert clock.naps[0] == 0.5
    assert len(clock.naps) <= 4


def test_a_wait_ends_at_the_deadline_of_the_run(lock: Path) -> None:
    markers.make(lock, "empty", 60)
    clock = CountingClock()

    with pytest.raises(LeaseBusy, match="no owner is recorded"):
        lease_on(lock, lease_s=60, wait_s=600, clock=clock).acquire(clock.monotonic() + 0.7)

    assert len(clock.naps) <= 2
    assert lock.read_bytes() == b""


def test_a_signal_ends_the_wait(lock: Path) -> None:
    def stop() -> None:
        raise Stopped("SIGTERM")

    markers.make(lock, "foreign", 60)
    lease = lease_on(lock, lease_s=60, clock=CountingClock(at_nap=stop))

    with pytest.raises(Stopped):
        lease.acquire(None)

    lease.release()
    assert lock.exists()


# ---- holders that are gone ----


def test_a_killed_holder_of_this_machine_is_replaced_at_once(lock: Path) -> None:
    with Child(lock, lease_s=60) as child:
        assert child.hears() == "held"
        child.process.kill()
        child.process.wait()
        holder = lease_on(lock, lease_s=60).peek()
        assert holder is not None
        assert holder.standing is Standing.DEAD
        clock, recorder = CountingClock(), Recorder()
        with held(lease_on(lock, lease_s=60, clock=clock, witness=recorder)) as lease:
            assert lease.is_ours()
            assert clock.naps == []
            assert recorder.warnings == []


@pytest.mark.parametrize("kind", ["dead", "dead mismatch"])
def test_a_dead_holder_is_replaced_at_once_whatever_its_lease_length_was(lock: Path, kind: str) -> None:
    markers.make(lock, kind, 60)
    clock = CountingClock()

    with held(lease_on(lock, lease_s=60, wait_s=0, clock=clock)) as lease:
        assert lease.is_ours()
        assert clock.naps == []


def test_a_frozen_holder_is_replaced_after_a_lease_and_knows_it_at_once_when_it_wakes(lock: Path) -> None:
    with Child(lock, lease_s=1.5) as child:
        assert child.hears() == "held"
        assert child.asked("ours") == "yes"
        child.process.send_signal(signal.SIGSTOP)
        with held(lease_on(lock, lease_s=1.5)) as lease:
            marker = lock.read_bytes()
            child.process.send_signal(signal.SIGCONT)
            assert child.asked("ours") == "no"
            assert child.asked("release") == "released"
            assert lock.read_bytes() == marker
            assert lease.is_ours()


@pytest.mark.parametrize("kind", ["foreign", "recycled"])
@pytest.mark.parametrize("wait_s", [0.5, 60.0])
def test_a_holder_that_cannot_be_probed_is_replaced_after_a_lease(
    lock: Path, kind: str, wait_s: float
) -> None:
    markers.make(lock, kind, 0.5)
    clock = CountingClock()

    with held(lease_on(lock, lease_s=0.5, wait_s=wait_s, clock=clock)) as lease:
        assert lease.is_ours()
        assert clock.waited_s() >= 0.5


@pytest.mark.parametrize("kind", ["empty", "cut", "legacy", "garbage"])
@pytest.mark.parametrize("wait_s", [0.5, 60.0])
def test_an_odd_marker_is_watched_for_a_lease_and_removed_with_a_warning(
    lock: Path, kind: str, wait_s: float
) -> None:
    markers.make(lock, kind, 0.5)
    clock, recorder = CountingClock(), Recorder()

    with held(lease_on(lock, lease_s=0.5, wait_s=wait_s, clock=clock, witness=recorder)) as lease:
        assert lease.is_ours()
        assert clock.waited_s() >= 0.5

    [warning] = recorder.warnings
    assert f"The lock file {lock} was removed" in warning
    assert "s old and watched for " in warning


def test_a_cut_record_is_watched_for_a_whole_lease_where_filelock_would_give_it_two_seconds(
    lock: Path,
) -> None:
    markers.make(lock, "cut", 2.6)
    clock, recorder = CountingClock(), Recorder()

    with held(lease_on(lock, lease_s=2.6, clock=clock, witness=recorder)) as lease:
        assert lease.is_ours()
        assert clock.waited_s() >= 2.6

    assert len(recorder.warnings) == 1


def test_the_time_in_which_an_odd_marker_was_watched_is_not_taken_from_the_wait_for_a_live_run(
    lock: Path,
) -> None:
    def succeed_and_renew() -> None:
        if len(clock.naps) == 2:
            lock.unlink()
            lock.write_text(markers.text_of("foreign", 1.5))
        elif len(clock.naps) > 2:
            os.utime(lock)

    markers.make(lock, "empty", 1.5)
    clock = CountingClock(at_nap=succeed_and_renew)

    with pytest.raises(LeaseBusy):
        lease_on(lock, lease_s=1.5, wait_s=1.5, clock=clock).acquire(None)

    assert clock.waited_s() >= 2.0


def test_a_marker_with_a_longer_lease_is_watched_for_that_lease(lock: Path) -> None:
    markers.make(lock, "mismatch", 0.75)
    clock, recorder = CountingClock(), Recorder()

    with held(lease_on(lock, lease_s=0.75, wait_s=1, clock=clock, witness=recorder)) as lease:
        assert lease.is_ours()
        assert clock.waited_s() >= 2.25

    [warning] = recorder.warnings
    assert "lease of 2.25 s" in warning


def test_a_marker_that_claims_a_lease_of_years_is_not_watched_for_years(lock: Path) -> None:
    lock.write_text(markers.record(4242, markers.FOREIGN_HOST, 1e9))
    clock = CountingClock()
    with pytest.raises(LeaseBusy):
        lease_on(lock, clock=clock).acquire(clock.monotonic() + 0.1)

    holder = lease_on(lock).peek()
    assert holder is not None
    assert holder.lease_s == 1e9
    marker = lease_on(lock)._marker()
    assert marker is not None
    assert lease_on(lock)._needed_s(marker) == 300.0


def test_an_exclusive_lock_of_a_foreign_holder_is_no_lease_and_goes_after_ours(lock: Path) -> None:
    lock.write_text(f"filelock/2\npid=4242\nhost={markers.FOREIGN_HOST}\nmode=exclusive\n")
    recorder = Recorder()

    with held(lease_on(lock, lease_s=0.5, witness=recorder)) as lease:
        assert lease.is_ours()

    assert len(recorder.warnings) == 1


@pytest.mark.parametrize("kind", [kind for kind in markers.KINDS if kind != "dead"])
def test_a_run_that_may_not_wait_for_a_lease_leaves_the_marker_alone(lock: Path, kind: str) -> None:
    markers.make(lock, kind, 60)
    before = (lock.read_bytes(), lock.stat().st_mtime_ns)
    clock, recorder = CountingClock(), Recorder()

    with pytest.raises(LeaseBusy) as caught:
        lease_on(lock, lease_s=60, wait_s=0.2, clock=clock, witness=recorder).acquire(None)

    assert str(lock) in caught.value.message
    assert (lock.read_bytes(), lock.stat().st_mtime_ns) == before
    assert recorder.warnings == []


def test_a_live_holder_with_another_lease_length_is_busy_and_stays(lock: Path) -> None:
    with Child(lock, lease_s=6) as child:
        assert child.hears() == "held"
        with pytest.raises(LeaseBusy, match=f"pid {child.process.pid} "):
            lease_on(lock, lease_s=0.5, wait_s=1.2).acquire(None)
        assert child.asked("ours") == "yes"


def test_a_marker_that_somebody_else_touches_is_not_removed(lock: Path) -> None:
    markers.make(lock, "empty", 1.0)
    clock = CountingClock(at_nap=lambda: os.utime(lock))

    with pytest.raises(LeaseBusy):
        lease_on(lock, wait_s=1.6, clock=clock).acquire(None)

    assert lock.exists()


def test_a_marker_is_not_removed_while_another_process_is_about_to_remove_one(lock: Path) -> None:
    import fcntl

    markers.make(lock, "empty", 1.0)
    recorder = Recorder()
    clock = CountingClock()
    with (lock.parent / "daily.lock.guard").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with pytest.raises(LeaseBusy):
            lease_on(lock, clock=clock, witness=recorder).acquire(clock.monotonic() + 2.2)

    assert lock.exists()
    assert recorder.warnings == []


def test_a_run_that_comes_second_does_not_remove_what_the_first_has_put_there(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    real = fcntl.flock

    def come_second(descriptor: int, how: int) -> None:
        lock.unlink(missing_ok=True)
        lock.write_text(markers.text_of("foreign", 60))
        real(descriptor, how)

    markers.make(lock, "empty", 0.5)
    monkeypatch.setattr(fcntl, "flock", come_second)
    clock = CountingClock()

    with pytest.raises(LeaseBusy, match="held by pid 4242"):
        lease_on(lock, lease_s=0.5, clock=clock).acquire(clock.monotonic() + 1.2)

    assert lock.read_text() == markers.text_of("foreign", 60)


def test_a_crashed_takeover_whose_pid_lives_again_does_not_block_for_ever(lock: Path) -> None:
    # The marker's owner is dead (its start token is not that of the process that has its pid now), and a file
    # of a takeover that it began is there: filelock takes the live process for one in the middle of it.
    lock.write_text(markers.record(os.getpid(), socket.gethostname(), 1.0, "start=1"))
    debris = lock.with_name(f"daily.lock.break.{os.getpid()}.{secrets.token_hex(16)}")
    debris.write_text(markers.record(4242, markers.FOREIGN_HOST, 1.0))
    holder = lease_on(lock).peek()
    assert holder is not None
    if holder.standing is not Standing.DEAD:
        pytest.skip("process start times cannot be read here, so nothing tells the dead owner from us")

    with held(lease_on(lock, wait_s=1)) as lease:
        assert lease.is_ours()


def test_what_crashed_takeovers_leave_behind_is_removed_once_it_is_old(lock: Path) -> None:
    token = secrets.token_hex(16)
    old = [lock.with_name(f"daily.lock.{name}.4242.{token}") for name in ("break", "restore")]
    others = [
        lock.with_name(name)
        for name in (
            "daily.json",
            f"other.lock.break.4242.{token}",
            "daily.lock.break.x.y",
            "daily.lock.guard",
        )
    ]
    for path in (*old, *others):
        path.touch()

    with held(lease_on(lock)):
        assert all(path.exists() for path in (*old, *others))
    with held(lease_on(lock, clock=CountingClock(ahead_s=601))):
        assert not any(path.exists() for path in old)
        assert all(path.exists() for path in others)


@pytest.mark.parametrize("kind", ["empty", "foreign"])
def test_twenty_contenders_get_the_lease_one_after_the_other(lock: Path, kind: str) -> None:
    markers.make(lock, kind, 2.0)
    flag = lock.with_name("held")

    children = [Child(lock, lease_s=2, wait_s=60, held=flag) for _ in range(20)]
    said = [child.process.communicate()[0].splitlines() for child in children]

    assert all("held" in lines for lines in said)
    assert not any("two" in lines for lines in said)
    warnings = [line for lines in said for line in lines if line.startswith("warning")]
    assert len(warnings) == (1 if kind == "empty" else 0)
    assert names(lock.parent) == (["daily.lock.guard"] if kind == "empty" else [])


# ---- whose it is ----


def test_a_lease_whose_marker_another_run_has_replaced_is_not_ours(lock: Path) -> None:
    with held(lease_on(lock, lease_s=60)) as lease:
        lock.unlink()
        assert not lease.is_ours()
        markers.make(lock, "foreign", 60)
        assert not lease.is_ours()

    assert lock.read_text() == markers.text_of("foreign", 60)


def test_an_abandoned_lease_is_not_ours_and_can_be_released_from_another_thread(lock: Path) -> None:
    lease = lease_on(lock, lease_s=60)
    lease.acquire(None)

    def last_words() -> None:
        lease.abandon()
        lease.release()

    thread = threading.Thread(target=last_words)
    assert lease.is_ours()
    thread.start()
    thread.join()

    assert not lease.is_ours()
    assert not lock.exists()


def test_a_lease_that_was_abandoned_before_it_was_taken_is_not_kept(lock: Path) -> None:
    lease = lease_on(lock, wait_s=0)
    lease.abandon()

    with pytest.raises(LeaseBusy, match="taken by another run at this very moment"):
        lease.acquire(None)

    assert not lock.exists()


def test_a_lease_that_cannot_be_renewed_is_lost_though_its_marker_is_there(lock: Path) -> None:
    with held(lease_on(lock, lease_s=0.6)) as lease:
        away = lock.with_name("away")
        lock.rename(away)
        heartbeats_end = datetime.now(UTC) + timedelta(seconds=30)
        while not lease._is_lost and datetime.now(UTC) < heartbeats_end:
            SystemClock().sleep(0.05)
        away.rename(lock)
        assert not lease.is_ours()


def test_a_marker_that_cannot_be_removed_at_the_end_is_a_warning_and_no_error() -> None:
    with ordinary_user_and_folder() as folder:
        recorder = Recorder()
        lease = lease_on(folder / "daily.lock", witness=recorder)
        lease.acquire(None)
        folder.chmod(0o555)
        lease.release()
        folder.chmod(0o755)

    [warning] = recorder.warnings
    assert "could not be removed" in warning


# ---- looking ----


@pytest.mark.parametrize(
    ("kind", "standing", "said"),
    [
        ("foreign", Standing.STALE, "held by pid 4242 on host 3f9c2e1d7a55, not renewed for "),
        ("recycled", Standing.STALE, f"held by pid 1 on host {socket.gethostname()}, not renewed for "),
        ("dead", Standing.DEAD, "which has ended"),
        ("mismatch", Standing.STALE, "stale (lease 180 s)"),
        ("empty", Standing.NO_OWNER, "no owner is recorded"),
        ("cut", Standing.UNKNOWN, "a file of 45 bytes that does not say who holds it"),
        ("legacy", Standing.STALE, "held by pid 4242 on host 3f9c2e1d7a55, not renewed for "),
        ("garbage", Standing.UNKNOWN, "a file of 26 bytes that does not say who holds it"),
    ],
)
def test_a_look_says_what_is_known_and_changes_nothing(
    lock: Path, kind: str, standing: Standing, said: str
) -> None:
    markers.make(lock, kind, 60)
    before = (
        names(lock.parent),
        lock.read_bytes(),
        lock.stat().st_mtime_ns,
        lock.stat().st_ctime_ns,
    )

    holder = lease_on(lock, lease_s=60).peek()

    assert holder is not None
    assert holder.standing is standing
    assert said in describe(holder)
    assert before == (
        names(lock.parent),
        lock.read_bytes(),
        lock.stat().st_mtime_ns,
        lock.stat().st_ctime_ns,
    )


def test_a_look_at_a_free_lease_finds_nobody(lock: Path) -> None:
    assert lease_on(lock).peek() is None


def test_a_foreign_holder_that_renews_is_live(lock: Path) -> None:
    lock.write_text(markers.text_of("foreign", 60))

    holder = lease_on(lock).peek()

    assert holder is not None
    assert (holder.standing, holder.pid, holder.host) == (Standing.LIVE, 4242, "3f9c2e1d7a55")
    assert holder.running_since is None


def test_where_a_pid_cannot_be_probed_the_age_of_the_marker_has_to_do(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    markers.make(lock, "dead", 60)
    monkeypatch.setitem(sys.modules, "filelock._identity", None)

    holder = lease_on(lock).peek()

    assert holder is not None
    assert holder.standing is Standing.STALE


@pytest.mark.parametrize(
    "content",
    [
        b"filelock/2\npid=4242\nhost=h\nmode=lease\ntoken=ab\nduration=nan\n",
        b"filelock/2\npid=4242\nhost=h\nmode=lease\nduration=5.0\n",
        b"filelock/2\npid=0\nhost=h\nmode=lease\ntoken=ab\nduration=5.0\n",
        b"filelock/2\npid=4242\nhost=\nmode=lease\ntoken=ab\nduration=5.0\n",
        b"filelock/2\npid=4242\nhost=h\nmode=lease\ntoken=ab\nduration\n",
        b"filelock/2\npid=4242\nmode=lease\ntoken=ab\nduration=5.0\n",
        b"filelock/2\npid=x\nhost=h\nmode=lease\ntoken=ab\nduration=5.0\n",
        b"4242\nh\nlate\n",
        b"caf\xe9\n",
        b"x" * 2000 + b"\n",
        b"\n",
    ],
)
def test_a_record_with_something_amiss_has_an_unknown_owner(lock: Path, content: bytes) -> None:
    lock.write_bytes(content)

    holder = lease_on(lock).peek()

    assert holder is not None
    assert (holder.standing, holder.pid) == (Standing.UNKNOWN, None)


def test_taking_a_look_does_not_need_what_only_taking_the_lease_needs() -> None:
    code = "import sys, sendonce.adapters.lease; sys.exit('filelock' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- breaking by hand ----


def test_a_live_holder_is_broken_only_by_force(lock: Path) -> None:
    with held(lease_on(lock, lease_s=60)) as lease:
        with pytest.raises(Refused, match=r"held by pid \d+ .* Nothing was changed; --yes"):
            lease_on(lock).break_lock(force=False)
        assert lease.is_ours()

        holder = lease_on(lock).break_lock(force=True)

        assert holder is not None
        assert holder.pid == os.getpid()
        assert not lease.is_ours()
        assert not lock.exists()


@pytest.mark.parametrize("kind", markers.KINDS)
def test_whatever_is_not_live_can_be_broken(lock: Path, kind: str) -> None:
    markers.make(lock, kind, 60)

    assert lease_on(lock).break_lock(force=False) is not None
    assert not lock.exists()


def test_breaking_a_free_lease_does_nothing(lock: Path) -> None:
    assert lease_on(lock).break_lock(force=True) is None
    assert list(lock.parent.iterdir()) == []


def test_breaking_does_not_race_with_a_run_that_does_the_same(lock: Path) -> None:
    import fcntl

    markers.make(lock, "empty", 60)
    with (lock.parent / "daily.lock.guard").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with pytest.raises(LeaseBusy, match="changed hands"):
            lease_on(lock).break_lock(force=True)

    assert lock.exists()


# ---- impossible places ----


def folder_in_place(lock: Path) -> str:
    lock.mkdir()
    return "is a folder"


def pipe_in_place(lock: Path) -> str:
    os.mkfifo(lock)
    return "is a pipe"


def dangling_link_in_place(lock: Path) -> str:
    lock.symlink_to(lock.with_name("nowhere"))
    return "is a link"


def link_in_place(lock: Path) -> str:
    lock.with_name("elsewhere").touch()
    lock.symlink_to(lock.with_name("elsewhere"))
    return "is a link"


def socket_in_place(lock: Path) -> str:
    with socket.socket(socket.AF_UNIX) as there:
        before = Path.cwd()
        os.chdir(lock.parent)  # a socket's path must be short
        try:
            there.bind(lock.name)
        finally:
            os.chdir(before)
    return "is a device or a socket"


@pytest.mark.parametrize(
    "obstacle", [folder_in_place, pipe_in_place, dangling_link_in_place, link_in_place, socket_in_place]
)
def test_what_is_no_file_in_the_markers_place_is_refused_at_once(
    lock: Path, obstacle: Callable[[Path], str]
) -> None:
    said = obstacle(lock)
    clock = CountingClock()
    lease = lease_on(lock, clock=clock)
    before = names(lock.parent)

    for attempt in (lambda: lease.acquire(None), lease.peek, lambda: lease.break_lock(force=True)):
        with pytest.raises(StateUnusable) as caught:
            attempt()
        assert f"{lock} {said}" in caught.value.message
        assert "move it away" in caught.value.message

    assert clock.naps == []
    assert names(lock.parent) == before


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("missing/daily.lock", "does not exist"),
        ("missing/deeper/daily.lock", "does not exist"),
        (f"{'n' * 300}/daily.lock", "File name too long"),
        (f"{'n' * 300}.lock", "File name too long"),
        ("a-file/daily.lock", "Not a directory"),
    ],
)
def test_a_place_that_cannot_be_is_refused_and_no_folder_is_made(
    tmp_path: Path, place: str, said: str
) -> None:
    (tmp_path / "a-file").touch()
    clock = CountingClock()

    with pytest.raises(StateUnusable, match=said):
        lease_on(tmp_path / place, clock=clock).acquire(None)

    assert clock.naps == []
    assert names(tmp_path) == ["a-file"]


def test_a_folder_that_may_not_be_written_is_refused_with_its_owner_and_our_uid() -> None:
    with ordinary_user_and_folder() as folder:
        folder.chmod(0o555)
        with pytest.raises(StateUnusable) as caught:
            lease_on(folder / "daily.lock").acquire(None)
        said = caught.value.message

    assert f"{folder}: owner uid " in said
    assert "mode 0555" in said
    assert f"we are uid {NOBODY if os.geteuid() == 0 else os.geteuid()}" in said


@pytest.mark.parametrize("guard", ["daily.lock.guard", "other"])
def test_an_odd_marker_in_a_folder_that_may_not_be_written_is_refused_when_it_would_be_removed(
    guard: str,
) -> None:
    with ordinary_user_and_folder() as folder:
        lock = folder / "daily.lock"
        lock.touch()
        (folder / guard).touch()
        folder.chmod(0o555)
        with pytest.raises(StateUnusable, match="Permission denied"):
            lease_on(lock, lease_s=0.5).acquire(None)
        folder.chmod(0o755)


def test_a_marker_that_may_not_be_read_is_refused() -> None:
    with ordinary_user_and_folder() as folder:
        lock = folder / "daily.lock"
        lock.touch(mode=0o200)
        with pytest.raises(StateUnusable, match="Permission denied"):
            lease_on(lock).peek()


@pytest.mark.system
@pytest.mark.parametrize("kind", ["absent", "foreign", "empty"])
def test_a_read_only_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounted = tmp_path / "state"
    mounted.mkdir()
    if kind != "absent":
        markers.make(mounted / "daily.lock", kind, 1.0)
    subprocess.run(["mount", "--bind", "-o", "ro", mounted, mounted], check=True)
    try:
        with pytest.raises(StateUnusable, match=r"Read-only file system|Permission denied"):
            lease_on(mounted / "daily.lock").acquire(None)
    finally:
        subprocess.run(["umount", mounted], check=True)
