"""How many API calls a send costs on a good day, by the real command: Mailchimp allows few at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from support.runs import DAY, Desk
from support.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT_MOST = {"draft": 4, "html": 9, "replicate": 11}
LISTINGS = {"draft": 1, "html": 2, "replicate": 2}
"""A created campaign is looked for before it is made, and looked at once more before it is sent."""
OTHERS = 3000
PAGES = 7
THE_DAY_BEFORE = "2026-01-04"

each_source = pytest.mark.parametrize("source", AT_MOST)


@pytest.fixture
def slow() -> Iterator[Sandbox]:
    """A sandbox where a send goes on for longer than the test: `emails_sent` stays unknown."""
    with Sandbox(audience=5, sending=3600) as running:
        yield running


def quick_desk(folder: Path, sandbox: Sandbox, source: str) -> Desk:
    """Set up a job that waits for a listing no longer than it must."""
    return Desk(folder / "desk", sandbox, source, SENDONCE_LISTING_SECONDS="0")


def calls_of_a_send(desk: Desk, day: str = DAY) -> Counter[str]:
    """Send the day's campaign; the calls by name."""
    desk.prepare(day)
    desk.sandbox.clear_calls()
    ended = desk.send(day=day)
    assert ended.code == 0, ended.all
    assert desk.deliveries(day) == 1
    return Counter(call["name"] for call in desk.sandbox.calls())


@each_source
def test_a_send_costs_few_calls(sandbox: Sandbox, tmp_path: Path, source: str) -> None:
    """One listing for a draft that a person made, two for one that sendonce makes, and one send."""
    calls = calls_of_a_send(quick_desk(tmp_path, sandbox, source))
    assert calls.total() <= AT_MOST[source], calls
    assert calls["listing"] == LISTINGS[source]
    assert calls["send"] == 1


@each_source
def test_a_send_costs_few_calls_while_the_day_before_is_still_going_out(
    slow: Sandbox, tmp_path: Path, source: str
) -> None:
    """How many it was mailed to is asked for once more, by one read."""
    desk = quick_desk(tmp_path, slow, source)
    calls_of_a_send(desk, THE_DAY_BEFORE)
    assert desk.record(THE_DAY_BEFORE)["campaigns"][0]["emails_sent"] is None
    calls = calls_of_a_send(desk)
    assert calls.total() <= AT_MOST[source] + 1, calls


@pytest.mark.parametrize("source", ["draft", "replicate"])
def test_3000_other_campaigns_cost_nothing_but_pages(sandbox: Sandbox, tmp_path: Path, source: str) -> None:
    """Each listing is some pages longer; nothing is read campaign by campaign."""
    sandbox.add_campaigns(OTHERS)
    calls = calls_of_a_send(quick_desk(tmp_path, sandbox, source))
    assert calls["listing"] == LISTINGS[source] * PAGES
    assert calls.total() - calls["listing"] <= AT_MOST[source] - LISTINGS[source], calls


def test_a_day_that_is_sent_costs_no_call(sandbox: Sandbox, tmp_path: Path) -> None:
    """The ledger says it all."""
    desk = quick_desk(tmp_path, sandbox, "draft")
    calls_of_a_send(desk)
    sandbox.clear_calls()
    assert desk.send().code == 0
    assert sandbox.calls() == []


def test_a_call_names_sendonce_and_its_version(sandbox: Sandbox, tmp_path: Path) -> None:
    """So that Mailchimp's support can tell who asks."""
    desk = quick_desk(tmp_path, sandbox, "draft")
    calls_of_a_send(desk)
    version = desk.run("--version").out.split()[-1]
    assert {call["user_agent"] for call in sandbox.calls()} == {f"sendonce/{version}"}
