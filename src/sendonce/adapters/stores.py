"""The ledger on a disk: one JSON file of a job, written whole or not at all.

A write goes to a temporary file beside its target, is forced to the disk and then renamed over it, so that
whoever reads finds the old ledger or the new one, whatever crashes. It happens under a short kernel lock and
only if the claim is still ours and the file still holds the bytes that this run last read: a run that was
frozen between its check and its write must not put an old record over its successor's.

Calls that find a date already sent come no further than `load`, so what only a write needs is imported there.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeVar

from sendonce.adapters.rights import kind, may_others_write, whose
from sendonce.core import ledger as ledgers
from sendonce.core.errors import ClaimLost, InvariantBroken, LedgerDamaged, StateUnusable, Temporary
from sendonce.core.ledger import Ledger
from sendonce.core.model import Glance, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sendonce.core.model import Batch, Pause, Reset
    from sendonce.core.ports import Claim, Clock

GUARD_WAIT_S: Final = 10.0
GUARD_POLL_S: Final = 0.05

_Made = TypeVar("_Made")

_REMEDY: Final = {
    errno.ENOSPC: "free some space on that file system",
    errno.EDQUOT: "free some space: a disk quota is used up",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "mount that file system for writing",
    errno.EBUSY: "mount the folder instead of the single file: a mounted file cannot be replaced",
    errno.EACCES: "give the folder and its files to the user that runs sendonce",
    errno.EPERM: "give the folder and its files to the user that runs sendonce, without special attributes",
    errno.ENOTDIR: "correct SENDONCE_STATE: part of that path is no folder",
    errno.ENAMETOOLONG: "correct SENDONCE_STATE: that path is too long",
    errno.ELOOP: "mend the link: it leads in a circle",
    errno.EOPNOTSUPP: "put the state on a file system that can lock files (flock)",
    errno.ENOLCK: "put the state on a file system that can lock files (flock)",
}


class _Read(NamedTuple):
    """The stamp of a page: the file's bytes, None if there was no file, and what they say."""

    data: bytes | None
    ledger: Ledger


class FileLedger:
    """The ledger of one job in `<state>/<job>.json`; satisfies `LedgerStore`.

    `api` is the API host that the ledger must be bound to. Without a `claim` it can only be read.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, job: str, api: str, claim: Claim | None, clock: Clock
    ) -> None:
        self._path = Path(path)
        self._job = job
        self._api = api
        self._claim = claim
        self._clock = clock

    # ---- reading ----

    def load(self, date: str) -> Page:
        """Read the record of `date`; see `LedgerStore`."""
        data = self._bytes()
        with self._naming_the_place(data):
            read = _Read(data, self._parse(data))
        self._check_bound(read.ledger)
        return self._page(read, date)

    def glance(self, date: str) -> Glance:
        """Return the record of `date` and the pause, all that a date already sent needs. Raises as `load`."""
        data = self._bytes()
        with self._naming_the_place(data):
            ledger = self._parse(data)
            pause = ledger.pause
            seen = Glance(ledger.batch(date), pause, pause is not None and bool(ledger.open_before(date)))
        self._check_bound(ledger)
        return seen

    def batches(self, first: str = "", last: str = "9999-99-99") -> tuple[Batch, ...]:
        """Return the batches from `first` to `last` (YYYY-MM-DD), oldest first; see `LedgerStore`."""
        return tuple(batch for batch in self._of_whole(Ledger.batches) if first <= batch.date <= last)

    def resets(self) -> tuple[Reset, ...]:
        """Return all resets, oldest first; see `LedgerStore`."""
        return self._of_whole(Ledger.resets)

    def pauses(self) -> tuple[Pause, ...]:
        """Return all pauses there were, the one that stands last. Raises as `batches`."""
        return self._of_whole(Ledger.pauses)

    def whole(self) -> Ledger:
        """Return all there is, for a copy. Raises as `batches`."""
        return self._of_whole(lambda ledger: ledger)

    def _of_whole(self, of: Callable[[Ledger], _Made]) -> _Made:
        data = self._bytes()
        with self._naming_the_place(data):
            return of(self._parse(data))

    def _page(self, read: _Read, date: str) -> Page:
        with self._naming_the_place(read.data):
            return Page(
                stamp=read,
                batch=read.ledger.batch(date),
                forgotten=read.ledger.forgotten(date),
                open_earlier=read.ledger.open_before(date),
                pause=read.ledger.pause,
            )

    def _bytes(self) -> bytes | None:
        """Read the ledger's bytes, None if there is none. Changes nothing, and waits for nothing."""
        try:
            # Without O_NONBLOCK a FIFO in the ledger's place would hold the run up for ever.
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            self._check_missing()
            return None
        except OSError as error:
            self._fail(error, self._path, "read")
        try:
            self._check_regular(os.fstat(fd), self._path)
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        except OSError as error:
            self._fail(error, self._path, "read")
        finally:
            os.close(fd)

    def _check_missing(self) -> None:
        """Tell a first start, a folder and no file in it, from whatever else is missing."""
        self._state_folder()
        if self._path.is_symlink():
            raise StateUnusable(
                f"The ledger {self._path} is a link to {self._path.readlink()}, and nothing is there. "
                f"Nothing is sent: mount or restore what it points to, or remove the link."
            )

    def _state_folder(self) -> os.stat_result:
        folder = self._path.parent
        try:
            return folder.stat()
        except FileNotFoundError:
            raise StateUnusable(
                f"The state folder {folder} does not exist. An unmounted volume looks like this, so it is "
                f"not made anew and nothing is sent: mount it, or run `sendonce init` if this is the first "
                f"start."
            ) from None
        except OSError as error:
            self._fail(error, folder, "read")

    def _parse(self, data: bytes | None) -> Ledger:
        return ledgers.empty(self._job, self._api) if data is None else ledgers.parse(data)

    def _check_bound(self, ledger: Ledger) -> None:
        if ledger.api != self._api:
            raise StateUnusable(
                f"The ledger {self._path} is the memory of {ledger.api}, and the settings say {self._api}. "
                f"Nothing is sent: use another SENDONCE_STATE for another API host."
            )
        if ledger.job != self._job:
            raise StateUnusable(
                f"The ledger {self._path} is that of the job {ledger.job!a}, and this is the job "
                f"{self._job!a}. Nothing is sent: put the right file there, or remove it."
            )

    @contextmanager
    def _naming_the_place(self, data: bytes | None) -> Iterator[None]:
        size = len(data or b"")
        try:
            yield
        except LedgerDamaged as error:
            backup = self._beside(".bak")
            copy = f" ({backup} is the version before the last write)" if backup.exists() else ""
            raise LedgerDamaged(
                f"The ledger {self._path} ({size} bytes) is damaged: {error}. Nothing is sent and the file "
                f"is left as it is. Put a good copy in its place{copy}, or run `sendonce ledger rebuild`, "
                f"which makes a new one from what Mailchimp has."
            ) from None
        except StateUnusable as error:
            raise StateUnusable(
                f"The ledger {self._path} ({size} bytes) cannot be used: {error}. Nothing is sent and the "
                f"file is left as it is. Use the sendonce that wrote it, or a newer one."
            ) from None

    # ---- writing ----

    def save(self, page: Page, batch: Batch) -> Page:
        """Write `batch`, the page's or an earlier open one; see `LedgerStore`."""
        return self._write(page, self._read(page).ledger.with_batch(batch))

    def reset(self, page: Page, reset: Reset) -> Page:
        """Forget the batch of `page` and keep it under `resets`; see `LedgerStore`."""
        if reset.date != page.batch.date:
            raise InvariantBroken(f"the page is that of {page.batch.date}, the reset that of {reset.date}")
        return self._write(page, self._read(page).ledger.with_reset(reset))

    def set_pause(self, page: Page, pause: Pause) -> Page:
        """Put down that the job is paused, or its pause has ended; see `LedgerStore`."""
        return self._write(page, self._read(page).ledger.with_pause(pause))

    def check(self, page: Page) -> None:
        """Raise ClaimLost unless the claim is ours and the ledger still is `page`."""
        self._check_claim()
        if self._bytes() != self._read(page).data:
            raise ClaimLost(
                f"The ledger {self._path} was changed by somebody else since this run read it. This run has "
                f"written nothing to it since and sends nothing further: run again."
            )

    def check_writable(self) -> None:
        """Raise StateUnusable if a later `save` could not be written. Changes nothing."""
        folder = self._state_folder()
        target = self._target()
        self._check_file(target)
        self._check_file(_named(target, ".guard"))
        self._check_state_folder(folder)
        for place in {target.parent, self._path.parent}:
            self._check_may_write(place)

    def rebuild(self, batches: Iterable[Batch]) -> str:
        """Put a new ledger in place of whatever file is there; see `LedgerStore`.

        Resets, skipped dates and unknown fields of a readable ledger stay. One of another API host, or of a
        newer sendonce, is left where it is: StateUnusable.
        """
        return self.replace(lambda old: old.rebuilt(batches))

    def replace(self, make: Callable[[Ledger], Ledger]) -> str:
        """Put the ledger that `make` gives in place of the old one; where that was kept, "" if there was none.

        `make` gets the old one, an empty one if it cannot be read.
        """
        from sendonce.adapters.signals import undisturbed  # noqa: PLC0415 - not needed to find a date already sent

        self.check_writable()
        with self._guard(), undisturbed():
            self._check_claim()
            old = self._bytes()
            data = make(self._taken_over(old)).dump()
            kept = "" if old is None else str(self._keep(old))
            target = self._target()
            self._put(data, target, _named(target, ".tmp"))
        return kept

    def _taken_over(self, old: bytes | None) -> Ledger:
        """Give what a rebuild starts from: the old ledger if all of it can be read, else an empty one."""
        try:
            with self._naming_the_place(old):
                ledger = self._parse(old)
            for reset in ledger.resets():
                ledger.forgotten(reset.date)
            ledger.pauses()
            ledger.dump()
        except LedgerDamaged:
            return ledgers.empty(self._job, self._api)
        self._check_bound(ledger)
        return ledger

    @staticmethod
    def _read(page: Page) -> _Read:
        if not isinstance(page.stamp, _Read):
            raise InvariantBroken("the page is not one of this store")
        return page.stamp

    def _check_claim(self) -> None:
        if self._claim is None:
            raise InvariantBroken("a ledger that was opened for reading would be written")
        if not self._claim.is_ours():
            raise ClaimLost(
                f"The lease beside {self._path} is no longer this run's: it was away for too long, and "
                f"another run may be at work. This run writes nothing and sends nothing further: run again."
            )

    def _write(self, page: Page, ledger: Ledger) -> Page:
        from sendonce.adapters.signals import undisturbed  # noqa: PLC0415 - not needed to find a date already sent

        with self._naming_the_place(self._read(page).data):
            data = ledger.dump()
        self.check_writable()
        with self._guard(), undisturbed():
            self.check(page)
            old = self._read(page).data
            target = self._target()
            if old is not None:
                self._put(old, self._beside(".bak"), self._beside(".bak.tmp"))
            self._put(data, target, _named(target, ".tmp"))
        return self._page(_Read(data, ledger), page.batch.date)

    def _put(self, data: bytes, target: Path, temporary: Path) -> None:
        """Put `data` in place of `target` by way of `temporary`, on the disk when this returns.

        `temporary` is always the same, so that what a crash leaves there is gone after the next write.
        """
        try:
            _write_new(data, temporary)
            temporary.replace(target)
            _force_folder(target.parent)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            self._fail(error, target, "written")

    def _keep(self, data: bytes) -> Path:
        """Keep what a rebuild replaces under a name that nothing else has."""
        stamp = self._clock.now().strftime("%Y%m%dT%H%M%SZ")
        names = (f".replaced-{stamp}-{number}" for number in count(1))
        kept = next(path for path in map(self._beside, names) if not os.path.lexists(path))
        self._put(data, kept, self._beside(".replaced.tmp"))
        return kept

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Hold the kernel lock beside the ledger, so that between a check and its write nobody else writes.

        Raise Temporary if it cannot be had for GUARD_WAIT_S seconds.
        """
        import fcntl  # noqa: PLC0415 - not needed to find a date already sent

        # Beside the target, not the link: two jobs whose links lead to one ledger must meet here.
        path = _named(self._target(), ".guard")
        give_up_at = self._clock.monotonic() + GUARD_WAIT_S
        while (fd := self._try_guard(path, fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
            if self._clock.monotonic() >= give_up_at:
                raise Temporary(
                    f"Another process has held {path} for {GUARD_WAIT_S:.0f} s. This run has written nothing "
                    f"to the ledger meanwhile: run again."
                )
            self._clock.sleep(GUARD_POLL_S)
        try:
            yield
        finally:
            os.close(fd)

    def _try_guard(self, path: Path, flock: Callable[[int, int], None], how: int) -> int | None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            self._fail(error, path, "opened")
        held = False
        try:
            flock(fd, how)
            # Whoever tidied the guard away while we opened it has made room for a second one.
            held = os.path.lexists(path) and os.path.samestat(os.fstat(fd), path.lstat())
        except BlockingIOError:
            return None
        except OSError as error:
            self._fail(error, path, "locked")
        finally:
            if not held:
                os.close(fd)
        return fd if held else None

    # ---- the place ----

    def _beside(self, suffix: str) -> Path:
        return _named(self._path, suffix)

    def _target(self) -> Path:
        """Where the record goes: a link is followed and kept."""
        try:
            return self._path.resolve()
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, Python < 3.13
            cause = error if isinstance(error, OSError) else OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            self._fail(cause, self._path, "found")

    def _check_file(self, path: Path) -> None:
        """Refuse a file that is not ours or not writable: renaming could get round that, and must not."""
        try:
            found = path.lstat()
        except FileNotFoundError:
            return
        except OSError as error:
            self._fail(error, path, "read")
        self._check_regular(found, path)
        if found.st_uid != os.geteuid() or not found.st_mode & stat.S_IWUSR:
            raise StateUnusable(
                f"{path} may not be written: {whose(found)}. Nothing further is sent by this run: give it "
                f"to the user that runs sendonce (chown {os.geteuid()}, chmod 600), and let no other user "
                f"run this job."
            )
        self._check_may_write(path)

    def _check_regular(self, found: os.stat_result, path: Path) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise StateUnusable(
                f"{path} is {kind(found.st_mode)}, not a file. Nothing is sent: move it out of the way."
            )

    def _check_state_folder(self, found: os.stat_result) -> None:
        folder = self._path.parent
        if found.st_uid not in {0, os.geteuid()}:
            raise StateUnusable(
                f"The state folder {folder} belongs to somebody else: {whose(found)}. Nothing is sent: run "
                f"sendonce as that user, or give the folder to this one (chown {os.geteuid()})."
            )
        if may_others_write(found):
            raise StateUnusable(
                f"The state folder {folder} may be written by other users: {whose(found)}. Whoever can "
                f"write there can have a day left out. Nothing is sent: chmod go-w {folder}"
            )

    def _check_may_write(self, path: Path) -> None:
        if os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            return
        code = errno.EACCES
        with suppress(OSError):
            code = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else code
        self._fail(OSError(code, os.strerror(code)), path, "written")

    def _fail(self, error: OSError, path: Path, done: str) -> NoReturn:
        """Say what could not be read, written or locked, whose it is, and what to do."""
        remedy = _REMEDY.get(error.errno or 0, "see what ails that file system")
        owner = ""
        for place in (path.parent, path):
            with suppress(OSError):
                owner = f" ({place}: {whose(place.stat())})"
        what = "" if path == self._path else f"{path}: "
        raise StateUnusable(
            f"The ledger {self._path} cannot be {done}: {what}{error.strerror or error}{owner}. Nothing "
            f"further is sent by this run: {remedy}."
        ) from None


def _named(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _write_new(data: bytes, path: Path) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _force_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network and FUSE file systems have no such thing, and rename durably or not at all.
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
            raise
    finally:
        os.close(fd)
