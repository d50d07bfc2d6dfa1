"""The words of the protocol as frozen values: what the ledger holds, and how a run ends.

Named tuples: a date that is sent is read with these alone, and `dataclasses` would cost as much as all the rest of
that (docs/performance.md).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

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


class Entry(NamedTuple):
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


class Attempt(NamedTuple):
    """One run's visit to a date. Times are this machine's clock, in UTC."""

    run: str
    host: str
    pid: int
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str = ""
    detail: str = ""


class Batch(NamedTuple):
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


class Reset(NamedTuple):
    """A record that an operator had the ledger forget, with who, when (UTC) and why."""

    date: str
    at: datetime
    by: str
    reason: str
    was: Mapping[str, object]


class Page(NamedTuple):
    """What a run needs of the ledger, as it last read it.

    `stamp` is the store's own: a write goes through only if the ledger still carries it.
    `forgotten` are the records of the date that a reset put aside.
    """

    stamp: object
    batch: Batch
    forgotten: tuple[Batch, ...] = ()
    open_earlier: tuple[Batch, ...] = ()


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


class Outcome(NamedTuple):
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


def many(count: int, one: str, several: str = "") -> str:
    """So many of a thing, as a person says it; `several` where an s does not do."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


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
