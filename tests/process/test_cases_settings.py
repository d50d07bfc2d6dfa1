"""Cases from the field: settings, paths and dates. A6, D4, T1, T4, E3, E5 and the rules that cost others a double mailing.

Whatever is wrong with the settings is found before any file is made and any connection opened.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from support.cases import KEY, case_desk, holds, run_once, together
from support.runs import COMMAND, DAY, Desk, Ended
from support.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SECRET = KEY.partition("-")[0]
INVISIBLE = {
    "zero-width space": "\u200b",
    "no-break space": "\u00a0",
    "byte order mark": "\ufeff",
    "word joiner": "\u2060",
    "soft hyphen": "\u00ad",
    "right-to-left override": "\u202e",
    "opening quote": "\u201c",
    "Cyrillic a": "\u0430",
    "full-width 1": "\uff11",
    "en dash": "\u2013",
    "tab": "\t",
}


@pytest.fixture
def desk(tmp_path: Path, sandbox: Sandbox) -> Desk:
    """A job whose draft is released."""
    desk = case_desk(tmp_path / "desk", sandbox)
    desk.prepare()
    return desk


@pytest.fixture(scope="module")
def unasked() -> Iterator[Sandbox]:
    """A sandbox that nobody asks for anything, and so one is enough."""
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def idle(tmp_path: Path, unasked: Sandbox) -> Desk:
    """A job that will not get as far as a connection."""
    return case_desk(tmp_path / "desk", unasked)


def write_lines(desk: Desk, *lines: str, without: tuple[str, ...] = (), end: str = "\n") -> None:
    """Write a `.env` line by line: the desk's own settings, less some, and then these as they stand."""
    own = [f"{name}='{value}'" for name, value in desk.values.items() if name not in without]
    desk.env_file.write_text("".join(f"{line}{end}" for line in [*own, *lines]), newline="")


def line_of_next(desk: Desk, *, without: tuple[str, ...] = ()) -> int:
    """The number of the line after the desk's own."""
    return sum(name not in without for name in desk.values) + 1


def files_of(folder: Path) -> list[str]:
    """Everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def is_unusable(
    desk: Desk, *said: str, environ: Mapping[str, str] | None = None, looks: bool = False
) -> Ended:
    """Run, and check that it ends with 78 before it makes a file or a connection; what it said holds all of `said`."""
    before = files_of(desk.folder)
    ended = desk.send(environ=environ)
    assert ended.code == 78, ended
    assert files_of(desk.folder) == before, "a file was made"
    assert desk.sandbox.calls() == [], "a connection was made"
    for part in said:
        assert part in ended.err, ended
    holds(desk, ended, looks=looks)
    return ended


# ------------------------------------------------------------------------------------------------------------- A6


@pytest.mark.parametrize(
    "prefix",
    [
        "127.0.0.1:9/#", "https://us1.admin.mailchimp.com", "none", "server", "us1.api.mailchimp.com", "us1/", "us7",
        "us", "1", "US1", "us1 ", "us-1", "us1@example.com", "us1?", "..", "u\u0455" + "1", "us\uff11", "us1234", "us1\\n",
    ],
)  # fmt: skip
def test_a_prefix_that_is_no_data_centre_or_not_the_keys_is_refused_before_any_connection(
    idle: Desk, prefix: str
) -> None:
    idle.write_env(MAILCHIMP_SERVER_PREFIX=prefix)
    ended = is_unusable(idle, "MAILCHIMP_SERVER_PREFIX", str(idle.env_file))
    assert "us1" in ended.err


def test_an_empty_prefix_counts_as_not_set(desk: Desk) -> None:
    desk.write_env(MAILCHIMP_SERVER_PREFIX="")
    ended = run_once(desk)
    assert (ended.code, desk.deliveries()) == (0, 1)
    holds(desk, ended, looks=False)


@pytest.mark.parametrize("name", INVISIBLE)
@pytest.mark.parametrize("at", [0, len(KEY)])
def test_an_odd_character_in_the_key_is_named_by_its_code_point_and_the_key_is_not_shown(
    idle: Desk, name: str, at: int
) -> None:
    odd = INVISIBLE[name]
    idle.write_env(MAILCHIMP_API_KEY=KEY[:at] + odd + KEY[at:])
    is_unusable(idle, "MAILCHIMP_API_KEY", f"U+{ord(odd):04X}", "-us19", str(idle.env_file))


@pytest.mark.parametrize(
    "key",
    [
        SECRET, f"{SECRET}-", f"{SECRET}-us", f"{SECRET}-1", f"{SECRET}-us1-us1", f"{SECRET}-us1.evil.example/x",
        f"{SECRET}-us1/", f"{SECRET}-us1#", f"{SECRET}_us1", "abc-us1", f"user:{KEY}", f"{KEY},{KEY}", f"{SECRET}-US1",
    ],
)  # fmt: skip
def test_a_key_of_another_form_is_refused_before_any_connection(idle: Desk, key: str) -> None:
    idle.write_env(MAILCHIMP_API_KEY=key)
    ended = is_unusable(idle, "MAILCHIMP_API_KEY", "-us19")
    assert SECRET not in ended.err


def test_a_newline_inside_the_key_is_refused(idle: Desk) -> None:
    number = line_of_next(idle, without=("MAILCHIMP_API_KEY",))
    write_lines(idle, f'MAILCHIMP_API_KEY="{KEY}\\n"', without=("MAILCHIMP_API_KEY",))
    is_unusable(idle, f"{idle.env_file} line {number}", "MAILCHIMP_API_KEY", "newline")


@contextmanager
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """Take connections on a port, note what comes first on each, answer 502 and hang up."""
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    came.append(connection.recv(4096))
                    connection.sendall(
                        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], came
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def proxies(port: int) -> dict[str, str]:
    """An environment that names a proxy in every way there is."""
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY")
    return dict.fromkeys(names, f"http://127.0.0.1:{port}")


def test_only_mailchimps_own_host_is_ever_asked_for_and_never_in_clear(desk: Desk) -> None:
    desk.write_env(MAILCHIMP_API_URL=None)
    with listener() as (port, came):
        ended = desk.send(environ=proxies(port))
    assert ended.code == 75
    assert came
    assert {line.split(b"\r\n")[0] for line in came} == {b"CONNECT us1.api.mailchimp.com:443 HTTP/1.0"} or {
        line.split(b"\r\n")[0] for line in came
    } == {b"CONNECT us1.api.mailchimp.com:443 HTTP/1.1"}
    assert not any(b"uthorization" in line for line in came)
    holds(desk, ended, looks=False)


def test_with_a_wrong_prefix_no_host_at_all_is_asked_for(desk: Desk) -> None:
    desk.write_env(MAILCHIMP_API_URL=None, MAILCHIMP_SERVER_PREFIX="127.0.0.1:9/#")
    with listener() as (port, came):
        ended = desk.send(environ=proxies(port))
    assert (ended.code, came) == (78, [])


def test_no_proxy_is_used_for_this_machine(desk: Desk) -> None:
    with listener() as (port, came):
        ended = desk.send(environ=proxies(port))
    assert (ended.code, desk.deliveries(), came) == (0, 1, [])
    holds(desk, ended, looks=False)


@pytest.mark.parametrize(
    "url",
    ["http://us1.api.mailchimp.com/3.0", "https://127.0.0.1/3.0", "http://127.0.0.1.example.com:1/3.0", "http://127.0.0.1:70000/3.0",
     "http://127.0.0.1:8025", "http://user:pw@127.0.0.1:8025/3.0", "ftp://127.0.0.1/3.0"],
)  # fmt: skip
def test_another_api_url_is_allowed_on_this_machine_only(idle: Desk, url: str) -> None:
    idle.write_env(MAILCHIMP_API_URL=url)
    is_unusable(idle, "MAILCHIMP_API_URL", str(idle.env_file))


def test_a_netrc_is_not_read(desk: Desk) -> None:
    netrc = desk.folder / ".netrc"
    netrc.write_text("machine 127.0.0.1 login x password y\ndefault login x password y\n")
    netrc.chmod(0o600)
    desk.sandbox.settings(api_key=KEY)
    ended = desk.send(environ={"NETRC": str(netrc)})
    assert (ended.code, desk.deliveries()) == (0, 1)
    holds(desk, ended, looks=False)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"], ids=["none", "LF", "CRLF"])
def test_a_key_file_may_end_with_one_newline(desk: Desk, end: str) -> None:
    file = desk.folder / "mailchimp.key"
    file.touch(mode=0o600)
    file.write_text(f"{KEY}{end}", newline="")
    desk.sandbox.settings(api_key=KEY)
    desk.write_env(MAILCHIMP_API_KEY=None, MAILCHIMP_API_KEY_FILE="mailchimp.key")
    ended = run_once(desk)
    assert (ended.code, desk.deliveries()) == (0, 1)
    holds(desk, ended, looks=False)


@pytest.mark.parametrize("content", ["", "\n", f"{KEY}\n\n", f" {KEY}", f"{SECRET}\n", f"{KEY}\n{KEY}\n"])
def test_a_key_file_with_anything_else_is_unusable(idle: Desk, content: str) -> None:
    file = idle.folder / "mailchimp.key"
    file.touch(mode=0o600)
    file.write_text(content)
    idle.write_env(MAILCHIMP_API_KEY=None, MAILCHIMP_API_KEY_FILE=str(file))
    is_unusable(idle, str(file), "MAILCHIMP_API_KEY")


def test_a_key_and_a_key_file_in_one_place_are_one_too_many(idle: Desk) -> None:
    file = idle.folder / "mailchimp.key"
    file.touch(mode=0o600)
    file.write_text(KEY)
    idle.write_env(MAILCHIMP_API_KEY_FILE=str(file))
    is_unusable(idle, "MAILCHIMP_API_KEY", "MAILCHIMP_API_KEY_FILE")
    idle.write_env(MAILCHIMP_API_KEY=None)
    both = {"MAILCHIMP_API_KEY": KEY, "MAILCHIMP_API_KEY_FILE": str(file)}
    is_unusable(idle, "MAILCHIMP_API_KEY_FILE (environment)", environ=both)


@pytest.mark.parametrize("stronger", ["key", "file"])
def test_across_places_the_environments_key_or_key_file_wins(desk: Desk, stronger: str) -> None:
    wrong = f"{SECRET[::-1]}-us1"
    desk.sandbox.settings(api_key=KEY)
    file = desk.folder / "mailchimp.key"
    file.touch(mode=0o600)
    if stronger == "key":
        file.write_text(wrong)
        desk.write_env(MAILCHIMP_API_KEY=None, MAILCHIMP_API_KEY_FILE=str(file))
        environ = {"MAILCHIMP_API_KEY": KEY}
    else:
        file.write_text(KEY)
        desk.write_env(MAILCHIMP_API_KEY=wrong)
        environ = {"MAILCHIMP_API_KEY_FILE": str(file)}
    ended = desk.send(environ=environ)
    assert (ended.code, desk.deliveries()) == (0, 1), ended
    holds(desk, ended, keys=[wrong])


# ------------------------------------------------------------------------------------------------------------- D4


@pytest.fixture
def relative(tmp_path: Path, sandbox: Sandbox) -> Desk:
    """A desk whose `.env` names its state folder by a relative path; two folders to start from."""
    desk = case_desk(tmp_path / "etc", sandbox, SENDONCE_STATE="state", SENDONCE_LOG_FILE="run.log")
    desk.prepare()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return desk


def test_relative_paths_start_at_the_env_file_wherever_the_run_starts(relative: Desk, tmp_path: Path) -> None:
    first = relative.send(cwd=tmp_path / "a")
    second = relative.send(cwd=tmp_path / "b")
    assert (first.code, second.code) == (0, 0), first
    assert "already sent" in second.out
    assert (relative.deliveries(), relative.sandbox.sends()) == (1, 1)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b") == []
    assert relative.record()["state"] == "sent"
    assert (relative.folder / "run.log").exists()
    holds(relative, first, second)


def test_two_runs_from_two_folders_at_once_meet_at_one_lock(relative: Desk, tmp_path: Path) -> None:
    relative.sandbox.faults("post=slow:0.5")
    ends = together(["a", "b"], lambda name: relative.send(cwd=tmp_path / name))
    assert [e.code for e in ends] == [0, 0]
    assert (relative.deliveries(), relative.sandbox.sends()) == (1, 1)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b") == []
    holds(relative, *ends, looks=False)


def test_paths_start_where_the_env_file_lies_when_it_is_named_by_a_link(
    relative: Desk, tmp_path: Path
) -> None:
    link = tmp_path / "a" / "daily.env"
    link.symlink_to(relative.env_file)
    relative.env_file = link
    ended = relative.send(cwd=tmp_path / "b")
    assert (ended.code, relative.deliveries()) == (0, 1)
    assert relative.record()["state"] == "sent"


def test_the_html_file_is_looked_for_beside_the_env_file(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = case_desk(tmp_path / "desk", sandbox, "html", SENDONCE_LISTING_SECONDS="0", SENDONCE_STATE="state")
    assert desk.values["SENDONCE_HTML_FILE"] == "day.html"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "day.html").write_text("another")
    ended = desk.send(cwd=tmp_path / "elsewhere")
    assert (ended.code, desk.deliveries()) == (0, 1), ended
    holds(desk, ended, looks=False)


def test_a_state_folder_that_is_not_set_is_not_guessed(idle: Desk) -> None:
    idle.write_env(SENDONCE_STATE=None)
    is_unusable(idle, "SENDONCE_STATE is not set", str(idle.env_file))


@pytest.mark.parametrize("name", ["SENDONCE_STATE", "SENDONCE_LOG_FILE", "MAILCHIMP_API_KEY_FILE"])
def test_a_relative_path_in_the_environment_has_no_place_to_start_from(idle: Desk, name: str) -> None:
    is_unusable(idle, f"{name} (environment)", "absolute", environ={name: "state"})


@pytest.mark.parametrize("value", ["~/state", "$HOME/state", "${HOME}/state", "$(pwd)/state"])
def test_a_path_is_taken_literally_and_one_that_a_shell_would_change_is_a_fault(
    idle: Desk, value: str
) -> None:
    idle.write_env(SENDONCE_STATE=value)
    is_unusable(idle, "SENDONCE_STATE", value)


def test_a_state_folder_that_does_not_exist_is_not_made(idle: Desk) -> None:
    idle.state.rmdir()
    is_unusable(idle, str(idle.state), "does not exist", "sendonce init")


# ------------------------------------------------------------------------- where the .env is, and what it looks like


def run_without_env_file(
    desk: Desk, cwd: Path, *arguments: str, environ: Mapping[str, str] | None = None
) -> Ended:
    """Run without --env-file, from a folder."""
    clean = {"HOME": str(desk.folder), "PATH": "/usr/bin:/bin", **(environ or {})}
    command = [*COMMAND, *arguments, "send-batch", "--date", DAY]
    done = subprocess.run(
        command, env=clean, cwd=cwd, text=True, capture_output=True, timeout=60, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def test_the_env_file_is_the_one_named_by_flag_else_by_environment_else_the_one_here(
    desk: Desk, tmp_path: Path
) -> None:
    good, bad = desk.env_file, desk.folder / "bad.env"
    bad.touch(mode=0o600)
    bad.write_text("SENDONCE_TIMEZONE=Mars/Olympus\n")
    here = desk.folder
    by_flag = run_without_env_file(
        desk, tmp_path, "--env-file", str(good), environ={"SENDONCE_ENV_FILE": str(bad)}
    )
    by_name = run_without_env_file(desk, tmp_path, environ={"SENDONCE_ENV_FILE": str(good)})
    by_place = run_without_env_file(desk, here)
    relative_flag = run_without_env_file(desk, tmp_path, "--env-file", "desk/.env")
    assert [e.code for e in (by_flag, by_name, by_place, relative_flag)] == [0, 0, 0, 0], by_flag
    wrong = run_without_env_file(desk, here, environ={"SENDONCE_ENV_FILE": str(bad)})
    assert wrong.code == 78
    assert "Mars/Olympus" in wrong.err
    holds(desk, by_flag, by_name, by_place, relative_flag, wrong, looks=False)


def test_an_env_file_further_up_is_not_found(desk: Desk) -> None:
    below = desk.folder / "below" / "it"
    below.mkdir(parents=True)
    ended = run_without_env_file(desk, below)
    assert ended.code == 78
    assert str(below / ".env") in ended.err
    assert desk.sandbox.calls() == []


@pytest.mark.parametrize("kind", ["missing", "folder", "latin-1", "utf-16", "fifo", "huge", "dangling link"])
def test_something_else_in_place_of_the_env_file_is_unusable(desk: Desk, kind: str) -> None:
    text = desk.env_file.read_text()
    desk.env_file.unlink()
    match kind:
        case "folder":
            desk.env_file.mkdir()
        case "latin-1":
            desk.env_file.write_bytes(f"{text}# caf\u00e9\n".encode("latin-1"))
        case "utf-16":
            desk.env_file.write_bytes(text.encode("utf-16"))
        case "fifo":
            os.mkfifo(desk.env_file, 0o600)
        case "huge":
            desk.env_file.write_text(text + "#" * 2_000_000)
        case "dangling link":
            desk.env_file.symlink_to(desk.folder / "nowhere")
        case _:
            pass
    ended = desk.send()
    assert ended.code == 78
    assert str(desk.env_file) in ended.err
    assert "SENDONCE_TIMEZONE is not set" not in ended.err
    assert desk.sandbox.calls() == []


@pytest.mark.parametrize("form", ["BOM", "CRLF", "CR", "export", "no final newline", "comments"])
def test_an_env_file_of_any_usual_form_is_read(desk: Desk, form: str) -> None:
    text = desk.env_file.read_text()
    match form:
        case "BOM":
            text = "\ufeff" + text
        case "CRLF":
            text = text.replace("\n", "\r\n")
        case "CR":
            text = text.replace("\n", "\r")
        case "export":
            text = re.sub("(?m)^(?=.)", "export ", text)
        case "no final newline":
            text = text.rstrip("\n")
        case _:
            text = "# all of it\n\n" + text.replace("\n", " # so it is\n\n")
    desk.env_file.write_text(text, newline="")
    ended = run_once(desk)
    assert (ended.code, desk.deliveries()) == (0, 1), ended
    holds(desk, ended, looks=False)


@pytest.mark.parametrize(
    "title", ["Digest $HOME {date}", "Digest $USER's {date}", "Digest %(x)s {date}", 'Digest "no" {date}']
)
def test_values_are_taken_literally_and_nothing_is_put_in_for_a_dollar_sign(desk: Desk, title: str) -> None:
    write_lines(desk, "SENDONCE_TITLE='" + title.replace("'", "\\'") + "'", without=("SENDONCE_TITLE",))
    campaign = desk.sandbox.add_draft(title.replace("{date}", DAY))
    ended = desk.send(environ={"USER": "root"})
    assert (ended.code, desk.sandbox.accepted(campaign)) == (0, 1), ended
    holds(desk, ended, looks=False)


# ------------------------------------------------------------------------------------------------------------- E3

MALFORMED = {
    "open quote": 'SENDONCE_STATE="{state}',
    "open single quote": "SENDONCE_STATE='{state}",
    "YAML": "SENDONCE_STATE: {state}",
    "Windows": "set SENDONCE_STATE={state}",
    "bare name": "SENDONCE_STATE",
    "dash": "SENDONCE-STATE={state}",
    "only a value": "={state}",
    "text after the quote": "SENDONCE_STATE='{state}' and more",
    "newline in the value": 'SENDONCE_STATE="{state}\nx"',
    "escaped newline in the value": 'SENDONCE_STATE="{state}\\n"',
    "conflict mark": "<<<<<<< HEAD",
    "shell": "if true; then",
}


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("above", [0, 3])
def test_a_line_that_cannot_be_read_is_a_fault_with_file_and_line_and_never_a_default(
    desk: Desk, tmp_path: Path, kind: str, above: int
) -> None:
    line = MALFORMED[kind].replace("{state}", str(desk.state))
    number = line_of_next(desk, without=("SENDONCE_STATE",)) + above
    write_lines(
        desk, *["" if n % 2 else "# a comment" for n in range(above)], line, without=("SENDONCE_STATE",)
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    ended = desk.send(cwd=empty)
    assert ended.code == 78
    assert f"{desk.env_file} line {number}:" in ended.err, ended
    assert files_of(empty) == []
    assert files_of(desk.state) == []
    assert desk.sandbox.calls() == []
    holds(desk, ended, looks=False)


def test_the_fault_is_found_on_its_line_in_a_file_with_windows_line_ends(idle: Desk) -> None:
    number = line_of_next(idle)
    write_lines(idle, "", "oops", "", end="\r\n")
    is_unusable(idle, f"{idle.env_file} line {number + 1}:")


def test_a_name_given_twice_is_a_fault_that_names_both_lines(idle: Desk) -> None:
    number = line_of_next(idle)
    write_lines(idle, "SENDONCE_TIMEZONE=Asia/Tokyo")
    is_unusable(idle, f"line {number}", "SENDONCE_TIMEZONE", "second time")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("SENDONCE_TIMEZOEN", "SENDONCE_TIMEZONE"), ("SENDONCE_STATE_DIR", "SENDONCE_STATE"), ("sendonce_state", "SENDONCE_STATE"),
     ("SENDONCE_DRY_RUN", ""), ("SENDONCETITLE", "SENDONCE_TITLE"), ("SENDONCE_", ""), ("SENDONCE_ENV_FILE", "")],
)  # fmt: skip
def test_an_unknown_name_in_the_env_file_is_a_fault(idle: Desk, name: str, meant: str) -> None:
    number = line_of_next(idle)
    write_lines(idle, f"{name}=1")
    is_unusable(idle, f"line {number}", name, meant)


def test_an_unknown_name_in_the_environment_is_only_a_warning(desk: Desk) -> None:
    ended = desk.send(environ={"SENDONCE_PORT": "tcp://10.0.0.7:80", "SENDONCE_TIMEZOEN": "Asia/Tokyo"})
    assert (ended.code, desk.deliveries()) == (0, 1)
    assert "SENDONCE_PORT" in ended.err
    assert "SENDONCE_TIMEZOEN" in ended.err
    assert "10.0.0.7" not in ended.err
    holds(desk, ended, looks=False)


@pytest.mark.parametrize("name", ["SENDONCE_TITLE", "SENDONCE_SUBJECT", "SENDONCE_FROM_NAME"])
def test_an_unquoted_text_that_a_comment_cuts_short_is_a_fault(idle: Desk, name: str) -> None:
    number = line_of_next(idle, without=(name,))
    write_lines(idle, f"{name}=Digest {{date}} # the daily one", without=(name,))
    is_unusable(idle, f"line {number}", name, "#")


def test_all_faults_are_reported_together_each_with_name_place_and_value(idle: Desk) -> None:
    idle.write_env(
        SENDONCE_TIMEZONE="Europe/Berln",
        SENDONCE_LEASE_SECONDS="2",
        SENDONCE_SOURCE="magic",
        MAILCHIMP_API_KEY=SECRET,
    )
    ended = is_unusable(idle, environ={"SENDONCE_TITLE": "Digest"})
    assert ended.err.startswith("Nothing was sent")
    for part in (
        "Europe/Berln",
        '"2"',
        '"magic"',
        "SENDONCE_TITLE (environment)",
        "MAILCHIMP_API_KEY",
        "3 to 300",
    ):
        assert part in ended.err
    assert ended.err.count(str(idle.env_file)) >= 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SENDONCE_LEASE_SECONDS", v)
        for v in ("2.9", "301", "1e2", "nan", "inf", "-3", "6_0", "\u0666\u0660", "60s", "0x10")
    ]
    + [
        ("SENDONCE_TITLE", v)
        for v in ("Digest", "Digest {date:%d}", "{date} {user}", "{date!r}", "{date:%H}", "{date", "{job}")
    ]
    + [("SENDONCE_JOB", v) for v in ("Daily", "../x", "a" * 41, "-a", "a b", "\u0430bc")]
    + [("SENDONCE_LIST_ID", v) for v in ("a1b2/../c3", "A1B2C3", "x")],
)
def test_a_value_that_cannot_be_meant_is_named_and_never_mended(idle: Desk, name: str, value: str) -> None:
    idle.write_env(**{name: value})
    is_unusable(idle, name, str(idle.env_file))


# ------------------------------------------------------------------------------------------------------------- E5


@pytest.mark.parametrize("empty", ["", "   ", "\t"], ids=["nothing", "blanks", "tab"])
def test_an_empty_variable_counts_as_not_set(desk: Desk, empty: str) -> None:
    names = (
        "SENDONCE_STATE",
        "MAILCHIMP_API_KEY",
        "SENDONCE_TIMEZONE",
        "SENDONCE_TITLE",
        "SENDONCE_JOB",
        "SENDONCE_LEASE_SECONDS",
    )
    desk.sandbox.settings(api_key=KEY)
    ended = desk.send(environ=dict.fromkeys(names, empty))
    assert (ended.code, desk.deliveries()) == (0, 1), ended
    assert desk.record()["state"] == "sent"
    holds(desk, ended)


@pytest.mark.parametrize("name", ["SENDONCE_STATE", "MAILCHIMP_API_KEY", "SENDONCE_TIMEZONE"])
def test_an_empty_value_in_the_env_file_counts_as_not_set(idle: Desk, name: str) -> None:
    idle.write_env(**{name: ""})
    is_unusable(idle, f"{name} is not set")


def test_an_empty_value_of_an_optional_setting_leaves_the_default(desk: Desk) -> None:
    names = (
        "SENDONCE_LOCK_WAIT_SECONDS",
        "SENDONCE_LIST_ID",
        "SENDONCE_SOURCE",
        "SENDONCE_LOG_FILE",
        "SENDONCE_JOB",
    )
    desk.write_env(**dict.fromkeys(names, ""))
    ended = run_once(desk)
    assert (ended.code, desk.deliveries()) == (0, 1)
    holds(desk, ended, looks=False)


def test_a_stale_key_of_the_environment_is_named_as_coming_from_there(desk: Desk) -> None:
    stale = f"{SECRET[::-1]}-us1"
    desk.sandbox.settings(api_key=KEY)
    ended = desk.send(environ={"MAILCHIMP_API_KEY": stale})
    assert ended.code == 78
    assert "environment" in ended.err
    assert "MAILCHIMP_API_KEY" in ended.err
    holds(desk, ended, keys=[stale])


def test_a_flag_wins_over_the_environment_and_that_over_the_env_file(desk: Desk) -> None:
    desk.write_env(SENDONCE_JOB="of-the-file")
    by_environment = desk.send(environ={"SENDONCE_JOB": "of-the-environment"})
    assert by_environment.code == 0
    assert (desk.state / "of-the-environment.json").exists()
    by_flag = desk.send("--job", "of-the-flag", environ={"SENDONCE_JOB": "of-the-environment"})
    assert by_flag.code == 0
    assert (desk.state / "of-the-flag.json").exists()
    assert not (desk.state / "of-the-file.json").exists()
    assert desk.sandbox.sends() == 1


# ---------------------------------------------------------------------------------------------- T1: whose today


def today_in(zone: str) -> str:
    return datetime.now(ZoneInfo(zone)).date().isoformat()


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"])
def test_today_is_that_of_the_configured_zone_whatever_the_machine_thinks(desk: Desk, zone: str) -> None:
    desk.write_env(SENDONCE_TIMEZONE=zone)
    now = datetime.now(UTC)
    for days in (-1, 0, 1):
        day = (now + timedelta(days=days)).date().isoformat()
        desk.prepare(day)
    before = today_in(zone)
    environs: list[dict[str, str]] = [
        {"TZ": "Pacific/Kiritimati"},
        {"TZ": "Pacific/Pago_Pago"},
        {},
        {"TZ": "nonsense"},
    ]
    ends = [desk.run("send-batch", environ=environ) for environ in environs]
    if today_in(zone) != before:
        pytest.skip("midnight passed in that zone")
    assert [e.code for e in ends] == [0, 0, 0, 0]
    for ended in ends:
        assert before in ended.out
        assert zone in ended.out
    assert (desk.sandbox.accepted(), desk.sandbox.sends(), desk.deliveries(before)) == (1, 1, 1)
    holds(desk, *ends, day=before)


def test_the_ledgers_times_are_listed_with_their_offset(desk: Desk) -> None:
    desk.write_env(SENDONCE_TIMEZONE="Asia/Kathmandu")
    ended = run_once(desk)
    listed, shown = desk.run("ledger", "list"), desk.run("ledger", "show", DAY)
    for said in (listed, shown):
        assert re.search(r"\d\d:\d\d(:\d\d)? ?\+05:45", said.out), said.out
    holds(desk, ended, looks=False)


@pytest.mark.parametrize(
    "zone",
    ["Europe/Berln", '"Europe/Berlin"', "Berlin", "CET+1", "localtime", "/etc/localtime", "../Berlin", "Europe", "UTC+2",
     "Europe/Berlin ", "europe\u2044berlin", "+02:00", "posix/Europe/Berlin"],
)  # fmt: skip
def test_a_zone_that_does_not_exist_is_named_and_is_never_utc(idle: Desk, zone: str) -> None:
    idle.write_env(SENDONCE_TIMEZONE=zone)
    ended = is_unusable(idle, "SENDONCE_TIMEZONE")
    assert zone in ended.err or not zone.isascii()


def test_without_zone_data_there_is_no_today(idle: Desk) -> None:
    hide = idle.folder / "hide"
    hide.mkdir()
    (hide / "tzdata.py").write_text("raise ImportError('not installed')\n")
    ended = is_unusable(
        idle,
        "Europe/Berlin",
        environ={"PYTHONTZPATH": "", "PYTHONPATH": str(hide), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "time zone data" in ended.err


# ------------------------------------------------------------------------------------------------------------- T4

ODD_DATES = (
    *(
        "2026-1-5",
        "20260105",
        "2026-W01-1",
        "2026-02-30",
        "2026-00-10",
        "05/01/2026",
        "2026-01-05T23:30-05:00",
    ),
    *(
        "\u0662\u0660\u0662\u0666-\u0660\u0661-\u0660\u0665",
        " 2026-01-05",
        "2026-01-05 ",
        "2026-01-05\n",
        "",
        " ",
    ),
    *(
        "2026\u201001\u201005",
        "26-01-05",
        "02026-01-05",
        "-2026-01-05",
        "2026-01-05Z",
        "tomorrow",
        "TODAY",
        "now",
        "0000-01-01",
    ),
)


def is_wrong_usage(desk: Desk, *arguments: str) -> Ended:
    """Run, and check for exit 2: no lock, no file, no request."""
    before = files_of(desk.folder)
    ended = desk.run(*arguments)
    assert ended.code == 2, (arguments, ended)
    assert ended.out == ""
    assert "Error: " in ended.err
    assert files_of(desk.folder) == before
    assert desk.sandbox.calls() == []
    return ended


@pytest.mark.parametrize("text", ODD_DATES, ids=ascii)
def test_a_date_in_any_other_spelling_is_wrong_usage(idle: Desk, text: str) -> None:
    commands = [
        ("send-batch", f"--date={text}"),
        ("ledger", "show", f"--date={text}"),
        ("ledger", "reset", f"--date={text}", "--yes"),
    ]
    if text in {"", "2026-1-5", "20260105"}:
        commands += [
            ("send-batch", "--date", text, "--dry-run"),
            ("ledger", "show", f"--date={text}"),
            ("ledger", "show", "--", text),
            ("ledger", "reset", f"--date={text}", "--yes"),
            ("ledger", "list", f"--since={text}"),
            ("ledger", "list", f"--until={text}"),
        ]
    for ended in together(commands, lambda arguments: is_wrong_usage(idle, *arguments)):
        assert "YYYY-MM-DD" in ended.err
        assert ended.err.isascii()


def test_a_date_given_twice_is_wrong_usage_even_if_it_is_the_same(idle: Desk) -> None:
    for command in (("send-batch",), ("ledger", "show"), ("ledger", "reset", "--yes")):
        is_wrong_usage(idle, *command, "--date", DAY, "--date", DAY)
        is_wrong_usage(idle, *command, "--date", DAY, "--date", "")
    is_wrong_usage(idle, "ledger", "show", DAY, "--date", DAY)


def test_a_date_without_its_value_is_wrong_usage(idle: Desk) -> None:
    is_wrong_usage(idle, "send-batch", "--date")


def test_today_and_yesterday_are_dates_in_the_zone_of_the_job(desk: Desk) -> None:
    zone = "Pacific/Kiritimati"
    desk.write_env(SENDONCE_TIMEZONE=zone)
    today = today_in(zone)
    yesterday = (datetime.fromisoformat(today) - timedelta(days=1)).date().isoformat()
    desk.prepare(today)
    desk.prepare(yesterday)
    first, second = desk.send(day="today"), desk.send(day="yesterday")
    if today_in(zone) != today:
        pytest.skip("midnight passed in that zone")
    assert (first.code, second.code) == (0, 0), first
    assert (desk.deliveries(today), desk.deliveries(yesterday)) == (1, 1)


def test_a_future_date_is_wrong_usage_unless_it_is_meant(desk: Desk) -> None:
    tomorrow = (datetime.now(ZoneInfo("Europe/Berlin")) + timedelta(days=2)).date().isoformat()
    desk.prepare(tomorrow)
    ended = is_wrong_usage(desk, "send-batch", "--date", tomorrow)
    assert "--early" in ended.err
    meant = desk.send("--early", day=tomorrow)
    assert (meant.code, desk.deliveries(tomorrow)) == (0, 1)


# ------------------------------------------------------------------------------------- nothing around it matters


@pytest.mark.parametrize(
    "environ",
    [{"HOME": "/nonexistent"}, {"HOME": ""}, {"TZ": "Asia/Tokyo"}, {"LC_ALL": "tr_TR.UTF-8"}, {"LANG": "de_DE"}, {"LC_ALL": "nonsense"},
     {"PATH": ""}, {"PYTHONWARNINGS": "error"}, {"MAILCHIMP_API_URLL": "x"}, {"USER": "nobody"}],
    ids=str,
)  # fmt: skip
def test_home_time_zone_locale_and_path_change_nothing(desk: Desk, environ: dict[str, str]) -> None:
    ended = desk.send(environ=environ)
    assert (ended.code, desk.deliveries()) == (0, 1), ended
    assert ended.err == ""
    holds(desk, ended, looks=False)


def test_a_working_directory_that_is_gone_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    command = ["/bin/sh", "-c", script, str(gone), sys.executable, "-P", "-m", "sendonce"]
    command += ["--env-file", str(desk.env_file), "send-batch", "--date", DAY]
    done = subprocess.run(
        command, env={"PATH": "/bin:/usr/bin"}, text=True, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, desk.deliveries()) == (0, 1), done
    holds(desk, Ended(done.returncode, done.stdout, done.stderr), looks=False)


def test_files_lying_in_the_working_directory_change_nothing(desk: Desk, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / ".env").write_text("SENDONCE_TIMEZONE=Mars/Olympus\nnonsense\n")
    ended = desk.send(cwd=here)
    assert (ended.code, desk.deliveries()) == (0, 1)
    holds(desk, ended, looks=False)


# -------------------------------------------------------------------------------------- who may change what is sent


@pytest.mark.parametrize("kind", ["file", "folder", "folder of a link"])
def test_an_env_file_that_others_may_change_is_not_used(idle: Desk, tmp_path: Path, kind: str) -> None:
    match kind:
        case "file":
            place = idle.env_file
        case "folder":
            place = idle.folder
        case _:
            place = tmp_path / "links"
            place.mkdir()
            (place / ".env").symlink_to(idle.env_file)
            idle.env_file = place / ".env"
    place.chmod(0o777)
    try:
        ended = is_unusable(idle, str(place), "chmod go-w")
    finally:
        place.chmod(0o700)
    assert "can be written by others" in ended.err


def test_an_env_file_that_others_may_read_is_a_warning(desk: Desk) -> None:
    desk.env_file.chmod(0o644)
    ended = run_once(desk)
    assert (ended.code, desk.deliveries()) == (0, 1)
    assert f"chmod 600 {desk.env_file}" in ended.err
    holds(desk, ended, looks=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_env_file_of_somebody_else_is_not_used(idle: Desk) -> None:
    os.chown(idle.env_file, 4321, -1)
    is_unusable(idle, str(idle.env_file), "4321")


def test_a_key_file_that_others_may_change_is_not_used(idle: Desk) -> None:
    file = idle.folder / "mailchimp.key"
    file.touch()
    file.write_text(KEY)
    file.chmod(0o666)
    idle.write_env(MAILCHIMP_API_KEY=None, MAILCHIMP_API_KEY_FILE=str(file))
    is_unusable(idle, str(file), "chmod go-w")


@pytest.mark.parametrize(
    ("name", "line"),
    [("unknown name", f"SENDONCE_KEY={KEY}"), ("YAML", f"MAILCHIMP_API_KEY: {KEY}"), ("key alone", KEY), ("key as a name", f"{SECRET}=1"),
     ("prefix", f"MAILCHIMP_SERVER_PREFIX={KEY}"), ("title", f"SENDONCE_TITLE={KEY}"), ("list", f"SENDONCE_LIST_ID={KEY}"),
     ("source", f"SENDONCE_SOURCE={KEY}"), ("zone", f"SENDONCE_TIMEZONE={KEY}"), ("seconds again", f"SENDONCE_SETTLE_SECONDS=-{KEY}"),
     ("url", f"MAILCHIMP_API_URL=https://user:{KEY}@us1.api.mailchimp.com/3.0"), ("key file", f"MAILCHIMP_API_KEY_FILE={KEY}"),
     ("log", f"SENDONCE_LOG_FILE=$HOME/{KEY}"), ("seconds", f"SENDONCE_LEASE_SECONDS={KEY}"), ("job", f"SENDONCE_JOB={KEY}"),
     ("open quote", f'MAILCHIMP_API_KEY="{KEY}')],
)  # fmt: skip
def test_a_key_in_the_wrong_place_is_not_shown_either(idle: Desk, name: str, line: str) -> None:
    write_lines(idle, line, without=(line.partition("=")[0], "MAILCHIMP_API_KEY", "MAILCHIMP_API_URL"))
    is_unusable(idle)


@pytest.mark.parametrize(
    "arguments",
    [("--job", KEY, "send-batch"), ("send-batch", "--date", KEY), ("send-batch", KEY), (KEY,), ("--key", KEY, "send-batch"),
     (f"--{KEY}",), ("ledger", "show", KEY), ("ledger", KEY)],
    ids=lambda arguments: shlex.join(arguments).replace(KEY, "KEY"),
)  # fmt: skip
def test_a_key_among_the_arguments_is_not_repeated(idle: Desk, arguments: tuple[str, ...]) -> None:
    ended = idle.run(*arguments)
    assert ended.code in {2, 78}
    assert idle.sandbox.calls() == []
    assert SECRET[:5] not in ended.all
    assert SECRET[-5:] not in ended.all
