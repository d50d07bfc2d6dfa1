"""Each answer of a run is lost, broken or refused in each way: the run ends as it should, later ones finish it, once.

Any one request of a good run is met by any one fault. That product is large, so a sample of it is taken, the same
each time; SENDONCE_TEST_FULL=1 takes all.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from support.interrupts import GOOD_RUN, READS, check_sent_once
from support.runs import DAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.runs import Desk
    from support.sandbox import Sandbox

WORDS = (
    "reset-before",
    "reset-after",
    "stall-after",
    "close-after",
    "500empty",
    "503html",
    "502noct",
    "429:1",
    "cutjson",
    "garbage",
)
TAKES_EFFECT = frozenset({"reset-after", "stall-after", "close-after", "cutjson", "garbage"})
LAG_S = 0.8


class Loss(NamedTuple):
    """The nth request of a run with that source meets a fault."""

    source: str
    nth: int
    word: str

    @property
    def name(self) -> str:
        """What the request is."""
        return GOOD_RUN[self.source][self.nth - 1]

    @property
    def first_code(self) -> int:
        """How the run ends that meets it; by the table of answers, row by row."""
        if self.name in READS:
            # read again at once, but for a stall, which uses up all the time; nothing is lost after the send
            is_after_send = self.nth == len(GOOD_RUN[self.source])
            return 75 if self.word == "stall-after" and not is_after_send else 0
        if self.name == "send":
            # unclear, but read until it shows; one that had no effect stays a draft. Throttled: not sent
            return 0 if self.word in TAKES_EFFECT else 75
        return 75  # create and content: never repeated in the same run, which cannot know


def _id(loss: Loss) -> str:
    return f"{loss.source}-{loss.nth}-{loss.name}-{loss.word}"


ALL = [
    Loss(source, nth, word)
    for source, names in GOOD_RUN.items()
    for nth in range(1, len(names) + 1)
    for word in WORDS
]


def _each(count: int, seed: int, *, is_with_sends: bool) -> list[Any]:
    """Every loss, all but a sample of them marked `full`.

    In the sample are so many, half of them writes, which are fewer and matter more; and if so wanted each fault of a plain send.
    """
    chosen = random.Random(seed)
    sends = [loss for loss in ALL if loss.name == "send" and loss.source == "draft" and is_with_sends]
    writes = [loss for loss in ALL if loss.name not in READS]
    reads = [loss for loss in ALL if loss.name in READS]
    sample = {*sends, *chosen.sample(writes, count // 2), *chosen.sample(reads, count - count // 2)}
    return [
        pytest.param(loss, id=_id(loss), marks=() if loss in sample else pytest.mark.full) for loss in ALL
    ]


@pytest.mark.parametrize("loss", _each(16, seed=1, is_with_sends=True))
def test_a_run_that_loses_an_answer_ends_as_it_should_and_the_next_one_finishes(
    loss: Loss, make_desk: Callable[..., Desk]
) -> None:
    _lose(loss, make_desk(loss.source, SENDONCE_TIMEOUT_SECONDS="2", SENDONCE_LISTING_SECONDS="0"))


@pytest.mark.parametrize("loss", _each(8, seed=2, is_with_sends=False))
def test_a_lost_answer_does_no_harm_where_listings_and_statuses_lag(
    loss: Loss, sandbox: Sandbox, make_desk: Callable[..., Desk]
) -> None:
    sandbox.settings(listing_lag_s=LAG_S, status_lag_s=LAG_S)
    _lose(loss, make_desk(loss.source, SENDONCE_TIMEOUT_SECONDS="2", SENDONCE_LISTING_SECONDS="1"))


def _lose(loss: Loss, desk: Desk) -> None:
    sandbox = desk.sandbox
    desk.prepare()
    sandbox.faults({"on": "any", "nth": loss.nth, "word": loss.word})
    codes: list[int] = []
    while not codes or codes[-1] != 0:
        assert len(codes) < 5, codes
        asked = sandbox.sends()
        codes.append(desk.send().code)
        assert sandbox.sends() - asked <= 1, "more than one send in a run"
        assert (desk.record().get("state") == "sent") == (codes[-1] == 0)
        if len(codes) == 1:
            # the one meant, and not another
            assert [c["name"] for c in sandbox.calls() if c["fault"]] == [loss.name]
    # what was unclear was waited out by the run itself, so the second finishes
    assert codes == ([0] if loss.first_code == 0 else [75, 0])
    check_sent_once(desk)
    called = len(sandbox.calls())
    assert desk.send().code == 0
    assert len(sandbox.calls()) == called, "a date that is sent needs no request"
    assert sandbox.deliveries(f"Digest {DAY}") == 5


@pytest.mark.parametrize("source", GOOD_RUN)
def test_a_run_that_meets_no_fault_makes_these_requests_and_no_other(
    source: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(source, SENDONCE_LISTING_SECONDS="0")
    desk.prepare()
    assert desk.send().code == 0
    assert tuple(c["name"] for c in desk.sandbox.calls()) == GOOD_RUN[source]
    check_sent_once(desk, is_fault_run=False)
