"""Who got a campaign: the words for it, and when a report counts as read.

A person is the `email_id` of Mailchimp, MD5 of the lower-cased address, here as its 16 bytes. One that asked to be
forgotten is kept as a tombstone in its place: a keyed hash of it, with a salt of the record's own.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import Enum
from hashlib import blake2b, md5
from typing import TYPE_CHECKING, Final, NamedTuple

from sendonce.core.model import State

if TYPE_CHECKING:
    from collections.abc import Collection

    from sendonce.core.campaigns import Campaign
    from sendonce.core.model import Batch, Entry

PAGE_ROWS: Final = 500
"""Mailchimp's support advises it; pages of 1000 run into gateway timeouts."""
CONNECTIONS: Final = 4
"""At a time; Mailchimp allows an account ten in all."""
REPORT_SETTLES: Final = timedelta(hours=24)
"""Younger than that a report may lag behind the mails; of an older one people were removed since."""
STATUSES: Final = ("sent", "hard", "soft", "other")
"""What became of the mail, as Mailchimp says it; a record keeps the place in here."""
UNSENT: Final = frozenset({"save", "schedule", "paused"})
DONE: Final = frozenset({"sent", "canceled"})
ID_BYTES: Final = 16
_ADDRESS_FORM: Final = r"[^@\s\x00-\x1f\x7f-\x9f]+@[^@\s\x00-\x1f\x7f-\x9f.]+(\.[^@\s\x00-\x1f\x7f-\x9f.]+)+"


class Recipient(NamedTuple):
    """A row of a report. `address` is "" where addresses are not kept."""

    email_id: bytes
    status: str
    address: str = ""


class ReportPage(NamedTuple):
    """A page of a report, and how many recipients the whole one has."""

    total: int
    rows: tuple[Recipient, ...]


class Mailed(NamedTuple):
    """A campaign of a job's date that was mailed. `sent_at` is Mailchimp's time, UTC."""

    id: str
    date: str
    title: str = ""
    role: str = "main"
    web_id: int | None = None
    sent_at: datetime | None = None


class Recorded(NamedTuple):
    """A campaign whose recipients are all on record, how many they are, and when they were read (UTC)."""

    campaign: Mailed
    total: int
    synced_at: datetime


class Got(NamedTuple):
    """That somebody got a campaign. `is_forgotten`: of a person of whom no more is kept than that."""

    campaign: Mailed
    status: str
    address: str = ""
    is_forgotten: bool = False


class Row(NamedTuple):
    """A recipient on record, with the campaign."""

    campaign: Mailed
    email_id: bytes
    status: str
    address: str = ""


class Duplicate(NamedTuple):
    """Somebody who got more than one campaign of a date, and which (ids)."""

    date: str
    email_id: bytes
    campaigns: tuple[str, ...]
    address: str = ""


class Verdict(Enum):
    """Whether a report can be read to its end by now."""

    COMPLETE = "complete"
    NOT_YET = "not yet"
    NOT_MAILED = "not mailed"


def is_nameable(text: str) -> bool:
    """Whether it can be the address of a person in Mailchimp, which takes more than a sender's may have (`o'brien@`)."""
    return re.fullmatch(_ADDRESS_FORM, text) is not None


def email_id_of(address: str) -> bytes:
    """Name a person as Mailchimp does."""
    return md5(address.strip().lower().encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()


def parsed_ids(texts: Collection[str]) -> list[bytes]:
    """Read each `email_id` of a report. Raise TypeError or ValueError if one is none."""
    ids = [bytes.fromhex(text) for text in texts]
    if set(map(len, ids)) - {ID_BYTES}:
        raise ValueError(texts)
    return ids


def status_at(place: object) -> str:
    """The status that a record keeps as this place. Raise ValueError if there is none."""
    if not isinstance(place, int) or not 0 <= place < len(STATUSES):
        raise ValueError(place)
    return STATUSES[place]


def tombstone_of(email_id: bytes, salt: bytes) -> bytes:
    """What is kept of a forgotten person: the same each time, of no use without the record's salt (16 to 64 bytes)."""
    return blake2b(email_id, key=salt, digest_size=ID_BYTES).digest()


def entries_of(batch: Batch) -> tuple[Entry, ...]:
    """The campaigns of a date that were mailed, or may have been; what they are now, Mailchimp must say."""
    is_gone = batch.state in {State.SENT, State.SENDING}
    return tuple(
        entry
        for entry in batch.campaigns
        if entry.requested_at is not None
        or entry.sent_at is not None
        or entry.scheduled_for is not None
        or (is_gone and entry.role == "main")
    )


def verdict(campaign: Campaign | None, total: int | None, now: datetime) -> Verdict:
    """Whether the report of a campaign, of so many recipients (None: not there yet), is whole. `now`: Mailchimp's."""
    if campaign is None or campaign.status in UNSENT:
        return Verdict.NOT_MAILED
    if campaign.status not in DONE or total is None:
        return Verdict.NOT_YET  # while it is sending, a report grows
    is_short = total < (campaign.emails_sent or 0)
    is_young = campaign.send_time is None or now - campaign.send_time < REPORT_SETTLES
    return Verdict.NOT_YET if is_short and is_young else Verdict.COMPLETE


def pages_of(total: int) -> range:
    """The numbers of the pages of a report; one of nobody has a page, too."""
    return range(max(1, -(-total // PAGE_ROWS)))


def fault_of(page: ReportPage, number: int, total: int) -> str:
    """What shows that a report changed while it was read, "" if nothing does."""
    wanted = min(PAGE_ROWS, total - number * PAGE_ROWS)
    if page.total != total:
        return f"it had {total} recipients and now has {page.total}"
    if len(page.rows) != wanted:
        return f"its page {number + 1} has {len(page.rows)} rows in place of {wanted}"
    if len({row.email_id for row in page.rows}) != wanted:
        return f"its page {number + 1} names somebody twice"
    return ""


def buried(rows: Collection[Recipient], forgotten: Collection[bytes], salt: bytes) -> tuple[Recipient, ...]:
    """The rows as they may be kept: who is among the `forgotten` (tombstones) only as the tombstone."""
    if not forgotten:
        return tuple(rows)
    made = ((row, tombstone_of(row.email_id, salt)) for row in rows)
    return tuple(Recipient(stone, row.status) if stone in forgotten else row for row, stone in made)
