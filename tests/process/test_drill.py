"""`sendonce drill`: what is drilled, what it finds where a protocol is broken, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sendonce.core.errors import Unusable
from sendonce.core.model import Source
from sendonce.drill import FAULTS, Report, Times, Way, play, steps_of
from support.interrupts import GOOD_RUN
from support.processes import children, is_alive
from support.runs import COMMAND, LIMIT_S, Ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WIDTH = 80
LONG_TIMES = Times(timeout_s=130, settle_s=180, listing_s=30)
DRAFT = Way(Source.DRAFT, "daily", "{job} {date}", "", is_for_one_audience=False, times=LONG_TIMES)
ONE_CELL = ("--quick", "--step", "checklist")
"""The drill that takes the least time."""

STEPS = {
    "draft": ["list", "checklist", "send", "read-back"],
    "replicate": [
        *("list", "read-source", "read-source-content", "create", "write-content", "read-content", "read"),
        *("list-again", "checklist", "send", "read-back"),
    ],
    "html": [
        *("list", "create", "write-content", "read-content", "read", "list-again"),
        *("checklist", "send", "read-back"),
    ],
}


def start(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """Start `sendonce drill` in a session of its own, with `folder` for its scratch files."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SENDONCE_", "MAILCHIMP_"))}
    return subprocess.Popen(
        [*COMMAND, "drill", *arguments],
        env={**kept, "TMPDIR": str(scratch), **environ},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *arguments: str, **environ: str) -> Ended:
    """Drill to the end."""
    with start(folder, *arguments, **environ) as process:
        out, err = process.communicate(timeout=LIMIT_S)
    return Ended(process.returncode, out, err)


def left_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / "scratch").iterdir()]


class Watched:
    """A drill's lines."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str, style: str = "") -> None:
        self.said.append(text)

    def progress(self, done: int, of: int) -> None:
        assert 0 <= done <= of


def stand_in(folder: Path, *lines: str) -> Sequence[str]:
    """A command that is `sendonce` with something else about it: `lines` come before its `main`."""
    script = folder / "stand_in.py"
    script.write_text(
        "\n".join(["import os, sys, time", *lines, "from sendonce.__main__ import main", "main()"])
    )
    return [sys.executable, "-P", str(script)]


def wrongs(report: Report) -> dict[tuple[str, str], str]:
    return {(cell.step, cell.fault.name): cell.wrong for cell in report.cells if cell.wrong}


# --- it passes


@pytest.mark.parametrize(
    "source",
    [
        "draft",
        pytest.param("html", marks=pytest.mark.wide),
        pytest.param("replicate", marks=pytest.mark.full),
    ],
)
def test_a_quick_drill_hits_each_step_and_finds_one_delivery_each_time(source: str, tmp_path: Path) -> None:
    ended = run(tmp_path, "--quick", "--json", "--source", source)
    assert (ended.code, ended.err) == (0, "")
    told = json.loads(ended.out)
    assert {k: told[k] for k in ("version", "command", "exit", "source", "is_quick")} == {
        "version": 1,
        "command": "drill",
        "exit": 0,
        "source": source,
        "is_quick": True,
    }
    assert told["steps"] == STEPS[source]
    assert {cell["step"] for cell in told["cells"]} == set(STEPS[source])
    assert [cell["fault"] for cell in told["cells"] if cell["step"] == "send"] == [
        *("killed-before", "killed-after", "lost-after", "stalled"),
    ]
    assert {(cell["deliveries"], cell["wrong"]) for cell in told["cells"]} == {(1, None)}
    count = len(told["cells"])
    assert (told["good"], told["of"]) == (count, count)
    assert told["message"].startswith(f"One delivery in {count} of {count}:")
    # whoever was killed needed another run, and the reruns are those after the first
    codes = {cell["fault"]: cell["exit_codes"] for cell in told["cells"]}
    assert codes["killed-after"] == [-9, 0]
    assert all(cell["reruns"] == len(cell["exit_codes"]) - 1 for cell in told["cells"])
    assert left_in(tmp_path) == []


def test_a_drill_of_one_step_meets_all_six_faults_in_a_table_of_80_columns(tmp_path: Path) -> None:
    ended = run(tmp_path, "--step", "send", "--source", "draft")
    assert (ended.code, ended.err) == (0, "")
    assert max(map(len, ended.out.splitlines())) <= WIDTH
    assert "\x1b" not in ended.out
    rows = re.findall(r"^send +(\S.*\S) +(\d+) +1$", ended.out, re.MULTILINE)
    assert [fault for fault, _ in rows] == [fault.said for fault in FAULTS]
    assert len(rows) == 6
    assert all(int(reruns) >= 1 for _, reruns in rows[:2]), "who was killed needed another run"
    assert "TIMEOUT 130 as 2.17 s, SETTLE 180 as 3 s, LISTING 30 as 0.5 s" in " ".join(ended.out.split())
    assert ended.out.splitlines()[-1].startswith("One delivery in 6 of 6:")


def test_a_drill_on_a_terminal_shows_how_far_it_is_and_leaves_the_table(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    (tmp_path / "scratch").mkdir()
    with subprocess.Popen(
        [*COMMAND, "drill", "--source", "draft", *ONE_CELL],
        env={**os.environ, "TERM": "xterm", "TMPDIR": str(tmp_path / "scratch")},
        cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = _all_of(ours)
    assert process.returncode == 0
    assert "0/1" in shown
    assert re.search(r"checklist +killed after Mailchimp acted +1 +1\r\n", shown)
    assert "One delivery in 1 of 1" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is back"


def _all_of(terminal: int) -> str:
    shown = b""
    try:
        while more := os.read(terminal, 4096):
            shown += more
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(terminal)
    return shown.decode()


# --- whose way of sending


def test_a_drill_takes_source_title_and_times_of_the_settings_and_nothing_else(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (tmp_path / ".env").write_text(f"""\
MAILCHIMP_API_KEY=5ec4e75ec4e75ec4e75ec4e75ec4e75e-us1
MAILCHIMP_API_URL=http://127.0.0.1:9/3.0
SENDONCE_STATE={state}
SENDONCE_LOG_FILE={tmp_path}/log
SENDONCE_TIMEZONE=Pacific/Kiritimati
SENDONCE_TITLE='News [{{date:%Y%m%d}}]'
SENDONCE_SETTLE_SECONDS=6
SENDONCE_TIMEOUT_SECONDS=4
""")
    (tmp_path / ".env").chmod(0o600)
    ended = run(tmp_path, *ONE_CELL, "--json")
    told = json.loads(ended.out)
    assert (ended.code, told["source"], told["of"]) == (0, "draft", 1)
    # the longest of them, LISTING with its default of 30, is brought down to 1.5; none below its limit of 1
    assert told["times"] == {"timeout_s": 1.0, "settle_s": 1.0, "listing_s": 1.5}
    text = run(tmp_path, *ONE_CELL).out
    assert 'title "News [{date:%Y%m%d}]"' in text
    assert "5ec4e7" not in ended.all + text
    assert sorted(path.name for path in tmp_path.iterdir()) == [".env", "scratch", "state"]
    assert list(state.iterdir()) == []
    assert left_in(tmp_path) == []


def test_the_command_that_is_drilled_gets_their_patterns_and_a_key_that_is_made_up(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    way = Way(
        Source.HTML,
        "digest",
        "The {job} {date}",
        "All of {date:%d %B}",
        is_for_one_audience=True,
        times=LONG_TIMES,
    )
    copying = f"open({str(seen)!r}, 'w').write(open(sys.argv[sys.argv.index('--env-file') + 1]).read())"
    report = play(way, Watched(), step="list", is_quick=True, command=stand_in(tmp_path, copying))
    assert (report.good, wrongs(report)) == (1, {})
    got = seen.read_text().splitlines()
    assert "MAILCHIMP_API_KEY=thisisamadeupkeyforthesandbox-us1" in got
    assert "SENDONCE_JOB=digest" in got
    assert "SENDONCE_TITLE='The {job} {date}'" in got
    assert "SENDONCE_SUBJECT='All of {date:%d %B}'" in got
    assert "SENDONCE_SETTLE_SECONDS=1.5" in got


@pytest.mark.parametrize(
    ("given", "shortened"),
    [
        (Times(130, 180, 30), Times(2.17, 3.0, 0.5)),
        (Times(2, 1, 0), Times(2, 1, 0)),
        (Times(1, 3600, 600), Times(1.0, 3.0, 0.5)),
        (Times(3, 30, 300), Times(1.0, 1.0, 3.0)),
    ],
)
def test_waiting_times_are_shortened_in_their_proportions_and_never_made_longer(
    given: Times, shortened: Times
) -> None:
    assert given.shortened(3) == shortened


@pytest.mark.parametrize("source", STEPS)
def test_steps_are_named_for_what_a_request_is_for(source: str) -> None:
    steps = steps_of(GOOD_RUN[source])
    assert [step.name for step in steps] == STEPS[source]
    assert [step.nth for step in steps] == list(range(1, len(steps) + 1))


# --- it finds what is wrong

MAILS_BY_HAND = """\
import atexit, http.client, json, re
def mail():
    env = open(sys.argv[sys.argv.index("--env-file") + 1]).read()
    port = re.search("API_URL=http://127.0.0.1:([0-9]+)", env)[1]
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    title = "daily " + sys.argv[sys.argv.index("--date") + 1]
    connection.request("POST", "/sandbox/campaigns", json.dumps({"title": title, "status": "sent"}))
    connection.getresponse().read()
atexit.register(mail)
"""

TAKES_UNCLEAR_FOR_SENT = """\
from sendonce.core.batch import Run
Run._unclear = lambda self, campaign, entry, said: self._accepted(campaign, entry)
"""

GIVES_UP_ON_WHAT_IT_FINDS = """\
state = os.path.join(os.path.dirname(sys.argv[sys.argv.index("--env-file") + 1]), "state")
if os.path.exists(os.path.join(state, "daily.lock")):
    print("somebody else is at it")
    sys.exit(1)
"""

LEAVES_A_FILE = """\
import atexit
state = os.path.join(os.path.dirname(sys.argv[sys.argv.index("--env-file") + 1]), "state")
atexit.register(lambda: open(os.path.join(state, "daily.json.tmp"), "w").close())
"""


def test_a_command_that_mails_twice_is_found_out(tmp_path: Path) -> None:
    watched = Watched()
    command = stand_in(tmp_path, MAILS_BY_HAND)
    report = play(DRAFT, watched, step="checklist", is_quick=True, command=command)
    # the rerun sends it, and mails another by hand; so does the one more when it is done
    assert [cell.deliveries for cell in report.cells] == [3]
    assert wrongs(report) == {("checklist", "killed-after"): "3 deliveries"}
    assert not report.is_good
    assert (
        report.message
        == "This is not as it should be: one delivery in 0 of 1. Wrong: checklist killed-after."
    )
    assert "\n    WRONG: 3 deliveries" in watched.said[-2]
    assert watched.said[-1] == f"\n{report.message}"


def test_a_command_that_takes_an_unclear_answer_for_a_yes_is_found_out(tmp_path: Path) -> None:
    report = play(DRAFT, Watched(), step="send", command=stand_in(tmp_path, TAKES_UNCLEAR_FOR_SENT))
    found = wrongs(report)
    assert set(found) == {("send", "lost-before")}
    wrong = found["send", "lost-before"]
    assert re.fullmatch("0 deliveries; the ledger names campaign [0-9a-f]+, which was not delivered", wrong)
    assert (report.good, len(report.cells)) == (5, 6)


def test_a_command_that_never_goes_on_after_a_death_is_found_out(tmp_path: Path) -> None:
    command = stand_in(tmp_path, GIVES_UP_ON_WHAT_IT_FINDS)
    (cell,) = play(DRAFT, Watched(), step="checklist", is_quick=True, command=command).cells
    assert cell.codes == (-9, 1)
    assert cell.wrong == (
        '0 deliveries; the ledger says "ready"; a run ended with exit code 1: somebody else is at it; '
        "left behind in the state folder: daily.lock; "
        "the next day ended with exit code 1: somebody else is at it"
    )


@pytest.mark.full
def test_a_command_that_always_asks_for_another_run_is_found_out(tmp_path: Path) -> None:
    puts_off = GIVES_UP_ON_WHAT_IT_FINDS.replace("exit(1)", "exit(75)")
    (cell,) = play(
        DRAFT, Watched(), step="checklist", is_quick=True, command=stand_in(tmp_path, puts_off)
    ).cells
    assert cell.codes == (-9, *[75] * 12)
    assert "not done after 12 reruns: somebody else is at it" in cell.wrong


def test_a_command_that_leaves_files_behind_is_found_out(tmp_path: Path) -> None:
    command = stand_in(tmp_path, LEAVES_A_FILE)
    report = play(DRAFT, Watched(), step="checklist", is_quick=True, command=command)
    assert wrongs(report) == {
        ("checklist", "killed-after"): "left behind in the state folder: daily.json.tmp"
    }


def test_nothing_is_drilled_where_not_even_an_undisturbed_send_gets_through(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "sys.exit('no luck today')")
    with pytest.raises(Unusable, match="nothing was drilled: exit code 1: no luck today"):
        play(DRAFT, Watched(), is_quick=True, command=command)


# --- bad input


def test_an_unknown_step_is_wrong_usage_before_anything_is_read_or_started(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("this is not a setting\n")
    ended = run(tmp_path, "--step", "sned")
    assert (ended.code, ended.out) == (2, "")
    assert "There is no step 'sned'. The steps: list, read-source, " in ended.err


def test_a_step_that_this_source_does_not_have_is_wrong_usage(tmp_path: Path) -> None:
    ended = run(tmp_path, "--step", "create", "--source", "draft")
    assert ended.code == 2
    assert "source draft has no step 'create'. Its steps: list, checklist, send, read-back." in ended.err
    assert left_in(tmp_path) == []


def test_without_settings_a_source_must_be_named(tmp_path: Path) -> None:
    ended = run(tmp_path)
    assert (ended.code, ended.out) == (78, "")
    assert ended.err.splitlines()[1:] == ["What to do: sendonce runbook settings"]
    assert f"no {tmp_path}/.env" in ended.err
    assert "--env-file" in ended.err
    assert "--source draft, replicate or html" in ended.err


def test_settings_with_faults_are_not_drilled_even_if_a_source_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SENDONCE_TITLE=The same each day\n")
    (tmp_path / ".env").chmod(0o600)
    ended = run(tmp_path, "--source", "draft")
    assert (ended.code, ended.out) == (78, "")
    assert "does not identify the date" in ended.err


MAY_NOT_KILL = """
import sys
def watch(event, arguments):
    if event == "os.kill" and "drill" in sys.orig_argv:
        raise PermissionError(1, "Operation not permitted")
sys.addaudithook(watch)
"""


def test_where_nothing_may_be_killed_the_drill_says_so_and_ends_what_it_started(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(MAY_NOT_KILL)
    with start(tmp_path, "--source", "draft", *ONE_CELL, PYTHONPATH=str(hook)) as process:
        started: set[int] = set()
        while process.poll() is None:
            started |= set(children(process.pid))
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 78
    assert err.splitlines()[1:] == ["What to do: sendonce runbook drill"]
    assert "may not kill the command that it started" in err
    assert started
    assert not any(map(is_alive, started))
    assert left_in(tmp_path) == []


# --- the end


@pytest.mark.parametrize("is_whole_group", [True, False], ids=["as-the-terminal-does", "to-it-alone"])
def test_ctrl_c_ends_a_drill_and_everything_it_started(tmp_path: Path, is_whole_group: bool) -> None:
    with start(tmp_path, "--source", "html") as process:
        started = _once_it_kills(process)
        (os.killpg if is_whole_group else os.kill)(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 75
    assert err == "Interrupted. Run again, that is safe.\nWhat to do: sendonce runbook interrupted\n"
    wait_until(lambda: not any(map(is_alive, started)), what="sandboxes and runs are gone")
    assert left_in(tmp_path) == []


def test_a_drill_that_is_killed_takes_its_sandboxes_along(tmp_path: Path) -> None:
    with start(tmp_path, "--source", "draft") as process:
        started = _once_it_kills(process)
        process.kill()
        process.communicate(timeout=LIMIT_S)
    wait_until(lambda: not any(map(is_alive, started)), within_s=60, what="they end by themselves")


def _once_it_kills(process: subprocess.Popen[str]) -> list[int]:
    """Wait until cells are at work; every process below."""
    assert process.stdout is not None
    while not process.stdout.readline().startswith("----"):
        assert process.poll() is None
    wait_until(lambda: len(children(process.pid)) > 6, what="six sandboxes and a run")
    return children(process.pid)
