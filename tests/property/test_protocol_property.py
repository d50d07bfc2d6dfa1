"""Whatever happens, in whatever order: a date is mailed at most once, and reached in the end.

Hypothesis plays the fates of one job and one date against the real core: runs that crash, freeze, are cut short or
get no answer, at any call; a second run within the first; listings and statuses that lag; requests that take effect
late; ledgers that are lost or restored; two state folders that share nothing; people who send and schedule.
Lags stay below what the protocol presumes (LISTING for listings, SETTLE for the status after a send).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sendonce.core.campaigns import No, NotSent, Unclear
from sendonce.core.dates import belongs
from sendonce.core.errors import CredentialsRejected, NoAnswer, Refused, Stopped
from sendonce.core.model import Source, State
from support.world import KEY, Crash, World, after, answering, before, meanwhile, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.world import Ended, Fault, Made

    Place = int | tuple[str, int]

UNCLEAR = Unclear("The connection was reset.")
WRITES = ["mailer.create", "mailer.write_settings", "mailer.write_content"]

# Which call of a run: one of all that it makes, by number, or the next one of a name for those that matter.
ALL_CALLS = st.integers(1, 75)
NAMES = [
    "mailer.listing",
    "mailer.checklist",
    "store.save",
    "store.check",
    "mailer.send",
    "mailer.send",
    *WRITES,
]
PLACES = st.one_of(ALL_CALLS, st.tuples(st.sampled_from(NAMES), st.integers(0, 2)))
INNER = [
    None,
    (("mailer.send", 0), before(Crash())),
    (("mailer.send", 0), after(Crash())),
    (("mailer.send", 0), answering(UNCLEAR)),
    (("mailer.send", 0), answering(UNCLEAR, acts=True)),
    (("mailer.create", 0), after(Crash())),
    (("mailer.create", 0), after(NoAnswer("504."))),
]
"""What happens to the run that another one is frozen in."""
PAUSES_S = st.sampled_from([0.0, 1.0, 20.0, 40.0, 400.0])


class Protocol(RuleBasedStateMachine):
    """One job, one date, and everything that can happen to it."""

    @initialize(
        source=st.sampled_from([Source.HTML, Source.HTML, Source.REPLICATE, Source.DRAFT]),
        disks=st.sampled_from([2, 2, 1]),
        listing_lag_s=st.sampled_from([29.0, 29.0, 3.0, 0.0]),
        status_lag_s=st.sampled_from([0.0, 30.0, 170.0]),
    )
    def begin(self, source: Source, disks: int, listing_lag_s: float, status_lag_s: float) -> None:
        self.world = World(source, disks=disks)
        self.world.account.listing_lag_s, self.world.account.status_lag_s = listing_lag_s, status_lag_s
        self.is_recordless = False
        if source is Source.DRAFT:
            self.world.account.add(made_at_s=-1000)

    # ---- runs ----

    @rule(disk=st.integers(0, 1))
    def run(self, disk: int) -> None:
        """Make a run to which nothing happens; on a quiet account a rehearsal foretells how it ends."""
        disk %= len(self.world.disks)
        foretold = None
        if disk == 0 and self.world.account.is_quiet:
            foretold = self.world.rehearse().code
        ended = self.run_with(disk=disk)
        assert foretold in {None, ended.code}

    @rule(place=PLACES, is_done=st.booleans(), disk=st.integers(0, 1))
    def crash(self, place: Place, is_done: bool, disk: int) -> None:
        """The process dies at a call, before or after what the call does."""
        self.run_with(place, (after if is_done else before)(Crash()), disk=disk)

    @rule(place=PLACES, is_done=st.booleans())
    def signal(self, place: Place, is_done: bool) -> None:
        """A signal arrives at a call."""
        self.run_with(place, (after if is_done else before)(Stopped("SIGTERM")))

    @rule(place=PLACES)
    def deadline(self, place: Place) -> None:
        """A call hangs until the deadline ends the process."""

        def end(_: Callable[[], object]) -> object:
            process.run.last_words("Time is up.")
            raise Crash

        at, on = scripted(place, end)
        process = self.world.begin(at=at, on=on)
        process.go()

    @rule(
        call=st.sampled_from(WRITES),
        error=st.sampled_from([NoAnswer("504."), Refused("400."), CredentialsRejected("401.")]),
        is_done=st.booleans(),
        disk=st.integers(0, 1),
    )
    def no_answer_to_a_write(self, call: str, error: Exception, is_done: bool, disk: int) -> None:
        """A write is refused, or its answer is lost."""
        is_done = is_done and isinstance(error, NoAnswer)
        self.run_with((call, 0), (after if is_done else before)(error), disk=disk)

    @rule(
        call=st.sampled_from(["mailer.listing", "mailer.campaign", "mailer.checklist"]), nth=st.integers(0, 2)
    )
    def no_answer_to_a_read(self, call: str, nth: int) -> None:
        self.run_with((call, nth), before(NoAnswer("503.")))

    @rule(is_done=st.booleans(), disk=st.integers(0, 1))
    def unclear_send(self, is_done: bool, disk: int) -> None:
        """The answer to the send is lost, before or after its effect."""
        self.run_with(("mailer.send", 0), answering(UNCLEAR, acts=is_done), disk=disk)

    @rule(why=st.sampled_from(No))
    def plain_no(self, why: No) -> None:
        """The send is answered with no."""
        self.run_with(("mailer.send", 0), answering(NotSent(why, "No.")))

    @rule(call=st.sampled_from([*WRITES, "mailer.send"]), late_s=PAUSES_S, dies=st.booleans())
    def late_effect(self, call: str, late_s: float, dies: bool) -> None:
        """A request takes effect long after its client gave up waiting for it."""

        def late(effect: Callable[[], object]) -> object:
            self.world.account.later.append((self.world.now_s + late_s, lambda: swallow(effect)))
            if dies:
                raise Crash
            if call == "mailer.send":
                return UNCLEAR
            raise NoAnswer("504.")

        self.run_with((call, 0), late)

    @rule(place=PLACES, frozen_s=PAUSES_S, then_s=PAUSES_S, inner=st.sampled_from(INNER))
    def frozen(self, place: Place, frozen_s: float, then_s: float, inner: tuple[Place, Fault] | None) -> None:
        """A run freezes at a call; another one takes over; then the first goes on."""

        def successor() -> None:
            self.world.pass_time(frozen_s)
            self.run_with(*(inner or ()))
            self.world.pass_time(then_s)

        self.run_with(place, meanwhile(successor))

    @rule(place=PLACES, pause_s=PAUSES_S, inner=st.sampled_from(INNER), disk=st.integers(0, 1))
    def side_by_side(
        self, place: Place, pause_s: float, inner: tuple[Place, Fault] | None, disk: int
    ) -> None:
        """A run on one folder at a call of a run on the other: nothing keeps the two apart."""

        def other() -> None:
            self.world.pass_time(pause_s)
            self.run_with(*(inner or ()), disk=1 - disk)

        self.run_with(place, meanwhile(other), disk=disk)

    def run_with(self, place: Place = 0, fault: Fault | None = None, *, disk: int = 0) -> Ended:
        at, on = scripted(place, fault)
        return self.world.run(disk=disk % len(self.world.disks), at=at, on=on)

    # ---- what else happens ----

    @rule(seconds=PAUSES_S)
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: not self.is_recordless)
    @rule(at=st.integers(0, 40), disk=st.integers(0, 1))
    def ledger_is_lost_or_restored(self, at: int, disk: int) -> None:
        """The ledger is as it once was; as it was at first is no ledger at all."""
        disk %= len(self.world.disks)
        history = self.world.disks[disk].history
        self.world.disks[disk].data = history[at % len(history)]

    @precondition(lambda self: not self.is_recordless)
    @rule(disk=st.integers(0, 1))
    def reset(self, disk: int) -> None:
        disk %= len(self.world.disks)
        if self.world.record(disk=disk).state is not State.NONE:
            self.world.reset(disk=disk)

    @precondition(lambda self: self.day_draft() is not None)
    @rule()
    def person_sends(self) -> None:
        """A person sends the day's draft, and not an unfinished twin of it."""
        if made := self.day_draft():
            self.world.account.mail(made)

    @precondition(lambda self: self.day_draft() is not None)
    @rule(in_s=st.sampled_from([60.0, 900.0]))
    def person_schedules(self, in_s: float) -> None:
        if made := self.day_draft():
            self.world.account.schedule(made, self.world.now_s + in_s)

    @precondition(lambda self: any(m.status == "schedule" for m in self.campaigns()))
    @rule()
    def person_unschedules(self) -> None:
        for made in self.campaigns():
            if made.status == "schedule":
                self.world.account.unschedule(made)

    @precondition(lambda self: self.requested_everywhere() is not None)
    @rule()
    def person_deletes(self) -> None:
        """A person deletes a campaign whose send was requested: now only the ledgers know of it, and they must stay."""
        if made := self.requested_everywhere():
            self.world.account.delete(made)
            self.is_recordless = True

    def requested_everywhere(self) -> Made | None:
        """The campaign that every folder's ledger has as requested, if there is one."""
        mains = [self.world.record(disk=disk).main for disk in range(len(self.world.disks))]
        ids = {main.id for main in mains if main is not None and main.requested_at is not None}
        is_one = len(ids) == 1 and all(main is not None and main.requested_at for main in mains)
        return self.world.account.campaigns.get(ids.pop()) if is_one else None

    def campaigns(self) -> list[Made]:
        return [m for m in self.world.account.campaigns.values() if belongs(m.title, KEY)]

    def day_draft(self) -> Made | None:
        """The draft that a careful person takes for the day's: the first one, finished, and nothing went out yet.

        Careful also means: not in the very seconds in which a draft was made and a listing may not show it. Who sends
        by hand just then may send a twin, and no tool can prevent that.
        """
        drafts = self.campaigns()
        if not drafts or self.is_recordless or any(m.status != "save" for m in drafts):
            return None
        if any(self.world.now_s - m.made_at_s <= self.world.listing_s + 1 for m in drafts):
            return None
        first = min(drafts, key=lambda m: (whole(m.made_at_s), m.id))
        return first if first.content.html else None

    # ---- what always holds ----

    @invariant()
    def the_date_is_mailed_at_most_once_and_never_blank(self) -> None:
        assert self.world.deliveries() <= 1
        assert not any(m.is_blank for m in self.campaigns() if m.is_mailed)

    @invariant()
    def what_the_ledger_calls_sent_was_mailed(self) -> None:
        for disk in range(len(self.world.disks)):
            batch = self.world.record(disk=disk)
            if batch.state is State.SENT:
                assert batch.main is not None
                assert self.world.account.ever[batch.main.id].deliveries == 1

    def teardown(self) -> None:
        """Left alone, every folder's runs come to "sent", whatever happened before; or to a human, if one deleted."""
        if not hasattr(self, "world"):
            return
        self.world.account.listing_lag_s = self.world.account.status_lag_s = 0.0
        self.world.pass_time(1000)
        for disk in range(len(self.world.disks)):
            codes = self.world.runs_until_done(disk=disk)
            if not (codes[-1] == 1 and self.is_recordless):
                assert codes[-1] == 0, codes
                assert self.world.record(disk=disk).state is State.SENT
                assert self.world.deliveries() == 1
        self.the_date_is_mailed_at_most_once_and_never_blank()


def scripted(place: Place, fault: Fault | None) -> tuple[dict[int, Fault], dict[str, list[Fault | None]]]:
    """Return the script that has this happen there."""
    if fault is None:
        return {}, {}
    if isinstance(place, int):
        return {place: fault}, {}
    name, nth = place
    return {}, {name: [None] * nth + [fault]}


def swallow(effect: Callable[[], object]) -> None:
    """Have a late request take effect, if it still can."""
    try:
        effect()
    except Refused:
        return


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(
    max_examples=200, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
