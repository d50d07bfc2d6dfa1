"""How a run is cut short at one exact place, and what must be so once the later runs are done."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support import tally
from support.runs import DAY, kill, wait_until

if TYPE_CHECKING:
    import signal
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from support.runs import Desk
    from support.sandbox import Sandbox

GOOD_RUN = {
    "draft": ("listing", "checklist", "send", "campaign"),
    # the source campaign is read before the day's is made from it; listed twice: before, and when all see it
    "replicate": (
        "listing", "campaign", "content", "create", "put", "content", "campaign", "listing", "checklist", "send",
        "campaign",
    ),
    "html": ("listing", "create", "put", "content", "campaign", "listing", "checklist", "send", "campaign"),
}  # fmt: skip
"""The requests of a run in which all goes well, in order."""

READS = frozenset({"listing", "campaign", "content", "checklist"})

_HOOK = """\
import os, sys
seen = 0
def watch(event, arguments):
    global seen
    if event in {events!r} and {part!r} in repr(arguments):
        seen += 1
        if seen == {nth}:
            os.kill(os.getpid(), {number})
sys.addaudithook(watch)
"""


def signal_itself(
    folder: Path, number: signal.Signals, *, events: set[str], part: str, nth: int = 1
) -> dict[str, str]:
    """Environment in which a run gets a signal right before the nth thing that Python's audit `events` tell of.

    `part` must be in what the event tells. Audit events come before the system call that they are about.
    """
    folder.mkdir()
    hook = _HOOK.format(events=events, part=part, nth=nth, number=int(number))
    (folder / "sitecustomize.py").write_text(hook)
    return {"PYTHONPATH": str(folder)}


def has_stopped(process: subprocess.Popen[str]) -> bool:
    """Whether SIGSTOP has taken effect."""
    return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


@contextmanager
def never_left_behind(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """Whatever a test does: no process of it lives on, stopped or not."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                kill(process)


def let_pass(sandbox: Sandbox, seconds: float) -> None:
    """Let time go by for Mailchimp, whose clock is the one that counts."""
    offset_s = sandbox.state()["settings"]["clock_offset_s"]
    sandbox.settings(clock_offset_s=offset_s + seconds)


def wait_for_call(desk: Desk, name: str, nth: int = 1) -> None:
    """Wait until the nth request of that name has arrived."""
    wait_until(lambda: len(desk.sandbox.calls(name)) >= nth, what=f"{name} number {nth}")


def check_sent_once(desk: Desk, day: str = DAY, *, is_fault_run: bool = True) -> str:
    """One delivery, a ledger that says which, a free lease, nothing left lying about; the campaign's id.

    Counted as one fault run, unless nothing was made to go wrong.
    """
    key = f"Digest {day}"
    campaigns = desk.sandbox.state()["campaigns"]
    of_day = [c for c in campaigns if c["title"] == key or c["title"].startswith(f"{key} [")]
    mailed = [c["id"] for c in of_day for _ in range(c["sends_accepted"])]
    if is_fault_run:
        tally.add_judged("runs of the command", len(mailed))
    assert len(mailed) == 1, f"{len(mailed)} deliveries for {day}: {of_day}"
    record = desk.record(day)
    assert record["state"] == "sent", record
    assert [c["id"] for c in record["campaigns"] if c["role"] == "main"] == mailed, record
    assert desk.leftovers() == []
    return str(mailed[0])
