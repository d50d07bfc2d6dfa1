"""A day that is sent costs no lock, no network and no heavy import."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from support.runs import DAY, wait_until

if TYPE_CHECKING:
    from support.runs import Desk

HEAVY = {"requests", "mailchimp_marketing", "filelock", "rich", "ssl", "urllib3", "http.client", "sqlite3"} | {
    "sendonce.recipients", "sendonce.adapters.recipients", "sendonce.core.recipients",
}  # fmt: skip
FAT = {"click", "dataclasses", "email", "inspect", "sendonce.core.campaigns", "socket"}
"""What the plain call need not import either (docs/performance.md)."""
OF_DOTENV = {"dotenv", "logging", "tempfile", "shutil", "threading", "traceback"}
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
    return modules_of(["--env-file", str(desk.env_file), *arguments])


def modules_of(arguments: list[str], **how: Any) -> tuple[int, set[str]]:
    """The same of any command line."""
    how = {"env": {"PATH": "/usr/bin:/bin"}, **how}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=False, **how
    )
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


def test_the_plain_call_imports_no_more_than_reading_a_ledger_takes(desk: Desk) -> None:
    desk.prepare()
    assert desk.send().code == 0
    code, modules = modules_after(desk, "send-batch", "--date", DAY)
    assert (code, modules & (HEAVY | FAT)) == (0, set())


def test_without_an_env_file_its_parser_is_not_imported_either(desk: Desk) -> None:
    desk.prepare()
    assert desk.send().code == 0
    (desk.folder / "empty").mkdir()
    code, modules = modules_of(["send-batch", "--date", DAY], env=desk.values, cwd=desk.folder / "empty")
    assert (code, modules & (HEAVY | FAT | OF_DOTENV)) == (0, set())


def test_a_day_that_is_not_sent_does_import_them(desk: Desk) -> None:
    """Else the tests above could not fail."""
    desk.prepare()
    code, modules = modules_after(desk, "send-batch", "--date", DAY)
    assert code == 0
    assert {"requests", "mailchimp_marketing", "filelock", *FAT, *OF_DOTENV} <= modules
    assert "rich" not in modules


def test_whoever_waits_for_another_run_imports_the_client_only_if_it_is_still_needed(desk: Desk) -> None:
    """Fifty that wait would else take a minute of processor time for nothing."""
    desk.prepare()
    desk.sandbox.faults("listing=slow:2 times=1")
    with desk.start("send-batch", "--date", DAY) as holder:
        wait_until(lambda: bool(desk.sandbox.calls("listing")), what="the first run asks")
        code, modules = modules_after(desk, "send-batch", "--date", DAY)
        assert holder.wait() == 0
    assert (code, "filelock" in modules) == (0, True)
    assert modules & {"requests", "urllib3", "mailchimp_marketing", "sendonce.adapters.mailchimp"} == set()
    assert desk.sandbox.sends() == 1


def test_ctrl_c_while_it_is_still_starting_is_one_line(desk: Desk) -> None:
    """Before any handler is in place: no traceback, and 75 as for every interruption."""
    starting = "import sendonce.__main__ as m, signal\n"
    # the import of the first module of ours is where the signal arrives
    at_import = "import sys\nclass Now:\n  def find_spec(self, name, *_):\n    if name == 'sendonce.quick': signal.raise_signal(2)\n"
    code = f"{starting}{at_import}sys.meta_path.insert(0, Now())\nm.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (75, False)
    assert done.stderr == (
        "Interrupted. Nothing was sent by this run. Run again, that is safe.\nWhat to do: sendonce runbook interrupted\n"
    )
