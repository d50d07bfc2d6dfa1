"""The command dies, or its disk fails, at each of its effects on the outside world: later runs finish the day, once.

A sample by default, the same each time; with -m full all deaths, and every pair of deaths up to what the first one
leaves behind.
"""

from __future__ import annotations

import os
import random
import re
import signal
from datetime import date, timedelta
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pytest

from support import die_at, strace
from support.aftermath import TAKEOVER, finish
from support.interrupts import let_pass
from support.runs import Desk
from support.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.runs import Ended

SOURCES = ("draft", "replicate", "html")
EFFECTS = {
    # the ledger is written 4 times (ready, sending, sent, the end) or 6 (planned, and planned with the id, before
    # them), each but the first with a copy of the one before: 7 or 11 files, each made, written, forced, renamed, its
    # folder forced. A guard is opened for each write, the marker once (its readers are not in this count). `write` has
    # a line for the terminal, `unlink` the marker. Each of the 4, 11 or 9 requests has a connection of its
    # own; a POST or PUT takes two `sendto`, head and body.
    "draft": {"openat": 12, "write": 9, "fsync": 14, "rename": 7, "unlink": 8, "mkdir": 1, "connect": 4, "sendto": 5},
    "replicate": {"openat": 18, "write": 13, "fsync": 22, "rename": 11, "unlink": 12, "mkdir": 1, "connect": 11, "sendto": 14},
    "html": {"openat": 18, "write": 13, "fsync": 22, "rename": 11, "unlink": 12, "mkdir": 1, "connect": 9, "sendto": 12},
}  # fmt: skip
"""How many calls of a kind a good run makes at least."""
ERRORS = {"openat": "ENOSPC", "write": "ENOSPC", "fsync": "EIO", "rename": "EBUSY", "unlink": "EROFS"}
KILLED = -signal.SIGKILL

HOOKS, STRACE = "hooks", "strace"
MEANS = {HOOKS: die_at.dying, STRACE: strace.dying}
BEST = STRACE if strace.is_usable() else HOOKS
needs_strace = pytest.mark.skipif(not strace.is_usable(), reason="no strace, or it may not trace")


class Death(NamedTuple):
    """At which call a run dies."""

    call: str
    nth: int


class Pair(NamedTuple):
    """A death, and one in the run that would go on; at once or when a send on its way has settled."""

    source: str
    first: Death
    second: Death
    settles: bool

    def __str__(self) -> str:
        """Short enough for a test's name."""
        then = "later" if self.settles else "at-once"
        return f"{self.source}-{self.first.call}{self.first.nth}-{then}-{self.second.call}{self.second.nth}"


class Stage:
    """A sandbox, and for each case a day and a desk of its own on it."""

    def __init__(self, folder: Path, sandbox: Sandbox, source: str) -> None:
        self._folder, self._sandbox, self._source = folder, sandbox, source
        self._days = (date(2016, 1, 1) + timedelta(days=n) for n in count())  # years of them, all in the past

    def next(self) -> tuple[Desk, str]:
        """The next day's desk, ready to send."""
        day = next(self._days).isoformat()
        desk = Desk(self._folder / day, self._sandbox, self._source, SENDONCE_LISTING_SECONDS="0")
        desk.prepare(day)
        return desk, day


@pytest.fixture
def stage(tmp_path: Path, sandbox: Sandbox) -> Callable[[str], Stage]:
    return lambda source: Stage(tmp_path, sandbox, source)


def die(desk: Desk, day: str, death: Death, means: str = BEST) -> Ended:
    """Run until that death."""
    # compiled modules that are written on the way would count
    quiet = {"PYTHONDONTWRITEBYTECODE": "1"}
    ended = desk.send(day=day, environ=quiet, under=MEANS[means](death.call, death.nth, desk.state))
    assert ended.code in {KILLED, 0, 75}, (death, ended)
    return ended


def sweep(stage: Stage, call: str, means: str) -> int:
    """Die at each call of that kind, until a run completes; how often it died."""
    for nth in count(1):
        desk, day = stage.next()
        if die(desk, day, Death(call, nth), means).code == 0:
            return nth - 1
        finish(desk, day, what=f"died at {call} {nth}")
    raise AssertionError


# ---------------------------------------------------------------------------------------------------- one death


def _some_deaths(source: str, call: str, how_many: int) -> list[int]:
    chosen, among = random.Random(f"{source} {call}"), range(1, EFFECTS[source][call] + 1)
    return sorted(chosen.sample(among, min(how_many, len(among))))


@pytest.mark.parametrize("call", EFFECTS["draft"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_run_that_dies_at_a_system_call_is_finished_by_the_next(
    source: str, call: str, stage: Callable[[str], Stage]
) -> None:
    on = stage(source)
    for nth in _some_deaths(source, call, 2 if source == "html" else 1):
        desk, day = on.next()
        assert die(desk, day, Death(call, nth)).code == KILLED
        finish(desk, day, what=f"died at {call} {nth}")


@pytest.mark.parametrize("call", EFFECTS["html"])
def test_a_run_can_be_made_to_die_without_strace_too(call: str, stage: Callable[[str], Stage]) -> None:
    desk, day = stage("html").next()
    nth = random.Random(call).randint(1, EFFECTS["html"][call])
    assert die(desk, day, Death(call, nth), HOOKS).code == KILLED
    finish(desk, day, what=f"died at {call} {nth}")


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("means", [pytest.param(STRACE, marks=needs_strace), HOOKS])
@pytest.mark.parametrize("call", EFFECTS["draft"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_run_that_dies_at_any_system_call_is_finished_by_the_next(
    source: str, call: str, means: str, stage: Callable[[str], Stage]
) -> None:
    died = sweep(stage(source), call, means)
    print(f"{source}: {died} deaths at {call} by {means}")
    wanted = EFFECTS[source][call]
    assert died >= wanted if call == "openat" else died == wanted


# --------------------------------------------------------------------------------- a death during the recovery


def _some_pairs(source: str, how_many: int) -> list[Pair]:
    chosen = random.Random(f"pairs {source}")
    # a lease is taken over by an exchange, which only a recovery has
    calls, effects = sorted(EFFECTS[source]), EFFECTS[source] | {"exchange": 1 if BEST == STRACE else 0}

    def death(among: list[str]) -> Death:
        call = chosen.choice(among)
        return Death(call, chosen.randint(1, effects[call]))

    later = [call for call in effects if effects[call]]
    return [Pair(source, death(calls), death(later), bool(chosen.getrandbits(1))) for _ in range(how_many)]


def die_twice(stage: Stage, pair: Pair) -> None:
    """Die, die again in the recovery, and be finished. A recovery that has fewer calls dies at an earlier one."""
    first, second = pair.first, pair.second
    while second.nth:
        desk, day = stage.next()
        assert die(desk, day, first).code == KILLED
        if desk.record(day).get("state") == "sent":
            second = Death(second.call, 0)  # there is nothing to recover
        else:
            if pair.settles:
                let_pass(desk.sandbox, 60)
            is_dead = die(desk, day, second).code == KILLED
            second = Death(second.call, 0 if is_dead else second.nth // 2)
        finish(desk, day, what=f"{pair}: {second}")


@pytest.mark.parametrize("pair", [pair for source in SOURCES for pair in _some_pairs(source, 4)], ids=str)
def test_a_recovery_that_dies_in_its_turn_is_finished_by_the_next(
    pair: Pair, stage: Callable[[str], Stage]
) -> None:
    die_twice(stage(pair.source), pair)


@cache
def _kinds_of_wreckage(source: str, folder: Path) -> tuple[Death, ...]:
    """One death for each thing that a death can leave behind."""
    kinds: dict[object, Death] = {}
    with Sandbox(audience=5, sending=0.2) as sandbox:
        stage = Stage(folder / f"survey-{source}", sandbox, source)
        for call in EFFECTS[source]:
            for nth in count(1):
                desk, day = stage.next()
                death = Death(call, nth)
                sandbox.clear_calls()
                if die(desk, day, death).code == 0:
                    break
                kinds.setdefault(_wreckage(desk, day), death)
    return tuple(kinds.values())


def _wreckage(desk: Desk, day: str) -> object:
    """What a later run can see of a death: the state folder but for ids and times, and what was done at Mailchimp."""
    record = desk.record(day)
    known = [(c["role"], c["requested_at"] is not None) for c in record.get("campaigns", ())]
    files = sorted(
        (p.name, p.stat().st_size > 0) for p in desk.state.iterdir() if not TAKEOVER.fullmatch(p.name)
    )
    at_mailchimp = [c["name"] for c in desk.sandbox.calls() if c["effect"]]
    return record.get("state"), bool(record.get("nonce")), repr(known), repr(files), repr(at_mailchimp)


@pytest.mark.full
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("call", [*EFFECTS["draft"], pytest.param("exchange", marks=needs_strace)])
@pytest.mark.parametrize("source", SOURCES)
def test_whatever_a_death_leaves_the_recovery_may_die_at_any_system_call(
    source: str, call: str, stage: Callable[[str], Stage], tmp_path_factory: pytest.TempPathFactory
) -> None:
    on, pairs = stage(source), 0
    for first in _kinds_of_wreckage(source, tmp_path_factory.getbasetemp()):
        for nth in count(1):
            desk, day = on.next()
            assert die(desk, day, first).code == KILLED
            let_pass(desk.sandbox, 60)
            is_dead = die(desk, day, Death(call, nth)).code == KILLED
            finish(desk, day, what=f"died at {first.call} {first.nth}, then at {call} {nth}")
            pairs += is_dead
            if not is_dead:
                break
    print(f"{source}: {pairs} pairs of deaths, the second at {call}")
    assert pairs > 0


# ------------------------------------------------------------------------------------------ a disk that fails


def _failures(source: str, call: str) -> range:
    """Which calls can fail; the one of `openat` that makes the marker is not among them."""
    return range(1, EFFECTS[source][call] + (call != "openat"))


SOME_FAILURES = [
    (call, nth) for call in ERRORS for nth in random.Random(call).sample(_failures("draft", call), 2)
]


def fail(desk: Desk, day: str, call: str, nth: int) -> int:
    """Run on a disk that fails from that call on, and again, and on a sound one until the day is done."""
    sandbox = desk.sandbox
    sick = strace.failing(call, nth, ERRORS[call], desk.state)
    asked = sandbox.sends()
    ended = desk.send(day=day, under=sick)
    has_asked = sandbox.sends() > asked
    # a fault that is known before the POST ends the run; after it the send is made, and may not be on record
    assert ended.code in ({0, 75} if has_asked else {78}), (call, nth, ended)
    assert "Traceback" not in ended.err
    assert has_asked or re.search("[Nn]othing (further )?is sent", ended.err), ended
    again = desk.send(day=day, under=strace.failing(call, 1, ERRORS[call], desk.state))
    assert again.code in {0, 75, 78}, (call, nth, again)
    assert sandbox.sends() - asked == has_asked, "asked for a second send on a disk that does not remember"
    finish(desk, day, what=f"{call} failed from {nth} on")
    return ended.code


@needs_strace
@pytest.mark.parametrize(("call", "nth"), SOME_FAILURES)
def test_a_disk_that_fails_from_some_call_on_is_found_before_the_send_or_leads_to_a_rerun(
    call: str, nth: int, stage: Callable[[str], Stage]
) -> None:
    fail(*stage("draft").next(), call, nth)


@needs_strace
@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("call", ERRORS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_disk_that_fails_from_any_call_on_is_found_before_the_send_or_leads_to_a_rerun(
    source: str, call: str, stage: Callable[[str], Stage]
) -> None:
    on = stage(source)
    codes = [fail(*on.next(), call, nth) for nth in _failures(source, call)]
    print(f"{source}: from {call} 1, 2 … on the run ends with {codes}")
    assert codes == sorted(codes, key=[78, 75, 0].index), "the later the less is lost"


def test_the_means_to_die_are_there() -> None:
    """In CI, where they must be (`.ci/run` installs strace), nothing of this may be left out in silence."""
    if os.environ.get("SENDONCE_TEST_SYSTEM") == "1":
        assert strace.is_usable()
