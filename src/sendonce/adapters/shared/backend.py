"""What the server that keeps lease and ledger is asked. Each call is one step there: all of it happens, or nothing.

Every call raises StoreDown (75) if the server cannot be reached or is not ready, StateUnusable (78) if it says no:
credentials, a read-only replica, no memory, no tables. After a StoreDown a change may have been made or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sendonce.core.ledger import Row

PAGE_ROWS: Final = 1000
"""So many batches are read at a time where all are: ten years are some pages, never one answer of megabytes."""
ANSWER_WAIT_S: Final = 10
"""Longest wait for an answer of the server, and for a connection to it."""
FIRST_DAY: Final = "0000-00-00"
LAST_DAY: Final = "9999-99-99"

# of the system, which every driver passes on in its own words; a name is looked up by libc, glibc's or musl's
_UNREACHED: Final = (
    ("connection refused", "it refuses connections"),
    (
        "name or service not known|name does not resolve|name resolution|could not translate host|no address associated",
        "its name could not be looked up",
    ),
    ("timed? ?out", f"it did not answer within {ANSWER_WAIT_S} s"),
)


def why_unreached(error: BaseException | None) -> str:
    """Why a server could not be reached, of what a driver says of it; its own words may quote a password."""
    said = str(error).lower()
    return next((why for form, why in _UNREACHED if re.search(form, said)), "the connection broke")


@dataclass(frozen=True)
class Owner:
    """The run that asks for a lease, as others are told of it."""

    token: str
    host: str
    pid: int


@dataclass(frozen=True)
class Grip:
    """The lease as the server has it, times by the server's clock. `left_s` is 0 or less once it has expired.

    `fence` grows with each acquisition: of two holders the later one has the higher number.
    """

    owner: Owner
    fence: int
    lease_s: float
    left_s: float


@dataclass(frozen=True)
class Head:
    """What the server keeps of a ledger beside its rows. `stamp` is another one after every change.

    `pause` is the JSON text of the operator's order that nothing is sent, empty without one.
    """

    version: int
    job: str
    api: str
    stamp: str
    pause: bytes = b""


@dataclass(frozen=True)
class Rows:
    """A ledger, or the part of one that a run needs: batches by date, and resets in their order."""

    head: Head | None
    batches: Mapping[str, bytes]
    resets: Sequence[bytes] = ()


@dataclass(frozen=True)
class Change:
    """What a write does: rows put and removed, resets (date, text) added, and the head as it is afterwards.

    With `is_whole` the rows and resets replace all that is there.
    """

    head: Head
    batches: Mapping[str, Row] = field(default_factory=dict)
    removed: Sequence[str] = ()
    resets: Sequence[tuple[str, str]] = ()
    is_whole: bool = False


class Verdict(Enum):
    """Whether a write went through, and why not."""

    DONE = "done"
    CLAIM_LOST = "claim lost"
    CHANGED = "changed by somebody else"


class Backend(Protocol):
    """One job's lease and ledger on one server. `place` names it in messages, without a password."""

    place: str

    def take(self, owner: Owner, lease_s: float) -> Grip:
        """Take the lease if it is free or expired; who holds it then comes back, this owner or another."""
        ...

    def renew(self, token: str, lease_s: float) -> bool:
        """Renew the lease for `lease_s` from now if `token` still holds it. A server that cannot write raises."""
        ...

    def give_back(self, token: str) -> bool:
        """Free the lease if `token` holds it, expired or not."""
        ...

    def grip(self) -> Grip | None:
        """Who holds the lease, None if it is free."""
        ...

    def read(self, date: str) -> Rows:
        """Give the batch of `date`, its resets, and the open batches before it. The head is not younger than they."""
        ...

    def read_one(self, date: str) -> Rows:
        """Give the batch of `date` alone."""
        ...

    def pages(self, first: str, last: str) -> Iterator[Rows]:
        """Give the batches of these dates in their order, a page at a time, without resets; at least one page."""
        ...

    def resets(self) -> Sequence[bytes]:
        """Give all resets, in the order in which they were made."""
        ...

    def check(self, stamp: str, token: str, fence: int) -> Verdict:
        """Whether a write would go through now."""
        ...

    def write(self, stamp: str, token: str, fence: int, change: Change) -> Verdict:
        """Make the change if `token` holds the lease with `fence`, no newer holder wrote, and `stamp` is the head's.

        `stamp` is "" where no head is expected.
        """
        ...

    def keep(self, name: str, text: bytes) -> str:
        """Put a text aside for a person; where it is comes back."""
        ...

    def look(self) -> Sequence[str]:
        """Whether a ledger could be kept, with nothing made or changed; warnings come back as from `prepare`."""
        ...

    def prepare(self) -> Sequence[str]:
        """Make, or bring up to date, what a ledger needs; warnings come back. What is there stays."""
        ...
