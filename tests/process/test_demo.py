"""`sendonce demo` and `sendonce sandbox`: what a newcomer tries first, in real processes of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sendonce.demo import READERS, DayCount, Verdict
from support.processes import children, is_alive
from support.runs import COMMAND, LIMIT_S, Ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 80
GOOD = DayCount("2026-01-05", asked=1, accepted=1, mails=READERS, people=READERS, most_to_one=1)

# Runs as the demo's last command, before it lists the ledger: somebody mails today's campaign a second time.
SABOTAGE = """
import http.client, json, sys
from urllib.parse import urlsplit
if sys.orig_argv[-2:] == ["ledger", "list"]:
    env = open(sys.orig_argv[sys.orig_argv.index("--env-file") + 1]).read()
    url = env.partition("MAILCHIMP_API_URL=")[2].split()[0]
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port)
    connection.request("GET", "/sandbox/mailbox")
    title = max(json.loads(connection.getresponse().read())["titles"])
    connection.request("POST", "/sandbox/campaigns", json.dumps({"title": title, "status": "sent"}))
    connection.getresponse().read()
    connection.close()
"""


def start(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """Start a command in its own session, with `folder` for its scratch files."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SENDONCE_", "MAILCHIMP_"))}
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={**kept, "TMPDIR": str(scratch), **environ},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *arguments: str, **environ: str) -> Ended:
    """Run a command to its end."""
    with start(folder, *arguments, **environ) as process:
        out, err = process.communicate(timeout=LIMIT_S)
    return Ended(process.returncode, out, err)


def left_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / "scratch").iterdir()]


@contextmanager
def sandbox(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `sendonce sandbox`, with the text it printed."""
    process = start(folder, "sandbox", *arguments)
    try:
        lines: list[str] = []
        assert process.stdout is not None
        while "/sandbox/faults" not in "".join(lines):
            lines.append(process.stdout.readline())
            assert lines[-1], "the sandbox ended before it said all"
        yield process, "".join(lines)
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)


def shell(folder: Path, *lines: str) -> Ended:
    """Run lines in a shell as pasted, without anything of ours in the environment."""
    ended = subprocess.run(
        ["/bin/sh", "-e", "-c", "\n".join(lines)],
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@dataclass(frozen=True)
class Played:
    """A demo that was played to its end, the processes it started, and the files it left."""

    ended: Ended
    started: frozenset[int]
    left: tuple[str, ...]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demo")
    started: set[int] = set()
    with start(folder, "demo", COLUMNS="200", FORCE_COLOR="1") as process:
        while process.poll() is None:
            started |= set(children(process.pid))
        out, err = process.communicate(timeout=LIMIT_S)
    return Played(Ended(process.returncode, out, err), frozenset(started), tuple(left_in(folder)))


# --- the demo


def test_demo_shows_one_delivery_for_each_of_three_days(played: Played) -> None:
    ended = played.ended
    assert (ended.code, ended.err) == (0, "")
    mailboxes = ended.out.partition("readers' mailboxes\n")[2].splitlines()
    days = [line.split()[0] for line in mailboxes[:3]]
    assert [line.split(maxsplit=1)[1] for line in mailboxes[:3]] == [
        "100 mails to 100 people, nobody got it twice"
    ] * 3
    last = date.fromisoformat(days[-1])
    assert days == [(last - timedelta(days=back)).isoformat() for back in (2, 1, 0)]
    assert mailboxes[-1] == "3 days, 3 deliveries: each day's campaign went out once, and once only."


def test_demo_shows_what_each_run_said_and_what_was_on_record_after_the_kill(played: Played) -> None:
    out = played.ended.out
    quotes = re.findall(r"^   > (\S+ \S+ \S+)", out, re.MULTILINE)
    today = re.findall(r"\d{4}-\d\d-\d\d", out)[0]
    killed = (date.fromisoformat(today) - timedelta(days=2)).isoformat()
    assert quotes == [
        'Sent: "Daily news',
        f"{today} was already",
        "Mailchimp shows it",
        f"{killed}: started, outcome",
        "Mailchimp shows it",
    ]
    # in the ledger all three are sent, and the killed one took two runs
    rows = re.findall(r"^ (\d{4}-\d\d-\d\d) +(\w+) .* (\d+) +(\d+)$", out, re.MULTILINE)
    assert [row[1:] for row in rows] == [("sent", "100", "2"), ("sent", "100", "1"), ("sent", "100", "1")]


def test_demo_fits_80_columns_and_is_plain_without_a_terminal(played: Played) -> None:
    assert max(map(len, played.ended.out.splitlines())) <= WIDTH
    assert "\x1b" not in played.ended.out


def test_demo_leaves_neither_files_nor_processes(played: Played) -> None:
    assert played.started
    assert [pid for pid in played.started if is_alive(pid)] == []
    assert played.left == ()


@pytest.mark.parametrize(
    ("number", "step"), [(signal.SIGINT, "1. An"), (signal.SIGTERM, "4. The"), (signal.SIGHUP, "4. The")]
)
def test_a_signal_ends_the_demo_and_everything_it_started(
    tmp_path: Path, number: signal.Signals, step: str
) -> None:
    with start(tmp_path, "demo") as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith(step):
            assert process.poll() is None
        started = children(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 75
    assert err == "Interrupted. Run again, that is safe.\nWhat to do: sendonce runbook interrupted\n"
    assert started
    wait_until(lambda: not any(map(is_alive, started)), what="the sandbox and the run at work are gone")
    assert left_in(tmp_path) == []


def test_a_demo_that_is_killed_takes_its_sandbox_along(tmp_path: Path) -> None:
    with start(tmp_path, "demo") as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = children(process.pid)
        process.kill()
        process.communicate(timeout=LIMIT_S)
    assert started
    wait_until(lambda: not any(map(is_alive, started)), what="the sandbox ends by itself")


def test_demo_reads_and_touches_nothing_of_the_users(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    env_file = tmp_path / ".env"
    env_file.write_text("this is not a setting\n")
    log = tmp_path / "log"
    ended = run(
        tmp_path,
        "demo",
        SENDONCE_ENV_FILE=str(env_file),
        SENDONCE_STATE=str(state),
        SENDONCE_LOG_FILE=str(log),
        SENDONCE_SOURCE="html",
        SENDONCE_TIMEZONE="Nowhere/Atall",
        MAILCHIMP_API_KEY="5ec4e75ec4e75ec4e75ec4e75ec4e75e-us1",
        MAILCHIMP_API_URL="http://127.0.0.1:9/3.0",
    )
    assert ended.code == 0
    assert "5ec4e7" not in ended.all
    assert env_file.read_text() == "this is not a setting\n"
    assert list(state.iterdir()) == []
    assert not log.exists()


def test_demo_runs_beside_files_named_like_modules(tmp_path: Path) -> None:
    for name in ("click", "json", "sendonce"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    script = shutil.which("sendonce", path=str(Path(COMMAND[0]).parent))
    assert script is not None, "the console script is not installed"
    ended = subprocess.run([script, "-q", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_demo_says_so_with_1_if_a_day_was_mailed_twice(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SABOTAGE)
    ended = run(tmp_path, "demo", PYTHONPATH=str(tmp_path))
    assert ended.code == 1
    lines = ended.out.splitlines()
    today = lines[-3].split()[0]
    assert lines[-3] == f" {today}   200 mails to 100 people, some got it 2 times"
    assert lines[-1] == f"This is not as it should be: not exactly one delivery for {today}."
    quiet = run(tmp_path, "demo", "-q", PYTHONPATH=str(tmp_path))
    assert (quiet.code, quiet.out) == (1, "")
    assert "not exactly one delivery" in quiet.err


def test_demo_tells_the_counts_as_one_json_object(tmp_path: Path) -> None:
    ended = run(tmp_path, "--json", "demo")
    told = json.loads(ended.out)
    assert (ended.code, told["version"], told["command"], told["exit"]) == (0, 1, "demo", 0)
    counted = {"asked": 1, "accepted": 1, "mails": 100, "people": 100, "most_to_one": 1}
    assert [{k: v for k, v in day.items() if k != "date"} for day in told["days"]] == [counted] * 3
    assert len({day["date"] for day in told["days"]}) == 3


def test_demo_with_v_tells_the_steps_of_each_run(tmp_path: Path) -> None:
    out = run(tmp_path, "demo", "-v").out
    assert out.count("> sending campaign=") == 2  # the killed run is not shown, the other two found it sent
    assert out.count("answered answer=Unclear") == 1


@pytest.mark.parametrize("command", ["demo", "sandbox"])
@pytest.mark.parametrize("option", ["--env-file=x.env", "--job=digest"])
def test_settings_given_to_what_brings_its_own_are_wrong_usage(
    tmp_path: Path, command: str, option: str
) -> None:
    for arguments in ([command, option], [option, command]):
        ended = run(tmp_path, *arguments)
        assert ended.code == 2
        assert f"{command} has settings of its own" in ended.err


@pytest.mark.parametrize(
    "changed",
    [
        {"asked": 2},
        {"accepted": 0},
        {"asked": 2, "accepted": 2, "mails": 200, "most_to_one": 2},
        {"mails": 99},
        {"mails": 99, "people": 99},
        {"mails": 101, "most_to_one": 2},
        {"mails": 0, "people": 0, "most_to_one": 0},
    ],
)
def test_only_one_delivery_to_everybody_is_good(changed: dict[str, Any]) -> None:
    bad = DayCount(**{**vars(GOOD), "date": "2026-01-04", **changed})
    verdict = Verdict((bad, GOOD), ())
    assert not verdict.is_good
    assert verdict.message == "This is not as it should be: not exactly one delivery for 2026-01-04."
    assert Verdict((GOOD,), ()).is_good


def test_a_run_that_ends_otherwise_than_told_is_not_good() -> None:
    verdict = Verdict((GOOD,), (75,))
    assert not verdict.is_good
    assert verdict.message.endswith("runs ended with exit code 75.")


# --- the sandbox


def test_what_the_sandbox_prints_can_be_pasted(tmp_path: Path) -> None:
    with sandbox(tmp_path, "--audience", "7") as (_, text):
        exports = re.findall(r"^export .*$", text, re.MULTILINE)
        commands = re.findall(r"^.* send-batch.*$|^.* ledger list$", text, re.MULTILINE)
        first, second, third = (shell(tmp_path, *exports, one) for one in commands[:3])
        listed = shell(tmp_path, *exports, commands[3])
    title = re.findall(r'A campaign "(Daily news [\d-]+)" for 7 people is ready', text)[0]
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith(f'Would send "{title}"')
    assert second.out.startswith(f'Sent: "{title}"')
    assert "was already sent" in third.out
    assert title.removeprefix("Daily news ") in listed.out


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines are for curl")
def test_the_curl_lines_of_the_sandbox_do_what_it_says(tmp_path: Path) -> None:
    with sandbox(tmp_path) as (_, text):
        add, mailbox, fault = (f"{line} -s" for line in re.findall(r"^curl .*$", text, re.MULTILINE))
        title = json.loads(shell(tmp_path, add).out)["title"]
        ordered = json.loads(shell(tmp_path, fault).out)["faults"]
        exports = re.findall(r"^export .*$", text, re.MULTILINE)
        send = re.findall(r"^.* send-batch$", text, re.MULTILINE)[0]
        day = title.removeprefix("Daily news ")
        sent = shell(tmp_path, *exports, f"{send} --early --date {day}")
        told = json.loads(shell(tmp_path, mailbox).out)
    assert [(rule["on"], rule["word"], rule["times"]) for rule in ordered] == [("send", "accept-reset", 1)]
    assert sent.out.startswith("Mailchimp shows it as sent")
    assert told["titles"][title] == {"deliveries": 100, "distinct": 100, "more_than_once": 0, "most": 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_sandbox_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with sandbox(tmp_path) as (process, text):
        assert len(left_in(tmp_path)) == 1
        process.send_signal(number)
        _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (0, "")
    assert "http://127.0.0.1:" in text
    assert left_in(tmp_path) == []


def test_sandbox_takes_nothing_of_the_users_and_keeps_the_desk_private(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("this is not a setting\n")
    with sandbox(tmp_path, "--draft", "Something else") as (_, text):
        folder = Path(re.findall(r"^export SENDONCE_ENV_FILE=(.*)/\.env$", text, re.MULTILINE)[0])
        modes = {p.name: p.stat().st_mode & 0o777 for p in (folder, folder / ".env", folder / "state")}
    assert list(modes.values()) == [0o700, 0o600, 0o700]


def test_sandbox_tells_its_settings_as_one_json_object(tmp_path: Path) -> None:
    with start(tmp_path, "sandbox", "--json") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        process.terminate()
        rest, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, rest) == (0, "")
    assert told["settings"]["MAILCHIMP_API_URL"] == told["url"]
    assert Path(told["settings"]["SENDONCE_STATE"]).parent == Path(told["env_file"]).parent


def test_a_port_that_is_taken_is_78_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(tmp_path, "sandbox", "--port", str(port))
    assert (ended.code, ended.out) == (78, "")
    assert f"port {port}" in ended.err
    assert left_in(tmp_path) == []
