"""After a fault: the command is run again as cron would, until the day is done, and all is as it should be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.interrupts import check_sent_once, let_pass
from support.runs import DAY

if TYPE_CHECKING:
    from pathlib import Path

    from support.runs import Desk, Ended

AT_MOST = 4
BETWEEN_RUNS_S = 600
ANOTHER_DAY = "2015-01-01"
TAKEOVER = re.compile(r"daily\.lock\.(break|restore)\.\d+\.[0-9a-f]{32}")
"""What a run leaves that dies in the middle of taking over a dead one's lease; removed once it is ten minutes old."""

_LATER = f"""\
from datetime import timedelta
from sendonce.adapters.clock import SystemClock
now = SystemClock.now
SystemClock.now = lambda self: now(self) + timedelta(seconds={BETWEEN_RUNS_S + 60})
"""


def finish(desk: Desk, day: str = DAY, *, what: str = "") -> None:
    """Run again until 0, ten minutes apart by Mailchimp's clock; then one delivery, and nothing left lying about.

    No run may ask for more than one send. `what` went wrong before is said if this does not come about.
    """
    was_recorded = desk.record(day).get("state") == "sent"
    ends: list[Ended] = []
    while not ends or ends[-1].code != 0:
        assert len(ends) < AT_MOST, (what, ends)
        asked = desk.sandbox.sends()
        ends.append(desk.send(day=day))
        assert ends[-1].code in {0, 75}, (what, ends)
        assert desk.sandbox.sends() - asked <= 1, (what, ends)
        let_pass(desk.sandbox, BETWEEN_RUNS_S)
    if left := desk.leftovers():
        # a date that is sent is not worth a lease: what a dead run has left then is tidied by the next that needs one
        assert was_recorded or all(TAKEOVER.fullmatch(name) for name in left), (what, left)
        _send_another_day(desk)
    check_sent_once(desk, day)


def _send_another_day(desk: Desk) -> None:
    """A run that takes the lease and writes the ledger, later by this machine's clock, too."""
    desk.prepare(ANOTHER_DAY)
    ended = desk.send(day=ANOTHER_DAY, environ=_later(desk.folder / "later"))
    assert ended.code == 0, ended


def _later(folder: Path) -> dict[str, str]:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_LATER)
    return {"PYTHONPATH": str(folder)}
