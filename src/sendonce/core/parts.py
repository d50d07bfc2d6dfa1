"""A date's record in parts: the day's own campaign, and each mailing that an operator ordered beside it.

A repair ("remaining 1") or a second mailing ("again 1") goes through the same protocol as the day's campaign, with an
entry of its own for its state. `part` shows one of them as a batch, so that the protocol need not know of the others;
`folded` puts it back. Neither ever sees, changes or loses another part.
"""

from __future__ import annotations

from typing import Final

from sendonce.core.model import Batch, Entry, State

MAIN: Final = "main"
BESIDE: Final = ("former", "twin")
"""What else a part may hold: a campaign that was given up after its send was asked for, and one mailed beside its own."""


def part(batch: Batch, role: str) -> Batch:
    """The part of `batch` that is `role`, as a batch whose main campaign it is. Attempts are those of the date."""
    own = tuple(_shown(entry, role) for entry in batch.campaigns if _is_of(entry, role))
    if role == MAIN:
        return batch if len(own) == len(batch.campaigns) else batch._replace(campaigns=own)
    head = next((entry for entry in batch.campaigns if entry.role == role), Entry("", ""))
    with_id = tuple(entry for entry in own if entry.id)
    return Batch(batch.date, head.state, head.nonce, with_id, batch.attempts, head.reason)


def folded(batch: Batch, role: str, changed: Batch, order: str = "") -> Batch:
    """`batch` with `changed` as its part `role`. `order` says who ordered it and why; it is kept from the first on."""
    others = tuple(entry for entry in batch.campaigns if not _is_of(entry, role))
    if role == MAIN:
        return changed._replace(campaigns=(*changed.campaigns, *others)) if others else changed
    known = next((entry for entry in batch.campaigns if entry.role == role), None)
    head = changed.main or Entry("", "")
    head = head._replace(
        role=role,
        state=changed.state,
        nonce=changed.nonce,
        reason=changed.reason,
        order=known.order if known is not None else order,
    )
    rest = tuple(e._replace(role=f"{role} {e.role}") for e in changed.campaigns if e.role != MAIN)
    if changed.state is State.NONE and known is None:
        return batch._replace(attempts=changed.attempts)
    return batch._replace(attempts=changed.attempts, campaigns=(*others, head, *rest))


def beside(batch: Batch, role: str) -> tuple[Entry, ...]:
    """The campaigns of the other parts, those that have an id."""
    return tuple(entry for entry in batch.campaigns if entry.id and not _is_of(entry, role))


def roles(batch: Batch) -> tuple[str, ...]:
    """The roles of what was ordered beside the day's campaign, in the order of the record."""
    return tuple(entry.role for entry in batch.campaigns if entry.state is not State.NONE)


def _is_of(entry: Entry, role: str) -> bool:
    others = BESIDE if role == MAIN else tuple(f"{role} {other}" for other in BESIDE)
    return entry.role == role or entry.role in others


def _shown(entry: Entry, role: str) -> Entry:
    if role == MAIN:
        return entry
    shown = MAIN if entry.role == role else entry.role.removeprefix(f"{role} ")
    return entry._replace(role=shown, state=State.NONE, nonce="", reason="", order="")
