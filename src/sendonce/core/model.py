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

    `by` says who sent it: "sendonce", or "by hand" when no request of ours is on record. One that an operator ordered
    beside the day's own has `state`, `nonce` and `reason` of its own, as a batch has, and in `order` who ordered it
    and why; its role is "remaining 1" or "again 1", and it has no id before it is created (see `parts`).
    `quiet_since`: a run saw it then as `draft_hash` says, and none has seen it otherwise since (guard `quiet`).
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
    state: State = State.NONE
    nonce: str = ""
    reason: str = ""
    order: str = ""
    draft_hash: str = ""
    quiet_since: datetime | None = None


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


class Pause(NamedTuple):
    """An operator's order that the job sends nothing: who, when (UTC), why.

    `until` is the first date (YYYY-MM-DD, the job's zone) on which it sends again, "" if only `resume` ends it.
    One that is over by `resume`, or that another took the place of, says since when and by whom.
    """

    reason: str
    by: str
    at: datetime
    until: str = ""
    ended_at: datetime | None = None
    ended_by: str = ""

    def holds_on(self, today: str) -> bool:
        """Whether it still holds on that date."""
        return not self.until or today < self.until


class Page(NamedTuple):
    """What a run needs of the ledger, as it last read it.

    `stamp` is the store's own: a write goes through only if the ledger still carries it.
    `forgotten` are the records of the date that a reset put aside. `beside` are the campaigns of the date, on record or
    forgotten, that are not this batch's own (see `parts`).
    """

    stamp: object
    batch: Batch
    forgotten: tuple[Batch, ...] = ()
    open_earlier: tuple[Batch, ...] = ()
    pause: Pause | None = None
    beside: tuple[Entry, ...] = ()


class Glance(NamedTuple):
    """What says whether a date needs a run at all. `has_open_earlier` is asked only where there is a pause."""

    batch: Batch
    pause: Pause | None = None
    has_open_earlier: bool = False


class Ending(StrEnum):
    """How a run ended; `exits.py` has the exit code of each."""

    SENT = "sent"
    FOUND_SENT = "found sent"
    ALREADY_SENT = "already sent"
    SKIPPED = "skipped"
    PAUSED = "paused"
    SCHEDULED = "scheduled"
    SCHEDULED_ELSEWHEN = "scheduled for another date"
    WOULD_SEND = "would send"
    ALARM = "alarm"
    REFUSED = "refused"
    TEMPORARY = "temporary"
    WAITING = "waiting"


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


def repair_of(batch: Batch) -> Entry | None:
    """The last campaign by which a mailing that had stopped half-way was completed; None without one."""
    found = [e for e in batch.campaigns if e.role.startswith("remaining ") and e.state is State.SENT]
    return found[-1] if found else None


def many(count: int, one: str, several: str = "") -> str:
    """So many of a thing, as a person says it; `several` where an s does not do."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def settled(seen: Glance | Page, today: str) -> Outcome | None:
    """What to say of a date that needs nothing more on `today` (YYYY-MM-DD); None if a run has work to do.

    A pause holds up no batch in `sending`: what may have been mailed already is looked after all the same.
    """
    batch = seen.batch
    if batch.state is State.SKIPPED:
        return Outcome(Ending.SKIPPED, batch.date, f"{batch.date} is skipped: {batch.reason}.")
    if batch.state is not State.SENT and (repair := repair_of(batch)) is not None:
        said = f'{batch.date} was sent in two parts; the last was "{repair.title}" ({repair.id}).'
        return Outcome(
            Ending.ALREADY_SENT,
            batch.date,
            said,
            repair.id,
            repair.title,
            repair.emails_sent,
            repair.recipients,
        )
    if batch.state is not State.SENT:
        if batch.state is State.SENDING or seen.pause is None or not seen.pause.holds_on(today):
            return None
        said = f"Nothing is sent for {batch.date}: {told_pause(seen.pause)}"
        if batch.main is not None and batch.main.scheduled_for is not None:
            said += f" Campaign {batch.main.id} was scheduled in Mailchimp, which mails it all the same: see there."
        return Outcome(Ending.PAUSED, batch.date, said)
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


def told_pause(pause: Pause) -> str:
    """Say that the job is paused, why, and what ends it."""
    end = f"until {pause.until}, or until `sendonce resume`" if pause.until else "until `sendonce resume`"
    return f"the job is paused {end}. {pause.by} gave as reason: {pause.reason}."
