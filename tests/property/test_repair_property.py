"""Whatever happens, in whatever order: nobody gets two mails of a date by a repair, and in the end everybody has one.

Hypothesis plays the fates of one date whose mailing stopped half-way: repairs that crash or get no answer at any call,
two state folders that share nothing, plain runs in between, repairs that are canceled half-way themselves, ledgers
that are lost or restored, resets. Lags stay below what the protocol presumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sendonce.core.errors import NoAnswer
from sendonce.core.model import Source, State
from sendonce.core.orders import Kind
from support.world import UNCLEAR, Crash, World, after, answering, before, meanwhile

if TYPE_CHECKING:
    from support.world import Ended, Fault, Made

PEOPLE = 5
CALLS = st.integers(1, 60)
DISKS = st.integers(0, 1)
PAUSES_S = st.sampled_from([0.0, 1.0, 20.0, 40.0, 400.0])


class Repair(RuleBasedStateMachine):
    """One job, one date that was canceled half-way, and everything that can happen to its repairs."""

    @initialize(
        source=st.sampled_from([Source.HTML, Source.DRAFT]),
        listing_lag_s=st.sampled_from([29.0, 29.0, 0.0]),
        status_lag_s=st.sampled_from([0.0, 170.0]),
        mailing_s=st.sampled_from([0.0, 30.0]),
    )
    def begin(self, source: Source, listing_lag_s: float, status_lag_s: float, mailing_s: float) -> None:
        self.world = World(source, disks=2)
        account = self.world.account
        account.audience = PEOPLE
        if source is Source.DRAFT:
            account.add(made_at_s=-1000)
        for disk in (0, 1):
            assert self.world.run(disk=disk).code == 0
        self.first = next(iter(account.campaigns.values()))
        account.cut(self.first, 2)
        account.listing_lag_s, account.status_lag_s, account.mailing_s = (
            listing_lag_s,
            status_lag_s,
            mailing_s,
        )

    @rule(disk=DISKS)
    def order(self, disk: int) -> None:
        self.ordered(disk)

    @rule(n=CALLS, is_done=st.booleans(), disk=DISKS)
    def crash(self, n: int, is_done: bool, disk: int) -> None:
        self.ordered(disk, {n: (after if is_done else before)(Crash())})

    @rule(
        call=st.sampled_from(["mailer.create", "mailer.write_content", "mailer.listing"]),
        is_done=st.booleans(),
    )
    def no_answer(self, call: str, is_done: bool) -> None:
        self.world.order(on={call: [(after if is_done else before)(NoAnswer("504."))]})

    @rule(is_done=st.booleans(), disk=DISKS)
    def unclear_send(self, is_done: bool, disk: int) -> None:
        self.world.order(disk=disk, on={"mailer.send": [answering(UNCLEAR, acts=is_done)]})

    @rule(n=CALLS, pause_s=PAUSES_S, dies=st.booleans(), disk=DISKS)
    def side_by_side(self, n: int, pause_s: float, dies: bool, disk: int) -> None:
        """An order on one folder at a call of an order on the other: nothing keeps the two apart."""

        def other() -> None:
            self.world.pass_time(pause_s)
            self.ordered(1 - disk)
            if dies:
                raise Crash

        self.ordered(disk, {n: meanwhile(other)})

    @rule(n=CALLS, pause_s=PAUSES_S)
    def frozen(self, n: int, pause_s: float) -> None:
        """An order freezes at a call, the same one is given again on the same folder; then the first goes on."""

        def successor() -> None:
            self.world.pass_time(pause_s)
            self.ordered(0)

        self.ordered(0, {n: meanwhile(successor)})

    @rule(disk=DISKS)
    def plain_run(self, disk: int) -> None:
        assert self.world.run(disk=disk).posts == ()

    @rule(seconds=PAUSES_S)
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(reached=st.integers(0, 3))
    def person_cancels(self, reached: int) -> None:
        """A person stops the newest repair."""
        mailed = [m for m in self.repairs() if m.deliveries and m.status in {"sending", "sent"}]
        if mailed and self.world.now_s >= mailed[-1].shown_from_s:
            self.world.account.cut(mailed[-1], min(reached, len(mailed[-1].reached)))

    @rule(back=st.integers(0, 6), disk=DISKS)
    def ledger_is_restored(self, back: int, disk: int) -> None:
        history = self.world.disks[disk].history
        self.world.disks[disk].data = history[max(0, len(history) - 1 - back)]

    @rule(disk=DISKS)
    def reset(self, disk: int) -> None:
        if self.world.record(disk=disk).state is not State.NONE:
            self.world.reset(disk=disk)

    def ordered(self, disk: int, at: dict[int, Fault] | None = None) -> Ended:
        return self.world.order(Kind.REMAINING, disk=disk, at=at)

    def repairs(self) -> list[Made]:
        return [m for m in self.world.account.ever.values() if m is not self.first]

    @invariant()
    def nobody_gets_two_mails(self) -> None:
        if hasattr(self, "world"):
            assert max(self.world.mails().values()) <= 1
            assert not any(m.is_blank for m in self.repairs() if m.deliveries)

    def teardown(self) -> None:
        """Left alone, each folder's orders come to an end, and everybody has one mail."""
        if not hasattr(self, "world"):
            return
        self.world.account.listing_lag_s = self.world.account.status_lag_s = 0.0
        for disk in (0, 1):
            said = ""
            for _ in range(12):
                self.world.pass_time(1000)
                self.world.run(disk=disk)  # after a reset it puts the canceled one on record
                said = self.ordered(disk).message
                if "would reach nobody" in said:
                    break
            assert "would reach nobody" in said
        assert self.world.mails() == dict.fromkeys(range(PEOPLE), 1)


TestRepair = Repair.TestCase
TestRepair.settings = settings(
    max_examples=120, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
