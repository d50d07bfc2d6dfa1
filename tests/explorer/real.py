"""The real `Run`, driven by replay: given everything its ports have answered so far, what does it ask next?

A Python run cannot be copied in the middle, so it is run again from its start each time; it is deterministic, and the
answer is kept for every history that was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from explorer.world import DATE, KEY, LISTING_S, MADE, NOW, SETTLE_S, SPEC, TIMEOUT_S
from sendonce.core.batch import Ports, Run
from sendonce.core.campaigns import Account, Answer, Campaign, Checklist, Content, Listing, Spec
from sendonce.core.decide import Rules
from sendonce.core.errors import Temporary, Unusable
from sendonce.core.ledger import check_transition
from sendonce.core.model import Attempt, Batch, Entry, Page, Pause, Reset, Source, State

if TYPE_CHECKING:
    from collections.abc import Iterable

REQUESTED = datetime(2000, 1, 1, tzinfo=UTC)
"""In a stored record every time is this one: whether it is long ago is the world's matter."""
AFTER_LISTING_S, AFTER_SETTLE_S = 40, 10_000
SOME_RUN = Attempt("0", "host", 1, NOW)


@dataclass(frozen=True)
class Call:
    """What a run asks of the world."""

    what: str
    about: object = None
    stamp: object = None


@dataclass(frozen=True)
class Ended:
    """How it ended. `ending` is "lost" where it could not record its end."""

    ending: str
    message: str


class Shown(NamedTuple):
    """A campaign as a read shows it, small enough to be part of a state."""

    number: int
    title: str
    status: str
    has_settings: bool

    def campaign(self) -> Campaign:
        """As the adapter would give it."""
        return Campaign(
            id=id_of(self.number),
            title=self.title,
            status=self.status,
            type="regular",
            list_id="abcdef0123",
            create_time=made_at(self.number),
            send_time=NOW + timedelta(hours=1) if self.status == "schedule" else None,
            settings=SPEC.settings if self.has_settings else {},
            recipients=SPEC.recipients,
        )


@dataclass(frozen=True)
class Fails:
    """An answer that is an exception."""

    error: type[Exception]
    message: str = "made to fail"


class _Asks(BaseException):
    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.call = call


class _World:
    """All ports at once: each call takes the next recorded answer, or stops the replay."""

    def __init__(self, number: int, history: tuple[object, ...]) -> None:
        self._number, self._history, self._at, self._slept_s = number, history, 0, 0.0
        self._has_posted = False

    def _answer(self, call: Call) -> Any:
        if self._at == len(self._history):
            raise _Asks(call)
        answer = self._history[self._at]
        self._at += 1
        if isinstance(answer, Fails):
            raise answer.error(answer.message)
        return answer

    # the ledger

    def load(self, _date: str) -> Page:
        page: Page = self._answer(Call("load"))
        return page

    def glance(self, date: str) -> NoReturn:
        raise NotImplementedError

    def save(self, page: Page, batch: Batch) -> Page:
        check_transition(page.batch, batch)
        stored = canonical(batch)
        self._answer(Call("save", stored, page.stamp))
        forgotten = page.stamp[1] if isinstance(page.stamp, tuple) else ()
        return page._replace(stamp=(stored, forgotten), batch=batch._replace(attempts=()))

    def check(self, page: Page) -> None:
        self._answer(Call("check", None, page.stamp))

    def check_writable(self) -> None:
        return

    def segment_type(self, list_id: str, segment_id: int) -> NoReturn:
        raise NotImplementedError

    def reset(self, page: Page, reset: Reset) -> NoReturn:
        raise NotImplementedError

    def set_pause(self, page: Page, pause: Pause) -> NoReturn:
        raise NotImplementedError

    def rebuild(self, batches: Iterable[Batch]) -> NoReturn:
        raise NotImplementedError

    def batches(self) -> NoReturn:
        raise NotImplementedError

    def resets(self) -> NoReturn:
        raise NotImplementedError

    # Mailchimp

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self._slept_s)

    def listing(self) -> Listing:
        shown, unripe = self._answer(Call("listing"))
        at = NOW if unripe is None else made_at(unripe)
        return Listing(at, tuple(one.campaign() for one in shown))

    def campaign(self, campaign_id: str, *, tries: int = 4) -> Campaign | None:
        found: Shown | None = self._answer(Call("campaign", index_of(campaign_id)))
        return None if found is None else found.campaign()

    def content(self, campaign_id: str) -> Content:
        content: Content = self._answer(Call("content", index_of(campaign_id)))
        return content

    def checklist(self, campaign_id: str) -> Checklist:
        return Checklist(is_ready=True)

    def account(self) -> Account:
        return Account("", "", "")

    def audience_size(self, list_id: str, segment_id: int | None = None) -> int | None:
        return None

    def create(self, spec: Spec, title: str) -> Campaign:
        made: Shown = self._answer(Call("create", title))
        return made.campaign()

    def write_settings(self, campaign_id: str, spec: Spec, title: str) -> None:
        self._answer(Call("write_settings", index_of(campaign_id)))

    def write_content(self, campaign_id: str, content: Content) -> None:
        self._answer(Call("write_content", index_of(campaign_id)))

    def send(self, campaign_id: str) -> Answer:
        self._has_posted = True
        answer: Answer = self._answer(Call("send", index_of(campaign_id)))
        return answer

    # source, clock, witness

    def spec(self) -> Spec:
        return SPEC

    def monotonic(self) -> float:
        return self._slept_s

    def sleep(self, seconds: float) -> None:
        self._answer(Call("sleep", "settle" if self._has_posted else "listing"))
        self._slept_s += AFTER_SETTLE_S if self._has_posted else AFTER_LISTING_S

    def note(self, event: str, **facts: object) -> None:
        return

    def warn(self, message: str) -> None:
        return

    def new_nonce(self) -> str:
        return f"{self._number:08x}"


class Clock:
    """The wall clock: attempts are not part of a state."""

    def __init__(self, world: _World) -> None:
        self.monotonic, self.sleep = world.monotonic, world.sleep

    def now(self) -> datetime:
        return NOW


class Driver:
    """What real runs do, for one source, remembered by history."""

    def __init__(
        self,
        source: Source,
        *,
        run: type[Run] = Run,
        listing_s: float = LISTING_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._source, self._run, self._seen = (
            source,
            run,
            dict[tuple[int, tuple[object, ...]], Call | Ended](),
        )
        self._rules = Rules(
            job="daily", date=DATE, zone=UTC, source=source, title_key=KEY, list_id="",
            settle_s=settle_s, listing_s=listing_s, timeout_s=TIMEOUT_S, today=DATE,
        )  # fmt: skip

    def next(self, number: int, history: tuple[object, ...]) -> Call | Ended:
        """What run `number` does after these answers."""
        key = (number, history)
        if key not in self._seen:
            self._seen[key] = self._replay(number, history)
        return self._seen[key]

    def _replay(self, number: int, history: tuple[object, ...]) -> Call | Ended:
        world = _World(number, history)
        source = None if self._source is Source.DRAFT else world
        ports = Ports(world, world, source, Clock(world), world, world.new_nonce)
        try:
            outcome = self._run(self._rules, ports, SOME_RUN).go()
        except _Asks as asks:
            return asks.call
        except (Temporary, Unusable) as fault:
            return Ended("lost", fault.message)
        return Ended(outcome.ending.value, outcome.message)


def canonical(batch: Batch) -> Batch:
    """A record without what makes no difference: who tried when, and clock times."""
    return batch._replace(attempts=(), reason="", campaigns=tuple(_timeless(e) for e in batch.campaigns))


def _timeless(entry: Entry) -> Entry:
    def some(time: datetime | None) -> datetime | None:
        return None if time is None else REQUESTED

    return entry._replace(
        requested_at=some(entry.requested_at),
        gave_up_at=some(entry.gave_up_at),
        sent_at=some(entry.sent_at),
        scheduled_for=some(entry.scheduled_for),
        emails_sent=None,
        recipients=None,
    )


def made_at(index: int) -> datetime:
    """When the campaign was made: one second after the one before."""
    return MADE + timedelta(seconds=index)


def id_of(index: int) -> str:
    """A campaign's id."""
    return f"c0{index:04x}"


def index_of(campaign_id: str) -> int:
    """The campaign that an id belongs to."""
    return int(campaign_id.removeprefix("c0"), base=16)


def is_settled_state(batch: Batch) -> bool:
    """Whether a run would not even start."""
    return batch.state in {State.SENT, State.SKIPPED}
