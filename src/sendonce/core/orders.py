"""What an operator orders beside the day's campaign: the rest of a mailing that stopped half-way, or a second mailing.

Both go through the same protocol as the day's campaign (see `batch`), with a title key and an entry of their own.
Neither comes about by a plain run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sendonce.core.dates import belongs
from sendonce.core.errors import InvariantBroken, Refused, Temporary
from sendonce.core.model import Entry, Page, State
from sendonce.core.parts import MAIN, beside, folded, part
from sendonce.core.reach import has_reached, is_through

if TYPE_CHECKING:
    from sendonce.core.campaigns import Campaign
    from sendonce.core.model import Batch
    from sendonce.core.ports import Mailer, RunStore


class Kind(StrEnum):
    """What is ordered: a campaign to those who were not sent the first, or one more to all."""

    REMAINING = "remaining"
    AGAIN = "again"


@dataclass(frozen=True)
class Order:
    """The `number`-th order of its kind for a date. `first` is the day's own campaign, as Mailchimp shows it."""

    kind: Kind
    number: int
    first: Campaign

    @property
    def role(self) -> str:
        """The role of its campaign in the record, as "remaining 1"."""
        return f"{self.kind} {self.number}"

    def title_key(self, date_key: str) -> str:
        """The title key of its campaign."""
        return f"{date_key} ({self.role})"


class PartOfLedger:
    """The ledger as one run sees it: its own part of the date's record. Satisfies `RunStore`.

    Earlier batches are the business of the day's own run alone.
    """

    def __init__(self, store: RunStore, role: str, order: str = "") -> None:
        self._store, self._role, self._order = store, role, order

    def load(self, date: str) -> Page:
        """As `RunStore.load`, of the part alone."""
        return self._shown(self._store.load(date))

    def save(self, page: Page, batch: Batch) -> Page:
        """As `RunStore.save`; the other parts are written as they were read."""
        whole = _whole(page)
        if batch.date == whole.batch.date:
            return self._shown(self._store.save(whole, folded(whole.batch, self._role, batch, self._order)))
        earlier = next((known for known in whole.open_earlier if known.date == batch.date), None)
        if earlier is None:
            raise InvariantBroken(
                f"the batch of {batch.date} was not read with the page of {whole.batch.date}"
            )
        return self._shown(self._store.save(whole, folded(earlier, MAIN, batch)))

    def check(self, page: Page) -> None:
        """As `RunStore.check`."""
        self._store.check(_whole(page))

    def check_writable(self) -> None:
        """As `RunStore.check_writable`."""
        self._store.check_writable()

    def _shown(self, whole: Page) -> Page:
        is_main = self._role == MAIN
        return whole._replace(
            stamp=whole,
            batch=part(whole.batch, self._role),
            forgotten=tuple(part(batch, self._role) for batch in whole.forgotten),
            open_earlier=tuple(part(batch, MAIN) for batch in whole.open_earlier) if is_main else (),
            beside=tuple(
                entry for batch in (whole.batch, *whole.forgotten) for entry in beside(batch, self._role)
            ),
        )


def _whole(page: Page) -> Page:
    if not isinstance(page.stamp, Page):
        raise InvariantBroken("the page is not one of a part of the ledger")
    return page.stamp


def order_of(kind: Kind, batch: Batch, date_key: str, mailer: Mailer) -> Order:
    """The order that the next run of this kind carries out: the open one if there is one, else a new one.

    `batch` is the whole record of the date, `date_key` its title key. Raise Refused if nothing was mailed that could
    be repaired or repeated, Temporary while a campaign of the date is still being mailed; and as reads of Mailchimp do.
    """
    first = _first(batch, date_key, mailer)
    number, last = _last(kind, batch)
    if last is not None and not _is_over(last, mailer):
        return Order(kind, number, first)
    if kind is Kind.REMAINING:
        _check_remaining(batch, first)
    return Order(kind, number + 1, first)


def with_first(batch: Batch, first: Campaign) -> Batch:
    """The record of a date that was lost, with the day's own campaign as Mailchimp shows it. Who sent it is not known."""
    entry = Entry(
        first.id,
        first.title,
        web_id=first.web_id,
        by="unknown",
        sent_at=first.send_time,
        emails_sent=first.emails_sent,
    )
    is_sent = first.status == "sent"
    return batch._replace(
        state=State.SENT if is_sent else State.REFUSED,
        reason="" if is_sent else f'Campaign {first.id} is "{first.status}" in Mailchimp.',
        campaigns=(entry, *batch.campaigns),
    )


def _first(batch: Batch, date_key: str, mailer: Mailer) -> Campaign:
    """The day's own campaign, through with being mailed."""
    if batch.state is State.SKIPPED:
        raise Refused(
            f"{batch.date} is skipped: {batch.reason}. Nothing was sent that could be repaired or repeated."
        )
    first_id = batch.main.id if batch.main is not None else _found_id(batch.date, date_key, mailer)
    first = mailer.campaign(first_id)
    if first is None:
        raise Refused(
            f"Campaign {first_id} of {batch.date} is gone from Mailchimp (404). Nothing was sent by this run."
        )
    if first.status in {"sending", "canceling"}:
        raise Temporary(
            f"Campaign {first.id} of {batch.date} is still being mailed: who was not sent it is known only afterwards. "
            "Nothing was sent by this run. Run again, that is safe."
        )
    if not is_through(first):
        raise Refused(
            f'Campaign {first.id} of {batch.date} is "{first.status}" in Mailchimp, neither sent nor canceled. Nothing was '
            f"sent by this run: send-batch --date {batch.date} is what sends it."
        )
    return first


def _found_id(date: str, date_key: str, mailer: Mailer) -> str:
    """The one campaign that somebody was sent for the date, for a ledger that was lost."""
    found = [c.id for c in mailer.listing().campaigns if has_reached(c) and belongs(c.title, date_key)]
    if len(found) != 1:
        many = f"{len(found)} campaigns" if found else "no campaign"
        raise Refused(
            f'Neither has the ledger a campaign of {date}, nor Mailchimp one that was mailed and is named "{date_key}" '
            f"({many}). Nothing was sent that could be repaired or repeated."
        )
    return found[0]


def _check_remaining(batch: Batch, first: Campaign) -> None:
    """A campaign that reached all whom it was counted for has left nobody over."""
    counted = batch.main.recipients if batch.main is not None else None
    if first.status == "sent" and counted is not None and (first.emails_sent or 0) >= counted:
        raise Refused(
            f"Campaign {first.id} of {batch.date} was sent to {first.emails_sent}, and {counted} were counted before: "
            "nobody remains. Nothing was sent by this run."
        )


def _last(kind: Kind, batch: Batch) -> tuple[int, Entry | None]:
    """The number of the last order of this kind, and its entry; 0 and None if there was none."""
    numbered = [
        (int(found[1]), entry)
        for entry in batch.campaigns
        if (found := re.fullmatch(rf"{kind} ([0-9]+)", entry.role)) is not None
    ]
    return max(numbered, key=lambda one: one[0], default=(0, None))


def _is_over(last: Entry, mailer: Mailer) -> bool:
    """Whether an order is done with, and a new one may begin. Raise Temporary while it is being mailed.

    One that was asked for and is not on record as sent goes on, if only to be put on record: its order is open.
    """
    if not last.id:
        return False
    shown = mailer.campaign(last.id)
    if shown is None:
        # on record as sent, it has no run any more; without that, its own run finds the same, and says what to do
        return last.state is State.SENT
    if shown.status == "canceled":
        return True
    if last.state is State.SENT and shown.status not in {"sending", "sent", "canceling"}:
        raise Refused(
            f'Campaign {last.id} ({last.role}) is "{shown.status}" in Mailchimp: who was sent it is not known. Nothing was '
            "sent by this run. Look at it there."
        )
    if last.state is State.SENT and not is_through(shown):
        raise Temporary(
            f'Campaign {last.id} ({last.role}) is "{shown.status}" in Mailchimp: another can begin only afterwards. '
            "Nothing was sent by this run. Run again, that is safe."
        )
    return last.state is State.SENT
