"""examples/sendonce@.service and .timer: systemd takes them, and the job runs as they start it."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support import strace
from support.runs import DAY, LIMIT_S, Desk, _coverage
from support.sandbox import API_KEY, LIST_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.sandbox import Sandbox

EXAMPLES = Path(__file__).parents[2] / "examples"
INSTALLED = "/opt/sendonce/bin/sendonce"
NAMES = ("sendonce@.service", "sendonce@.timer")

OLDEST = 250  # the first that knows %d


def version_of_systemd() -> int:
    """0 where there is none."""
    if shutil.which("systemd-analyze") is None:
        return 0
    told = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=False)
    number = re.match(r"systemd (\d+)", told.stdout)
    return int(number[1]) if number else 0


needs_systemd = pytest.mark.skipif(
    version_of_systemd() < OLDEST, reason=f"there is no systemd-analyze of version {OLDEST} on this machine"
)


class _Settings(dict[str, Any]):
    """A section: a name that stands there twice keeps both values, as systemd reads it."""

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, list) and key in self and isinstance(self[key], list):
            value = [*self[key], *value]
        super().__setitem__(key, value)


def unit(name: str) -> Mapping[str, Mapping[str, str]]:
    """A unit's sections; of a name that stands there twice, the values one on each line."""
    parser = configparser.RawConfigParser(strict=False, dict_type=_Settings, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign] # systemd's names have capitals
    parser.read_string((EXAMPLES / name).read_text(encoding="ascii"))
    return parser


def systemd_analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.fixture
def units(tmp_path: Path) -> list[str]:
    """Copies of both, for the job "daily", that start something which is there: this Python."""
    made = []
    for name in NAMES:
        text = (EXAMPLES / name).read_text(encoding="ascii")
        path = tmp_path / name.replace("@.", "@daily.")
        path.write_text(text.replace(INSTALLED, sys.executable))
        made.append(str(path))
    return made


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_units(units: list[str]) -> None:
    verified = systemd_analyze("verify", "--man=no", "--recursive-errors=no", *units)
    # it may have something to say of the machine's own units, too
    said = [line for line in (verified.stdout + verified.stderr).splitlines() if "sendonce@" in line]
    assert (verified.returncode, said) == (0, [])


@needs_systemd
def test_a_unit_with_a_misspelt_setting_would_be_found(units: list[str]) -> None:
    path = Path(units[0])
    path.write_text(path.read_text().replace("ProtectHome=", "ProtectHomes="))
    assert "ProtectHomes" in systemd_analyze("verify", "--man=no", *units).stderr


@needs_systemd
def test_the_service_is_well_shut_in(units: list[str]) -> None:
    judged = systemd_analyze("security", "--offline=yes", "--threshold=20", units[0])
    print(judged.stdout)  # for information: pytest -rP
    assert judged.returncode == 0, judged.stdout


@needs_systemd
def test_the_timer_tries_every_ten_minutes_of_four_hours() -> None:
    (when,) = re.findall("^OnCalendar=(.+)$", (EXAMPLES / "sendonce@.timer").read_text(), re.MULTILINE)
    day = ("--base-time=2026-01-05 00:00:00 UTC", "--iterations=25")
    told = systemd_analyze("calendar", *day, f"{when} UTC")
    times = re.findall(r"2026-01-\d\d \d\d:\d\d:\d\d(?= UTC\n)", told.stdout)
    wanted = [f"2026-01-05 {hour:02}:{minute:02}:00" for hour in range(8, 12) for minute in range(0, 60, 10)]
    assert times == [*wanted, "2026-01-06 08:00:00"]


def test_the_job_runs_as_the_unit_starts_it(sandbox: Sandbox, tmp_path: Path) -> None:
    """The key from the credential, the rest from the .env, an empty environment: what systemd would set up."""
    desk = Desk(tmp_path / "etc", sandbox, SENDONCE_JOB="daily")
    desk.write_env(MAILCHIMP_API_KEY=None, MAILCHIMP_API_KEY_FILE="/nowhere/daily.key")
    desk.env_file.rename(tmp_path / "etc/daily.env")
    credentials = tmp_path / "credentials"
    credentials.mkdir(mode=0o700)
    service = unit("sendonce@.service")["Service"]
    name, source = service["LoadCredential"].split(":")
    assert source == "/etc/sendonce/%i.key"
    (credentials / name).touch(mode=0o400)
    (credentials / name).chmod(0o600)
    (credentials / name).write_text(f"{API_KEY}\n")
    (credentials / name).chmod(0o400)

    def meant(text: str) -> str:
        return text.replace("%i", "daily").replace("%d", str(credentials))

    setting, _, value = meant(service["Environment"]).partition("=")
    words = shlex.split(meant(service["ExecStart"]).replace("/etc/sendonce/", f"{tmp_path}/etc/"))
    assert words.pop(0) == INSTALLED
    sandbox.add_draft(f"Digest {DAY}", list_id=LIST_ID)
    done = subprocess.run(
        [sys.executable, "-m", "sendonce", *words, "--date", DAY],
        env={
            "PATH": "/usr/bin:/bin",
            "CREDENTIALS_DIRECTORY": str(credentials),
            setting: value,
            **_coverage(),
        },
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f'Sent: "Digest {DAY}"')
    assert desk.deliveries() == 1


def test_a_run_that_is_to_be_tried_again_is_no_failed_unit() -> None:
    service, timer = unit("sendonce@.service")["Service"], unit("sendonce@.timer")["Timer"]
    assert service["SuccessExitStatus"] == "75"
    assert service["Type"] == "oneshot"
    # longer than a run's own deadline, or systemd would end it first
    assert int(service["TimeoutStartSec"]) > 540
    assert timer["Persistent"] == "false"
    assert unit("sendonce@.timer")["Install"]["WantedBy"] == "timers.target"


def members(group: str) -> set[str]:
    """The system calls of a group of systemd's, and of the groups in it."""
    told = systemd_analyze("syscall-filter", group)
    assert told.returncode == 0, told.stderr
    lines = [line.strip() for line in told.stdout.splitlines()[1:]]
    words = [line for line in lines if line and not line.startswith("#")]
    return {call for word in words for call in (members(word) if word.startswith("@") else [word])}


@needs_systemd
@pytest.mark.skipif(not strace.is_usable(), reason="strace may not trace here")
def test_a_send_makes_no_system_call_that_the_unit_forbids(desk: Desk, tmp_path: Path) -> None:
    allowed, forbidden = unit("sendonce@.service")["Service"]["SystemCallFilter"].splitlines()
    assert forbidden.startswith("~")
    calls = members(allowed)
    for group in forbidden.removeprefix("~").split():
        calls -= members(group)
    desk.prepare()
    trace = tmp_path / "trace"
    with desk.start("send-batch", "--date", DAY, under=["strace", "-f", "-qq", "-o", str(trace)]) as traced:
        out, err = traced.communicate(timeout=LIMIT_S)
    assert (traced.returncode, err) == (0, ""), out
    made = set(re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)[( ]", trace.read_text(), re.MULTILINE))
    assert {"openat", "connect", "fsync"} <= made
    assert made - calls - members("@default") == set()
