"""Protocols that are wrong on purpose. Each must be caught, or the explorer proves nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from explorer.world import NOW
from sendonce.core.batch import Run
from sendonce.core.campaigns import Campaign, No, NotSent
from sendonce.core.model import Entry, Outcome, State

if TYPE_CHECKING:
    from sendonce.core.decide import Look
    from sendonce.core.model import Batch


class RecordsAfterSend(Run):
    """Posts first, and writes "about to send" when the answer is there: a crash in between leaves no trace."""

    def _send(self, campaign: Campaign, look: Look) -> tuple[Outcome, Batch]:
        answer = self._mailer.send(campaign.id)
        (entry,) = (e._replace(requested_at=NOW) for e in self._batch.campaigns)
        self._write(self._batch._replace(state=State.SENDING, campaigns=(entry,)))
        if isinstance(answer, NotSent):
            return self._not_sent(campaign, answer)
        return self._accepted(campaign, entry)


class SkipsTheRead(Run):
    """Trusts its ledger: Mailchimp is not asked what there is of the date."""

    def _look(self) -> Look:
        return replace(super()._look(), listed=())


class CreatesTwice(Run):
    """Goes on only with what it created itself: a twin that is not sent yet is none of its business."""

    def _look(self) -> Look:
        look = super()._look()
        mine = {e.id for e in self._batch.campaigns}
        return replace(look, listed=tuple(c for c in look.listed if not c.is_draft or c.id in mine))


class TakesUnclearForFailed(Run):
    """A timeout means "not sent": back to `ready`, free to be sent again."""

    def _unclear(self, campaign: Campaign, entry: Entry, said: str) -> tuple[Outcome, Batch]:
        return self._temporary(f"{entry.id}: {said}", self._batch._replace(state=State.READY))


class SaysNotSent(Run):
    """An unclear answer is reported as a refusal."""

    def _unclear(self, campaign: Campaign, entry: Entry, said: str) -> tuple[Outcome, Batch]:
        return self._not_sent(campaign, NotSent(No.REFUSED, said))
