"""A world in memory for the core: a disk, a Mailchimp, one clock, and a gate at which anything may go wrong.

The ledger on the disk is the real text (`core.ledger`), compared and set as bytes, so every illegal transition and
every lost claim shows. The Mailchimp is an abstract one: campaigns with a status that are mailed at most once, reads
and listings that lag, requests that take effect late. Before each request that changes something it is checked what
the disk must hold by then; a run that acts before it has written fails the test by itself.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sendonce.core import campaigns as words
from sendonce.core import ledger as ledgers
from sendonce.core.batch import Ports, Run
from sendonce.core.campaigns import (
    Accepted,
    Answer,
    Campaign,
    Checklist,
    Content,
    Listing,
    No,
    NotSent,
    Spec,
    Unclear,
)
from sendonce.core.dates import belongs, created_title, render
from sendonce.core.decide import Rules
from sendonce.core.errors import (
    ClaimLost,
    InvariantBroken,
    NoAnswer,
    Refused,
    SendonceError,
    StateUnusable,
    Stopped,
)
from sendonce.core.guards import NO_GUARDS, Scope
from sendonce.core.model import Attempt, Batch, Ending, Glance, Outcome, Page, Pause, Reset, Source, State
from sendonce.core.orders import Kind, order_of
from sendonce.core.parts import MAIN, part
from sendonce.core.ports import CampaignSource, Clock, LedgerStore, Mailer, Witness
from sendonce.core.rehearse import rehearse
from sendonce.exits import ExitCode, code_of, code_of_ending
from support import tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

DAY = "2026-11-30"
PATTERN = "Digest {date}"
KEY = "Digest 2026-11-30"
JOB = "digest"
API = "us19.api.mailchimp.com"
LIST = "list1"
ACCOUNT = "8d3a3db4d97663a9074efcc16"
START = datetime(2026, 11, 30, 8, 0, 0, 250_000, tzinfo=UTC)
"""Mailchimp's true time at 0 s. Not a whole second: create_time and Date drop the rest."""

EFFECTS = {
    "store.save",
    "store.check",
    "mailer.create",
    "mailer.write_settings",
    "mailer.write_content",
    "mailer.send",
}
UNCLEAR = Unclear("The connection was reset.")
BY_HAND = Content("<p>Written by a person</p>")

_Made = TypeVar("_Made")


class Crash(BaseException):
    """The process dies here. Nothing of ours catches it, as nothing catches a power failure."""


# ------------------------------------------------------------------------------------------------ what goes wrong

if TYPE_CHECKING:
    Fault = Callable[[Callable[[], object]], object]


def before(error: BaseException) -> Fault:
    """Have the call raise, and do nothing."""

    def fault(_: Callable[[], object]) -> object:
        raise error

    return fault


def after(error: BaseException) -> Fault:
    """Have the call do what it should, and raise all the same: its answer is lost."""

    def fault(effect: Callable[[], object]) -> object:
        effect()
        raise error

    return fault


def meanwhile(act: Callable[[], object]) -> Fault:
    """Have something else happen first; then the call goes on as if nothing were."""

    def fault(effect: Callable[[], object]) -> object:
        act()
        return effect()

    return fault


def answering(value: object, *, acts: bool = False) -> Fault:
    """Have the call give this answer, with or without its effect."""

    def fault(effect: Callable[[], object]) -> object:
        if acts:
            effect()
        return value

    return fault


class Gate:
    """All calls of one run to the world, in order. `at` changes the n-th of all, `on` the next ones of a name."""

    def __init__(
        self, at: Mapping[int, Fault] | None = None, on: Mapping[str, Sequence[Fault | None]] | None = None
    ) -> None:
        self.calls: list[str] = []
        self._at = dict(at or {})
        self._on = {name: deque(faults) for name, faults in (on or {}).items()}

    def call(self, name: str, effect: Callable[[], _Made]) -> _Made:
        """Make the call, or what the script says instead."""
        self.calls.append(name)
        fault = self._at.get(len(self.calls))
        scripted = self._on.get(name)
        if fault is None and scripted:
            fault = scripted.popleft()
        return effect() if fault is None else cast("_Made", fault(effect))


# ------------------------------------------------------------------------------------------------------- the disk


def parsed(data: bytes | None) -> ledgers.Ledger:
    """Read a ledger's bytes; None is the first start."""
    return ledgers.empty(JOB, API) if data is None else ledgers.parse(data)


@dataclass
class Disk:
    """A state folder: the ledger's bytes, who holds the lease, and all that the ledger ever was."""

    data: bytes | None = None
    holder: str = ""
    is_full: bool = False
    history: list[bytes | None] = field(default_factory=lambda: [None])

    @property
    def ledger(self) -> ledgers.Ledger:
        """The ledger as it is on the disk."""
        return parsed(self.data)

    def write(self, ledger: ledgers.Ledger) -> None:
        """Put a ledger in place of what is there, without a claim."""
        if self.is_full:
            raise StateUnusable("The ledger cannot be written: no space left on device.")
        self.data = ledger.dump()
        self.history.append(self.data)

    def put(self, batch: Batch) -> None:
        """Have the ledger hold a batch, however it came about."""
        self.write(self.ledger.rebuilt([*(b for b in self.ledger.batches() if b.date != batch.date), batch]))


class MemoryStore(LedgerStore):
    """The ledger store of one run: compare and set on the disk's bytes, under the claim."""

    def __init__(self, disk: Disk, run: str, gate: Gate) -> None:
        self._disk, self._run, self._gate = disk, run, gate

    def load(self, date: str) -> Page:
        return self._gate.call("store.load", lambda: self._page(date))

    def glance(self, date: str) -> Glance:
        return Glance(self._disk.ledger.batch(date), self._disk.ledger.pause)

    def save(self, page: Page, batch: Batch) -> Page:
        return self._gate.call("store.save", lambda: self._save(page, batch))

    def check(self, page: Page) -> None:
        self._gate.call("store.check", lambda: self._check(page))

    def check_writable(self) -> None:
        self._gate.call("store.check_writable", self._check_writable)

    def reset(self, page: Page, reset: Reset) -> Page:
        self._check(page)
        self._disk.write(self._disk.ledger.with_reset(reset))
        return self._page(page.batch.date)

    def set_pause(self, page: Page, pause: Pause) -> Page:
        self._check(page)
        self._disk.write(self._disk.ledger.with_pause(pause))
        return self._page(page.batch.date)

    def rebuild(self, batches: Iterable[Batch]) -> str:
        self._disk.write(self._disk.ledger.rebuilt(batches))
        return ""

    def batches(self) -> tuple[Batch, ...]:
        return self._disk.ledger.batches()

    def resets(self) -> tuple[Reset, ...]:
        return self._disk.ledger.resets()

    def _page(self, day: str) -> Page:
        ledger = self._disk.ledger
        parts = ledger.batch(day), ledger.forgotten(day), ledger.open_before(day), ledger.pause
        return Page(self._disk.data, *parts)

    def _check(self, page: Page) -> None:
        if self._disk.holder != self._run:
            raise ClaimLost(f"The lease is not {self._run}'s any more.")
        if self._disk.data != page.stamp:
            raise ClaimLost("The ledger was changed by somebody else.")

    def _check_writable(self) -> None:
        if self._disk.is_full:
            raise StateUnusable("The state folder cannot be written.")

    def _save(self, page: Page, batch: Batch) -> Page:
        assert page.stamp is None or isinstance(page.stamp, bytes)
        ledger = parsed(page.stamp).with_batch(batch)
        self._check(page)
        self._disk.write(ledger)
        return self._page(page.batch.date)


# --------------------------------------------------------------------------------------------------- the Mailchimp


@dataclass
class Made:
    """A campaign as it truly is. Reads show `status` from `shown_from_s` on, listings show it from `listed_from_s`."""

    id: str
    title: str
    made_at_s: float
    spec: Spec
    status: str = "save"
    list_id: str = LIST
    content: Content = BY_HAND
    listed_from_s: float = 0.0
    shown_from_s: float = 0.0
    scheduled_at_s: float | None = None
    mailed_at_s: float | None = None
    is_undated: bool = False
    emails_sent: int | None = None
    deliveries: int = 0
    reached: frozenset[int] = frozenset()
    counted: int | None = None

    @property
    def is_mailed(self) -> bool:
        return self.status in {"sending", "sent"}

    @property
    def is_blank(self) -> bool:
        return not (self.content.html or self.content.plain_text)


def spec_of(list_id: str = LIST, **settings: object) -> Spec:
    """Return what an HTML file and its settings come to."""
    return Spec(
        "regular", {"list_id": list_id}, {"subject_line": "News", **settings}, {}, Content("<p>Hello</p>")
    )


class Account:
    """A Mailchimp account. All times in seconds since START."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.campaigns: dict[str, Made] = {}
        self.ever: dict[str, Made] = {}
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.audience = 4812
        self.mailing_s = 0.0
        self.listing_lag_s = 0.0
        self.status_lag_s = 0.0
        self.not_ready: tuple[str, ...] = ()
        self.ready_from_s = 0.0
        self.keeps_title_as: Callable[[str], str] = str
        self.shows_content_as: Callable[[Content], Content] = lambda content: content
        self.show_settings_with: dict[str, object] = {}
        self.segment_types: dict[int, str] = {}
        self.tags: dict[int, frozenset[int]] = {}
        # later ones have smaller ids: a tie within one second is decided against the order of making
        self._ids = (f"{0xFFFFFF - n:06x}" for n in count())

    # ---- what people do, and what time does ----

    def add(self, title: str = KEY, status: str = "save", *, kind: str = "regular", **fields: object) -> Made:
        """Put a campaign there that a person made."""
        spec = Spec(kind, {}, {"subject_line": "By hand"}, {}, Content())
        made = Made(next(self._ids), title, self.now_s(), spec, status)
        for name, value in fields.items():
            setattr(made, name, value)
        self.campaigns[made.id] = self.ever[made.id] = made
        if made.is_mailed:
            made.mailed_at_s, made.deliveries = self.now_s(), 1
            made.reached = self.people_for(made)
            made.emails_sent = self.audience if made.emails_sent is None else made.emails_sent
        return made

    def mail(self, made: Made) -> None:
        """Mail it now, and never again."""
        made.reached = self.people_for(made)
        made.counted = made.emails_sent = len(made.reached)
        made.status, made.deliveries, made.mailed_at_s = "sending", made.deliveries + 1, self.now_s()
        made.shown_from_s = self.now_s() + self.status_lag_s
        self.tick()

    def people_for(self, made: Made) -> frozenset[int]:
        """Whom a campaign would go to now: its audience, less those whom its conditions leave out.

        A campaign that is still being mailed leaves out nobody yet, which is the worst that can be.
        """
        people = frozenset(range(self.audience))
        segment = made.spec.recipients.get("segment_opts", {})
        assert isinstance(segment, dict)
        for condition in segment.get("conditions", ()):
            match condition:
                case {"condition_type": "Aim", "field": "aim", "op": "nosent", "value": str(web_id)}:
                    other = self.ever[f"{int(web_id):06x}"]
                    people -= frozenset() if other.status == "sending" else other.reached
                case {"condition_type": "StaticSegment", "op": "static_is", "value": int(tag)}:
                    people &= self.tags[tag]
                case _:
                    raise AssertionError(f"a condition that this Mailchimp does not know: {condition}")
        saved = segment.get("saved_segment_id")
        return people & self.tags[saved] if saved in self.tags else people

    def cut(self, made: Made, reached: int, status: str = "canceled") -> None:
        """Have a mailing end after so many people: canceled, or in the end with fewer than were counted."""
        made.reached = frozenset(sorted(made.reached)[:reached])
        made.status, made.emails_sent = status, reached

    def delete(self, made: Made) -> None:
        """Take it away; that it was mailed, if it was, nobody can take back."""
        del self.campaigns[made.id]

    def schedule(self, made: Made, at_s: float) -> None:
        made.status, made.scheduled_at_s = "schedule", at_s

    def unschedule(self, made: Made) -> None:
        made.status, made.scheduled_at_s = "save", None

    def tick(self) -> None:
        """Have everything happen that is due."""
        due = [effect for at_s, effect in self.later if at_s <= self.now_s()]
        self.later = [(at_s, effect) for at_s, effect in self.later if at_s > self.now_s()]
        for effect in due:
            effect()
        for made in self.campaigns.values():
            if (
                made.status == "schedule"
                and made.scheduled_at_s is not None
                and made.scheduled_at_s <= self.now_s()
            ):
                self.mail(made)
            if made.status == "sending" and (made.mailed_at_s or 0.0) + self.mailing_s <= self.now_s():
                made.status = "sent"

    @property
    def is_quiet(self) -> bool:
        """Nothing is on its way and every read shows things as they are."""
        lags = [max(m.listed_from_s, m.shown_from_s) for m in self.campaigns.values()]
        is_moving = any(m.status in {"schedule", "sending"} for m in self.campaigns.values())
        return not self.later and not is_moving and all(s <= self.now_s() for s in lags)

    # ---- what requests do ----

    def create(self, spec: Spec, title: str) -> Made:
        made = Made(next(self._ids), self.keeps_title_as(title), self.now_s(), spec, content=Content())
        made.list_id = str(spec.recipients["list_id"])
        made.listed_from_s = self.now_s() + self.listing_lag_s
        self.campaigns[made.id] = self.ever[made.id] = made
        return made

    def draft(self, campaign_id: str) -> Made:
        """Return a campaign that may still be written: Mailchimp refuses to change what was sent."""
        made = self.campaigns.get(campaign_id)
        if made is None or made.status != "save":
            raise Refused(f"Campaign {campaign_id} cannot be changed.")
        return made

    def send(self, campaign_id: str) -> Answer:
        """Answer a send that has arrived. Mailchimp mails one campaign once."""
        made = self.campaigns.get(campaign_id)
        if made is None or made.status != "save":
            return NotSent(No.REFUSED, "400: it has already been sent or is not there.")
        if self.now_s() < self.ready_from_s:
            return NotSent(No.RECIPIENTS_NOT_READY, "400: recipients not ready.")
        self.mail(made)
        return Accepted()

    # ---- what reads show ----

    def shown(self, made: Made, *, is_by_id: bool) -> Campaign:
        is_lagging = self.now_s() < made.shown_from_s
        status = "save" if is_lagging else made.status
        at_s = made.scheduled_at_s if status == "schedule" else made.mailed_at_s
        settings = {**made.spec.settings, "title": made.title, **self.show_settings_with}
        return Campaign(
            id=made.id,
            title=made.title,
            status=status,
            type=made.spec.type,
            list_id=made.list_id,
            create_time=None if made.is_undated else whole(made.made_at_s),
            web_id=int(made.id, 16),
            send_time=None if status == "save" or at_s is None else whole(at_s),
            emails_sent=made.emails_sent if status in {"sent", "canceled"} else 0,
            recipient_count=len(self.people_for(made)) if made.counted is None else made.counted,
            settings=settings if is_by_id else {},
            recipients={"list_id": made.list_id, **made.spec.recipients} if is_by_id else {},
            tracking=dict(made.spec.tracking) if is_by_id else {},
        )


def date_of(day: str) -> date:
    """Return the day of a text."""
    return date.fromisoformat(day)


def time_at(at_s: float) -> datetime:
    """Return the time so many seconds after START."""
    return START + timedelta(seconds=at_s)


def whole(at_s: float) -> datetime:
    """Return the same in whole seconds, as Mailchimp writes times."""
    return time_at(at_s).replace(microsecond=0)


class MemoryMailer(Mailer):
    """Mailchimp as one run talks to it."""

    def __init__(
        self, account: Account, disk: Disk, gate: Gate, *, run: str, date: str, list_id: str
    ) -> None:
        self._account, self._disk, self._gate, self._run = account, disk, gate, run
        self._day, self._list_id = date, list_id
        self._heard: tuple[datetime, float] | None = None
        self.posts: list[str] = []
        self.role, self.title_key = MAIN, render(PATTERN, JOB, date_of(date))

    def now(self) -> datetime:
        return self._gate.call("mailer.now", self._now)

    def _now(self) -> datetime:
        if self._heard is None:
            raise NoAnswer("Mailchimp's answers carry no Date header.")
        date, at_s = self._heard
        return date + timedelta(seconds=self._account.now_s() - at_s)

    def _ask(self, name: str, effect: Callable[[], _Made]) -> _Made:
        """Make a request; whatever comes back as an answer carries a Date header."""
        self._account.tick()
        made = self._gate.call(f"mailer.{name}", effect)
        self._account.tick()
        self._heard = (whole(self._account.now_s()), self._account.now_s())
        return made

    def listing(self) -> Listing:
        return self._ask("listing", self._listing)

    def _listing(self) -> Listing:
        account = self._account
        seen = [m for m in account.campaigns.values() if m.listed_from_s <= account.now_s()]
        ours = [m for m in seen if not self._list_id or m.list_id == self._list_id]
        return Listing(whole(account.now_s()), tuple(account.shown(m, is_by_id=False) for m in ours))

    def campaign(self, campaign_id: str, *, tries: int = 4) -> Campaign | None:
        def read() -> Campaign | None:
            made = self._account.campaigns.get(campaign_id)
            return None if made is None else self._account.shown(made, is_by_id=True)

        return self._ask("campaign", read)

    def segment_type(self, list_id: str, segment_id: int) -> str:
        return self._ask("segment_type", lambda: self._account.segment_types[segment_id])

    def content(self, campaign_id: str) -> Content:
        account = self._account
        return self._ask("content", lambda: account.shows_content_as(account.campaigns[campaign_id].content))

    def checklist(self, campaign_id: str) -> Checklist:
        def read() -> Checklist:
            errors = self._account.not_ready
            if not errors and self._account.now_s() < self._account.ready_from_s:
                errors = ("Recipients not ready",)
            return Checklist(is_ready=not errors, errors=errors)

        return self._ask("checklist", read)

    def account(self) -> words.Account:
        return self._ask("account", lambda: words.Account(ACCOUNT, "The Daily", "owner"))

    def audience_size(self, list_id: str, segment_id: int | None = None) -> int | None:
        sizes = {(LIST, None): self._account.audience, (LIST, 7): 70}
        return self._ask("audience_size", lambda: sizes.get((list_id, segment_id)))

    def create(self, spec: Spec, title: str) -> Campaign:
        batch = self._recorded()
        assert batch.nonce, "a draft is created and its nonce is not on the disk"
        assert title == created_title(self.title_key, batch.nonce)
        account = self._account
        return self._ask("create", lambda: account.shown(account.create(spec, title), is_by_id=True))

    def write_settings(self, campaign_id: str, spec: Spec, title: str) -> None:
        self._check_may_write(campaign_id)

        def write() -> None:
            made = self._account.draft(campaign_id)
            made.spec, made.title = spec, title

        self._ask("write_settings", write)

    def write_content(self, campaign_id: str, content: Content) -> None:
        self._check_may_write(campaign_id)

        def write() -> None:
            self._account.draft(campaign_id).content = content

        self._ask("write_content", write)

    def send(self, campaign_id: str) -> Answer:
        self.posts.append(campaign_id)
        assert len(self.posts) == 1, "a second POST in one run"
        batch = self._recorded()
        main = batch.main
        assert batch.state is State.SENDING, f"a send while {batch.state}"
        assert main is not None
        assert (main.id, main.gave_up_at) == (campaign_id, None), "a send of what is not on the disk"
        assert main.requested_at is not None
        return self._ask("send", lambda: self._account.send(campaign_id))

    def _check_may_write(self, campaign_id: str) -> None:
        batch = self._recorded()
        main = batch.main
        assert main is not None, "a campaign is written and its id is not on the disk"
        assert main.id == campaign_id
        assert batch.state in {State.PLANNED, State.READY, State.REFUSED}, f"written while {batch.state}"

    def _recorded(self) -> Batch:
        """The record of the date, for a request that changes something: the claim was checked right before it."""
        assert self._disk.holder == self._run, "a request that changes something, and the claim is lost"
        return part(self._disk.ledger.batch(self._day), self.role)


# -------------------------------------------------------------------------------------------- the rest of the world


class WorldClock(Clock):
    """The machine's clock; sleeping moves the whole world on."""

    def __init__(self, world: World, gate: Gate) -> None:
        self._world, self._gate = world, gate

    def now(self) -> datetime:
        return self._gate.call("clock.now", lambda: time_at(self._world.now_s).replace(microsecond=0))

    def monotonic(self) -> float:
        return self._gate.call("clock.monotonic", lambda: self._world.now_s)

    def sleep(self, seconds: float) -> None:
        self._gate.call("clock.sleep", lambda: self._world.pass_time(seconds))


class Collector(Witness):
    """A witness that remembers."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def note(self, event: str, **facts: object) -> None:
        self._gate.call("witness.note", lambda: self.notes.append(event))

    def warn(self, message: str) -> None:
        self._gate.call("witness.warn", lambda: self.warnings.append(message))


class ScriptedSource(CampaignSource):
    """Today's file: what the world says it is."""

    def __init__(self, world: World, gate: Gate) -> None:
        self._world, self._gate = world, gate

    def spec(self) -> Spec:
        return self._gate.call("source.spec", lambda: self._world.spec)


class CopySource(CampaignSource):
    """What is ordered beside the day's campaign: the same once more."""

    def __init__(self, world: World, gate: Gate, campaign_id: str) -> None:
        self._world, self._gate, self._id = world, gate, campaign_id

    def spec(self) -> Spec:
        def read() -> Spec:
            made = self._world.account.campaigns[self._id]
            recipients = {**made.spec.recipients, "list_id": made.list_id}
            return Spec("regular", recipients, made.spec.settings, made.spec.tracking, made.content)

        return self._gate.call("source.spec", read)


@dataclass(frozen=True)
class Ended:
    """How a run ended, and what it did."""

    outcome: Outcome | None
    error: BaseException | None
    calls: tuple[str, ...]
    posts: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def code(self) -> int:
        """The exit code; -9 for a run that died."""
        if self.outcome is not None:
            return code_of_ending(self.outcome.ending)
        return -9 if self.error is None or isinstance(self.error, Crash) else code_of(self.error)

    @property
    def ending(self) -> Ending | None:
        return None if self.outcome is None else self.outcome.ending

    @property
    def message(self) -> str:
        return self.outcome.message if self.outcome is not None else str(self.error)


class World:
    """One job: its disks (state folders that share nothing), its Mailchimp, its settings."""

    def __init__(
        self, source: Source = Source.DRAFT, *, list_id: str = "", zone: tzinfo = UTC, disks: int = 1
    ) -> None:
        self.source, self.list_id, self.zone = source, list_id, zone
        self.now_s = 0.0
        self.disks = [Disk() for _ in range(disks)]
        self.account = Account(lambda: self.now_s)
        self.spec = spec_of()
        self.settle_s, self.listing_s, self.timeout_s = 180.0, 30.0, 130.0
        self.guards = NO_GUARDS
        self.skipped = ""
        self.today = ""
        self.scope = Scope.OFF
        self._numbers = count(1)

    @property
    def disk(self) -> Disk:
        return self.disks[0]

    def record(self, day: str = DAY, disk: int = 0) -> Batch:
        """Return the record of a day as it is on the disk."""
        return self.disks[disk].ledger.batch(day)

    def deliveries(self, key: str = KEY) -> int:
        """How often the day went out."""
        return sum(m.deliveries for m in self.account.ever.values() if belongs(m.title, key))

    def mails(self) -> Counter[int]:
        """How many mails each person of the audience got, of all campaigns there ever were; who got none has 0."""
        got = Counter(dict.fromkeys(range(self.account.audience), 0))
        for made in self.account.ever.values():
            assert made.deliveries <= 1, "a campaign was mailed twice"
            got.update(made.reached)
        return got

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have happen what is due meanwhile, in its order."""
        until_s = self.now_s + seconds
        waiting = [m.scheduled_at_s for m in self.account.campaigns.values() if m.status == "schedule"]
        due = sorted(
            s
            for s in (*(at_s for at_s, _ in self.account.later), *waiting)
            if s is not None and self.now_s < s <= until_s
        )
        for at_s in due:
            self.now_s = at_s
            self.account.tick()
        self.now_s = until_s
        self.account.tick()

    def rules(self, day: str = DAY) -> Rules:
        key = render(PATTERN, JOB, date.fromisoformat(day))
        times = (self.settle_s, self.listing_s, self.timeout_s)
        return Rules(
            JOB,
            day,
            self.zone,
            self.source,
            key,
            self.list_id,
            *times,
            self.today or day,
            self.guards,
            scope=self.scope,
            skipped=self.skipped,
            title_pattern=PATTERN,
        )

    def begin(
        self,
        *,
        day: str = DAY,
        disk: int = 0,
        at: Mapping[int, Fault] | None = None,
        on: Mapping[str, Sequence[Fault | None]] | None = None,
        kind: Kind | None = None,
    ) -> Process:
        """Take the lease for a run that has not begun; with `kind`, for one that an operator orders."""
        return Process(self, f"run{next(self._numbers)}", day, self.disks[disk], Gate(at, on), kind=kind)

    def run(
        self,
        *,
        day: str = DAY,
        disk: int = 0,
        at: Mapping[int, Fault] | None = None,
        on: Mapping[str, Sequence[Fault | None]] | None = None,
    ) -> Ended:
        """One run to its end, whatever that is."""
        return self.begin(day=day, disk=disk, at=at, on=on).go()

    def order(
        self,
        kind: Kind = Kind.REMAINING,
        *,
        disk: int = 0,
        at: Mapping[int, Fault] | None = None,
        on: Mapping[str, Sequence[Fault | None]] | None = None,
    ) -> Ended:
        """One run that an operator orders beside the day's own, to its end."""
        return self.begin(disk=disk, at=at, on=on, kind=kind).go()

    def rehearse(
        self,
        day: str = DAY,
        *,
        on: Mapping[str, Sequence[Fault | None]] | None = None,
        kind: Kind | None = None,
    ) -> Ended:
        """Make a dry run, without a lease."""
        process = Process(self, "dry", day, self.disk, Gate(None, on), has_lease=False, kind=kind)
        return process.ended(lambda: rehearse(*process.prepared()))

    def take_over(self, disk: int = 0) -> None:
        """Somebody else holds the lease now."""
        self.disks[disk].holder = "somebody else"

    def reset(self, day: str = DAY, disk: int = 0) -> None:
        """Have the ledger forget a date, as an operator orders it."""
        self.disks[disk].holder = "operator"
        store = MemoryStore(self.disks[disk], "operator", Gate())
        store.reset(store.load(day), Reset(day, time_at(self.now_s), "root@web1", "a test", {}))

    def pause(self, pause: Pause | None, disk: int = 0) -> None:
        """Have an operator pause the job, or end its pause."""
        self.disks[disk].holder = "operator"
        store = MemoryStore(self.disks[disk], "operator", Gate())
        page = store.load(DAY)
        if pause is None and page.pause is not None:
            pause = page.pause._replace(ended_at=time_at(self.now_s), ended_by="root@web1")
        if pause is not None:
            store.set_pause(page, pause)

    def runs_until_done(self, *, at_most: int = 12, pause_s: float = 600, disk: int = 0) -> list[int]:
        """Run again and again, as cron does, until 0; the exit codes."""
        codes: list[int] = []
        while len(codes) < at_most and (not codes or codes[-1] != ExitCode.OK):
            codes.append(self.run(disk=disk).code)
            self.pass_time(pause_s)
        if codes[-1] == ExitCode.OK:  # else a person has deleted what was to be mailed
            tally.add_judged("runs of the core in memory", self.deliveries())
        return codes


class Process:
    """One process: a `Run` with its ports."""

    def __init__(
        self,
        world: World,
        name: str,
        day: str,
        disk: Disk,
        gate: Gate,
        *,
        has_lease: bool = True,
        kind: Kind | None = None,
    ) -> None:
        self._world, self.gate, self._day, self._kind = world, gate, day, kind
        if has_lease:
            disk.holder = name
        self.mailer = MemoryMailer(world.account, disk, gate, run=name, date=day, list_id=world.list_id)
        self.witness = Collector(gate)
        self.ports = Ports(
            store=MemoryStore(disk, name, gate),
            mailer=self.mailer,
            source=None if world.source is Source.DRAFT else ScriptedSource(world, gate),
            clock=WorldClock(world, gate),
            witness=self.witness,
            new_nonce=lambda: gate.call("new_nonce", lambda: f"{int(name.removeprefix('run')):08x}"),
        )
        self._attempt = Attempt(name, "web1", 812, time_at(world.now_s).replace(microsecond=0))
        self.run = Run(world.rules(day), self.ports, self._attempt)

    def go(self) -> Ended:
        """Run to the end."""
        return self.ended(self._go)

    def _go(self) -> Outcome:
        if self._kind is not None:
            try:
                self.run = Run(*self.prepared(), self._attempt)
            except Refused as fault:
                return Outcome(Ending.REFUSED, self._day, fault.message)
        return self.run.go()

    def prepared(self) -> tuple[Rules, Ports]:
        """What the run is about, and its ports; of an ordered one as the command puts them together."""
        rules = self._world.rules(self._day)
        if self._kind is None:
            return rules, self.ports
        order = order_of(self._kind, self.ports.store.load(self._day).batch, rules.title_key, self.mailer)
        self.mailer.role, self.mailer.title_key = order.role, order.title_key(rules.title_key)
        scope = Scope.AUDIENCE if rules.scope is Scope.AUDIENCE else Scope.JOB
        rules = replace(
            rules,
            source=Source.REPLICATE,
            role=order.role,
            order="root@web1: a test",
            title_key=self.mailer.title_key,
            date_key=rules.title_key,
            scope=scope if self._kind is Kind.REMAINING else Scope.OFF,
        )
        return rules, replace(self.ports, source=CopySource(self._world, self.gate, order.first.id))

    def ended(self, work: Callable[[], Outcome]) -> Ended:
        """Do it, and gather how it ended. A failed check of this world, and a bug of ours, come through."""
        outcome: Outcome | None = None
        error: BaseException | None = None
        try:
            outcome = work()
        except InvariantBroken:
            raise
        except (SendonceError, Stopped, Crash) as fault:
            error = fault
        return Ended(
            outcome, error, tuple(self.gate.calls), tuple(self.mailer.posts), tuple(self.witness.warnings)
        )


def world_of(source: Source = Source.DRAFT, *, has_draft: bool | None = None, **fields: Any) -> World:
    """Make a world in which a run would send. With a draft source the day's draft is there, else only if asked for."""
    world = World(source, **fields)
    if has_draft or (has_draft is None and source is Source.DRAFT):
        world.account.add()
    return world


def only_campaign(world: World) -> Made:
    """Return the only campaign that there is."""
    (only,) = world.account.campaigns.values()
    return only


def effects(ended: Ended) -> list[str]:
    """Return the calls that change something or guard a change, in order."""
    return [name for name in ended.calls if name in EFFECTS]


def unclear(*, acts: bool) -> Fault:
    """Have a send answered neither with yes nor with no, whether it took effect or not."""
    return answering(UNCLEAR, acts=acts)
