"""Cases from the field: what is said, where, and what comes of it when nobody can hear it. C1, C3, C4, `-q`, `--json`.

What a run did is in the ledger before it is said; output changes neither the outcome nor the exit code.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from support.cases import case_desk, holds, run_once, shows_nothing_of, the_object, together
from support.runs import COMMAND, DAY, Desk, Ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.sandbox import Sandbox

LOOKING = (["ledger", "list"], ["ledger", "show", DAY], ["lock", "status"])


@pytest.fixture
def desk(tmp_path: Path, sandbox: Sandbox) -> Desk:
    """A job whose draft is released."""
    desk = case_desk(tmp_path / "desk", sandbox)
    desk.prepare()
    return desk


@pytest.fixture
def bare(tmp_path: Path, sandbox: Sandbox) -> Desk:
    """A job without a draft: every run refuses."""
    return case_desk(tmp_path / "desk", sandbox)


def shell(desk: Desk, script: str, *arguments: str, environ: Mapping[str, str] | None = None) -> Ended:
    """Run a shell script in which `"$@"` is sendonce with these arguments."""
    command = ["/bin/bash", "-c", script, "bash", *COMMAND, "--env-file", str(desk.env_file), *arguments]
    clean = {"HOME": str(desk.folder), "PATH": "/usr/bin:/bin", **(environ or {})}
    done = subprocess.run(
        command, env=clean, cwd="/", text=True, capture_output=True, timeout=60, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


# ----------------------------------------------------------------------------------------------- C1: the crontab line


@pytest.mark.parametrize(
    "arguments", [["send-batch", "--date", DAY], *LOOKING, ["ledger", "reset", "--date", DAY]], ids=" ".join
)
def test_standard_input_is_never_read(desk: Desk, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"yes\n")
    os.close(writing)
    try:
        ended = desk.run(*arguments, stdin=reading)
        assert os.read(reading, 10) == b"yes\n"
    finally:
        os.close(reading)
    assert ended.code == (2 if "reset" in arguments else 0), ended


@pytest.mark.parametrize(
    "faults",
    ["post=accept-503empty get=503empty after=send", "post=503empty", "post=429"],
)
def test_a_crontab_line_that_tries_again_after_a_75_sends_once_at_the_most(desk: Desk, faults: str) -> None:
    desk.sandbox.faults(faults)
    tried = shell(desk, '"$@" || "$@"', "send-batch", "--date", DAY)
    assert tried.code == 75
    assert desk.sandbox.accepted() <= 1
    assert desk.sandbox.sends() <= 2
    desk.sandbox.faults()
    again = shell(desk, '"$@" || "$@"', "send-batch", "--date", DAY)
    assert (again.code, desk.deliveries()) == (0, 1)
    holds(desk, tried, tried, again, again, looks=False)


def test_a_date_that_the_shell_made_of_nothing_is_wrong_usage(desk: Desk) -> None:
    ended = shell(desk, '"$@" --date "$(date -d nonsense 2>/dev/null)"', "send-batch")
    assert (ended.code, ended.out, desk.sandbox.calls()) == (2, "", [])


# ------------------------------------------------------------------------------------------------------ C3: ASCII

ASCII = (
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "ascii:strict"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
)


@pytest.mark.parametrize("environ", ASCII, ids=str)
def test_a_terminal_that_knows_only_ascii_gets_ascii_and_the_send_is_recorded(
    tmp_path: Path, sandbox: Sandbox, environ: dict[str, str]
) -> None:
    desk = case_desk(tmp_path / "d\u00e9sk \u2713", sandbox, SENDONCE_TITLE="Caf\u00e9 \u2713 {date}")
    sandbox.add_draft(f"Caf\u00e9 \u2713 {DAY}")
    first, second = desk.send(environ=environ), desk.send("-v", environ=environ)
    assert (first.code, second.code, sandbox.accepted()) == (0, 0, 1), first
    assert desk.record()["state"] == "sent"
    assert desk.record()["campaigns"][0]["title"] == f"Caf\u00e9 \u2713 {DAY}"
    assert r"Caf\xe9 \u2713 2026-01-05" in first.out
    looked = [desk.run(*look, environ=environ) for look in LOOKING]
    missing = desk.run("--env-file", str(desk.folder / "\u2713.env"), "send-batch", environ=environ)
    assert [e.code for e in looked] == [0, 0, 0]
    assert missing.code == 78
    assert "Caf" in looked[0].out
    for ended in (first, second, missing, *looked):
        assert ended.all.isascii()
    holds(desk, first, second)


@pytest.mark.parametrize("environ", [{}, ASCII[2]], ids=str)
def test_paths_of_bytes_that_are_no_text_are_used_and_escaped(
    tmp_path: Path, sandbox: Sandbox, environ: dict[str, str]
) -> None:
    folder = tmp_path / os.fsdecode(b"d\xe9sk\xff")
    desk = case_desk(folder, sandbox, SENDONCE_STATE="state", SENDONCE_LOG_FILE="run.log")
    desk.prepare()
    first, second = desk.send(environ=environ), desk.send(environ=environ)
    assert (first.code, second.code, desk.deliveries()) == (0, 0, 1), first
    desk.lock_file.mkdir()
    refused = desk.send(day="2026-01-04", environ=environ)
    assert refused.code == 78
    assert r"d\udce9sk\udcff" in refused.err
    desk.lock_file.rmdir()
    holds(desk, first, second, refused)


@pytest.mark.parametrize("environ", [{}, ASCII[0]], ids=str)
def test_json_is_ascii_whatever_the_terminal_knows(
    tmp_path: Path, sandbox: Sandbox, environ: dict[str, str]
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox, SENDONCE_TITLE="Caf\u00e9 \u2713 {date}")
    sandbox.add_draft(f"Caf\u00e9 \u2713 {DAY}")
    ended = desk.send("--json", environ=environ)
    assert ended.out.isascii()
    assert the_object(ended)["title"] == f"Caf\u00e9 \u2713 {DAY}"


def test_what_comes_from_outside_cannot_drive_the_terminal_or_forge_a_line(desk: Desk) -> None:
    desk.sandbox.faults("post=429")
    first = run_once(desk)
    desk.sandbox.faults()
    campaign = desk.record()["campaigns"][0]["id"]
    desk.sandbox.edit(campaign, title="\x1b[31mred\x07\n2026-01-05 sent\u202e [bold]x[/bold]")
    second = run_once(desk, "-v")
    assert second.code == 1
    assert r"\x1b[31mred\x07\n2026-01-05 sent\u202e [bold]x[/bold]" in second.err
    shown = desk.run("ledger", "show", DAY)
    log = (desk.folder / "run.log").read_text()
    for text in (second.err, shown.out, log):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
    assert not [
        line
        for line in log.splitlines()
        if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ run=[0-9a-f]{8} ", line)
    ]
    holds(desk, first, second, looks=False)


# ---------------------------------------------------------------------------------- C4: output that cannot be written


@contextmanager
def nobody_reads() -> Iterator[IO[str]]:
    """A pipe whose other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        yield pipe


@contextmanager
def full_disk() -> Iterator[IO[str]]:
    """A file on a full disk."""
    with Path("/dev/full").open("w") as full:
        yield full


def fill(pipe: int) -> None:
    """Write into a pipe that does not wait until it takes no more."""
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b" " * 65536)


@contextmanager
def full_pipe() -> Iterator[IO[str]]:
    """A pipe that takes no more and does not wait."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    fill(writing)
    with os.fdopen(writing, "w") as pipe:
        try:
            yield pipe
        finally:
            os.close(reading)


BROKEN = {"full disk": full_disk, "nobody reads": nobody_reads, "full pipe": full_pipe}


@pytest.mark.parametrize(
    ("manner", "unbuffered"),
    [((), ""), ((), "1"), (("-v",), "1"), (("--json",), "")],
    ids=["plain", "unbuffered", "-v", "--json"],
)
@pytest.mark.parametrize("kind", BROKEN)
def test_a_send_is_recorded_and_ends_with_0_though_nothing_can_be_said_of_it(
    desk: Desk, kind: str, unbuffered: str, manner: tuple[str, ...]
) -> None:
    environ = {"PYTHONUNBUFFERED": unbuffered}
    with BROKEN[kind]() as out, BROKEN[kind]() as err:
        first = desk.send(*manner, environ=environ, stdout=out, stderr=err)
    assert (first.code, desk.deliveries(), desk.record()["state"]) == (0, 1, "sent")
    second = run_once(desk)
    assert (second.code, second.err, desk.sandbox.sends()) == (0, "", 1)
    holds(desk, first, second, looks=not manner)


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "02", "12", "012"])
def test_closed_descriptors_get_no_file_of_ours_in_their_place(desk: Desk, closed: str) -> None:
    redirections = " ".join(f"{number}{'<' if number == '0' else '>'}&-" for number in closed)
    first = shell(desk, f'"$@" {redirections}', "-v", "--json", "send-batch", "--date", DAY)
    assert (first.code, desk.deliveries(), desk.record()["state"]) == (0, 1, "sent")
    assert json.loads(desk.ledger_file.read_text())["version"] == 1
    log = (desk.folder / "run.log").read_text()
    assert not [line for line in log.splitlines() if " run=" not in line], (
        "something else was written into the log"
    )
    assert ("1" in closed) == (first.out == "")
    second = run_once(desk)
    assert (second.code, desk.sandbox.sends()) == (0, 1)
    holds(desk, first, second, looks=False)


HELP = (["--help"], ["--version"], ["send-batch", "--help"], ["ledger", "--help"])


@pytest.mark.parametrize("kind", ["full disk", "nobody reads", "closed"])
def test_no_command_ends_otherwise_because_its_output_cannot_be_written(desk: Desk, kind: str) -> None:
    desk.send()
    commands = [
        *LOOKING,
        *([*look, "--json"] for look in LOOKING),
        ["ledger", "list", "--csv"],
        ["ledger", "verify"],
        *HELP,
    ]
    wrong = [["send-batch", "--date", ""], ["nonsense"], ["--env-file", "/nowhere/.env", "send-batch"]]
    expected = [*(0 for _ in commands), 2, 2, 78]

    def code_of(command: list[str]) -> int:
        if kind == "closed":
            return shell(desk, '"$@" >&- 2>&-', *command).code
        with BROKEN[kind]() as out, BROKEN[kind]() as err:
            return desk.run(*command, stdout=out, stderr=err).code

    codes = together([*commands, *wrong], code_of)
    assert dict(zip(map(shlex.join, [*commands, *wrong]), codes, strict=True)) == dict(
        zip(map(shlex.join, [*commands, *wrong]), expected, strict=True)
    )


@pytest.mark.parametrize("kind", BROKEN)
def test_a_run_that_fails_keeps_its_code_and_its_record_though_nothing_can_be_said(
    bare: Desk, kind: str
) -> None:
    with BROKEN[kind]() as out, BROKEN[kind]() as err:
        refused = bare.send(stdout=out, stderr=err)
        bare.sandbox.faults("get=503bare")
        unread = bare.send(stdout=out, stderr=err)
        bare.sandbox.faults("get=401")
        rejected = bare.send(stdout=out, stderr=err)
    assert [refused.code, unread.code, rejected.code] == [1, 75, 78]
    assert [a["outcome"] for a in bare.record()["attempts"]] == ["refused", "temporary", "unusable"]
    bare.sandbox.faults()
    holds(bare, refused, unread, rejected, looks=False)


def long_ledger(desk: Desk, count: int) -> None:
    """Have the tool write a ledger, and repeat its one day on so many earlier ones."""
    desk.send()
    document = json.loads(desk.ledger_file.read_text())
    batch = document["batches"][DAY]
    days = (date.fromisoformat(DAY) - timedelta(days=n) for n in range(count))
    document["batches"] = {day.isoformat(): batch for day in sorted(days)}
    desk.ledger_file.write_text(json.dumps(document))


def test_a_reader_that_has_seen_enough_is_no_fault(desk: Desk) -> None:
    long_ledger(desk, 2000)
    for options in ([], ["--csv"], ["--json"]):
        ended = shell(desk, 'set -o pipefail; "$@" | head -n 1', "ledger", "list", *options)
        assert ended.code in {0, 141}, ended
        assert ended.err == ""
        assert ended.out
    whole = desk.run("ledger", "list", "--csv")
    assert len(whole.out.splitlines()) == 2001


# --------------------------------------------------------------------------------------------------------- the log


def odd_log(desk: Desk, kind: str) -> Path:
    """A place where no log can be written."""
    path = desk.folder / "odd.log"
    match kind:
        case "folder":
            path.mkdir()
        case "missing folder":
            path = desk.folder / "nowhere" / "odd.log"
        case "below a file":
            path = desk.env_file / "odd.log"
        case "FIFO nobody reads":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        case "name too long":
            path = desk.folder / ("x" * 300)
        case "link in a circle":
            path.symlink_to(path)
        case _:
            path = Path("/dev/full")
    return path


ODD_LOGS = (
    *(
        "full disk",
        "folder",
        "missing folder",
        "below a file",
        "FIFO nobody reads",
        "socket",
        "name too long",
    ),
    "link in a circle",
)


@pytest.mark.parametrize("kind", ODD_LOGS)
def test_a_log_that_cannot_be_written_is_a_warning_and_changes_nothing_else(desk: Desk, kind: str) -> None:
    path = odd_log(desk, kind)
    desk.write_env(SENDONCE_LOG_FILE=str(path))
    desk.prepare("2026-01-04")
    first = run_once(desk)
    quiet = desk.send("-q", day="2026-01-04")
    assert (first.code, quiet.code, desk.deliveries(), desk.deliveries("2026-01-04")) == (0, 0, 1, 1), first
    assert first.err.count("\n") == 1
    assert re.fullmatch(rf"Warning: The log {re.escape(str(path))} cannot be written .*\n", first.err)
    assert quiet.all == ""
    told = desk.send("--json")
    warnings = the_object(told)["warnings"]
    assert isinstance(warnings, list)
    assert str(path) in warnings[0]
    holds(desk, first, quiet, told, looks=False)


def test_a_log_that_is_a_fifo_whose_reader_does_not_keep_up_does_not_hold_the_run(desk: Desk) -> None:
    path = desk.folder / "fifo.log"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        fill(writing)
        desk.write_env(SENDONCE_LOG_FILE=str(path))
        ended = run_once(desk)
    finally:
        os.close(reading)
        os.close(writing)
    assert (ended.code, desk.deliveries()) == (0, 1)
    assert "cannot be written" in ended.err


def test_a_log_gets_a_line_for_each_event_with_the_runs_id_and_is_for_us_alone(desk: Desk) -> None:
    first, second = run_once(desk), run_once(desk)
    log = desk.folder / "run.log"
    lines = log.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ run=[0-9a-f]{8} \w", line) for line in lines)
    assert {line.split()[1] for line in lines} >= {f"run={a['run']}" for a in desk.record()["attempts"]}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    holds(desk, first, second, looks=False)


def test_a_log_that_is_moved_away_between_runs_and_in_mid_run_is_begun_anew(desk: Desk) -> None:
    log = desk.folder / "run.log"
    first = run_once(desk)
    log.rename(desk.folder / "run.log.1")
    desk.prepare("2026-01-04")
    desk.sandbox.faults("get=slow:0.5 times=1")
    with desk.start("send-batch", "--date", "2026-01-04") as run:
        wait_until(log.exists)
        log.rename(desk.folder / "run.log.2")
        out, err = run.communicate(timeout=60)
    second = Ended(run.returncode, out, err)
    assert (first.code, second.code, second.err) == (0, 0, "")
    assert " ended outcome=sent" in log.read_text()
    assert " started " not in log.read_text()
    assert " started " in (desk.folder / "run.log.2").read_text()
    holds(desk, first, second, looks=False)


# ---------------------------------------------------------------------------------------------------------------- -q


def quietly(desk: Desk, *arguments: str) -> Ended:
    """One quiet run."""
    return run_once(desk, "-q", *arguments)


def test_a_quiet_run_says_nothing_when_all_is_well(desk: Desk) -> None:
    first, second = quietly(desk), quietly(desk)
    assert (first, second) == (Ended(0, "", ""), Ended(0, "", ""))
    assert desk.deliveries() == 1
    holds(desk, first, second)


@pytest.mark.parametrize("status", ["sending", "sent", "schedule"])
def test_a_quiet_run_says_nothing_of_what_others_have_sent_or_scheduled_in_time(
    bare: Desk, status: str
) -> None:
    more = {"send_time": f"{DAY}T09:00:00+00:00"} if status == "schedule" else {"emails_sent": 5}
    bare.sandbox.add_draft(f"Digest {DAY}", status=status, **more)
    first, second = quietly(bare), quietly(bare)
    assert (first, second) == (Ended(0, "", ""), Ended(0, "", ""))
    holds(bare, first, second, looks=False)


def test_a_quiet_run_says_nothing_of_warnings_either(desk: Desk) -> None:
    desk.env_file.chmod(0o644)
    assert quietly(desk) == Ended(0, "", "")


def test_a_refusal_is_said_once_and_again_only_when_it_changes(bare: Desk) -> None:
    first, second = quietly(bare), quietly(bare)
    assert (first.code, second.code) == (1, 1)
    assert "no campaign named" in first.err
    assert second.all == ""
    draft = bare.sandbox.add_draft(f"Digest {DAY}", type="rss")
    other, same = quietly(bare), quietly(bare)
    assert (other.code, same.code) == (1, 1)
    assert "rss" in other.err
    assert same.all == ""
    bare.sandbox.delete(draft)
    back = quietly(bare)
    assert back.code == 1
    assert "no campaign named" in back.err
    loud = run_once(bare)
    assert loud.err == back.err
    holds(bare, first, second, other, same, back, loud, looks=False)


def test_a_refusal_by_mailchimp_itself_is_said_once(desk: Desk) -> None:
    desk.sandbox.faults("post=400notready")
    first, second, third = quietly(desk), quietly(desk), quietly(desk)
    assert [e.code for e in (first, second, third)] == [1, 1, 1]
    assert "not ready to send" in first.err
    assert second.all == third.all == ""
    holds(desk, first, second, third, looks=False)


@pytest.mark.parametrize("faults", ["get=503bare", "post=429"])
def test_a_first_75_is_not_said_and_every_further_one_is(desk: Desk, faults: str) -> None:
    desk.sandbox.faults(faults)
    first, second, third = quietly(desk), quietly(desk), quietly(desk)
    assert [e.code for e in (first, second, third)] == [75, 75, 75]
    assert first.all == ""
    assert "HTTP" in second.err
    assert "HTTP" in third.err
    desk.sandbox.faults()
    done = quietly(desk)
    assert done == Ended(0, "", "")
    holds(desk, first, second, third, done, looks=False)


def test_a_75_that_could_not_be_recorded_is_said_at_once(desk: Desk) -> None:
    desk.write_env(SENDONCE_LOCK_WAIT_SECONDS="0")
    desk.sandbox.faults("post=slow:1.5")
    with desk.start("send-batch", "--date", DAY) as holder:
        wait_until(lambda: desk.record().get("state") == "sending")
        busy = desk.send("-q")
        out, err = holder.communicate(timeout=60)
    assert busy.code == 75
    assert f"pid {holder.pid}" in busy.err
    assert busy.err.splitlines()[1:] == ["What to do: sendonce runbook lease"]
    assert (holder.returncode, desk.deliveries()) == (0, 1)
    holds(desk, busy, Ended(0, out, err), looks=False)


def test_a_run_that_lost_its_lease_says_so_at_once_and_sends_nothing(desk: Desk) -> None:
    desk.sandbox.faults("get=slow:1 times=1")
    with desk.start("-q", "send-batch", "--date", DAY) as run:
        wait_until(desk.lock_file.exists)
        wait_until(lambda: len(desk.sandbox.calls()) > 0)
        broken = desk.run("lock", "break", "--yes")
        out, err = run.communicate(timeout=60)
    lost = Ended(run.returncode, out, err)
    assert (broken.code, lost.code, desk.sandbox.sends()) == (0, 75, 0), lost
    assert "lease" in lost.err
    done = quietly(desk)
    assert done == Ended(0, "", "")
    holds(desk, lost, done, looks=False)


@pytest.mark.parametrize("faults", ["get=401", "post=401"])
def test_what_is_unusable_is_said_every_time(desk: Desk, faults: str) -> None:
    desk.sandbox.faults(faults)
    first, second = quietly(desk), quietly(desk)
    assert (first.code, second.code) == (78, 78)
    assert "MAILCHIMP_API_KEY" in first.err
    assert "MAILCHIMP_API_KEY" in second.err
    holds(desk, first, second, looks=False)


def test_a_mailing_to_nobody_is_said_in_the_run_that_reads_it(bare: Desk) -> None:
    bare.sandbox.add_draft(f"Digest {DAY}", status="sent", emails_sent=0)
    first, second = quietly(bare), quietly(bare)
    assert first.code == 1
    assert "nobody" in first.err
    assert second.code == 0
    holds(bare, first, second, looks=False)


# ------------------------------------------------------------------------------------------------------------ --json


def story_of(desk: Desk, code: int) -> None:
    """Have the next run end with this code."""
    match code:
        case 0:
            desk.prepare()
        case 75:
            desk.sandbox.faults("get=503bare")
        case 78:
            desk.sandbox.faults("get=401")
        case _:
            pass


@pytest.mark.parametrize("is_quiet", [False, True], ids=["plain", "quiet"])
@pytest.mark.parametrize("code", [0, 1, 75, 78])
def test_with_json_a_run_prints_one_object_on_every_exit(bare: Desk, code: int, is_quiet: bool) -> None:
    story_of(bare, code)
    manner = ["--json", *(["-q"] if is_quiet else [])]
    ends = [bare.run(*manner, "send-batch", "--date", DAY), bare.run("send-batch", "--date", DAY, *manner)]
    for ended in ends:
        assert ended.code == code
        told = the_object(ended)
        assert told["message"]
        if code != 78:
            assert told["date"] == DAY
    bare.sandbox.faults()
    holds(bare, *ends, looks=False)


@pytest.mark.parametrize("is_quiet", [False, True], ids=["plain", "quiet"])
def test_with_json_every_command_prints_one_object(desk: Desk, is_quiet: bool) -> None:
    desk.send()
    commands = (
        *LOOKING,
        *(
            ["ledger", "verify"],
            ["lock", "break"],
            ["ledger", "show", "2026-01-01"],
            ["ledger", "list", "--since", "2027-01-01"],
        ),
        *(
            ["ledger", "rebuild", "--yes"],
            ["ledger", "reset", "--date", DAY, "--yes"],
            ["ledger", "reset", "--date", "2026-01-01", "--yes"],
        ),
    )
    for command in commands:
        ended = desk.run("--json", *(["-q"] if is_quiet else []), *command)
        told = the_object(ended)
        assert ended.out.count("\n") == 1, command
        assert told["exit"] in {0, 1}
    text = desk.ledger_file.read_text()
    desk.ledger_file.write_text(text[:-10])
    for command in (["ledger", "list"], ["ledger", "show", DAY], ["send-batch", "--date", DAY]):
        ended = desk.run("--json", *command)
        assert ended.code == 78
        assert str(desk.ledger_file) in str(the_object(ended)["message"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda s: s.name)
def test_with_json_a_run_that_is_stopped_prints_its_object(desk: Desk, number: signal.Signals) -> None:
    desk.sandbox.faults("get=slow:30")
    with desk.start("--json", "send-batch", "--date", DAY) as run:
        wait_until(lambda: len(desk.sandbox.calls()) > 0)
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    ended = Ended(run.returncode, out, err)
    assert ended.code == 75
    assert number.name in str(the_object(ended)["message"])
    desk.sandbox.faults()
    holds(desk, ended, looks=False)


def test_with_json_a_run_past_its_deadline_prints_one_object(desk: Desk) -> None:
    desk.write_env(SENDONCE_DEADLINE_SECONDS="5", SENDONCE_TIMEOUT_SECONDS="60")
    desk.sandbox.faults("get=stall-before")
    ended = desk.send("--json")
    assert ended.code == 75
    assert "SENDONCE_DEADLINE_SECONDS" in str(the_object(ended)["message"])
    assert desk.record()["attempts"][0]["outcome"] == "temporary"
    desk.sandbox.faults()
    holds(desk, ended, looks=False)


WRONG: tuple[list[str], ...] = (
    ["-v", "-q", "send-batch"], ["send-batch", "-v", "-q"], ["-q", "ledger", "list", "-v"], ["-v", "-q", "lock", "status"],
    ["send-batch", "--nonsense"], ["--nonsense", "send-batch"], ["send-batch", "-x"], ["nonsense"], ["ledger", "nonsense"],
    ["send-batch", "extra"], ["send-batch", "--date"], ["--job", "Not/A/Job", "send-batch"], ["--job", "", "send-batch"],
    ["send-batch", "--dry-run", "--wait"], ["ledger", "reset"], ["ledger", "reset", "--date", DAY], ["ledger", "list", "--state", "lost"],
    [], ["send-batch", "--json=yes"], ["send-batch", "--date", "2026-13-01"], ["sendbatch"],
)  # fmt: skip


@pytest.mark.parametrize("is_json", [False, True], ids=["plain", "JSON"])
def test_wrong_usage_is_2_with_nothing_on_standard_output_and_nothing_done(desk: Desk, is_json: bool) -> None:
    def wrong(arguments: list[str]) -> Ended:
        return desk.run(*(["--json"] if is_json else []), *arguments)

    for arguments, ended in zip(WRONG, together(WRONG, wrong), strict=True):
        assert (ended.code, ended.out) == (2, ""), (shlex.join(arguments), ended)
        assert "Error: " in ended.err
    assert desk.sandbox.calls() == []
    assert list(desk.state.iterdir()) == []


@pytest.mark.parametrize("arguments", [["ledger"], ["lock"]], ids=str)
def test_a_group_without_a_command_shows_its_help_and_that_is_wrong_usage(
    bare: Desk, arguments: list[str]
) -> None:
    ended = bare.run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: sendonce")
    assert "\nCommands:\n" in ended.err


# -------------------------------------------------------------------------------------------- which stream, which code


def test_results_go_to_standard_output_and_everything_else_to_standard_error(desk: Desk) -> None:
    desk.env_file.chmod(0o644)
    ended = run_once(desk, "-v")
    assert ended.out.startswith("Sent: ")
    assert ended.out.count("\n") == 1
    for event in (
        "started ",
        "lease taken ",
        "looked ",
        "sending ",
        "recorded state=sent",
        "ended outcome=sent",
        "Warning: ",
    ):
        assert event in ended.err
    plain = run_once(desk)
    assert "Warning: " in plain.err
    assert plain.out.count("\n") == 1
    holds(desk, ended, plain)


@pytest.mark.parametrize("code", [0, 1, 75, 78])
def test_a_dry_run_ends_as_the_run_would_and_does_nothing(bare: Desk, code: int) -> None:
    story_of(bare, code)
    dry = run_once(bare, "--dry-run")
    assert (dry.code, bare.sandbox.sends(), list(bare.state.iterdir())) == (code, 0, [])
    wet = run_once(bare)
    assert wet.code == code
    bare.sandbox.faults()
    holds(bare, dry, wet, looks=False)


@pytest.mark.parametrize("manner", [["-v"], ["--json"], ["-v", "--json"]], ids=" ".join)
def test_no_command_shows_the_key(desk: Desk, manner: list[str]) -> None:
    ends = [
        desk.run(*manner, *arguments)
        for arguments in (["send-batch", "--date", DAY], *LOOKING, ["ledger", "verify"])
    ]
    assert {e.code for e in ends} == {0}
    shows_nothing_of(desk.values["MAILCHIMP_API_KEY"], *(e.all for e in ends), folder=desk.folder)
    arguments = Path("/proc/self/cmdline").read_bytes()
    assert desk.values["MAILCHIMP_API_KEY"].encode() not in arguments
