"""Members, segments, and who a campaign goes to.

Members are numbers: an address is made when somebody looks, so that 100,000 of them cost nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import md5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    SentTo = Callable[[str, str], Collection[int]]  # list id, web_id as text or "any"
    Test = Callable[[int], bool]

_MADE_UP = re.compile(r"member(\d{4,})@example\.com", re.IGNORECASE)


@dataclass(frozen=True)
class Segment:
    """A part of an audience: `static` lists its members, `saved` has conditions."""

    id: int
    name: str
    created: float
    members: tuple[int, ...] | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """`static` or `saved`, as the API says it."""
        return "saved" if self.members is None else "static"


@dataclass
class Audience:
    """A list of people. Without `addresses` they are member0001@example.com and so on."""

    id: str
    name: str
    count: int
    web_id: int
    created: float
    addresses: tuple[str, ...] | None = None
    segments: dict[int, Segment] = field(default_factory=dict)

    def address(self, member: int) -> str:
        """Make the address of a member, counted from 0."""
        return self.addresses[member] if self.addresses is not None else f"member{member + 1:04d}@example.com"

    def member(self, address: str) -> int | None:
        """Find the member with an address, None if there is none."""
        if self.addresses is not None:
            return self._by_address.get(address.lower())
        found = _MADE_UP.fullmatch(address)
        number = int(found[1]) if found else 0
        return number - 1 if 1 <= number <= self.count else None

    def member_by_hash(self, subscriber_hash: str) -> int | None:
        """Find the member whose lower-cased address has this MD5, None if there is none."""
        return self._by_hash.get(subscriber_hash.lower())

    @cached_property
    def _by_address(self) -> dict[str, int]:
        return {self.address(member).lower(): member for member in range(self.count)}

    @cached_property
    def _by_hash(self) -> dict[str, int]:
        return {subscriber_hash(self.address(member)): member for member in range(self.count)}


def subscriber_hash(address: str) -> str:
    """Name a member as the API does in a path."""
    return md5(address.lower().encode(), usedforsecurity=False).hexdigest()


def recipients(audience: Audience, segment_opts: Mapping[str, object], sent_to: SentTo) -> Sequence[int]:
    """Find the members a campaign with these `segment_opts` goes to; `sent_to` says who got earlier ones.

    With a saved_segment_id any conditions beside it are ignored: nobody has seen Mailchimp combine the two,
    and whoever relies on it shall find out here.
    """
    everybody = range(audience.count)
    saved_id = segment_opts.get("saved_segment_id")
    if isinstance(saved_id, int) and saved_id:
        segment = audience.segments.get(saved_id)
        return () if segment is None else segment_members(audience, segment, sent_to)
    tests = _tests(audience, segment_opts, sent_to)
    if not tests:
        return everybody
    together = any if segment_opts.get("match") == "any" else all
    return [member for member in everybody if together(test(member) for test in tests)]


def segment_members(audience: Audience, segment: Segment, sent_to: SentTo) -> Sequence[int]:
    """Find the members of a segment, in order."""
    if segment.members is not None:
        return segment.members
    return recipients(audience, segment.options, sent_to)


def _tests(audience: Audience, options: Mapping[str, object], sent_to: SentTo) -> list[Test]:
    conditions = options.get("conditions")
    if not isinstance(conditions, list):
        return []
    tests = [_test(audience, condition, sent_to) for condition in conditions]
    return [test for test in tests if test is not None]


def _test(audience: Audience, condition: Mapping[str, object], sent_to: SentTo) -> Test | None:
    """One condition as a question about a member; None for a kind that is kept but not computed."""
    value = condition.get("value")
    match condition.get("condition_type"), condition.get("op"):
        case "Aim", "sent" | "nosent" as op:
            told = frozenset(sent_to(audience.id, str(value)))
            return told.__contains__ if op == "sent" else lambda member: member not in told
        case "StaticSegment", "static_is" | "static_not" as op:
            segment = audience.segments.get(int(value)) if isinstance(value, int | float) else None
            inside = frozenset((segment and segment.members) or ())
            return inside.__contains__ if op == "static_is" else lambda member: member not in inside
        case _:
            return None
