"""A ledger with a past, written as a file, for what only looks at it: no key, no server."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sendonce.core.model import Attempt, Batch, Entry, State

if TYPE_CHECKING:
    from pathlib import Path

NASTY = '</bdi><script>alert("1")</script> & \u202e\x1b[31m über ✓'
"""A title as a person, or an attacker, might write it."""


def at(day: str) -> datetime:
    """Seven in the morning of that day, UTC."""
    return datetime.fromisoformat(f"{day}T07:00:00+00:00").astimezone(UTC)


def sent(day: str, emails: int | None = 12, **fields: Any) -> Batch:
    """A batch that was sent."""
    entry = Entry("1a2b3c4d5e", f"Digest {day}", sent_at=at(day), emails_sent=emails, recipients=13)
    entry = entry._replace(requested_at=at(day), **fields)
    tried = Attempt("0a0b0c0d", "web1", 812, started_at=at(day), ended_at=at(day), outcome="sent")
    return Batch(day, State.SENT, campaigns=(entry,), attempts=(tried,))


def daily(first: str, count: int) -> list[Batch]:
    """As many days from the first on, all sent."""
    start = date.fromisoformat(first)
    return [sent((start + timedelta(days=n)).isoformat()) for n in range(count)]


def write_job(folder: Path, batches: dict[str, Any], resets: list[dict[str, Any]] | None = None) -> Path:
    """A job's folder with this ledger (its JSON); the `.env` comes back."""
    state = folder / "state"
    state.mkdir(mode=0o700, parents=True)
    document = {"version": 1, "job": "daily", "api": "us19.api.mailchimp.com", "batches": batches}
    ledger = state / "daily.json"
    ledger.touch(mode=0o600)
    ledger.write_text(json.dumps({**document, "resets": resets or []}))
    env = folder / ".env"
    env.touch(mode=0o600)
    env.write_text(f"SENDONCE_STATE='{state}'\nSENDONCE_TIMEZONE=Europe/Berlin\n")
    return env
