"""Who holds a lease, in words: the same for a marker file and for a server that keeps leases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

_WATCHED: Final = "a run that waits for a whole lease (SENDONCE_LOCK_WAIT_SECONDS) watches it and then"


class Standing(StrEnum):
    """What is known of the lease's owner, as far as it can be seen from here. A server's lease is live or expired."""

    LIVE = "live"
    DEAD = "dead"
    STALE = "stale?"
    UNKNOWN = "unknown owner"
    NO_OWNER = "no owner recorded"
    EXPIRED = "expired"


@dataclass(frozen=True)
class Holder:
    """Who holds the lease, as a marker file or a server tells it. Fields that are not told are None or empty.

    `running_since`: when the holder's process began, known only on its own machine. `renewed_s`: seconds
    since the last renewal; of a marker by this machine's clock, and then it decides nothing but what is said.
    """

    place: Path | str
    standing: Standing
    renewed_s: float
    size: int = 0
    pid: int | None = None
    host: str = ""
    lease_s: float | None = None
    running_since: datetime | None = None


def describe(holder: Holder) -> str:
    """Say who holds the lease and what becomes of it, as a phrase that can follow a colon."""
    owner = f"pid {holder.pid} on host {holder.host}"
    since = f" since {holder.running_since:%Y-%m-%dT%H:%M:%SZ}" if holder.running_since else ""
    lease = "" if holder.lease_s is None else f" (lease {holder.lease_s:g} s)"
    age = f"{holder.renewed_s:.0f} s"
    match holder.standing:
        case Standing.LIVE:
            return f"held by {owner}{since}, renewed {age} ago{lease}"
        case Standing.DEAD:
            return f"left behind by {owner}, which has ended, {age} ago: the next run takes it over at once"
        case Standing.STALE:
            return f"held by {owner}{since}, not renewed for {age}: stale{lease}; {_WATCHED} takes it over"
        case Standing.UNKNOWN:
            what = f"a file of {holder.size} bytes that does not say who holds it"
            return f"{what}, unchanged for {age}; {_WATCHED} removes it"
        case Standing.NO_OWNER:
            return f"an empty file, no owner is recorded, unchanged for {age}; {_WATCHED} removes it"
        case Standing.EXPIRED:
            return f"left behind by {owner}, not renewed for {age}{lease}: the next run takes it over at once"
        case _:
            assert_never(holder.standing)
