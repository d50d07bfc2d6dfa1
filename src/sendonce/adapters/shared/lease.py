"""The lease of a job on a server: taken for a time, by the server's clock, and renewed while the run lives.

The clocks of the machines that run sendonce decide nothing. A run that was frozen past its lease has lost it, and
every write asks the server for both, lease and ledger, in one step: see `Backend.write`.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from sendonce.adapters.holder import Holder, Standing, describe
from sendonce.adapters.shared.backend import Owner
from sendonce.core.errors import InvariantBroken, LeaseBusy, Refused, SendonceError

if TYPE_CHECKING:
    from sendonce.adapters.shared.backend import Backend, Grip
    from sendonce.core.ports import Clock, Witness

POLL_S: Final = 0.5
RENEWALS_IN_A_LEASE: Final = 3


class SharedLease:
    """The lease of one job on a server; satisfies `Claim`.

    `lease_s`: how long without renewal until others may take it. `wait_s`: how long `acquire` waits for another run.
    """

    def __init__(
        self, backend: Backend, *, lease_s: float, wait_s: float, clock: Clock, witness: Witness
    ) -> None:
        self.backend = backend
        self._lease_s = lease_s
        self._wait_s = wait_s
        self._clock = clock
        self._witness = witness
        self._token = ""
        self._grip: Grip | None = None
        self._is_abandoned = False
        self._is_over = threading.Event()

    # ---- taking and giving back ----

    def acquire(self, give_up_at: float | None) -> None:
        """Take the lease, waiting for a live holder and taking over from one whose time is up.

        `give_up_at` is the run's deadline on the clock's `monotonic`, None for none. Raise LeaseBusy if it is not to
        be had in time; StoreDown, StateUnusable as `Backend` does.
        """
        owner = Owner(os.urandom(16).hex(), os.uname().nodename, os.getpid())
        began = self._clock.monotonic()
        last = began + self._wait_s if give_up_at is None else min(began + self._wait_s, give_up_at)
        self._is_over = threading.Event()
        # before the first try: if its answer is lost, the release frees what it may have taken
        self._token = owner.token
        while (grip := self.backend.take(owner, self._lease_s)).owner.token != owner.token:
            left_s = last - self._clock.monotonic()
            if left_s <= 0:
                self._say_busy(grip)
            self._clock.sleep(min(left_s, POLL_S))
        self._grip = grip
        threading.Thread(target=self._keep_renewing, args=(self._is_over,), daemon=True, name="lease").start()
        waited_s = round(self._clock.monotonic() - began, 1)
        self._witness.note("lease taken", place=self.backend.place, waited_s=waited_s, fence=grip.fence)

    def release(self) -> None:
        """Give the lease back, from any thread, any number of times. A successor's is left alone."""
        self._is_over.set()
        token, self._token = self._token, ""
        if not token:
            return
        try:
            self.backend.give_back(token)
        except SendonceError as fault:
            # it expires by itself, so this is no reason to end otherwise
            self._witness.warn(f"The lease at {self.backend.place} was not given back. {fault.message}")

    def is_ours(self) -> bool:
        """Whether the server has this run as the holder at this very moment."""
        if self._is_abandoned or self._grip is None:
            return False
        grip = self.backend.grip()
        return grip is not None and grip.owner == self._grip.owner and grip.left_s > 0

    def abandon(self) -> None:
        """Give the claim up for good, from any thread: whatever still runs may write nothing more."""
        self._is_abandoned = True

    def claim(self) -> tuple[str, int] | None:
        """Token and fence to write with; None if the lease was abandoned."""
        if self._grip is None:
            raise InvariantBroken("a ledger would be written without its lease")
        return None if self._is_abandoned else (self._grip.owner.token, self._grip.fence)

    def renew(self) -> bool:
        """Renew it now; whether it still is this run's. Raises as `Backend` does."""
        claim = self.claim()
        return claim is not None and self.backend.renew(claim[0], self._lease_s)

    def _keep_renewing(self, is_over: threading.Event) -> None:
        while not is_over.wait(self._lease_s / RENEWALS_IN_A_LEASE):
            # a server that is away for a moment is asked again; if it is away for a lease, the lease is lost
            with suppress(SendonceError):
                if not self.renew():
                    self._witness.note("lease lost", place=self.backend.place)
                    return

    def _say_busy(self, grip: Grip) -> NoReturn:
        how = describe(self._holder(grip))
        raise LeaseBusy(f"The lease at {self.backend.place} is not free: {how}. Nothing was sent; run again.")

    # ---- looking, and breaking by hand ----

    def peek(self) -> Holder | None:
        """Who holds the lease, None if it is free. Changes nothing."""
        grip = self.backend.grip()
        return None if grip is None else self._holder(grip)

    def break_lock(self, *, force: bool) -> Holder | None:
        """Free the lease, whoever holds it; the holder comes back, None if there was none.

        Raise Refused for a live one unless `force`.
        """
        grip = self.backend.grip()
        if grip is None:
            return None
        holder = self._holder(grip)
        if holder.standing is Standing.LIVE and not force:
            raise Refused(
                f"The lease at {self.backend.place} is {describe(holder)}. A live run ends itself at its deadline, so "
                f"breaking its lease is hardly ever needed. Nothing was changed; --yes breaks it anyway."
            )
        # one that has gone by itself is gone as well
        if not self.backend.give_back(grip.owner.token) and self.backend.grip() is not None:
            raise LeaseBusy(
                f"The lease at {self.backend.place} has just changed hands. Nothing was changed; look again."
            )
        return holder

    def _holder(self, grip: Grip) -> Holder:
        return Holder(
            self.backend.place,
            Standing.LIVE if grip.left_s > 0 else Standing.EXPIRED,
            renewed_s=max(0.0, grip.lease_s - grip.left_s),
            pid=grip.owner.pid,
            host=grip.owner.host,
            lease_s=grip.lease_s,
        )
