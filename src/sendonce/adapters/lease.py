"""The lease of a job: filelock's `SoftFileLease`, and what it leaves to its users.

filelock replaces a dead holder of this machine at once, and one that it cannot probe (another host, or
frozen) once its marker was watched unchanged for a whole lease. It never reclaims an empty marker or one of a
lock of another kind, and refuses one with another lease length. A crash or a changed setting leaves such
markers, and cron would then say "try again" for ever: so a run watches them itself and removes them.

A takeover can hit a holder that is only frozen. That is why `is_ours` reads the marker, and why the ledger
asks it in the same step as it writes.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, assert_never

from sendonce.adapters.holder import Holder, Standing, describe
from sendonce.core.errors import LeaseBusy, Refused, StateUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from filelock import LeaseCompromise, SoftFileLease

    from sendonce.core.ports import Clock, Witness

POLL_S: Final = 0.5
LONGEST_LEASE_S: Final = 300.0
"""No setting allows a longer one, so a marker that claims to have one is not waited for so long."""

_DEBRIS_AGE_S: Final = 600.0
_MARKER_BYTES: Final = 1024
_HEX_DIGITS: Final = 32
_TICK_BITS: Final = 64
_HIGHEST_PID: Final = 2**31 - 1


class FileLease:
    """The lease of one job, a marker file at `path`; satisfies `Claim`.

    `lease_s`: how long without renewal until others may take it. `wait_s`: how long `acquire` waits for
    another run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lease_s: float,
        wait_s: float,
        clock: Clock,
        witness: Witness,
    ) -> None:
        self._path = Path(path)
        self._lease_s = float(lease_s)
        self._wait_s = wait_s
        self._clock = clock
        self._witness = witness
        self._lock: SoftFileLease | None = None
        self._is_lost = False
        self._is_abandoned = False

    # ---- taking and giving back ----

    def acquire(self, give_up_at: float | None) -> None:
        """Take the lease, waiting for a live holder and taking over from one that is gone.

        `give_up_at` is the run's deadline on the clock's `monotonic`, None for none. Raise LeaseBusy if the
        lease is not to be had in time, StateUnusable if no marker can be where it belongs.
        """
        began = self._clock.monotonic()
        self._lock = lock = self._new_lock()
        self._is_lost = False
        watch = _Watch()
        patience_s = self._wait_s
        last = began
        while True:
            marker = self._marker()
            now = self._clock.monotonic()
            watch.see(marker, now)
            if self._try(lock, marker):
                break
            if (
                marker is not None
                and watch.unchanged_s(now) >= self._needed_s(marker)
                and self._remove(marker)
            ):
                self._warn_removed(marker, watch.unchanged_s(now))
                continue
            is_counted = not self._looks_gone(watch, now)
            patience_s -= (now - last) if is_counted else 0.0
            last = now
            left_s = min(
                patience_s if is_counted else POLL_S, POLL_S if give_up_at is None else give_up_at - now
            )
            if left_s <= 0:
                self._say_busy(marker)
            self._clock.sleep(min(left_s, POLL_S))
        self._sweep()
        before = "nobody" if marker is None else describe(self._holder(marker))
        self._witness.note("lease taken", path=str(self._path), waited_s=round(now - began, 1), before=before)

    def release(self) -> None:
        """Give the lease back, from any thread, any number of times. A successor's marker is left alone."""
        if self._lock is None:
            return
        try:
            self._lock.release()
        except OSError as error:
            # The marker of an ended process holds nobody up, so this is no reason to end otherwise.
            self._witness.warn(f"The lock file {self._path} could not be removed: {error.strerror or error}.")

    def is_ours(self) -> bool:
        """Whether the marker carries this run's token at this very moment."""
        lock = self._lock
        if lock is None or self._is_lost or self._is_abandoned:
            return False
        # filelock itself notices a loss only up to two heartbeats later; the marker shows it at once.
        token, owner = lock.token, lock.owner
        return token is not None and owner is not None and owner.token == token

    def abandon(self) -> None:
        """Give the claim up for good, from any thread: whatever still runs may write nothing more."""
        self._is_abandoned = True

    # ---- looking, and breaking by hand ----

    def peek(self) -> Holder | None:
        """Who holds the lease, None if it is free. Changes nothing. Raise StateUnusable as `acquire` does."""
        marker = self._marker()
        return None if marker is None else self._holder(marker)

    def break_lock(self, *, force: bool) -> Holder | None:
        """Remove the marker, whoever left it; the holder comes back, None if there was none.

        Raise Refused for a live one unless `force`, StateUnusable as `acquire` does.
        """
        marker = self._marker()
        if marker is None:
            return None
        holder = self._holder(marker)
        if holder.standing is Standing.LIVE and not force:
            raise Refused(
                f"The lease {self._path} is {describe(holder)}. A live run ends itself at its deadline, so "
                f"breaking its lease is hardly ever needed. Nothing was changed; --yes breaks it anyway."
            )
        if not self._remove(marker, or_renewed=force):
            raise LeaseBusy(
                f"The lease {self._path} has just changed hands. Nothing was changed; look again."
            )
        return holder

    # ---- one try ----

    def _new_lock(self) -> SoftFileLease:
        from filelock import SoftFileLease  # noqa: PLC0415 - heavy, and not needed once a date is sent

        # One instance for all tries: it is the instance that remembers how long it has watched a marker.
        # Not thread-local, so that the deadline's timer thread can release it.
        return SoftFileLease(
            self._path,
            lease_duration=self._lease_s,
            on_compromise=self._note_loss,
            mode=0o600,
            thread_local=False,
            poll_interval=POLL_S,
        )

    def _note_loss(self, _compromise: LeaseCompromise) -> None:
        self._is_lost = True

    def _try(self, lock: SoftFileLease, marker: _Marker | None) -> bool:
        from filelock import LeaseSettingsMismatch, Timeout  # noqa: PLC0415 - as above

        from sendonce.adapters.signals import undisturbed  # noqa: PLC0415 - as above

        if marker is not None and marker.record is None:
            # filelock would give a cut record two seconds; it gets a whole lease, like everything else.
            return False
        try:
            # filelock is not made for an exception at any of its lines: it would report a fault of its own
            with undisturbed():
                lock.acquire(blocking=False)
        except (Timeout, LeaseSettingsMismatch):
            return False
        except OSError as error:
            self._fail(error)
        if self.is_ours():
            return True
        # Frozen while taking it, and overtaken since.
        self.release()
        return False

    def _needed_s(self, marker: _Marker) -> float:
        """How long a marker must be unchanged before this run removes it."""
        theirs = marker.record.lease_s if marker.record else None
        needed = max(min(theirs or 0.0, LONGEST_LEASE_S), self._lease_s)
        # filelock takes over what it knows. It cannot where the file system does not exchange names (NFS),
        # and does not where a live process has the pid of one that crashed in the middle of a takeover.
        return needed if self._is_odd(marker) else needed + 2 * POLL_S

    def _is_odd(self, marker: _Marker) -> bool:
        record = marker.record
        return record is None or record.mode != "lease" or record.lease_s != self._lease_s

    def _looks_gone(self, watch: _Watch, now: float) -> bool:
        """Whether the wait for another run stands still, because there may be no other run.

        A marker that only has to be watched to its end must not outlast LOCK_WAIT in every run. One that was
        renewed before our eyes has a live holder. With LOCK_WAIT below a lease, its end is the end.
        """
        marker = watch.marker
        if marker is None or watch.is_renewed or self._wait_s < self._lease_s:
            return False
        return self._is_odd(marker) or watch.unchanged_s(now) >= self._lease_s / 2

    def _say_busy(self, marker: _Marker | None) -> NoReturn:
        how = "taken by another run at this very moment" if marker is None else describe(self._holder(marker))
        raise LeaseBusy(f"The lease {self._path} is not free: {how}. Nothing was sent; run again.")

    def _warn_removed(self, marker: _Marker, watched_s: float) -> None:
        holder = self._holder(marker)
        self._witness.warn(
            f"The lock file {self._path} was removed, {holder.renewed_s:.0f} s old and watched for "
            f"{watched_s:.0f} s without a change: {_left_by(holder)}."
        )

    # ---- the marker ----

    def _marker(self) -> _Marker | None:
        try:
            self._path.parent.stat()
        except FileNotFoundError:
            raise StateUnusable(
                f"The state folder {self._path.parent} does not exist. An unmounted volume looks like this, "
                f"so it is not made anew and nothing is sent: mount it, or run `sendonce init` if this is "
                f"the first start."
            ) from None
        except OSError as error:
            self._fail(error)
        try:
            mode = self._path.lstat().st_mode
            if not stat.S_ISREG(mode):
                self._refuse_kind(mode)
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return _Marker.of(os.fstat(fd), os.read(fd, _MARKER_BYTES + 1))
            finally:
                os.close(fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fail(error)

    def _refuse_kind(self, mode: int) -> NoReturn:
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe (FIFO)", stat.S_IFLNK: "a link"}
        kind = kinds.get(stat.S_IFMT(mode), "a device or a socket")
        raise StateUnusable(
            f"{self._path} is {kind}, where the lock file of this job belongs. Nothing is sent: move it away."
        )

    def _fail(self, error: OSError) -> NoReturn:
        owner = ""
        for place in (self._path.parent, self._path):
            with suppress(OSError):
                found = place.lstat()
                mode = f"{stat.S_IMODE(found.st_mode):04o}"
                owner = f" ({place}: owner uid {found.st_uid}, mode {mode}, and we are uid {os.geteuid()})"
        raise StateUnusable(
            f"The lock file {self._path} cannot be written: {error.strerror or error}{owner}. Nothing is "
            f"sent: SENDONCE_STATE must be a folder, not full, that the user who runs sendonce may write to."
        ) from None

    def _holder(self, marker: _Marker) -> Holder:
        renewed_s = max(0.0, self._clock.now().timestamp() - marker.mtime_s)
        record = marker.record
        if record is None:
            standing = Standing.UNKNOWN if marker.content else Standing.NO_OWNER
            return Holder(self._path, standing, renewed_s, marker.size)
        is_here, is_dead = _probe(record)
        if is_dead:
            standing = Standing.DEAD
        elif record.lease_s is None or renewed_s >= record.lease_s:
            standing = Standing.STALE
        else:
            standing = Standing.LIVE
        since = self._running_since(record) if is_here and not is_dead else None
        return Holder(
            self._path, standing, renewed_s, marker.size, record.pid, record.host, record.lease_s, since
        )

    def _running_since(self, record: _Record) -> datetime | None:
        if record.start is None:
            return None
        import time  # noqa: PLC0415 - only for what is said

        ticks = record.start % 2**_TICK_BITS
        running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return self._clock.now() - timedelta(seconds=running_s)

    # ---- removing ----

    def _remove(self, marker: _Marker, *, or_renewed: bool = False) -> bool:
        """Remove the marker if it still is the very one that was looked at, and nobody else is at it.

        With `or_renewed` also if its holder has renewed it since.
        """
        with self._guard() as is_held:
            found = self._marker()
            is_same = found == marker or (or_renewed and found is not None and marker.is_renewed_as(found))
            if not is_held or not is_same:
                return False
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self._fail(error)
            return True

    @contextmanager
    def _guard(self) -> Iterator[bool]:
        """Try the kernel lock under which markers are removed: of two runs that have watched one marker, the
        second must not remove what the first has put there.
        """
        import fcntl  # noqa: PLC0415 - rarely needed

        path = self._path.with_name(f"{self._path.name}.guard")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            self._fail(error)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = True
            except BlockingIOError:
                is_held = False
            except OSError as error:
                self._fail(error)
            yield is_held
        finally:
            os.close(fd)

    def _sweep(self) -> None:
        """Remove what takeovers that crashed have left beside the marker, so that it does not pile up."""
        now = self._clock.now().timestamp()
        with suppress(OSError), os.scandir(self._path.parent) as entries:
            for entry in entries:
                # A takeover has its file for milliseconds; ten minutes leave those of live ones alone.
                if _is_debris(entry.name, self._path.name) and now - entry.stat(
                    follow_symlinks=False
                ).st_ctime > max(_DEBRIS_AGE_S, 2 * self._lease_s):
                    Path(entry.path).unlink()


# ---- the marker's text ----


@dataclass(frozen=True)
class _Record:
    """What a marker of filelock says of its owner: protocol 2 (mode lease or another), or the older lines."""

    pid: int
    host: str
    mode: str
    lease_s: float | None = None
    start: int | None = None


@dataclass(frozen=True)
class _Marker:
    """A marker as it was read. Two are equal only if nothing has touched the file between the readings."""

    device: int
    inode: int
    mtime_ns: int
    ctime_ns: int
    size: int
    content: bytes

    @classmethod
    def of(cls, found: os.stat_result, content: bytes) -> _Marker:
        return cls(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, content)

    @property
    def mtime_s(self) -> float:
        return self.mtime_ns / 1e9

    @property
    def record(self) -> _Record | None:
        return _parse(self.content)

    def is_renewed_as(self, later: _Marker) -> bool:
        """Whether `later` is this marker with a new time: its holder lives."""
        return (self.device, self.inode, self.content) == (later.device, later.inode, later.content)


class _Watch:
    """How long one and the same marker has been seen."""

    def __init__(self) -> None:
        self.marker: _Marker | None = None
        self.is_renewed = False
        self._since = 0.0

    def see(self, marker: _Marker | None, now: float) -> None:
        if marker == self.marker:
            return
        self.is_renewed = bool(marker and self.marker and self.marker.is_renewed_as(marker))
        self.marker = marker
        self._since = now

    def unchanged_s(self, now: float) -> float:
        return now - self._since


def _parse(content: bytes) -> _Record | None:
    """Read a marker's text, None if it is cut or was never one."""
    try:
        text = content.decode() if len(content) <= _MARKER_BYTES else ""
    except UnicodeDecodeError:
        return None
    if not text.endswith("\n"):
        return None
    match text.strip().splitlines():
        case ["filelock/2", *lines] if all("=" in line for line in lines):
            return _parse_fields(dict(line.split("=", 1) for line in lines))
        case [pid, host]:
            return _parse_fields({"pid": pid, "host": host, "mode": "legacy"})
        case [pid, host, start]:
            return _parse_fields({"pid": pid, "host": host, "mode": "legacy", "start": start})
        case _:
            return None


def _parse_fields(fields: dict[str, str]) -> _Record | None:
    try:
        pid = int(fields["pid"])
        lease_s = float(fields["duration"]) if "duration" in fields else None
        start = int(fields["start"]) if "start" in fields else None
        record = _Record(pid, fields["host"], fields["mode"], lease_s, start)
    except (KeyError, ValueError):
        return None
    is_lease = lease_s is not None and 0 < lease_s < float("inf") and "token" in fields
    is_whole = bool(record.host) and 1 <= pid <= _HIGHEST_PID and (is_lease or record.mode != "lease")
    return record if is_whole else None


def _probe(record: _Record) -> tuple[bool, bool]:
    """Whether the owner belongs to this machine, and whether it has certainly ended."""
    try:
        from filelock._identity import host_name, owner_is_stale  # noqa: PLC0415 - only for what is said
    except ImportError:  # not a public name: a later filelock may have moved it, and then the age has to do
        return False, False
    return record.host == host_name(), owner_is_stale(record.pid, record.host, record.start)


def _left_by(holder: Holder) -> str:
    match holder.standing:
        case Standing.NO_OWNER:
            return "it was empty, no owner was recorded"
        case Standing.UNKNOWN:
            return "it did not say who holds it"
        case Standing.LIVE | Standing.DEAD | Standing.STALE | Standing.EXPIRED:
            lease = "" if holder.lease_s is None else f" with a lease of {holder.lease_s:g} s"
            return f"it was that of pid {holder.pid} on host {holder.host}{lease}, which does not renew it"
        case _:
            assert_never(holder.standing)


def _is_debris(name: str, marker_name: str) -> bool:
    operation, _, rest = name.removeprefix(f"{marker_name}.").partition(".")
    pid, _, token = rest.partition(".")
    return (
        name.startswith(f"{marker_name}.")
        and operation in {"break", "restore"}
        and pid.isdigit()
        and len(token) == _HEX_DIGITS
    )
