"""`sendonce runbook`, and the line by which a message leads there."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sendonce.runbook import Section
from support.runs import DAY

if TYPE_CHECKING:
    from support.runs import Desk

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-P", "-m", "sendonce", "runbook"]


def read(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Call it with an empty environment, in /, without a terminal."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def on_terminal(columns: int, *arguments: str) -> str:
    """What a terminal of so many columns gets, without what drives it."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [*COMMAND, *arguments], env={"TERM": "xterm"}, stdin=subprocess.DEVNULL, stdout=its, stderr=its
    ) as process:
        os.close(its)
        told = b""
        try:
            while data := os.read(ours, 65536):
                told += data
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[\d;]*m", "", told.decode())


def test_without_a_terminal_it_is_plain_text_of_80_columns() -> None:
    told = read()
    assert (told.returncode, told.stderr) == (0, "")
    assert max(map(len, told.stdout.splitlines())) <= 80
    assert told.stdout.isascii()
    assert "**" not in told.stdout
    for section in Section:
        assert f"\n\n{section.value}\n{'-' * len(section)}\n\n" in told.stdout


def test_a_section_is_printed_alone() -> None:
    told = read("unclear")
    assert told.stdout.startswith("unclear\n-------\n\nExit 75, ")
    assert "Do: not reset, and not send by hand." in told.stdout
    assert "temporary" not in told.stdout
    document = json.loads(read("--json", "unclear").stdout)
    assert (document["exit"], document["section"], document["page"][:11]) == (0, "unclear", "## unclear\n")


def test_a_section_that_is_not_there_is_wrong_usage_that_names_them_all() -> None:
    told = read("nonsense")
    assert (told.returncode, told.stdout) == (2, "")
    assert all(f"'{section.value}'" in told.stderr for section in Section)


@pytest.mark.parametrize("columns", [80, 200])
def test_on_a_terminal_it_is_no_wider_than_80_columns(columns: int) -> None:
    told = on_terminal(columns, "unclear")
    assert max(len(line.rstrip()) for line in told.splitlines()) <= 80
    assert "**" not in told
    assert "`" not in told


def test_the_page_is_shipped_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert shipped == {"docs/runbook.md": "sendonce/runbook.md"}
    assert "COPY docs/runbook.md docs/\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_a_refusal_ends_with_its_section_in_a_mail_of_cron_too(desk: Desk) -> None:
    told = desk.send("-q")
    assert told.code == 1
    assert told.err.splitlines()[-1] == "What to do: sendonce runbook refused"
    assert desk.send("-q").all == ""
    assert json.loads(desk.send("--json").out)["runbook"] == "refused"
    dry = desk.send("--dry-run")
    assert (dry.code, dry.err.splitlines()[-1]) == (1, "What to do: sendonce runbook refused")


def test_a_guard_and_a_send_that_is_not_confirmed_have_sections_of_their_own(desk: Desk) -> None:
    desk.prepare()
    desk.write_env(SENDONCE_MIN_RECIPIENTS="1000000")
    for arguments in ((), ("--dry-run",)):
        assert desk.send(*arguments).err.splitlines()[-1] == "What to do: sendonce runbook guard"
    desk.write_env(SENDONCE_MIN_RECIPIENTS=None, SENDONCE_SETTLE_SECONDS="1", SENDONCE_TIMEOUT_SECONDS="1")
    desk.sandbox.faults("post=accept-reset get=503empty after=send")
    told = desk.send()
    assert (told.code, told.err.splitlines()[-1]) == (75, "What to do: sendonce runbook unclear")


def test_what_went_well_has_no_such_line(desk: Desk) -> None:
    desk.prepare()
    sent, again = desk.send(), desk.send("--json")
    assert (sent.code, sent.err) == (0, "")
    assert json.loads(again.out).get("runbook") is None


def test_settings_commands_and_checks_name_their_sections(desk: Desk) -> None:
    def last(*arguments: str) -> tuple[int, str]:
        ended = desk.run(*arguments)
        return ended.code, ended.err.splitlines()[-1].removeprefix("What to do: sendonce runbook ")

    assert last("check", "--date", DAY) == (1, "not-sent")
    assert last("ledger", "reset", "--date", DAY, "--yes") == (1, "refused-command")
    assert last("doctor", "-q") == (1, "doctor")
    (desk.state / "daily.json").write_text("x")
    (desk.state / "daily.json").chmod(0o600)
    assert last("send-batch") == (78, "ledger-damaged")
    desk.write_env(SENDONCE_STATE=str(desk.folder / "gone"))
    assert last("send-batch") == (78, "state")
    desk.write_env(SENDONCE_STATE=None)
    assert last("send-batch") == (78, "settings")
    assert json.loads(desk.run("--json", "send-batch").out)["runbook"] == "settings"
