"""A run that is ended at any moment, by a kill, a signal or its own deadline: the later runs finish it, once."""

from __future__ import annotations

import signal
from itertools import count
from typing import TYPE_CHECKING

import pytest

from support.interrupts import (
    GOOD_RUN,
    READS,
    check_sent_once,
    let_pass,
    never_left_behind,
    signal_itself,
    wait_for_call,
)
from support.runs import DAY, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.runs import Desk

SOURCES = ("draft", "replicate", "html")
TO_DO = [[f"What to do: sendonce runbook {name}"] for name in ("interrupted", "unclear", "temporary")]
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")
LONG = "600"


# --------------------------------------------------------------------------------------------------- SIGKILL


@pytest.mark.timeout(600)  # many runs, one after the other
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_run_killed_at_any_of_its_requests_is_finished_by_the_next(
    source: str, moment: str, make_desk: Callable[..., Desk]
) -> None:
    killed = []
    for nth in count(1):
        desk = make_desk(source, SENDONCE_TIMEOUT_SECONDS="20", SENDONCE_LISTING_SECONDS="0")
        day = f"2026-01-{nth:02}"
        name = _kill_at(desk, nth, moment, day)
        if name is None:
            break
        killed.append(name)
        asked = desk.sandbox.sends()
        if name == "send" and moment == "before":
            # it may still be on its way, so it is waited out; everything else is gone on with at once
            assert desk.send(day=day).code == 75
            assert desk.sandbox.sends() == asked
        let_pass(desk.sandbox, 60)
        was_recorded = desk.record(day).get("state") == "sent"
        assert desk.send(day=day).code == 0, f"killed {moment} {name}, request {nth}"
        if was_recorded:
            assert desk.sandbox.sends() == asked
            _send_another_day(desk)
        check_sent_once(desk, day)
    assert tuple(killed) == GOOD_RUN[source]


def _send_another_day(desk: Desk) -> None:
    """A date that is sent is not worth a lease: what a killed run has left is tidied by the next that needs one."""
    desk.prepare("2025-01-01")
    assert desk.send(day="2025-01-01").code == 0


def _kill_at(desk: Desk, nth: int, moment: str, day: str) -> str | None:
    """Kill a run at its nth request, before or after it took effect; the request's name, None if there is none."""
    sandbox, word = desk.sandbox, f"stall-{moment}"
    desk.prepare(day)
    sandbox.clear_calls()
    sandbox.faults({"on": "any", "nth": nth, "word": word})
    process = desk.start("send-batch", "--date", day)

    def is_there() -> bool:
        call = next((c for c in sandbox.calls() if c["fault"] == word), None)
        return call is not None and (moment == "before" or call["name"] in READS or call["effect"])

    with never_left_behind(process):
        wait_until(lambda: process.poll() is not None or is_there(), what=f"request {nth}")
        if process.poll() is not None:
            assert process.communicate()[0].startswith("Sent")
            check_sent_once(desk, day, is_fault_run=False)
            return None
        kill(process)
    sandbox.faults()
    return str(sandbox.calls()[nth - 1]["name"])


@pytest.mark.timeout(600)  # as above
@pytest.mark.parametrize(
    "source", ["draft", *(pytest.param(source, marks=pytest.mark.full) for source in ("replicate", "html"))]
)
def test_a_run_killed_at_any_change_of_a_file_is_finished_by_the_next(
    source: str, tmp_path: Path, make_desk: Callable[..., Desk]
) -> None:
    for nth in count(1):
        desk = make_desk(source, SENDONCE_LISTING_SECONDS="0")
        day = f"2026-01-{nth:02}"
        desk.prepare(day)
        files = signal_itself(
            tmp_path / f"hook{nth}",
            signal.SIGKILL,
            events={"os.rename", "os.link"},
            part=str(desk.state),
            nth=nth,
        )
        first = desk.send(day=day, environ=files)
        if first.code == 0:
            break
        assert first.code == -signal.SIGKILL
        let_pass(desk.sandbox, 60)
        was_recorded = desk.record(day).get("state") == "sent"
        assert desk.send(day=day).code == 0, f"killed at change {nth}"
        if was_recorded:
            _send_another_day(desk)
        check_sent_once(desk, day)
    # ready, sending, sent and the end of the run are written, each but the first with a copy of the one before
    assert nth > 7


# --------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_in_mid_send_leaves_an_open_outcome_on_record_and_the_lease_free(
    name: str, moment: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="60", SENDONCE_SETTLE_SECONDS=LONG)
    desk.prepare()
    desk.sandbox.faults({"on": "send", "word": f"stall-{moment}"})
    _signal_when(
        desk, name, lambda: any(c["effect"] or moment == "before" for c in desk.sandbox.calls("send"))
    )
    record = desk.record()
    assert record["state"] == "sending"
    assert record["campaigns"][0]["gave_up_at"] is not None
    desk.sandbox.faults()
    if moment == "before":
        assert desk.send().code == 75
        let_pass(desk.sandbox, 700)
    assert desk.send().code == 0
    check_sent_once(desk)
    assert desk.sandbox.sends() == (2 if moment == "before" else 1)


def _signal_when(desk: Desk, name: str, is_time: Callable[[], bool], *arguments: str) -> str:
    """Start a run, signal it when it is time, and check that it ends in order; what it said."""
    process = desk.start("send-batch", "--date", DAY, *arguments)
    with never_left_behind(process):
        wait_until(is_time, what=f"the time for {name}")
        process.send_signal(signal.Signals[name])
        out, err = process.communicate(timeout=30)
    assert process.returncode == 75, err
    assert name in err
    assert err.splitlines()[1:] in TO_DO, err
    assert out == ""
    assert not desk.lock_file.exists()
    return err


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_while_every_listing_is_to_show_the_draft_leaves_it_for_the_next_run(
    name: str, tmp_path: Path, make_desk: Callable[..., Desk]
) -> None:
    log = tmp_path / "log"
    desk = make_desk("html", SENDONCE_LISTING_SECONDS=LONG, SENDONCE_LOG_FILE=str(log))
    said = _signal_when(desk, name, lambda: log.exists() and "waiting" in log.read_text())
    assert "Nothing was sent" in said
    assert desk.record()["state"] == "ready"
    let_pass(desk.sandbox, 700)
    assert desk.send().code == 0
    check_sent_once(desk)
    assert len(desk.sandbox.calls("create")) == 1


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_while_an_unclear_send_settles_leaves_it_open(
    name: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(SENDONCE_SETTLE_SECONDS=LONG)
    desk.prepare()
    desk.sandbox.faults({"on": "send", "word": "503html"})
    said = _signal_when(desk, name, lambda: bool(desk.sandbox.calls("campaign")))
    assert "not known" in said
    record = desk.record()
    assert (record["state"], bool(record["campaigns"][0]["gave_up_at"])) == ("sending", True)
    desk.sandbox.faults()
    assert desk.send().code == 75
    let_pass(desk.sandbox, 700)
    assert desk.send().code == 0
    check_sent_once(desk)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_while_recipients_are_computed_sends_nothing(
    name: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk("html", SENDONCE_LISTING_SECONDS="0")
    desk.sandbox.settings(recipients_ready_s=60)
    said = _signal_when(desk, name, lambda: bool(desk.sandbox.calls("checklist")))
    assert "Nothing was sent" in said
    assert desk.record()["state"] == "ready"
    desk.sandbox.settings(recipients_ready_s=0)
    assert desk.send().code == 0
    check_sent_once(desk)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_between_two_tries_to_read_sends_nothing(name: str, make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="60")
    desk.prepare()
    desk.sandbox.faults({"on": "read", "word": "429:30"})
    said = _signal_when(desk, name, lambda: bool(desk.sandbox.calls("listing")))
    assert "Nothing was sent" in said
    desk.sandbox.faults()
    assert desk.send().code == 0
    check_sent_once(desk)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_while_waiting_for_another_run_leaves_that_one_alone(
    name: str, tmp_path: Path, make_desk: Callable[..., Desk]
) -> None:
    log = tmp_path / "log"
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="60")
    desk.prepare()
    desk.sandbox.faults({"on": "listing", "word": "stall-before"})
    holder = desk.start("send-batch", "--date", DAY)
    with never_left_behind(holder):
        wait_for_call(desk, "listing")
        marker = desk.lock_file.read_bytes()
        desk.write_env(SENDONCE_LOG_FILE=str(log))
        waiting = desk.start("send-batch", "--date", DAY)
        with never_left_behind(waiting):
            wait_until(lambda: log.exists() and "started" in log.read_text())
            waiting.send_signal(signal.Signals[name])
            _, err = waiting.communicate(timeout=30)
        assert waiting.returncode == 75, err
        assert name in err
        assert desk.lock_file.read_bytes() == marker
        assert len(desk.sandbox.calls()) == 1
        holder.terminate()
        holder.communicate()
        assert holder.returncode == 75
    desk.sandbox.faults()
    assert desk.send().code == 0
    check_sent_once(desk)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_while_mailchimp_delivers_takes_nothing_back(
    name: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk()
    desk.prepare()
    desk.sandbox.settings(sending_s=600)
    said = _signal_when(desk, name, lambda: len(desk.sandbox.calls("campaign")) > 1, "--wait")
    assert "was sent" in said
    assert desk.send().code == 0
    check_sent_once(desk)


@pytest.mark.parametrize("state", ["ready", "sending", "sent"])
def test_a_signal_while_the_ledger_is_written_lets_the_write_be_done_and_is_told_truthfully(
    state: str, tmp_path: Path, desk: Desk
) -> None:
    # each write of the ledger is one rename of it, in this order
    nth = {"ready": 1, "sending": 2, "sent": 3}[state]
    desk.prepare()
    part = f"{desk.ledger_file.name}.tmp"
    hook = signal_itself(tmp_path / "hook", signal.SIGTERM, events={"os.rename"}, part=part, nth=nth)
    ended = desk.send(environ=hook)
    assert ended.code == 75
    assert "SIGTERM" in ended.err
    record = desk.record()
    assert record["state"] == state
    assert record["attempts"][-1]["outcome"] == "temporary"
    assert ("The campaign was sent" in ended.err) == (state == "sent"), ended
    assert ("Nothing was sent" in ended.err) == (state != "sent"), ended
    assert desk.leftovers() == []
    let_pass(desk.sandbox, 60)
    assert desk.send().code == 0
    check_sent_once(desk)


def test_a_signal_at_any_step_of_taking_the_lease_ends_the_run_in_order(
    tmp_path: Path, make_desk: Callable[..., Desk]
) -> None:
    for nth in range(1, 6):
        desk = make_desk()
        day = f"2026-01-{nth:02}"
        desk.prepare(day)
        steps = {"open", "os.link", "os.rename", "os.remove"}
        hook = signal_itself(
            tmp_path / f"hook{nth}", signal.SIGTERM, events=steps, part="daily.lock", nth=nth
        )
        ended = desk.send(day=day, environ=hook)
        assert ended.code == 75, ended
        assert "SIGTERM" in ended.err
        assert ended.err.splitlines()[1:] in TO_DO, ended.err
        assert desk.leftovers() == []
        let_pass(desk.sandbox, 60)
        assert desk.send(day=day).code == 0
        check_sent_once(desk, day)


def test_a_hangup_that_whoever_started_the_run_ignores_does_not_end_it(desk: Desk) -> None:
    desk.prepare()
    desk.sandbox.faults({"on": "listing", "word": "slow:1"})
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; a child inherits it
    try:
        process = desk.start("send-batch", "--date", DAY)
    finally:
        signal.signal(signal.SIGHUP, before)
    with never_left_behind(process):
        wait_for_call(desk, "listing")
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=30)
    assert process.returncode == 0
    check_sent_once(desk)


# -------------------------------------------------------------------------------------------------- deadline


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_hangs_in_the_send_ends_itself_at_its_deadline(
    moment: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(SENDONCE_DEADLINE_SECONDS="5", SENDONCE_TIMEOUT_SECONDS="600")
    desk.prepare()
    desk.sandbox.faults({"on": "send", "word": f"stall-{moment}"})
    ended = desk.send()
    assert ended.code == 75
    assert "SENDONCE_DEADLINE_SECONDS=5" in ended.err
    assert "not known" in ended.err
    record = desk.record()
    assert (record["state"], bool(record["campaigns"][0]["gave_up_at"])) == ("sending", True)
    assert not desk.lock_file.exists()
    desk.sandbox.faults()
    let_pass(desk.sandbox, 5)
    assert desk.send().code == 0
    check_sent_once(desk)


def test_a_run_that_waits_for_listings_ends_itself_at_its_deadline(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("html", SENDONCE_DEADLINE_SECONDS="5", SENDONCE_LISTING_SECONDS=LONG)
    ended = desk.send()
    assert ended.code == 75
    assert "Nothing was sent" in ended.err
    assert not desk.lock_file.exists()
    let_pass(desk.sandbox, 700)
    assert desk.send().code == 0
    check_sent_once(desk)


def test_a_run_that_waits_for_another_ends_itself_at_its_deadline(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="60")
    desk.prepare()
    desk.sandbox.faults({"on": "send", "word": "stall-before"})
    holder = desk.start("send-batch", "--date", DAY)
    with never_left_behind(holder):
        wait_for_call(desk, "send")
        desk.write_env(SENDONCE_DEADLINE_SECONDS="5", SENDONCE_LOCK_WAIT_SECONDS="300")
        assert desk.send().code == 75
        assert desk.lock_file.exists()
        assert desk.sandbox.sends() == 1
        holder.terminate()
        holder.communicate()
    desk.sandbox.faults()
    let_pass(desk.sandbox, 5)
    assert desk.send().code == 0
    check_sent_once(desk)
