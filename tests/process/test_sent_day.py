"""A day that is sent costs no lock, no network and no heavy import."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.runs import DAY

if TYPE_CHECKING:
    from support.runs import Desk

HEAVY = {"requests", "mailchimp_marketing", "filelock", "rich", "ssl", "urllib3", "http.client"}
RUN = """
import sys
from sendonce.__main__ import main
sys.argv = ["sendonce", *sys.argv[1:]]
try:
    main()
finally:
    print(*sorted(sys.modules))
"""


def modules_after(desk: Desk, *arguments: str) -> tuple[int, set[str]]:
    """The exit code of a command in a process of its own, and what that process had imported."""
    command = [sys.executable, "-c", RUN, "--env-file", str(desk.env_file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    return done.returncode, set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("how", [("-q",), (), ("--json",), ("-v",), ("--early",)], ids=" ".join)
def test_nothing_heavy_is_imported_for_a_day_that_is_sent(desk: Desk, how: tuple[str, ...]) -> None:
    desk.prepare()
    assert desk.send().code == 0
    desk.sandbox.clear_calls()
    code, modules = modules_after(desk, "send-batch", "--date", DAY, *how)
    assert code == 0
    assert modules & HEAVY == set()
    assert ("click" in modules) == (how not in {("-q",), ()})
    assert desk.sandbox.calls() == []
    assert desk.leftovers() == []


def test_a_day_that_is_not_sent_does_import_them(desk: Desk) -> None:
    """Else the test above could not fail."""
    desk.prepare()
    code, modules = modules_after(desk, "send-batch", "--date", DAY)
    assert code == 0
    assert {"requests", "mailchimp_marketing", "filelock"} <= modules
    assert "rich" not in modules


def test_ctrl_c_while_it_is_still_starting_is_one_line(desk: Desk) -> None:
    """Before any handler is in place: no traceback, and 75 as for every interruption."""
    starting = "import sendonce.__main__ as m, signal\n"
    # the import of the first module of ours is where the signal arrives
    at_import = "import sys\nclass Now:\n  def find_spec(self, name, *_):\n    if name == 'sendonce.quick': signal.raise_signal(2)\n"
    code = f"{starting}{at_import}sys.meta_path.insert(0, Now())\nm.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (75, False)
    assert done.stderr == "Interrupted. Nothing was sent by this run. Run again, that is safe.\n"
