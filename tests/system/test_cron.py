"""The line of crontab.example, in Debian's cron, against the sandbox: the mail goes out, and goes out once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from support.runs import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.runs import Desk
    from support.sandbox import Sandbox

EXAMPLE = Path(__file__).parents[2] / "crontab.example"
CRON_D = Path("/etc/cron.d")
SOURCES = ("draft", "replicate", "html")
READERS = 5  # as in the fixture `sandbox`
MINUTE_AND_SOME_S = 130

pytestmark = [pytest.mark.system, pytest.mark.timeout(MINUTE_AND_SOME_S + 120)]


def example_line() -> str:
    """The one job of crontab.example."""
    (line,) = [one for one in EXAMPLE.read_text().splitlines() if one.startswith("*")]
    return line


def line_for(desk: Desk, user: str) -> str:
    """The example's line as it would stand in /etc/cron.d, for this desk, every minute, with our sendonce."""
    schedule, command = re.findall(r"^((?:\S+ ){5})(.*)$", example_line())[0]
    script = Path(sys.executable).parent / "sendonce"
    for written, meant in (
        ("/opt/sendonce/bin/sendonce", script),
        ("/etc/sendonce/daily.env", desk.env_file),
    ):
        assert written in command
        command = command.replace(written, str(meant))
    assert schedule == "*/10 8-11 * * * "
    return f"* * * * * {user} {command}\n"


def noon_zone() -> str:
    """A time zone where it is about noon, so that the date does not change while cron is waited for."""
    ahead = 12 - datetime.now(UTC).hour
    return f"Etc/GMT{-ahead:+d}" if ahead else "Etc/UTC"


def cron_runs() -> bool:
    """Whether a cron daemon is at work; one that has ended and was not waited for does not count."""
    stats: list[str] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended since
            stats.append(path.read_text())
    return any("(cron)" in one and one.rpartition(")")[2].split()[0] != "Z" for one in stats)


@contextmanager
def cron() -> Iterator[None]:
    """A cron daemon: the one that runs, else one of our own in the foreground."""
    if cron_runs():
        yield
        return
    program = shutil.which("cron", path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert program is not None, "Debian's cron is not installed: apt-get install cron"
    daemon = subprocess.Popen([program, "-f"], start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        daemon.terminate()
        daemon.wait(10)


@contextmanager
def cron_file(text: str) -> Iterator[Path]:
    """A file of its own in /etc/cron.d, gone afterwards in any case."""
    path = CRON_D / f"sendonce-test-{os.getpid()}"  # no dot: cron would pass it over
    try:
        path.write_text(text)
        path.chmod(0o644)
        yield path
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write to /etc/cron.d")
def test_cron_sends_each_jobs_campaign_once_from_the_line_of_the_example(
    make_desk: Callable[..., Desk], sandbox: Sandbox
) -> None:
    zone = noon_zone()
    day = datetime.now(ZoneInfo(zone)).date().isoformat()
    desks = {
        source: make_desk(source, SENDONCE_TIMEZONE=zone, SENDONCE_TITLE=f"{source} {{date}}")
        for source in SOURCES
    }
    sandbox.add_draft(f"draft {day}")
    with cron_file("".join(line_for(desk, "root") for desk in desks.values())), cron():
        wait_until(
            lambda: all(desk.record(day).get("state") == "sent" for desk in desks.values()),
            within_s=MINUTE_AND_SOME_S,
            what="cron has sent all three",
        )
    delivered = {source: sandbox.deliveries(f"{source} {day}") for source in SOURCES}
    assert delivered == dict.fromkeys(SOURCES, READERS)
    # the next minute's run, in cron's environment
    again = {source: desk.run("-q", "send-batch") for source, desk in desks.items()}
    assert [(one.code, one.all) for one in again.values()] == [(0, "")] * 3
    assert (sandbox.sends(), sandbox.accepted(), sandbox.mailbox()["total"]["deliveries"]) == (
        3, 3, 3 * READERS,
    )  # fmt: skip
    assert [desk.leftovers() for desk in desks.values()] == [[], [], []]


def test_cron_takes_the_example_as_a_users_crontab() -> None:
    checked = subprocess.run(
        ["crontab", "-n", str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=20
    )
    assert checked.returncode == 0, checked.stderr
