"""`ledger calendar` and `ledger report` through the real command: terminals, locales, files."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.past import NASTY, write_job
from support.runs import COMMAND, LIMIT_S, Ended, _coverage

if TYPE_CHECKING:
    from collections.abc import Callable

BATCHES: dict[str, Any] = {
    "2025-11-03": {
        "state": "sent",
        "campaigns": [
            {"id": "1a2b3c4d5e", "title": NASTY, "emails_sent": 12, "sent_at": "2025-11-03T07:00:05Z"}
        ],
    },
    "2025-11-04": {"state": "refused", "reason": "No campaign."},
    "2025-11-06": {"state": "skipped", "reason": "holiday"},
}
RESETS: list[dict[str, Any]] = [
    {"date": "2025-11-05", "at": "2025-11-05T09:00:00Z", "by": "root@web1", "reason": "deleted", "was": {}}
]
ASCII = """\
       November 2025
Mo  Tu  We  Th  Fr  Sa  Su
                     1   2
 3+  4x  5!  6-  7!  8!  9!
10! 11! 12! 13! 14! 15! 16!
17! 18! 19! 20! 21! 22! 23!
24! 25! 26! 27! 28! 29! 30!

+ sent 1   o sent to nobody 0   x refused 1   ? unclear 0   ! missing 25
- skipped 1   @ scheduled 0   ~ begun 0   . not yet 0
"""


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return write_job(tmp_path / "job", BATCHES, RESETS)


def run(env_file: Path, *words: str, **environ: str) -> Ended:
    done = subprocess.run(
        [*COMMAND, "--env-file", str(env_file), "ledger", *words],
        env={"PATH": "/usr/bin:/bin", **_coverage(), **environ},
        cwd="/",
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_on_a_terminal(env_file: Path, *words: str, **environ: str) -> str:
    """What a terminal of 80 columns gets."""
    ours, theirs = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen(
        [*COMMAND, "--env-file", str(env_file), "ledger", *words],
        env={"PATH": "/usr/bin:/bin", "TERM": "xterm", **_coverage(), **environ},
        stdout=theirs,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # EIO: the other side is closed, which is how a terminal's end reads
            pass
        finally:
            os.close(ours)
        assert (process.wait(LIMIT_S), process.stderr.read() if process.stderr else b"") == (0, b"")
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="cron, which sets no locale"),
        pytest.param({"LANG": "C"}, id="the C locale"),
        pytest.param({"LC_ALL": "POSIX"}, id="POSIX"),
        pytest.param({"LANG": "C.UTF-8", "PYTHONIOENCODING": "ascii"}, id="a stream in ASCII"),
    ],
)
def test_without_utf_8_the_calendar_is_in_ascii(env_file: Path, environ: dict[str, str]) -> None:
    shown = run(env_file, "calendar", "--month", "2025-11", **environ)
    first, _, rest = shown.out.partition("\n\n")
    assert (shown.code, shown.err, rest) == (0, "", ASCII)
    assert re.fullmatch(r"Job daily; today is \d{4}-\d\d-\d\d \(Europe/Berlin\)\.", first)


def test_with_utf_8_it_has_its_own_signs_and_no_colour_in_a_pipe(env_file: Path) -> None:
    shown = run(env_file, "calendar", "--month", "2025-11", LANG="C.UTF-8", TERM="xterm").out
    assert shown.partition("\n\n")[2] == ASCII.replace("3+  4x", "3✓  4✗").replace("+ s", "✓ s").replace(
        "o sent", "∅ sent"
    ).replace("x r", "✗ r")


def test_a_terminal_gets_colour_and_the_same_text(env_file: Path) -> None:
    words = ("calendar", "--month", "2025-11")
    shown = run_on_a_terminal(env_file, *words, LANG="C.UTF-8")
    assert "\033[32m 3✓\033[0m \033[31m 4✗\033[0m \033[1;33m 5!\033[0m \033[36m 6-\033[0m" in shown
    plain = run(env_file, *words, LANG="C.UTF-8").out
    assert re.sub(r"\033\[[0-9;]*m", "", shown) == plain
    assert max(map(len, plain.splitlines())) <= 80


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_declined(env_file: Path, environ: dict[str, str]) -> None:
    assert "\033" not in run_on_a_terminal(env_file, "calendar", **environ)


def test_an_empty_no_color_declines_nothing(env_file: Path) -> None:
    assert "\033" in run_on_a_terminal(env_file, "calendar", "--year", "2025", NO_COLOR="")


def test_the_calendar_as_json(env_file: Path) -> None:
    told = json.loads(run(env_file, "calendar", "--month", "2025-11", "--json").out)
    assert (told["command"], told["exit"]) == ("ledger calendar", 0)
    assert told["days"][:4] == [
        {"date": "2025-11-03", "mark": "sent"},
        {"date": "2025-11-04", "mark": "refused"},
        {"date": "2025-11-05", "mark": "missing"},
        {"date": "2025-11-06", "mark": "skipped"},
    ]
    assert len(told["days"]) == 28
    assert (told["totals"]["missing"], told["totals"]["unclear"]) == (25, 0)


def test_the_latest_months_fit_into_80_columns(env_file: Path) -> None:
    shown = run_on_a_terminal(env_file, "calendar", NO_COLOR="1")
    assert len(re.findall("Mo  Tu  We  Th  Fr  Sa  Su", shown)) == 3
    assert max(map(len, shown.splitlines())) <= 80


def test_what_the_file_of_holidays_names_is_skipped(env_file: Path, tmp_path: Path) -> None:
    holidays = tmp_path / "holidays.txt"
    holidays.write_text("2025-11-05 our day\n2025-11-08..2025-11-09\n")
    with env_file.open("a") as file:
        file.write(f"SENDONCE_SKIP_DATES='{holidays}'\n")
    shown = run(env_file, "calendar", "--month", "2025-11").out
    assert " 3+  4x  5-  6-  7!  8-  9-\n" in shown
    assert "our day" in run(env_file, "report", "--html", "-").out
    holidays.write_text("Christmas\n")
    told = run(env_file, "calendar", "--month", "2025-11")
    assert (told.code, " 3+  4x  5!  6-  7!  8!  9!\n" in told.out) == (0, True)
    assert "holidays.txt line 1: 'Christmas' is not clear" in told.err


def test_an_empty_ledger_has_a_calendar_and_a_page(tmp_path: Path) -> None:
    env_file = write_job(tmp_path / "job", {})
    assert "+ sent 0   " in run(env_file, "calendar").out
    assert "Nothing on record." in run(env_file, "report", "--html", "-").out


@pytest.mark.parametrize(
    "words",
    [
        ["calendar", "--month", "2025-13"],
        ["calendar", "--year", "25"],
        ["calendar", "--year", "2025", "--month", "2025-01"],
        ["report"],
        ["report", "--html", ""],
        ["report", "--html", "x", "--year", "0"],
        ["report", "--html", "-", "--json"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_wrong_usage(env_file: Path, words: list[str]) -> None:
    told = run(env_file, *words)
    assert (told.code, told.out) == (2, "")
    assert "Error: " in told.err


def test_the_page_is_written_whole_and_for_its_owner_alone(env_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("an older one")
    file.chmod(0o644)
    link = tmp_path / "link.html"
    link.symlink_to(file.name)
    told = run(env_file, "report", "--html", str(link))
    assert (told.code, told.out, told.err) == (0, f"Wrote {link}: 3 batches on record.\n", "")
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().endswith("</main></body></html>\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job", "link.html", "report.html"]


def test_the_page_on_standard_output_is_the_same_in_every_locale(env_file: Path) -> None:
    one, other = (run(env_file, "report", "--html", "-", LC_ALL=name).out for name in ("C", "C.UTF-8"))
    moment = re.compile(r"\d\d:\d\d:\d\d\+0\d:00")
    assert moment.sub("", one) == moment.sub("", other)
    assert one.isascii()
    assert "&lt;/bdi&gt;&lt;script&gt;" in one
    assert "<script" not in one


def test_the_page_as_json_says_where_it_is(env_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    told = json.loads(run(env_file, "report", "--html", str(file), "--json").out)
    assert (told["file"], told["batches"], told["exit"]) == (str(file), 3, 0)
    assert run(env_file, "report", "--html", str(file), "-q").all == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere/report.html", "No such file or directory"),
        ("job/.env/report.html", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
        ("n" * 300, "File name too long"),
        ("job", "is no regular file"),
        ("null", "is no regular file"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_message(
    env_file: Path, tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "null").symlink_to("/dev/null")
    told = run(env_file, "report", "--html", str(tmp_path / name))
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("The report was not written: ")
    assert said in told.err
    assert told.err.splitlines()[1:] == ["What to do: sendonce runbook refused-command"]
    assert Path("/dev/null").is_char_device()


def _no_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_a_full_disk_leaves_the_old_page_and_no_scraps(env_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "report.html").write_text("an older one")
    limited: Callable[[], None] = _no_room
    done = subprocess.run(
        [*COMMAND, "--env-file", str(env_file), "ledger", "report", "--html", str(folder / "report.html")],
        env={"PATH": "/usr/bin:/bin"},
        preexec_fn=limited,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, "cannot be written (File too large)" in done.stderr) == (1, True)
    assert [(p.name, p.read_text()) for p in folder.iterdir()] == [("report.html", "an older one")]


def test_a_report_counts_the_batches_of_the_years_that_are_wanted(env_file: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "page.html")
    assert ": 0 batches of 1999 on record." in run(env_file, "report", "--html", file, "--year", "1999").out
    assert ": 3 batches of 2025 on record." in run(env_file, "report", "--html", file, "--year", "2025").out
    assert ": 3 batches on record." in run(env_file, "report", "--html", file).out
