"""The words of the protocol as frozen values: what the ledger holds, what Mailchimp shows, how a run ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class State(StrEnum):
    """Where a batch stands in the ledger. `NONE` is a date without a record."""

    NONE = "-"
    PLANNED = "planned"
    READY = "ready"
    SENDING = "sending"
    SENT = "sent"
    REFUSED = "refused"
    SKIPPED = "skipped"


class Source(StrEnum):
    """Where the day's campaign comes from."""

    DRAFT = "draft"
    REPLICATE = "replicate"
    HTML = "html"


@dataclass(frozen=True)
class Entry:
    """A campaign in the record of a date. Times are Mailchimp's (its Date header), in UTC.

    `by` says who sent it: "sendonce", or "by hand" when no request of ours is on record.
    """

    id: str
    title: str
    role: str = "main"
    web_id: int | None = None
    by: str = "sendonce"
    requested_at: datetime | None = None
    gave_up_at: datetime | None = None
    sent_at: datetime | None = None
    emails_sent: int | None = None
    scheduled_for: datetime | None = None
    recipients: int | None = None


@dataclass(frozen=True)
class Attempt:
    """One run's visit to a date. Times are this machine's clock, in UTC."""

    run: str
    host: str
    pid: int
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Batch:
    """A job's mailing for one date, as the ledger has it."""

    date: str
    state: State = State.NONE
    nonce: str = ""
    campaigns: tuple[Entry, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    reason: str = ""

    @property
    def main(self) -> Entry | None:
        """The campaign that this date is about, once one is agreed on."""
        return next((entry for entry in self.campaigns if entry.role == "main"), None)


@dataclass(frozen=True)
class Reset:
    """A record that an operator had the ledger forget, with who, when (UTC) and why."""

    date: str
    at: datetime
    by: str
    reason: str
    was: Mapping[str, object]


@dataclass(frozen=True)
class Page:
    """What a run needs of the ledger, as it last read it.

    `stamp` is the store's own: a write goes through only if the ledger still carries it.
    `forgotten` are the records of the date that a reset put aside.
    """

    stamp: object
    batch: Batch
    forgotten: tuple[Batch, ...] = ()
    open_earlier: tuple[Batch, ...] = ()


@dataclass(frozen=True)
class Campaign:
    """A campaign as Mailchimp shows it. `status` stays text: a word nobody knows must not become another.

    `settings`, `recipients` and `tracking` are the objects of a read by id, empty in a listing.
    """

    id: str
    title: str
    status: str
    type: str
    list_id: str
    create_time: datetime | None
    web_id: int | None = None
    send_time: datetime | None = None
    emails_sent: int | None = None
    recipient_count: int | None = None
    content_type: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    recipients: Mapping[str, object] = field(default_factory=dict)
    tracking: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_draft(self) -> bool:
        """Only `save` is a draft; every other status is past it."""
        return self.status == "save"

    @property
    def is_mailed(self) -> bool:
        """Mailchimp has begun to mail it, or has finished."""
        return self.status in {"sending", "sent"}


@dataclass(frozen=True)
class Listing:
    """Every campaign of the account or audience, complete.

    `at` is a time, by Mailchimp's clock, before which the listing was certainly not made.
    """

    at: datetime
    campaigns: tuple[Campaign, ...]


@dataclass(frozen=True)
class Checklist:
    """Mailchimp's own verdict on whether a campaign can be sent, with what it holds against it."""

    is_ready: bool
    errors: tuple[str, ...] = ()

    @property
    def waits_for_recipients(self) -> bool:
        """The audience of a new campaign is still being computed: not a fault, a race (facts §3)."""
        return bool(self.errors) and all("recipients not ready" in e.lower() for e in self.errors)


@dataclass(frozen=True)
class Content:
    """A campaign's content. An empty text means that part is not set by us."""

    html: str = ""
    plain_text: str = ""


@dataclass(frozen=True)
class Spec:
    """What a created campaign shall be, without its title: settings as the API names them."""

    type: str
    recipients: Mapping[str, object]
    settings: Mapping[str, object]
    tracking: Mapping[str, object]
    content: Content


class No(Enum):
    """Why a send did certainly not happen."""

    UNREACHABLE = "unreachable"
    CERTIFICATE = "certificate"
    CREDENTIALS = "credentials"
    THROTTLED = "throttled"
    RECIPIENTS_NOT_READY = "recipients not ready"
    REFUSED = "refused"


@dataclass(frozen=True)
class Accepted:
    """Mailchimp took the send: an empty 204, and nothing else."""


@dataclass(frozen=True)
class NotSent:
    """Mailchimp, or the network before it, said no. `said` is for people."""

    why: No
    said: str


@dataclass(frozen=True)
class Unclear:
    """Neither yes nor no: it may have been sent. `said` is for people."""

    said: str


Answer = Accepted | NotSent | Unclear


class Ending(StrEnum):
    """How a run ended; `exits.py` has the exit code of each."""

    SENT = "sent"
    FOUND_SENT = "found sent"
    ALREADY_SENT = "already sent"
    SKIPPED = "skipped"
    SCHEDULED = "scheduled"
    SCHEDULED_ELSEWHEN = "scheduled for another date"
    WOULD_SEND = "would send"
    ALARM = "alarm"
    REFUSED = "refused"
    TEMPORARY = "temporary"


@dataclass(frozen=True)
class Outcome:
    """What a run has to say. `is_hushed`: `-q` need not say it, a person knows it or the next run heals it."""

    ending: Ending
    date: str
    message: str
    campaign_id: str = ""
    title: str = ""
    emails_sent: int | None = None
    recipients: int | None = None
    notes: tuple[str, ...] = ()
    is_hushed: bool = False


def settled(batch: Batch) -> Outcome | None:
    """What to say of a date that needs nothing more; None if a run has work to do."""
    if batch.state is State.SKIPPED:
        return Outcome(Ending.SKIPPED, batch.date, f"{batch.date} is skipped: {batch.reason}.")
    if batch.state is not State.SENT:
        return None
    main = batch.main
    if main is None:
        return Outcome(Ending.ALREADY_SENT, batch.date, f"{batch.date} was already sent.")
    return Outcome(
        Ending.ALREADY_SENT,
        batch.date,
        f'{batch.date} was already sent: "{main.title}" ({main.id}).',
        campaign_id=main.id,
        title=main.title,
        emails_sent=main.emails_sent,
        recipients=main.recipients,
    )
