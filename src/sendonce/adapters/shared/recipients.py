"""The record of recipients in an SQL database, beside lease and ledger.

Pages of a report wait as texts, and become rows in the one transaction in which the report begins to count. Whoever
changes the record of a job locks its row in `sendonce_recipient_records` first, so they come one after the other.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, delete, exists, func, insert, literal, not_, null, select, update
from sqlalchemy.exc import IntegrityError

from sendonce.adapters.shared import sql
from sendonce.core.errors import StateUnusable, Temporary
from sendonce.core.recipients import (
    STATUSES,
    Duplicate,
    Got,
    Mailed,
    Recipient,
    Recorded,
    Row,
    buried,
    status_at,
    tombstone_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Connection

    from sendonce.adapters.shared.sql import SqlBackend
    from sendonce.core.ports import Clock

SALT_BYTES: Final = 32
READ_ROWS: Final = 5000
"""So many are read at a time where all are."""
_records, _campaigns, _pages = sql.recipient_records, sql.recipient_campaigns, sql.recipient_pages
_recipients, _forgotten = sql.recipients, sql.recipients_forgotten
_PLACE: Final = {status: place for place, status in enumerate(STATUSES)}
_TRUE, _FALSE = literal(value=True), literal(value=False)


class _NotWholeError(Exception):
    """Pages are missing."""


class SqlRecipients:
    """The record of one job in a database; satisfies `RecipientRecord` and, as it needs no files, `RecipientWriter`."""

    def __init__(self, backend: SqlBackend, *, job: str, clock: Clock) -> None:
        self._backend, self._job, self._clock = backend, job, clock

    # ---- reading ----

    def campaigns(self, first: str, last: str) -> tuple[Recorded, ...]:
        """Return the campaigns on record; see `RecipientRecord`."""
        query = self._complete(select(_campaigns)).where(_campaigns.c.date.between(first, last))
        with self._backend.transaction(is_read=True) as db:
            rows = db.execute(query.order_by(_campaigns.c.date, _campaigns.c.sent_at, _campaigns.c.id)).all()
        return tuple(
            Recorded(_campaign(row), row.total, datetime.fromisoformat(row.synced_at)) for row in rows
        )

    def got(self, email_id: bytes) -> tuple[Got, ...]:
        """Return what a person got; see `RecipientRecord`."""
        with self._backend.transaction(is_read=True) as db:
            salt = db.scalar(select(_records.c.salt).where(_records.c.job == self._job))
            if salt is None:
                return ()
            found = db.execute(look_up([email_id, tombstone_of(email_id, bytes(salt))])).all()
            query = self._complete(select(_campaigns)).where(
                _campaigns.c.number.in_({row.number for row in found})
            )
            campaigns = {row.number: _campaign(row) for row in db.execute(query)}
        got = [
            Got(
                campaigns[row.number],
                _status(row.status),
                row.address or "",
                bytes(row.email_id) != email_id,
            )
            for row in found
            if row.number in campaigns  # not another job's
        ]
        return tuple(
            sorted(got, key=lambda one: (one.campaign.date, str(one.campaign.sent_at), one.campaign.id))
        )

    def duplicates(self, first: str, last: str) -> Iterator[Duplicate]:
        """Go through who got more than one campaign of a date; see `RecipientRecord`."""
        of_dates = self._complete(_joined(_campaigns.c.date, _recipients.c.email_id)).where(
            _campaigns.c.date.between(first, last)
        )
        twice = (
            of_dates.group_by(_campaigns.c.date, _recipients.c.email_id).having(func.count() > 1).subquery()
        )
        query = self._complete(
            _joined(_campaigns.c.date, _campaigns.c.id, _recipients.c.email_id, _recipients.c.address)
        ).join(twice, and_(twice.c.date == _campaigns.c.date, twice.c.email_id == _recipients.c.email_id))
        query = query.order_by(_campaigns.c.date, _recipients.c.email_id, _campaigns.c.id)
        # one query for all, unlike `rows`: to find who is there twice is the work, and a page would do it anew
        with self._backend.transaction(is_read=True, is_long=True) as db:
            rows = db.execute(query, execution_options={"yield_per": READ_ROWS})
            for (date, email_id), group in groupby(rows, key=lambda row: (row.date, bytes(row.email_id))):
                of_one = list(group)
                address = max(row.address or "" for row in of_one)
                yield Duplicate(date, email_id, tuple(row.id for row in of_one), address)

    def rows(self, date: str) -> Iterator[Row]:
        """Go through all recipients of a date; see `RecipientRecord`."""
        query = self._complete(
            _joined(_campaigns, _recipients.c.email_id, _recipients.c.status, _recipients.c.address)
        )
        query = query.where(_campaigns.c.date == date)
        query = query.order_by(_recipients.c.email_id, _campaigns.c.number).limit(READ_ROWS)
        after: Any = not_(_FALSE)
        while True:
            # no transaction stays open while somebody takes their time with what was read
            with self._backend.transaction(is_read=True) as db:
                found = db.execute(query.where(after)).all()
            for row in found:
                yield Row(_campaign(row), bytes(row.email_id), _status(row.status), row.address or "")
            if len(found) < READ_ROWS:
                return
            last = found[-1]
            is_before = and_(
                _recipients.c.email_id == bytes(last.email_id), _recipients.c.number <= last.number
            )
            after = and_(_recipients.c.email_id >= bytes(last.email_id), not_(is_before))

    def count(self, date: str) -> int:
        """Count the people of a date; see `RecipientRecord`."""
        people = func.count(_recipients.c.email_id.distinct())
        with self._backend.transaction(is_read=True, is_long=True) as db:
            return db.scalar(self._complete(_joined(people)).where(_campaigns.c.date == date)) or 0

    def addresses_of(self, date: str, limit: int) -> Iterator[str]:
        """Go through the addresses kept of a date; see `RecipientRecord`."""
        query = self._complete(_joined(func.max(_recipients.c.address))).where(
            _campaigns.c.date == date, _recipients.c.address.is_not(None), _recipients.c.address != ""
        )
        query = query.group_by(_recipients.c.email_id).order_by(_recipients.c.email_id).limit(max(limit, 0))
        with self._backend.transaction(is_read=True, is_long=True) as db:
            found = db.scalars(query).all()
        yield from found

    def _complete(self, query: Any) -> Any:
        return query.where(_campaigns.c.job == self._job, _campaigns.c.is_complete == _TRUE)

    # ---- writing ----

    @contextmanager
    def writing(self) -> Iterator[SqlRecipients]:
        """Write reports; see `RecipientRecord`. Two that do so at once share their pages."""
        yield self

    def begin(self, campaign: Mailed, total: int, *, keeps_addresses: bool) -> frozenset[int]:
        """Begin a report, or go on with it; see `RecipientWriter`."""
        self._make_record()
        with self._backend.transaction() as db:
            self._lock(db)
            open_one = self._open_one(db, campaign)
            if open_one is not None and (open_one.total, open_one.keeps_addresses) == (
                total,
                keeps_addresses,
            ):
                pages = db.scalars(select(_pages.c.page).where(_pages.c.number == open_one.number))
                return frozenset(pages)
            self._delete_open(db, campaign)
            values = _values(campaign) | {"job": self._job, "total": total, "synced_at": ""}
            db.execute(
                insert(_campaigns).values(**values, keeps_addresses=keeps_addresses, is_complete=False)
            )
        return frozenset()

    def put(self, campaign: Mailed, page: int, rows: Collection[Recipient]) -> None:
        """Keep a page; see `RecipientWriter`."""
        record = json.dumps([[row.email_id.hex(), row.status, row.address] for row in rows])
        with self._backend.transaction() as db:
            self._lock(db)  # else `forget` may come between, and the page outlive its report
            open_one = self._open_one(db, campaign)
            if open_one is None:
                return  # another process has finished it, or somebody was forgotten: `complete` finds out
            # what is suppressed: another process was faster
            with suppress(IntegrityError), db.begin_nested():
                db.execute(insert(_pages).values(number=open_one.number, page=page, record=record))

    def complete(self, campaign: Mailed, total: int) -> Recorded:
        """Have the pages count; see `RecipientWriter`."""
        now = self._clock.now().replace(microsecond=0)
        is_whole = True
        with self._backend.transaction(is_long=True) as db:
            salt = self._lock(db)
            open_one = self._open_one(db, campaign)
            if open_one is None:
                raise Temporary(
                    f"The report of campaign {campaign.id} was finished, or dropped, by another process. Run again."
                )
            try:
                with db.begin_nested():
                    self._unfold(db, open_one, salt)
                    total = self._take_over(db, campaign, open_one)
                    values = _values(campaign) | {"total": total, "synced_at": now.isoformat()}
                    row = update(_campaigns).where(_campaigns.c.number == open_one.number)
                    db.execute(row.values(**values, is_complete=True))
                    db.execute(delete(_pages).where(_pages.c.number == open_one.number))
            except (IntegrityError, _NotWholeError):
                is_whole = False
                self._delete_open(db, campaign)
        if not is_whole:
            raise Temporary(
                f"The report of campaign {campaign.id} changed while it was read: its {total} rows do not name so many "
                "people. The record is as it was: run again."
            )
        return Recorded(campaign, total, now)

    def _unfold(self, db: Connection, open_one: Any, salt: bytes) -> None:
        """Make rows of the pages. Raise IntegrityError for a person who is there twice, _NotWholeError for too few."""
        number = open_one.number
        forgotten = {
            bytes(one)
            for one in db.scalars(select(_forgotten.c.email_id).where(_forgotten.c.job == self._job))
        }
        people = 0
        pages = db.scalars(
            select(_pages.c.page).where(_pages.c.number == number).order_by(_pages.c.page)
        ).all()
        for page in pages:
            query = select(_pages.c.record).where(_pages.c.number == number, _pages.c.page == page)
            found = [
                Recipient(bytes.fromhex(email_id), status, address)
                for email_id, status, address in json.loads(db.execute(query).scalar_one())
            ]
            rows = [
                {
                    "email_id": r.email_id,
                    "number": number,
                    "status": _PLACE[r.status],
                    "address": r.address or None,
                }
                for r in buried(found, forgotten, salt)
            ]
            if rows:
                db.execute(insert(_recipients), rows)
            people += len(rows)
        if people != open_one.total:
            raise _NotWholeError

    def _take_over(self, db: Connection, campaign: Mailed, open_one: Any) -> int:
        """Put the report in place of an earlier one; how many people it has with those whom only that one names."""
        number = open_one.number
        address = _recipients.c.address if open_one.keeps_addresses else null()
        query = self._complete(select(_campaigns.c.number)).where(_campaigns.c.id == campaign.id)
        for old in db.scalars(query).all():
            # who was deleted in Mailchimp since did get it all the same, and stays
            there = _recipients.alias()
            is_there = exists().where(there.c.email_id == _recipients.c.email_id, there.c.number == number)
            names = ("email_id", "number", "status", "address")
            kept = select(_recipients.c.email_id, literal(number), _recipients.c.status, address).where(
                _recipients.c.number == old, not_(is_there)
            )
            db.execute(insert(_recipients).from_select(names, kept))
            db.execute(delete(_recipients).where(_recipients.c.number == old))
            db.execute(delete(_campaigns).where(_campaigns.c.number == old))
        people = select(func.count()).select_from(_recipients).where(_recipients.c.number == number)
        return db.execute(people).scalar_one()

    def drop(self, campaign: Mailed) -> None:
        """Drop the pages of a report; see `RecipientWriter`."""
        with self._backend.transaction() as db:
            self._lock(db)
            self._delete_open(db, campaign)

    def forget(self, email_id: bytes) -> int:
        """Put a tombstone in a person's place; see `RecipientRecord`."""
        self._make_record()
        with self._backend.transaction() as db:
            stone = tombstone_of(email_id, self._lock(db))
            # reports that are half way in would bring the person back: they start over
            self._delete_open(db, None)
            there = and_(_forgotten.c.job == self._job, _forgotten.c.email_id == stone)
            if not db.scalar(select(func.count()).select_from(_forgotten).where(there)):
                db.execute(insert(_forgotten).values(job=self._job, email_id=stone))
            numbers = db.scalars(
                self._complete(_joined(_campaigns.c.number)).where(_recipients.c.email_id == email_id)
            ).all()
            row = update(_recipients).where(
                _recipients.c.email_id == email_id, _recipients.c.number.in_(numbers)
            )
            db.execute(row.values(email_id=stone, address=None))
        return len(numbers)

    def _make_record(self) -> None:
        """Give the job its salt, in a step of its own; another process may be faster."""
        query = select(func.count()).select_from(_records).where(_records.c.job == self._job)
        with self._backend.transaction() as db, suppress(IntegrityError):
            if not db.scalar(query):
                with db.begin_nested():
                    db.execute(insert(_records).values(job=self._job, salt=os.urandom(SALT_BYTES)))

    def _lock(self, db: Connection) -> bytes:
        """Keep others from changing the record until this step ends; its salt."""
        query = select(_records.c.salt).where(_records.c.job == self._job).with_for_update()
        return bytes(db.execute(query).scalar_one())

    def _open_one(self, db: Connection, campaign: Mailed) -> Any:
        query = select(_campaigns).where(_campaigns.c.job == self._job, _campaigns.c.id == campaign.id)
        return db.execute(query.where(_campaigns.c.is_complete == _FALSE)).one_or_none()

    def _delete_open(self, db: Connection, campaign: Mailed | None) -> None:
        """Delete what is there of a report that is not complete; of all of them if none is named."""
        is_open = and_(_campaigns.c.job == self._job, _campaigns.c.is_complete == _FALSE)
        if campaign is not None:
            is_open = and_(is_open, _campaigns.c.id == campaign.id)
        numbers = db.scalars(select(_campaigns.c.number).where(is_open)).all()
        db.execute(delete(_pages).where(_pages.c.number.in_(numbers)))
        db.execute(delete(_campaigns).where(_campaigns.c.number.in_(numbers)))


def look_up(email_ids: list[bytes]) -> Any:
    """The query for all rows of a person, by each name of theirs: of one table alone, so that its key is used for sure."""
    return select(_recipients).where(_recipients.c.email_id.in_(email_ids))


def _joined(*columns: Any) -> Any:
    return (
        select(*columns)
        .select_from(_recipients)
        .join(_campaigns, _campaigns.c.number == _recipients.c.number)
    )


def _values(campaign: Mailed) -> dict[str, Any]:
    sent_at = campaign.sent_at.isoformat() if campaign.sent_at else None
    return {**campaign._asdict(), "sent_at": sent_at}


def _campaign(row: Any) -> Mailed:
    sent_at = datetime.fromisoformat(row.sent_at) if row.sent_at else None
    return Mailed(row.id, row.date, row.title, row.role, row.web_id, sent_at)


def _status(place: object) -> str:
    try:
        return status_at(place)
    except ValueError:
        raise StateUnusable(
            f"The record of recipients in the database cannot be used: it has the status {place!a}, which sendonce never "
            "writes. It is left as it is: was it made by a newer one, or by hand?"
        ) from None
