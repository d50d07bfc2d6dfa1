"""The protocol holds in every state that can be reached, and wrong protocols do not.

`pytest -m full` explores the large budgets: more than 500,000 states.
"""

from __future__ import annotations

import pytest

from explorer import mutants
from explorer.explore import Found, explore
from explorer.real import Driver
from explorer.steps import Rulebook
from explorer.world import ALL_KINDS, Budget
from sendonce.core.batch import Run
from sendonce.core.model import Source
from support import tally

DRAFT, HTML = Source.DRAFT, Source.HTML
ONE_BY_ONE = ALL_KINDS - {"freeze", "restore"}
SHARED = ALL_KINDS - {"restore"}
NEVER = -1e7
"""A waiting time that is over before it began."""

SMALL = (
    Budget("draft: everything", DRAFT, faults=2, runs=4),
    Budget("draft: sends that take effect any time later", DRAFT, faults=2, runs=3, late_without_bound=True),
    Budget("draft: two folders", DRAFT, folders=(0, 1), faults=1),
    Budget("html: one run at a time", HTML, faults=2, runs=3, kinds=ONE_BY_ONE),
    Budget("html: takeovers", HTML, faults=2, runs=2, kinds=SHARED),
    Budget("html: ledger lost or restored", HTML, faults=2, runs=3, kinds=ALL_KINDS - {"freeze"}),
    Budget("html: two folders", HTML, folders=(0, 1), faults=0, runs=3),
)


def people(source: Source, faults: int, human: int) -> tuple[Budget, ...]:
    return tuple(
        Budget(
            f"{source}: a person, {' and '.join(acts)}, {faults}/{human}/3",
            source,
            faults=faults,
            runs=3,
            human=human,
            acts=frozenset(acts),
        )
        for acts in (("send",), ("schedule",), ("delete", "new"), ("reset",))
    )


PEOPLE = (*people(DRAFT, 1, 2), *people(HTML, 1, 1))
BREAK = tuple(
    Budget(f"{source}: lock break", source, faults=1, runs=2, human=1, acts=frozenset({"break"}))
    for source in (DRAFT, HTML)
)
# what no tool can prevent (design, end of §3) needs a lost ledger: without that it holds here too
RENAME = tuple(
    Budget(f"{source}: a person renames and makes a new one", source, faults=1, runs=3, human=2, kinds=SHARED,
           acts=frozenset({"rename", "new"}))
    for source in (DRAFT, HTML)
)  # fmt: skip
LARGE = (
    Budget("draft: everything, 3 faults", DRAFT, faults=3, runs=4),
    Budget("draft: any time later, 3 faults", DRAFT, faults=3, runs=4, late_without_bound=True),
    Budget("draft: two folders, 2 faults", DRAFT, folders=(0, 1), faults=2, runs=4),
    Budget("html: everything, 3 faults", HTML, faults=3, runs=4),
    Budget("html: two folders, 1 fault", HTML, folders=(0, 1), faults=1, runs=3),
    *people(HTML, 1, 2),
)


def explored(
    budget: Budget, driver: Driver | None = None, *, compares: bool = True, at_most: int = 400_000
) -> Found:
    rulebook = Rulebook(budget, driver or Driver(budget.source), compares=compares)
    found = explore(rulebook, at_most=at_most, stop_at_first=True)
    print(found)
    for what, steps in found.broken.items():
        print(f"  {what}:", *(f"    {n:2} {step}" for n, step in enumerate(steps, 1)), sep="\n")
    return found


def count(found: Found) -> None:
    tally.add(tally.STATES, runs=found.states, duplicates=TWICE in found.broken)


@pytest.mark.parametrize("budget", [*SMALL, *PEOPLE, *BREAK], ids=lambda b: b.name)
def test_no_state_breaks_the_promise(budget: Budget) -> None:
    """Never two deliveries, never a false "sent" or "not sent", no POST without its record, never stuck."""
    found = explored(budget)
    count(found)
    assert found.broken == {}
    assert found.is_complete
    assert found.states > 100


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("budget", LARGE, ids=lambda b: b.name)
def test_no_state_breaks_the_promise_with_large_budgets(budget: Budget) -> None:
    found = explored(budget, at_most=3_000_000)
    count(found)
    assert found.broken == {}
    assert found.states > 5_000


@pytest.mark.parametrize("budget", RENAME, ids=lambda b: b.name)
def test_a_renamed_draft_is_not_replaced_while_the_ledger_knows_it(budget: Budget) -> None:
    assert explored(budget).broken == {}


TWICE = "the date is mailed twice"
NO_RECORD = "a POST without requested_at on disk"
TOO_SOON = "a POST within SETTLE of an unsettled one"
LIED = "a run says that nothing was sent, and its POST may have been accepted"
MUTANTS = [
    (
        "no compare-and-set",
        Budget("", HTML, faults=2, kinds=SHARED),
        Run,
        {"compares": False},
        {NO_RECORD, TWICE},
    ),
    ("no LISTING", Budget("", HTML, folders=(0, 1), faults=1, runs=2), Run, {"listing_s": NEVER}, {TWICE}),
    ("record after send", Budget("", DRAFT, faults=1), mutants.RecordsAfterSend, {}, {NO_RECORD}),
    ("skip the read", Budget("", HTML, faults=1, runs=2), mutants.SkipsTheRead, {}, {TWICE}),
    (
        "unclear is failed",
        Budget("", DRAFT, faults=1, kinds=ONE_BY_ONE),
        mutants.TakesUnclearForFailed,
        {},
        {TOO_SOON},
    ),
    ("unclear is refused", Budget("", DRAFT, faults=1), mutants.SaysNotSent, {}, {LIED}),
    ("SETTLE 0", Budget("", DRAFT, faults=1, kinds=ONE_BY_ONE), Run, {"settle_s": NEVER}, {TOO_SOON}),
    ("create twice", Budget("", HTML, folders=(0, 1), faults=0, runs=2), mutants.CreatesTwice, {}, {TWICE}),
]


@pytest.mark.parametrize(("name", "budget", "run", "how", "expected"), MUTANTS, ids=[m[0] for m in MUTANTS])
def test_a_wrong_protocol_is_caught(
    name: str, budget: Budget, run: type[Run], how: dict[str, float], expected: set[str]
) -> None:
    """Each rule that is taken away shows as the fault that it is there to prevent."""
    times = {key: value for key, value in how.items() if key != "compares"}
    found = explored(budget, Driver(budget.source, run=run, **times), compares="compares" not in how)
    assert expected & set(found.broken), name
