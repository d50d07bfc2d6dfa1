"""Breadth first over all states, so that the first counterexample of a kind is a shortest one.

python -m explorer.explore [--full] prints a line per case; a counterexample is printed as a readable trace.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from explorer.real import index_of
from explorer.steps import Rulebook, Step
from explorer.world import Budget, World, first
from sendonce.core.model import State

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDED_TO_A_HUMAN = ("refused", "alarm", "scheduled")
RERUNS_AT_MOST = 12


@dataclass
class Found:
    """What one exploration came to."""

    budget: Budget
    states: int = 0
    is_complete: bool = True
    took_s: float = 0.0
    broken: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        said = "; ".join(self.broken) or "holds"
        cut = "" if self.is_complete else " CUT SHORT"
        b = self.budget
        return f"{b.name:<58} {b.faults}/{b.human}/{b.runs} {self.states:>8} states {self.took_s:6.1f} s{cut}  {said}"


def explore(rulebook: Rulebook, *, at_most: int = 3_000_000, stop_at_first: bool = False) -> Found:
    """Every state within the budget."""
    began = time.monotonic()
    found = Found(rulebook.budget)
    start = first(rulebook.budget)
    number = {start: 0}
    parents: list[tuple[int, str]] = [(0, "")]
    queue = deque([(0, start)])
    fates: dict[object, str] = {}

    def note(what: str, at: int, last: str = "") -> None:
        if what not in found.broken:
            found.broken[what] = trace(parents, at) + ([last] if last else [])

    while queue:
        at, world = queue.popleft()
        if all(p.pc == "off" for p in world.procs) and (fate := _fate(rulebook, world, fates)):
            note(fate, at)
        for step in rulebook.steps(world):
            for what in _broken_by(rulebook, world, step):
                note(what, at, step.label)
            after = _tidy(step.world)
            if after in number:
                continue
            number[after] = len(parents)
            parents.append((at, step.label))
            if sum(c.mails for c in after.camps) <= 1:
                queue.append((number[after], after))
        if (stop_at_first and found.broken) or len(parents) > at_most:
            found.is_complete = not len(parents) > at_most
            break
    found.states, found.took_s = len(parents), time.monotonic() - began
    return found


def trace(parents: list[tuple[int, str]], at: int) -> list[str]:
    """The way to a state, step by step."""
    steps = []
    while at:
        at, label = parents[at]
        steps.append(label)
    return steps[::-1]


def _tidy(world: World) -> World:
    """Forget what can no longer matter, so that equal futures are one state."""
    if not world.faults and any(world.pasts):
        return world._replace(pasts=(frozenset(),) * len(world.pasts))
    return world


def _broken_by(rulebook: Rulebook, before: World, step: Step) -> Iterator[str]:
    after = step.world
    mails = sum(c.mails for c in after.camps)
    if mails > 1:
        yield "the date is mailed twice"
    if any(c.mails and not c.has_content for c in after.camps):
        yield "a campaign is mailed without its content"
    coming = any(c.status == "schedule" for c in after.camps) or any(f[0] == "send" for f in after.flight)
    if not mails and not coming and any(batch.state is State.SENT for batch, _ in after.ledgers):
        yield "the ledger says sent, and nothing was mailed"
    if "POSTs send" in step.label:
        yield from _bad_post(rulebook, before, step)
    if step.kind == "end" and "Nothing was sent" in step.label:
        proc = before.procs["AB".index(step.label[0])]
        under_way = {i for what, i, _ in before.flight if what == "send"}
        if proc.is_unclear and any(before.camps[i].mails or i in under_way for i in proc.posted):
            yield "a run says that nothing was sent, and its POST may have been accepted"


def _bad_post(rulebook: Rulebook, before: World, step: Step) -> Iterator[str]:
    """What must be on disk before a POST, and what must be settled. A frozen run may be late with both."""
    index = "AB".index(step.label[0])
    proc, folder = before.procs[index], rulebook.budget.folders[index]
    if proc.posted:
        yield "a run POSTs twice"
    if before.leases[folder] != index:
        return  # taken over since the check: the successor has read the same record
    batch = before.ledgers[folder][0]
    if batch.state is not State.SENDING or batch.main is None or batch.main.requested_at is None:
        yield "a POST without requested_at on disk"
    is_alone = len(set(rulebook.budget.folders)) == 1
    if is_alone and not rulebook.budget.kinds & {"freeze", "restore"}:
        camp = index_of(batch.main.id) if batch.main else 0
        if not rulebook.is_settled(before, camp):
            yield "a POST within SETTLE of an unsettled one"


def _fate(rulebook: Rulebook, world: World, fates: dict[object, str]) -> str:
    """Where fault-free reruns lead once everything late has happened; "" if that is a good end."""
    key = (world.ledgers, world.camps, world.flight)
    if key not in fates:
        fates[key] = _rerun(rulebook, world)
    return fates[key]


def _rerun(rulebook: Rulebook, world: World) -> str:
    quiet = Rulebook(replace(rulebook.budget, runs=1_000_000), rulebook.driver)
    world = world._replace(faults=0, human=0, started=1)  # 1: either may start first
    ended = ""
    for _ in range(RERUNS_AT_MOST * 60):
        env = next(quiet.env_steps(world), None)
        if env is not None:
            world = env.world
            continue
        if all(batch.state is State.SENT for batch, _ in world.ledgers):
            return "" if any(c.mails for c in world.camps) else "reruns say sent, and nothing was mailed"
        steps = [step for i in range(len(world.procs)) for step in quiet.run_steps(world, i)]
        running = [step for step in steps if step.kind != "start"]
        if not steps or (not running and world.started > RERUNS_AT_MOST):
            break
        step = running[0] if running else steps[world.started % len(steps)]
        ended = step.label if step.kind == "end" else ended
        world = step.world
    is_handed_over = any(f" ends: {word}" in ended for word in HANDED_TO_A_HUMAN)
    return "" if is_handed_over else f"stuck: {ended[:120]}"
