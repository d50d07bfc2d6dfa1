"""The ledger of a job on a server, a row for each batch: the same records and legal changes as in the file.

What a run reads is its date's row, the resets of the date and the open batches before it. That part is a `Ledger`
like any other, so that what may change, and how, is said in one place, `core.ledger`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from sendonce.adapters.shared.backend import FIRST_DAY, LAST_DAY, Change, Head, Verdict
from sendonce.core import ledger as ledgers
from sendonce.core.errors import ClaimLost, InvariantBroken, LedgerDamaged, StateUnusable
from sendonce.core.model import Glance, Page, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sendonce.adapters.shared.backend import Backend, Rows
    from sendonce.adapters.shared.lease import SharedLease
    from sendonce.core.ledger import Ledger
    from sendonce.core.model import Batch, Pause, Reset
    from sendonce.core.ports import Clock


@dataclass(frozen=True)
class _Read:
    """The stamp of a page: that of the ledger's head, "" if there is no ledger, and the part that was read."""

    stamp: str
    ledger: Ledger = field(repr=False, compare=False)


class SharedLedger:
    """The ledger of one job on a server; satisfies `LedgerStore`.

    `api` is the API host that the ledger must be bound to. Without a `claim` it can only be read.
    """

    def __init__(
        self, backend: Backend, *, job: str, api: str, claim: SharedLease | None, clock: Clock
    ) -> None:
        self._backend = backend
        self._job = job
        self._api = api
        self._claim = claim
        self._clock = clock

    # ---- reading ----

    def load(self, date: str) -> Page:
        """Read the record of `date`, its resets and the open batches before it; see `LedgerStore`."""
        read = self._assembled(self._backend.read(date))
        self._check_bound(read.ledger)
        return self._page(read, date)

    def glance(self, date: str) -> Glance:
        """Return the record of `date` and the pause, all that a date already sent needs. Raises as `load`."""
        read = self._assembled(self._backend.read_one(date))
        self._check_bound(read.ledger)
        with self._naming_the_place():
            seen = Glance(read.ledger.batch(date), read.ledger.pause)
        if seen.pause is None:
            return seen
        return seen._replace(has_open_earlier=bool(self.load(date).open_earlier))

    def batches(self, first: str = FIRST_DAY, last: str = LAST_DAY) -> tuple[Batch, ...]:
        """Return the batches from `first` to `last` (YYYY-MM-DD), oldest first; see `LedgerStore`."""
        found: list[Batch] = []
        for rows in self._backend.pages(first, last):
            ledger = self._assembled(rows).ledger
            with self._naming_the_place():
                found.extend(ledger.batches())
        return tuple(found)

    def resets(self) -> tuple[Reset, ...]:
        """Return all resets in the order in which they were made; see `LedgerStore`."""
        head = Head(ledgers.VERSION, self._job, self._api, "")
        found = self._backend.resets()
        with self._naming_the_place():
            return self._parsed(head, {}, found).resets()

    def pauses(self) -> tuple[Pause, ...]:
        """Return all pauses there were, the one that stands last. Raises as `batches`."""
        ledger = self._assembled(self._backend.read_one(FIRST_DAY)).ledger
        with self._naming_the_place():
            return ledger.pauses()

    def whole(self) -> Ledger:
        """Return all there is, for a copy. Raises as `batches`."""
        ledgers_read = [self._assembled(rows).ledger for rows in self._backend.pages(FIRST_DAY, LAST_DAY)]
        found = self._backend.resets()
        with self._naming_the_place():
            resets = self._parsed(Head(ledgers.VERSION, self._job, self._api, ""), {}, found)
            return ledgers.joined([*ledgers_read, resets])

    def _page(self, read: _Read, date: str) -> Page:
        with self._naming_the_place():
            return Page(
                stamp=read,
                batch=read.ledger.batch(date),
                forgotten=read.ledger.forgotten(date),
                open_earlier=read.ledger.open_before(date),
                pause=read.ledger.pause,
            )

    def _assembled(self, rows: Rows) -> _Read:
        if rows.head is None:
            return _Read("", ledgers.empty(self._job, self._api))
        with self._naming_the_place():
            return _Read(rows.head.stamp, self._parsed(rows.head, rows.batches, rows.resets))

    @staticmethod
    def _parsed(head: Head, batches: Mapping[str, bytes], resets: Iterable[bytes]) -> Ledger:
        return ledgers.assemble(head.version, head.job, head.api, batches, resets, head.pause)

    def _check_bound(self, ledger: Ledger) -> None:
        if ledger.api != self._api:
            raise StateUnusable(
                f"The ledger at {self._backend.place} is the memory of {ledger.api}, and the settings say {self._api}. "
                f"Nothing is sent: use another SENDONCE_STATE, or another SENDONCE_JOB, for another API host."
            )

    @contextmanager
    def _naming_the_place(self) -> Iterator[None]:
        try:
            yield
        except LedgerDamaged as error:
            raise LedgerDamaged(
                f"The ledger at {self._backend.place} is damaged: {error}. Nothing is sent and it is left as it is. "
                f"Put that record right, or run `sendonce ledger rebuild`, which makes a new one from what "
                f"Mailchimp has."
            ) from None
        except StateUnusable as error:
            raise StateUnusable(
                f"The ledger at {self._backend.place} cannot be used: {error}. Nothing is sent and it is left as it "
                f"is. Use the sendonce that wrote it, or a newer one."
            ) from None

    # ---- writing ----

    def save(self, page: Page, batch: Batch) -> Page:
        """Write `batch`, the page's or an earlier open one; see `LedgerStore`."""
        old = self._read(page).ledger
        if batch.date != page.batch.date and old.batch(batch.date).state is State.NONE:
            raise InvariantBroken(
                f"the batch of {batch.date} was not read with the page of {page.batch.date}"
            )
        ledger = old.with_batch(batch)
        with self._naming_the_place():
            row = ledger.row(batch.date)
        return self._write(page, ledger, batches={batch.date: row})

    def reset(self, page: Page, reset: Reset) -> Page:
        """Forget the batch of `page` and keep it under `resets`; see `LedgerStore`."""
        if reset.date != page.batch.date:
            raise InvariantBroken(f"the page is that of {page.batch.date}, the reset that of {reset.date}")
        ledger = self._read(page).ledger.with_reset(reset)
        with self._naming_the_place():
            added = ledger.reset_rows()[-1:]
        return self._write(page, ledger, removed=(reset.date,), resets=added)

    def set_pause(self, page: Page, pause: Pause) -> Page:
        """Put down that the job is paused, or its pause has ended; see `LedgerStore`."""
        return self._write(page, self._read(page).ledger.with_pause(pause))

    def check(self, page: Page) -> None:
        """Raise ClaimLost unless the claim is ours and the ledger still is `page`."""
        token, fence = self._token()
        self._judge(self._backend.check(self._read(page).stamp, token, fence))

    def check_writable(self) -> None:
        """Raise StateUnusable if a later `save` could not be written, ClaimLost if the lease is lost.

        Without a claim, in a rehearsal, the server is only looked at.
        """
        if self._claim is None:
            self._backend.look()
            return
        self._token()
        if not self._claim.renew():
            self._say_lost()

    def rebuild(self, batches: Iterable[Batch]) -> str:
        """Put a new ledger in place of whatever is there; see `LedgerStore`.

        Resets, skipped dates and unknown fields of a readable ledger stay. One of another API host, or of a
        newer sendonce, is left as it is: StateUnusable.
        """
        return self.replace(lambda old: old.rebuilt(batches))

    def replace(self, make: Callable[[Ledger], Ledger]) -> str:
        """Put the ledger that `make` gives in place of the old one; where that was kept, "" if there was none.

        `make` gets the old one, an empty one if it cannot be read.
        """
        token, fence = self._token()
        rows = self._backend.read_one(FIRST_DAY)
        old, raw = self._taken_over(rows)
        new = make(old)
        kept = ""
        if rows.head is not None:
            stamp = self._clock.now().strftime("%Y%m%dT%H%M%SZ")
            kept = self._backend.keep(f"{stamp}-{os.urandom(2).hex()}", raw)
        with self._naming_the_place():
            change = Change(self._head(new), new.rows(), resets=new.reset_rows(), is_whole=True)
        self._judge(self._backend.write(rows.head.stamp if rows.head else "", token, fence, change))
        return kept

    def _taken_over(self, rows: Rows) -> tuple[Ledger, bytes]:
        """The old ledger if all of it can be read, else an empty one, and its text to be kept."""
        if rows.head is None:
            return ledgers.empty(self._job, self._api), b""
        self._check_bound(ledgers.empty(self._job, rows.head.api))
        try:
            whole = self.whole()
            for reset in whole.resets():
                whole.forgotten(reset.date)
            whole.pauses()
            whole.batches()
            return whole, whole.dump()
        except LedgerDamaged:
            found = [page.batches for page in self._backend.pages(FIRST_DAY, LAST_DAY)]
            texts = [b"%s %s\n" % (day.encode(), data) for page in found for day, data in page.items()]
            texts += [b"reset %s\n" % data for data in self._backend.resets()]
            texts += [b"pause %s\n" % rows.head.pause] if rows.head.pause else []
            return self._with_pause_of(rows.head), b"".join(texts)

    def _with_pause_of(self, head: Head) -> Ledger:
        """An empty ledger that is paused as the damaged one was, if that can be read: no run may break an order to wait."""
        try:
            ledger = ledgers.assemble(head.version, self._job, self._api, {}, [], head.pause)
            ledger.pauses()
        except LedgerDamaged:
            return ledgers.empty(self._job, self._api)
        return ledger

    def _write(self, page: Page, ledger: Ledger, **rows: object) -> Page:
        from sendonce.adapters.signals import undisturbed  # noqa: PLC0415 - not needed to find a date already sent

        token, fence = self._token()
        change = Change(self._head(ledger), **rows)  # type: ignore[arg-type] # the fields of a change, by name
        # a signal must not break off between the server's step and our knowledge of it
        with undisturbed():
            self._judge(self._backend.write(self._read(page).stamp, token, fence, change))
        return self._page(_Read(change.head.stamp, ledger), page.batch.date)

    def _head(self, ledger: Ledger) -> Head:
        # random, so that a ledger that was lost and written anew never has a stamp that some run still remembers
        stamp = os.urandom(16).hex()
        with self._naming_the_place():
            pause = ledger.pause_row().encode()
        return Head(ledgers.VERSION, self._job, self._api, stamp, pause)

    @staticmethod
    def _read(page: Page) -> _Read:
        if not isinstance(page.stamp, _Read):
            raise InvariantBroken("the page is not one of this store")
        return page.stamp

    def _token(self) -> tuple[str, int]:
        if self._claim is None:
            raise InvariantBroken("a ledger that was opened for reading would be written")
        claim = self._claim.claim()
        if claim is None:
            self._say_lost()
        return claim

    def _judge(self, verdict: Verdict) -> None:
        match verdict:
            case Verdict.DONE:
                return
            case Verdict.CLAIM_LOST:
                self._say_lost()
            case Verdict.CHANGED:
                raise ClaimLost(
                    f"The ledger at {self._backend.place} was changed by somebody else since this run read it. This "
                    f"run has written nothing to it since and sends nothing further: run again."
                )

    def _say_lost(self) -> NoReturn:
        raise ClaimLost(
            f"The lease at {self._backend.place} is no longer this run's: it was away for too long, and another run "
            f"may be at work. This run writes nothing and sends nothing further: run again."
        )
