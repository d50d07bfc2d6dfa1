"""The abstract world: Mailchimp, ledgers and leases as small hashable values, and what each port call does to them.

Time is abstract: a wait is "until nothing older can still come". A listing shows every earlier draft once a draft is
"ripe"; a send is settled once nothing of it is under way and no read lags. Everything else is the real core's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from sendonce.core.campaigns import Content, Spec
from sendonce.core.model import Batch, Source

T = TypeVar("T")

KEY = "Digest 2026-01-05"
DATE = "2026-01-05"
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
MADE = NOW - timedelta(hours=1)
SETTLE_S, LISTING_S, TIMEOUT_S = 180.0, 30.0, 130.0
CONTENT = Content(html="<p>today</p>")
SPEC = Spec("regular", {"list_id": "abcdef0123"}, {"subject_line": "today"}, {}, CONTENT)
ALL_KINDS = frozenset({"crash", "freeze", "lost", "late", "listlag", "statlag", "no", "restore"})


@dataclass(frozen=True)
class Budget:
    """What is explored: the source, who shares a folder, and how much may go wrong."""

    name: str
    source: Source
    folders: tuple[int, int] = (0, 0)
    faults: int = 3
    runs: int = 4
    kinds: frozenset[str] = ALL_KINDS
    human: int = 0
    acts: frozenset[str] = frozenset()
    late_without_bound: bool = False


class Camp(NamedTuple):
    """A campaign. `older` are those that listings did not show yet when it was created."""

    title: str
    has_settings: bool
    has_content: bool
    status: str = "save"
    is_stale: bool = False
    is_listed: bool = True
    mails: int = 0
    older: tuple[int, ...] = ()


class Proc(NamedTuple):
    """A run: `pc` is off, lease or run; `history` is everything its ports have answered so far."""

    pc: str = "off"
    number: int = 0
    history: tuple[object, ...] = ()
    posted: tuple[int, ...] = ()
    is_unclear: bool = False


class World(NamedTuple):
    """One state. `flight`: requests whose effect is still to come, (what, campaign or nonce)."""

    procs: tuple[Proc, Proc]
    leases: tuple[int, ...]
    ledgers: tuple[tuple[Batch, tuple[Batch, ...]], ...]
    pasts: tuple[frozenset[tuple[Batch, tuple[Batch, ...]]], ...]
    camps: tuple[Camp, ...]
    flight: tuple[tuple[str, int, str], ...] = ()
    started: int = 0
    faults: int = 0
    human: int = 0


BLANK = Batch(DATE)


def first(budget: Budget) -> World:
    """Before the first run."""
    folders = max(budget.folders) + 1
    camps = (Camp(KEY, has_settings=True, has_content=True),) if budget.source is Source.DRAFT else ()
    return World(
        procs=(Proc(), Proc()),
        leases=(-1,) * folders,
        ledgers=((BLANK, ()),) * folders,
        pasts=(frozenset(),) * folders,
        camps=camps,
        faults=budget.faults,
        human=budget.human,
    )


def put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    """The tuple with one value in place of another."""
    return (*values[:index], value, *values[index + 1 :])


def with_camp(world: World, index: int, camp: Camp) -> World:
    """The world with one campaign changed."""
    return world._replace(camps=put(world.camps, index, camp))
