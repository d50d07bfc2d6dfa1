"""Many runs at once, frozen runs that wake up, and operators who act in the middle of a run: one delivery."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from support.cases import together
from support.interrupts import (
    check_sent_once,
    has_stopped,
    let_pass,
    never_left_behind,
    signal_itself,
    wait_for_call,
)
from support.runs import DAY, Ended, wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from support.runs import Desk
    from support.sandbox import Sandbox

MANY = 50
SEND = ("send-batch", "--date", DAY)


# ------------------------------------------------------------------------------------------------ many at once


@pytest.mark.parametrize("source", ["draft", "replicate", "html"])
def test_fifty_runs_at_once_on_one_state_folder_send_once(
    source: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(source, SENDONCE_LISTING_SECONDS="0")
    desk.prepare()
    processes = [desk.start(*SEND) for _ in range(MANY)]
    with never_left_behind(*processes):
        said = [process.communicate(timeout=90) for process in processes]
    codes = [process.returncode for process in processes]
    assert set(codes) <= {0, 75}, [said[at] for at, code in enumerate(codes) if code not in {0, 75}]
    assert 0 in codes
    assert desk.sandbox.sends() == 1
    check_sent_once(desk)


@pytest.mark.parametrize(("listing_lag_s", "status_lag_s"), [(0, 0), (0.8, 0), (0.8, 0.8)])
@pytest.mark.parametrize("source", ["draft", "replicate", "html"])
def test_two_state_folders_that_share_nothing_send_once(
    source: str, listing_lag_s: float, status_lag_s: float, sandbox: Sandbox, make_desk: Callable[..., Desk]
) -> None:
    sandbox.settings(listing_lag_s=listing_lag_s, status_lag_s=status_lag_s)
    desks = [make_desk(source, SENDONCE_LISTING_SECONDS="1") for _ in range(2)]
    desks[0].prepare()
    ends = together(desks, lambda desk: desk.send())
    # a "no, it is sent" to the later one may be followed by a read that still shows a draft: that is a refusal
    refused = {1} if status_lag_s else set()
    assert {ended.code for ended in ends} <= {0, 75} | refused, ends
    for desk in desks:
        assert desk.send_until_done()[-1] == 0
    assert check_sent_once(desks[0]) == check_sent_once(desks[1])


# ------------------------------------------------------------------------------------ frozen past the lease (L3)


FREEZES: dict[str, dict[str, object] | None] = {
    "while it connects": {"on": "connect", "word": "slow:3"},
    "after its first read": {"on": "listing", "word": "slow:3"},
    "after its last read": {"on": "checklist", "word": "slow:3"},
    "between its last check and its send": None,
    "while its send is on the way": {"on": "send", "word": "slow:3"},
    "between acceptance and the record": {"on": "send", "word": "accept-slow:3"},
}


def _freeze(desk: Desk, moment: str, folder: Path) -> subprocess.Popen[str]:
    """Start a run and stop it at that moment, a whole lease before anybody goes on."""
    sandbox, fault = desk.sandbox, FREEZES[moment]
    if fault is None:
        hook = signal_itself(
            folder / "hook", signal.SIGSTOP, events={"http.client.send"}, part="/actions/send"
        )
        run = desk.start(*SEND, environ=hook)
        wait_until(lambda: has_stopped(run))
        return run
    sandbox.faults(fault)
    connections = sandbox.state()["connections"]
    run = desk.start(*SEND)
    if fault["on"] == "connect":
        wait_until(lambda: sandbox.state()["connections"] > connections)
    else:
        wait_for_call(desk, str(fault["on"]))
    run.send_signal(signal.SIGSTOP)
    wait_until(lambda: has_stopped(run))
    wait_until(lambda: bool(sandbox.calls()), what="its request, however slow")
    sandbox.faults()
    return run


def _wake(run: subprocess.Popen[str]) -> Ended:
    run.send_signal(signal.SIGCONT)
    out, err = run.communicate(timeout=60)
    return Ended(run.returncode, out, err)


@pytest.mark.parametrize("moment", FREEZES)
def test_a_run_that_wakes_after_another_has_sent_does_no_harm(
    moment: str, tmp_path: Path, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="30")
    desk.prepare()
    frozen = _freeze(desk, moment, tmp_path)
    with never_left_behind(frozen):
        if moment == "between its last check and its send":
            # a send that may be on its way is waited out before the same campaign is sent again
            assert desk.send().code == 75
            assert desk.sandbox.sends() == 0
            let_pass(desk.sandbox, 60)
        assert desk.send().code == 0
        ledger = desk.ledger_file.read_bytes()
        ended = _wake(frozen)
        assert ended.code in {0, 75}, ended
        assert desk.ledger_file.read_bytes() == ledger, "the one that lost its lease has written"
    assert "Traceback" not in ended.all
    check_sent_once(desk)


@pytest.mark.parametrize("moment", FREEZES)
def test_a_run_that_wakes_while_another_is_at_work_leaves_its_lease_and_ledger_alone(
    moment: str, tmp_path: Path, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="30")
    desk.prepare()
    sandbox = desk.sandbox
    frozen = _freeze(desk, moment, tmp_path)
    sandbox.clear_calls()
    sandbox.faults({"on": "read", "nth": 1, "word": "stall-before"})
    other = desk.start(*SEND)
    with never_left_behind(frozen, other):
        wait_until(lambda: bool(sandbox.calls()), what="the other run at work")
        marker = desk.lock_file.read_bytes()
        assert f"pid={other.pid}\n".encode() in marker
        ledger = desk.ledger_file.read_bytes() if desk.ledger_file.exists() else b""
        ended = _wake(frozen)
        assert ended.code == 75, ended
        assert other.poll() is None
        assert desk.lock_file.read_bytes() == marker
        assert (desk.ledger_file.read_bytes() if desk.ledger_file.exists() else b"") == ledger
        other.terminate()
        other.communicate(timeout=60)
        assert other.returncode == 75
    let_pass(sandbox, 60)
    assert desk.send().code == 0
    check_sent_once(desk)


def test_a_run_frozen_while_it_makes_the_campaign_does_not_put_its_own_in_place_of_the_successors(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk("html", SENDONCE_LISTING_SECONDS="1", SENDONCE_TIMEOUT_SECONDS="30")
    desk.sandbox.faults({"on": "create", "word": "slow:3"})
    frozen = desk.start(*SEND)
    with never_left_behind(frozen):
        wait_for_call(desk, "create")
        frozen.send_signal(signal.SIGSTOP)
        wait_until(lambda: has_stopped(frozen))
        desk.sandbox.faults()
        assert desk.send().code == 0
        ledger = desk.ledger_file.read_bytes()
        ended = _wake(frozen)
        assert ended.code == 75, ended
        assert desk.ledger_file.read_bytes() == ledger
    check_sent_once(desk)


# -------------------------------------------------------------------------------- operators in the middle of a run


@pytest.mark.parametrize(
    "command", [("ledger", "reset", "--date", DAY, "--yes"), ("ledger", "rebuild", "--yes")]
)
@pytest.mark.parametrize("name", ["listing", "send"])
def test_a_reset_or_rebuild_is_refused_for_now_while_a_run_is_at_work(
    name: str, command: tuple[str, ...], make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="30")
    desk.prepare()
    desk.sandbox.faults({"on": name, "nth": 1, "word": "slow:3"})
    run = desk.start(*SEND)
    with never_left_behind(run):
        wait_for_call(desk, name)
        before = desk.record()
        ended = desk.run(*command)
        assert ended.code == 75, ended
        assert f"pid {run.pid}" in ended.err
        assert desk.record() == before
        run.communicate(timeout=60)
    assert run.returncode == 0
    assert desk.sandbox.sends() == 1
    check_sent_once(desk)


FORCED = {
    "nothing more": (),
    "a reset": (("ledger", "reset", "--date", DAY, "--reason", "impatience", "--yes"),),
    "a rebuild": (("ledger", "rebuild", "--yes"),),
}
BREAKS = [
    ("draft", "listing", "slow", "nothing more"),
    ("draft", "checklist", "slow", "a reset"),
    ("draft", "send", "slow", "nothing more"),
    ("draft", "send", "slow", "a reset"),
    ("draft", "send", "slow", "a rebuild"),
    ("draft", "send", "accept-slow", "nothing more"),
    ("draft", "send", "accept-slow", "a reset"),
    ("html", "create", "slow", "nothing more"),
    ("html", "create", "slow", "a reset"),
    ("html", "create", "accept-slow", "a rebuild"),
    ("html", "put", "slow", "a reset"),
]
SOME_BREAKS = BREAKS[1::2]
"""The others, alike but for one word, with -m full."""


@pytest.mark.parametrize(
    ("source", "name", "word", "then"),
    [pytest.param(*b, marks=() if b in SOME_BREAKS else pytest.mark.full) for b in BREAKS],
)
def test_a_lease_broken_in_the_middle_of_a_run_leads_to_one_delivery(
    source: str, name: str, word: str, then: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(source, SENDONCE_LISTING_SECONDS="1", SENDONCE_TIMEOUT_SECONDS="30")
    desk.prepare()
    desk.sandbox.faults({"on": name, "nth": 1, "word": f"{word}:3"})
    run = desk.start(*SEND)
    with never_left_behind(run):
        wait_for_call(desk, name)
        assert desk.run("lock", "break", "--yes").code == 0
        for command in FORCED[then]:
            # there is nothing to reset before the first write
            assert desk.run(*command).code in ({0} if desk.ledger_file.exists() else {0, 1})
        assert desk.send().code in {0, 75}
        run.communicate(timeout=60)
        assert run.returncode in {0, 75}
    desk.send()
    let_pass(desk.sandbox, 60)
    assert desk.send().code == 0
    for kept in desk.state.glob("daily.json.replaced-*"):  # by a rebuild
        kept.unlink()
    check_sent_once(desk)


# --------------------------------------------------------------------------------------------------------- L9


def test_the_lease_of_a_live_run_is_broken_only_by_force(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="60")
    desk.prepare()
    desk.sandbox.faults({"on": "listing", "word": "stall-before"})
    holder = desk.start(*SEND)
    with never_left_behind(holder):
        wait_for_call(desk, "listing")
        marker = desk.lock_file.read_bytes()
        ended = desk.run("lock", "break")
        assert ended.code == 1
        assert f"pid {holder.pid}" in ended.err
        assert desk.lock_file.read_bytes() == marker
        holder.terminate()
        holder.communicate()
    desk.sandbox.faults()
    assert desk.send().code == 0
    check_sent_once(desk)


def test_a_lease_that_is_renewed_while_it_is_broken_by_force_is_broken_all_the_same(
    tmp_path: Path, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="60")
    desk.prepare()
    desk.sandbox.faults({"on": "listing", "word": "stall-before"})
    holder = desk.start(*SEND)
    with never_left_behind(holder):
        wait_for_call(desk, "listing")
        # between its look at the marker and the removal of it
        hook = signal_itself(tmp_path / "hook", signal.SIGSTOP, events={"open"}, part="daily.lock.guard")
        breaker = desk.start("lock", "break", "--yes", environ=hook)
        with never_left_behind(breaker):
            wait_until(lambda: has_stopped(breaker))
            renewed_ns = desk.lock_file.stat().st_mtime_ns
            wait_until(lambda: desk.lock_file.stat().st_mtime_ns != renewed_ns, what="a renewal")
            assert _wake(breaker).code == 0
        assert not desk.lock_file.exists()
        holder.terminate()
        holder.communicate()
        assert holder.returncode == 75
    desk.sandbox.faults()
    assert desk.send().code == 0
    check_sent_once(desk)


def test_a_run_that_finds_another_at_work_is_no_success_and_says_who_in_one_line(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk(SENDONCE_TIMEOUT_SECONDS="60")
    desk.prepare()
    desk.sandbox.faults({"on": "send", "word": "slow:20"})
    holder = desk.start(*SEND)
    with never_left_behind(holder):
        wait_for_call(desk, "send")
        desk.write_env(SENDONCE_LOCK_WAIT_SECONDS="1")
        ended = desk.send()
        assert ended.code == 75
        assert ended.out == ""
        assert ended.err.splitlines()[1:] == ["What to do: sendonce runbook lease"]
        assert f"held by pid {holder.pid} on host " in ended.err
        assert re.search(r" since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, renewed \d+ s ago", ended.err), ended.err
        assert "run again" in ended.err
        assert desk.sandbox.sends() == 1
        holder.terminate()
        holder.communicate()
    desk.sandbox.faults()
    let_pass(desk.sandbox, 60)
    assert desk.send().code == 0
    assert desk.send().err == "", "already sent is nothing to speak of"
    check_sent_once(desk)
