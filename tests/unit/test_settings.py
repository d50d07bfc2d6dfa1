"""Settings: what a `.env`, the environment and flags come to, and that nothing wrong passes as a default."""

from __future__ import annotations

import grp
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sendonce import settings
from sendonce.core.errors import SettingsWrong, WrongUsage
from sendonce.core.model import Source
from sendonce.settings import Secret, Settings
from sendonce.settings.state_url import StateUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

HEX = "5ec4e75ec4e75ec4e75ec4e75ec4e75e"
KEY = f"{HEX}-us1"
GOOD = {
    "MAILCHIMP_API_KEY": KEY,
    "SENDONCE_STATE": "/var/lib/sendonce",
    "SENDONCE_TIMEZONE": "Europe/Berlin",
    "SENDONCE_TITLE": "Digest {date}",
}
GOOD_HTML = GOOD | {
    "SENDONCE_SOURCE": "html",
    "SENDONCE_LIST_ID": "a1b2c3d4e5",
    "SENDONCE_SUBJECT": "News of {date:%d %B %Y}",
    "SENDONCE_HTML_FILE": "content/{date}.html",
    "SENDONCE_FROM_NAME": "The Daily",
    "SENDONCE_REPLY_TO": "news@example.com",
}
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def written(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def loaded(text: str | bytes | Mapping[str, str], folder: Path, **environ: str) -> Settings:
    """Load what a .env with this text in this folder gives, and nothing else but these variables."""
    content = text if isinstance(text, str | bytes) else lines(text)
    return settings.load(written(folder / ".env", content), None, environ, Path("/"))


def fault_of(text: str | bytes | Mapping[str, str], folder: Path, **environ: str) -> str:
    with pytest.raises(SettingsWrong) as caught:
        loaded(text, folder, **environ)
    message = caught.value.message
    assert message.startswith("Nothing was sent: ")
    assert "5ec4e75" not in message
    return message


# --- what good settings come to


def test_everything_set_in_the_env_file_arrives(tmp_path: Path) -> None:
    text = """
        # every setting there is
        export MAILCHIMP_API_KEY='5ec4e75ec4e75ec4e75ec4e75ec4e75e-us19'
        MAILCHIMP_SERVER_PREFIX = us19
        SENDONCE_JOB=morning_2-x
        SENDONCE_TIMEZONE=America/Argentina/Buenos_Aires
        SENDONCE_STATE=/srv/state   # where the memory lies
        SENDONCE_LEASE_SECONDS=3
        SENDONCE_LOCK_WAIT_SECONDS=0
        SENDONCE_TIMEOUT_SECONDS=600
        SENDONCE_SETTLE_SECONDS=1.5
        SENDONCE_LISTING_SECONDS=0.25
        SENDONCE_DEADLINE_SECONDS=86400
        SENDONCE_SOURCE=html
        SENDONCE_TITLE="Digest #1 of {date}"
        SENDONCE_LIST_ID=a1b2c3d4e5
        SENDONCE_REPLICATE_FROM=0123456789
        SENDONCE_SUBJECT='News – 5 ¢ off ${date:%d %B %Y} ✓'
        SENDONCE_HTML_FILE=/srv/{date:%Y}/{date}.html
        SENDONCE_FROM_NAME="Die \\"Zeitung\\""
        SENDONCE_REPLY_TO=news+daily@mail.example.com
        SENDONCE_SEGMENT_ID=12345
        SENDONCE_PREVIEW_TEXT='{not a pattern}'
        SENDONCE_LOG_FILE=/var/log/sendonce.log
        OTHER=$HOME
    """
    it = loaded(text, tmp_path)
    assert it.api_key == Secret("5ec4e75ec4e75ec4e75ec4e75ec4e75e-us19")
    assert (it.server_prefix, it.api_host) == ("us19", "us19.api.mailchimp.com")
    assert it.base_url == "https://us19.api.mailchimp.com/3.0"
    assert (it.job, it.zone, it.state) == (
        "morning_2-x",
        "America/Argentina/Buenos_Aires",
        Path("/srv/state"),
    )
    assert (it.lease_s, it.lock_wait_s, it.timeout_s, it.settle_s) == (3.0, 0.0, 600.0, 1.5)
    assert (it.listing_s, it.deadline_s) == (0.25, 86400.0)
    assert (it.source, it.title) == (Source.HTML, "Digest #1 of {date}")
    assert (it.list_id, it.replicate_from) == ("a1b2c3d4e5", "0123456789")
    assert it.subject == "News – 5 ¢ off ${date:%d %B %Y} ✓"
    assert it.html_file == "/srv/{date:%Y}/{date}.html"
    assert (it.from_name, it.reply_to) == ('Die "Zeitung"', "news+daily@mail.example.com")
    assert (it.segment_id, it.preview_text) == (12345, "{not a pattern}")
    assert (it.log_file, it.env_file) == (Path("/var/log/sendonce.log"), tmp_path / ".env")
    assert it.warnings == ()


def test_what_is_not_set_has_the_published_default(tmp_path: Path) -> None:
    needed = {name: GOOD[name] for name in ("MAILCHIMP_API_KEY", "SENDONCE_STATE", "SENDONCE_TIMEZONE")}
    it = loaded(needed, tmp_path)
    assert (it.job, it.source, it.title) == ("daily", Source.DRAFT, "{job} {date}")
    assert (it.lease_s, it.lock_wait_s, it.timeout_s, it.settle_s) == (60.0, 75.0, 130.0, 180.0)
    assert (it.listing_s, it.deadline_s) == (30.0, 540.0)
    assert (it.list_id, it.replicate_from, it.subject, it.html_file) == ("", "", "", "")
    assert (it.from_name, it.reply_to, it.segment_id, it.preview_text, it.log_file) == (
        "",
        "",
        None,
        "",
        None,
    )


def test_who_got_it_is_recorded_and_addresses_are_kept_only_where_that_is_said(tmp_path: Path) -> None:
    it = loaded(GOOD, tmp_path)
    assert (it.is_recording_recipients, it.is_keeping_addresses, it.recipients_file) == (False, False, None)
    said = {
        "SENDONCE_RECORD_RECIPIENTS": "yes",
        "SENDONCE_KEEP_ADDRESSES": "yes",
        "SENDONCE_RECIPIENTS_FILE": "x.db",
    }
    it = loaded(GOOD | said, tmp_path)
    assert (it.is_recording_recipients, it.is_keeping_addresses) == (True, True)
    assert it.recipients_file == tmp_path / "x.db"
    for name in ("SENDONCE_RECORD_RECIPIENTS", "SENDONCE_KEEP_ADDRESSES"):
        with pytest.raises(SettingsWrong, match=name):
            loaded(GOOD | {name: "maybe"}, tmp_path)


def test_the_wait_for_another_run_follows_the_lease(tmp_path: Path) -> None:
    assert loaded(GOOD | {"SENDONCE_LEASE_SECONDS": "300"}, tmp_path).lock_wait_s == 315.0


def test_each_value_says_where_it_came_from(tmp_path: Path) -> None:
    env = written(tmp_path / ".env", "\n# first\n\n" + lines(GOOD) + "\n\n\nSENDONCE_LEASE_SECONDS=6\n")
    environ = {"SENDONCE_TITLE": "{date} Digest", "SENDONCE_LOG_FILE": "/x/log"}
    it = settings.load(env, "evening", environ, Path("/"))
    assert it.title == "{date} Digest"
    assert it.origins == {
        "MAILCHIMP_API_KEY": f"{env} line 4",
        "MAILCHIMP_SERVER_PREFIX": "suffix of the key",
        "SENDONCE_JOB": "--job",
        "SENDONCE_TIMEZONE": f"{env} line 6",
        "SENDONCE_STATE": f"{env} line 5",
        "SENDONCE_LEASE_SECONDS": f"{env} line 11",
        "SENDONCE_LOCK_WAIT_SECONDS": "default",
        "SENDONCE_TIMEOUT_SECONDS": "default",
        "SENDONCE_SETTLE_SECONDS": "default",
        "SENDONCE_LISTING_SECONDS": "default",
        "SENDONCE_DEADLINE_SECONDS": "default",
        "SENDONCE_SOURCE": "default",
        "SENDONCE_TITLE": "environment",
        "SENDONCE_RECORD_RECIPIENTS": "default",
        "SENDONCE_KEEP_ADDRESSES": "default",
        "SENDONCE_LOG_FILE": "environment",
        "SENDONCE_LOG_FORMAT": "default",
        "SENDONCE_RECIPIENT_GUARD": "default",
    }


def test_flags_win_over_the_environment_and_the_environment_over_the_file(tmp_path: Path) -> None:
    env = written(tmp_path / ".env", lines(GOOD | {"SENDONCE_JOB": "from_file"}))
    assert settings.load(env, None, {}, Path("/")).job == "from_file"
    assert settings.load(env, None, {"SENDONCE_JOB": "from_environ"}, Path("/")).job == "from_environ"
    assert settings.load(env, "from_flag", {"SENDONCE_JOB": "from_environ"}, Path("/")).job == "from_flag"


@pytest.mark.parametrize("empty", ["", " ", "\t  "])
def test_an_empty_variable_counts_as_not_set(empty: str, tmp_path: Path) -> None:
    it = loaded(GOOD, tmp_path, **dict.fromkeys(GOOD, empty), SENDONCE_JOB=empty)
    assert (it.state, it.zone, it.title, it.job) == (
        Path("/var/lib/sendonce"),
        "Europe/Berlin",
        "Digest {date}",
        "daily",
    )
    assert it.api_key == Secret(KEY)


def test_an_empty_value_in_the_file_counts_as_not_set(tmp_path: Path) -> None:
    it = loaded(
        lines(GOOD) + "SENDONCE_LIST_ID=\nSENDONCE_SUBJECT='  '\nMAILCHIMP_SERVER_PREFIX=\n", tmp_path
    )
    assert (it.list_id, it.subject, it.server_prefix) == ("", "", "us1")
    assert "SENDONCE_STATE is not set" in fault_of(GOOD | {"SENDONCE_STATE": ""}, tmp_path)


@pytest.mark.parametrize("name", ["SENDONCE_STATE", "SENDONCE_TIMEZONE", "MAILCHIMP_API_KEY"])
def test_what_decides_the_day_the_memory_or_the_account_is_never_guessed(name: str, tmp_path: Path) -> None:
    message = fault_of({n: v for n, v in GOOD.items() if n != name}, tmp_path)
    assert f"{name} is not set in the environment or {tmp_path / '.env'}" in message


def test_without_a_file_the_message_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsWrong, match=re.escape(f"and there is no {tmp_path / '.env'}")):
        settings.load(None, None, {}, tmp_path)


def test_a_command_that_does_not_talk_to_mailchimp_needs_no_key(tmp_path: Path) -> None:
    env = written(tmp_path / ".env", lines(GOOD | {"MAILCHIMP_API_KEY": ""}))
    it = settings.load(env, None, {}, Path("/"), needs_mailchimp=False)
    assert (it.api_key, it.api_host, it.base_url) == (None, "", "")
    with_prefix = settings.load(
        env, None, {"MAILCHIMP_SERVER_PREFIX": "us7"}, Path("/"), needs_mailchimp=False
    )
    assert (with_prefix.api_key, with_prefix.api_host) == (None, "us7.api.mailchimp.com")


def test_a_command_that_does_not_talk_to_mailchimp_still_objects_to_a_wrong_key(tmp_path: Path) -> None:
    env = written(tmp_path / ".env", lines(GOOD | {"MAILCHIMP_API_KEY": HEX}))
    with pytest.raises(SettingsWrong, match="no data centre"):
        settings.load(env, None, {}, Path("/"), needs_mailchimp=False)


# --- which .env


def test_the_flag_wins_over_the_variable_and_the_variable_over_the_working_directory(tmp_path: Path) -> None:
    for name in ("flag", "variable", "cwd"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / ".env", lines(GOOD | {"SENDONCE_JOB": name}))
    flag, variable, cwd = (tmp_path / name for name in ("flag", "variable", "cwd"))
    environ = {"SENDONCE_ENV_FILE": str(variable / ".env")}
    assert settings.load(flag / ".env", None, environ, cwd).job == "flag"
    assert settings.load(Path("../flag/.env"), None, environ, cwd).job == "flag"
    assert settings.load(None, None, environ, cwd).job == "variable"
    assert settings.load(None, None, {"SENDONCE_ENV_FILE": " "}, cwd).job == "cwd"
    assert settings.load(None, None, {}, cwd).job == "cwd"


def test_no_env_file_is_looked_for_in_the_folders_above(tmp_path: Path) -> None:
    written(tmp_path / ".env", lines(GOOD))
    below = tmp_path / "below"
    below.mkdir()
    with pytest.raises(SettingsWrong, match="SENDONCE_STATE is not set"):
        settings.load(None, None, {}, below)


def test_the_default_env_file_may_be_missing(tmp_path: Path) -> None:
    it = settings.load(None, None, GOOD, tmp_path)
    assert (it.env_file, it.state) == (None, Path("/var/lib/sendonce"))


def test_an_env_file_that_was_named_may_not_be_missing(tmp_path: Path) -> None:
    gone = tmp_path / "gone.env"
    with pytest.raises(SettingsWrong, match=re.escape(f"{gone} does not exist")):
        settings.load(gone, None, GOOD, tmp_path)
    with pytest.raises(SettingsWrong, match=re.escape(f"{gone} does not exist")):
        settings.load(None, None, GOOD | {"SENDONCE_ENV_FILE": str(gone)}, tmp_path)


def test_a_relative_name_in_the_environment_is_no_env_file(tmp_path: Path) -> None:
    written(tmp_path / "my.env", lines(GOOD))
    with pytest.raises(SettingsWrong, match=r"SENDONCE_ENV_FILE .* absolute"):
        settings.load(None, None, {"SENDONCE_ENV_FILE": "my.env"}, tmp_path)


@pytest.mark.parametrize("kind", ["folder", "fifo", "dangling link", "loop", "NUL in its name", "too long"])
def test_what_is_not_a_file_in_place_of_the_env_is_a_fault_and_never_a_hang(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / ".env"
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path, 0o600)
        case "dangling link":
            path.symlink_to("gone")
        case "loop":
            path.symlink_to(".env")
        case "NUL in its name":
            path = tmp_path / "a\0b"
        case _:
            path = tmp_path / ("x" * 300)
    with pytest.raises(SettingsWrong) as caught:
        settings.load(path, None, GOOD, Path("/"))
    assert str(tmp_path) in caught.value.message


def test_a_default_env_file_that_is_a_folder_or_leads_nowhere_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".env").symlink_to("gone")
    with pytest.raises(SettingsWrong, match="does not exist"):
        settings.load(None, None, GOOD, tmp_path)
    (tmp_path / ".env").unlink()
    (tmp_path / ".env").mkdir()
    with pytest.raises(SettingsWrong, match="is a folder"):
        settings.load(None, None, GOOD, tmp_path)


def test_a_path_with_bytes_that_are_no_text_is_a_path_like_any_other(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9t\xe9"))
    folder.mkdir()
    it = loaded(GOOD | {"SENDONCE_STATE": "state"}, folder)
    assert it.state == folder / "state"
    odd = os.fsdecode(b"/srv/\xff")
    assert loaded(GOOD, tmp_path, SENDONCE_STATE=odd).state == Path(odd)


# --- the lines of the .env


def test_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    it = loaded(b"\xef\xbb\xbf" + lines(GOOD).replace("\n", "\r\n").encode(), tmp_path)
    assert (it.state, it.title) == (Path("/var/lib/sendonce"), "Digest {date}")
    assert it.origins["SENDONCE_TITLE"] == f"{tmp_path / '.env'} line 4"


def test_a_last_line_without_a_newline_counts(tmp_path: Path) -> None:
    assert loaded(lines(GOOD) + "SENDONCE_JOB=last", tmp_path).job == "last"


def test_nothing_is_interpolated(tmp_path: Path) -> None:
    text = lines(GOOD) + "SENDONCE_FROM_NAME=$HOME ${HOME} ${SENDONCE_JOB:-x}\n"
    assert loaded(text, tmp_path, HOME="/home/x").from_name == "$HOME ${HOME} ${SENDONCE_JOB:-x}"


MALFORMED = {
    "open quote": 'SENDONCE_STATE="/var/lib/sendonce',
    "open single quote": "SENDONCE_STATE='/var/lib/sendonce",
    "yaml": "SENDONCE_STATE: /var/lib/sendonce",
    "yaml without a blank": "SENDONCE_STATE:/var/lib/sendonce",
    "windows": "set SENDONCE_STATE=/var/lib/sendonce",
    "fish": "set -x SENDONCE_STATE /var/lib/sendonce",
    "bare name": "SENDONCE_STATE",
    "exported bare name": "export SENDONCE_STATE",
    "comment in the name": "SENDONCE_STATE#=/var/lib/sendonce",
    "name in double quotes": '"SENDONCE_STATE"=/var/lib/sendonce',
    "dash": "SENDONCE-STATE=/var/lib/sendonce",
    "dot": "SENDONCE.STATE=/var/lib/sendonce",
    "zero-width space": "\u200bSENDONCE_STATE=/var/lib/sendonce",
    "second byte order mark": "\ufeffSENDONCE_STATE=/var/lib/sendonce",
    "text behind the quotes": "SENDONCE_STATE='/var/lib/sendonce' or so",
    "no name": "=/var/lib/sendonce",
    "merge mark": "<<<<<<< HEAD",
    "NULs": "\0\0\0\0",
    "newline in quotes": 'SENDONCE_STATE="/var/lib\nsendonce"',
    "escaped newline": 'SENDONCE_STATE="/var/lib/sendonce\\n"',
    "escaped carriage return": 'SENDONCE_STATE="/var/lib/sendonce\\r"',
}
OF_NO_SETTING = {
    "unknown name": "SENDONCE_SATE=/var/lib/sendonce",
    "lower case": "sendonce_state=/var/lib/sendonce",
    "no underscore": "SENDONCESTATE=/var/lib/sendonce",
    "its own place": "SENDONCE_ENV_FILE=/etc/sendonce.env",
}


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=kind) for kind, line in (MALFORMED | OF_NO_SETTING).items()]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_line_that_cannot_be_meant_is_named_with_its_number(
    line: str, newline: str, tmp_path: Path
) -> None:
    rest = lines({name: value for name, value in GOOD.items() if name != "SENDONCE_STATE"})
    text = f"# one\n\n\n{line}\n{rest}"
    message = fault_of(text.replace("\n", newline).encode(), tmp_path)
    assert f"{tmp_path / '.env'} line 4: " in message
    # What stands on a line that cannot be read is not missing, too: to say so would mislead.
    assert ("SENDONCE_STATE is not set" in message) == (line in OF_NO_SETTING.values())


def test_an_unclosed_quote_that_swallows_lines_is_named_where_it_opens(tmp_path: Path) -> None:
    text = lines(GOOD) + "SENDONCE_FROM_NAME='The\nSENDONCE_LEASE_SECONDS=6\nSENDONCE_PREVIEW_TEXT=it's so\n"
    assert f"{tmp_path / '.env'} line 5: " in fault_of(text, tmp_path)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_numbers_stay_right_behind_a_bad_line(newline: str, tmp_path: Path) -> None:
    text = f"a b\n\nc d\n{lines(GOOD)}SENDONCE_X=1\n".replace("\n", newline)
    message = fault_of(text.encode(), tmp_path)
    numbers = [int(number) for number in re.findall(r"\.env line (\d+)", message)]
    assert numbers == [1, 3, 8]


@pytest.mark.parametrize(
    "second", ["SENDONCE_STATE=/elsewhere", "SENDONCE_STATE=", "SENDONCE_STATE=/var/lib/sendonce"]
)
def test_a_name_given_twice_is_a_fault_whichever_value_would_win(second: str, tmp_path: Path) -> None:
    message = fault_of(lines(GOOD) + second + "\n", tmp_path)
    assert f"{tmp_path / '.env'} line 5: SENDONCE_STATE is set a second time (first on line 2)" in message
    assert f"{tmp_path / '.env'} line 6: A is set a second time" in fault_of(
        lines(GOOD) + "A=1\nA=2\n", tmp_path
    )


def test_a_misspelt_name_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    message = fault_of(lines(GOOD) + "SENDONCE_SUBJET=x\n", tmp_path)
    assert "line 5: there is no setting SENDONCE_SUBJET; is SENDONCE_SUBJECT meant?" in message


def test_a_misspelt_name_of_mailchimp_is_a_warning_as_the_file_may_serve_others(tmp_path: Path) -> None:
    it = loaded(lines(GOOD) + "MAILCHIMP_API_ULR=http://127.0.0.1:1/3.0\nMAILCHIMP_WEBHOOK=x\n", tmp_path)
    assert it.warnings == (
        f"{tmp_path / '.env'} line 5: sendonce has no setting MAILCHIMP_API_ULR; is MAILCHIMP_API_URL meant?",
        f"{tmp_path / '.env'} line 6: sendonce has no setting MAILCHIMP_WEBHOOK",
    )


def test_an_unknown_name_in_the_environment_is_only_a_warning(tmp_path: Path) -> None:
    it = loaded(GOOD, tmp_path, SENDONCE_PORT="tcp://10.0.0.1:80", SENDONCE_A="", OTHER="x", MAILCHIMP_X="y")
    assert it.warnings == (
        "The environment has names that are no settings of sendonce: SENDONCE_A, SENDONCE_PORT.",
    )


@pytest.mark.parametrize(
    ("line", "is_cut"),
    [
        ("SENDONCE_TITLE=Digest #{date}", True),
        ("SENDONCE_TITLE= #{date}", True),
        ("SENDONCE_TITLE={date} # the title", True),
        ("SENDONCE_TITLE={date}\t#1", True),
        ("SENDONCE_SUBJECT=We're #1", True),
        ("SENDONCE_FROM_NAME=Radio #1", True),
        ("SENDONCE_PREVIEW_TEXT=Our #1", True),
        ("SENDONCE_TITLE='Digest #{date}'", False),
        ('SENDONCE_TITLE="Digest #{date}" # the title', False),
        ("SENDONCE_TITLE=Digest#{date}", False),
        ("SENDONCE_TITLE=#{date}", False),
        ("SENDONCE_STATE=/srv # here", False),
    ],
)
def test_a_text_that_a_comment_cuts_short_is_a_fault(line: str, *, is_cut: bool, tmp_path: Path) -> None:
    name = line.partition("=")[0]
    text = lines({n: v for n, v in GOOD.items() if n != name}) + line + "\n"
    if is_cut:
        message = fault_of(text, tmp_path)
        assert re.search(
            rf'\.env line \d: the value of {name} ends at " #".*put the value in quotes', message
        )
    else:
        assert loaded(text, tmp_path).origins[name] != "default"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"A=1\nB=\xe9\n", 2),
        ("\ufeffA=1\n".encode("utf-16"), 1),
        (b"A=1\n\xff\xfe", 2),
    ],
)
def test_a_file_that_is_not_utf8_is_a_fault(content: bytes, line: int, tmp_path: Path) -> None:
    assert re.search(rf"\.env line {line}: byte \d+ of the file is not UTF-8", fault_of(content, tmp_path))


def test_a_file_of_another_kind_altogether_is_not_read_to_its_end(tmp_path: Path) -> None:
    assert "more than 1048576 bytes" in fault_of(b"#" * 2_000_000, tmp_path)


# --- each setting


NO_PREFIX = [
    *("127.0.0.1:9/#", "https://us1.admin.mailchimp.com", "none", "server", "us1.api.mailchimp.com", "us1/"),
    *("US1", "us", "1", "us1234", "us1@evil.example", "us1.", "us-1", "us1\u200b", "us１", "'us1"),
]


@pytest.mark.parametrize("prefix", NO_PREFIX)
def test_a_server_prefix_that_could_lead_the_key_elsewhere_is_a_fault(prefix: str, tmp_path: Path) -> None:
    message = fault_of(lines(GOOD), tmp_path, MAILCHIMP_SERVER_PREFIX=prefix)
    assert "MAILCHIMP_SERVER_PREFIX (environment)" in message
    assert "us19" in message


def test_a_server_prefix_that_is_not_the_keys_is_a_fault(tmp_path: Path) -> None:
    message = fault_of(GOOD | {"MAILCHIMP_SERVER_PREFIX": "us7"}, tmp_path)
    assert "MAILCHIMP_SERVER_PREFIX" in message
    assert '"us7" is not the data centre of the key, us1' in message
    # Also when the stronger source brings another key than the file's prefix was written for.
    env = GOOD | {"MAILCHIMP_SERVER_PREFIX": "us1"}
    assert '"us1" is not the data centre of the key, us7' in fault_of(
        env, tmp_path, MAILCHIMP_API_KEY=f"{HEX}-us7"
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (HEX, "has no data centre at its end"),
        (f"{HEX}-us1\\n", "has U+005C at character 37"),
        (f"\u200b{HEX}-us1", "has U+200B at character 1"),
        (f"“{HEX}-us1”", "has U+201C at character 1, U+201D at character 38"),
        (f"{HEX[:16]}\u00ad{HEX[16:]}-us1", "has U+00AD at character 17"),
        (f"{HEX}\u2011us1", "has U+2011 at character 33"),
        (f"{HEX}-us1@evil.example", "has U+0040 at character 37"),
        (f"{HEX}-us1.evil.example/x", "has U+002E at character 37"),
        (f"'{HEX}-us1", "has U+0027 at character 1"),
        (f"{HEX}-us１", "has U+FF11 at character 36"),
        (f"{HEX} -us1", "has U+0020 at character 33"),
        (f"{HEX}-evil", "does not have the form of a key"),
        (f"{HEX}-us1-us2", "does not have the form of a key"),
        (f"{HEX}-us", "does not have the form of a key"),
        (f"{HEX}-US1", "does not have the form of a key"),
        ("a" * 65 + "-us1", "does not have the form of a key"),
        ("abc-us1", "does not have the form of a key"),
        ("-us1", "does not have the form of a key"),
    ],
)
def test_a_key_that_is_none_is_named_without_being_shown(key: str, said: str, tmp_path: Path) -> None:
    message = fault_of(lines(GOOD), tmp_path, MAILCHIMP_API_KEY=key)
    assert said in message
    assert "MAILCHIMP_API_KEY (environment)" in message
    assert "20 to 64 letters and digits, a hyphen and the data centre" in message
    assert "aaaaa" not in message
    assert "abc" not in message


def test_a_newline_at_the_end_of_an_exported_key_is_named(tmp_path: Path) -> None:
    assert "has U+000A at character 37" in fault_of(lines(GOOD), tmp_path, MAILCHIMP_API_KEY=f"{KEY}\n")
    assert "has U+000D at character 37" in fault_of(lines(GOOD), tmp_path, MAILCHIMP_API_KEY=f"{KEY}\r")


def test_a_key_on_any_spoilt_line_stays_out_of_the_message(tmp_path: Path) -> None:
    rest = lines({name: value for name, value in GOOD.items() if name != "MAILCHIMP_API_KEY"})
    for line in (
        KEY,
        HEX,
        f"{KEY}=x",
        f"MAILCHIMP_API_KEY: {KEY}",
        f'MAILCHIMP_API_KEY="{KEY}',
        f"MAILCHIMP_API_KEY {KEY}",
        f"SENDONCE_{KEY}=x",
        f"MAILCHIMP_API_KEY=x\nSENDONCE_SUBJECT={KEY} {{{KEY}}}",
        f"MAILCHIMP_API_KEY=x\nSENDONCE_FROM_NAME={KEY}\x07",
        f"SENDONCE_LIST_ID={HEX}",
        f"SENDONCE_HTML_FILE={{{HEX}}}",
        f"MAILCHIMP_SERVER_PREFIX={KEY}",
        f"MAILCHIMP_API_KEY_FILE={KEY}",
        f"MAILCHIMP_API_URL=http://user:{KEY}@127.0.0.1:80/3.0",
        f"SENDONCE_STATE=redis://:{KEY}@localhost",
    ):
        fault_of(line + "\n" + rest, tmp_path)


def test_a_secret_does_not_show_itself(tmp_path: Path) -> None:
    it = loaded(GOOD, tmp_path)
    for said in (repr(it), str(it), f"{it.api_key}", f"{it.api_key!r}", ascii(it.api_key)):
        assert "5ec4e" not in said
    assert str(it.api_key) == "5ec4…-us1"
    assert it.api_key is not None
    assert it.api_key.reveal() == KEY
    assert str(Secret("short-us1")) == "…"
    assert {Secret(KEY), Secret(KEY)} == {it.api_key}
    assert it.api_key != KEY


def test_a_key_file_gives_the_key_less_one_newline(tmp_path: Path) -> None:
    rest = GOOD | {"MAILCHIMP_API_KEY": "", "MAILCHIMP_API_KEY_FILE": "key"}
    for newline in ("", "\n", "\r\n"):
        written(tmp_path / "key", KEY + newline)
        it = loaded(rest, tmp_path)
        assert it.api_key == Secret(KEY)
        assert it.origins["MAILCHIMP_API_KEY"] == (
            f"{tmp_path}/key, which MAILCHIMP_API_KEY_FILE names ({tmp_path}/.env line 5)"
        )
    written(tmp_path / "key", KEY + "\n\n")
    assert "has U+000A at character 37" in fault_of(rest, tmp_path)
    written(tmp_path / "key", "\ufeff" + KEY)
    assert "has U+FEFF at character 1" in fault_of(rest, tmp_path)
    written(tmp_path / "key", "")
    assert "does not have the form" in fault_of(rest, tmp_path) or "no data centre" in fault_of(
        rest, tmp_path
    )


def test_a_key_file_is_trusted_no_more_than_the_env_file(tmp_path: Path) -> None:
    rest = GOOD | {"MAILCHIMP_API_KEY": "", "MAILCHIMP_API_KEY_FILE": "key"}
    assert f"{tmp_path}/key does not exist" in fault_of(rest, tmp_path)
    written(tmp_path / "key", KEY, mode=0o602)
    assert f"{tmp_path}/key can be written by others (mode 0602)" in fault_of(rest, tmp_path)
    written(tmp_path / "key", KEY, mode=0o604)
    assert loaded(rest, tmp_path).warnings == (
        f"{tmp_path}/key can be read by others (mode 0604). Run: chmod 600 {tmp_path}/key",
    )
    (tmp_path / "key").unlink()
    (tmp_path / "key").mkdir()
    assert f"{tmp_path}/key is a folder" in fault_of(rest, tmp_path)


def test_key_and_key_file_in_one_place_are_a_fault_and_in_two_the_stronger_wins(tmp_path: Path) -> None:
    other = f"{HEX[::-1]}-us1"
    written(tmp_path / "key", other)
    both = {"MAILCHIMP_API_KEY": KEY, "MAILCHIMP_API_KEY_FILE": str(tmp_path / "key")}
    message = fault_of(GOOD | both, tmp_path)
    assert "are both set; leave one" in message
    assert f"MAILCHIMP_API_KEY_FILE ({tmp_path}/.env line 5)" in message
    assert "are both set" in fault_of(GOOD, tmp_path, **both)

    file_in_env = loaded(GOOD, tmp_path, MAILCHIMP_API_KEY_FILE=str(tmp_path / "key"))
    assert file_in_env.api_key == Secret(other)
    only_file = GOOD | {"MAILCHIMP_API_KEY": "", "MAILCHIMP_API_KEY_FILE": str(tmp_path / "key")}
    assert loaded(only_file, tmp_path, MAILCHIMP_API_KEY=KEY).api_key == Secret(KEY)
    key_in_env = loaded(only_file, tmp_path, MAILCHIMP_API_KEY=KEY).origins
    assert key_in_env["MAILCHIMP_API_KEY"] == "environment"
    assert "MAILCHIMP_API_KEY_FILE" not in key_in_env


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:8025/3.0", "127.0.0.1:8025"),
        ("http://localhost:1/3.0", "localhost:1"),
        ("http://[::1]:65535/3.0", "[::1]:65535"),
    ],
)
def test_another_base_url_on_this_machine_is_the_api_host(url: str, host: str, tmp_path: Path) -> None:
    it = loaded(GOOD, tmp_path, MAILCHIMP_API_URL=url)
    assert (it.api_host, it.base_url, it.server_prefix) == (host, url, "us1")


@pytest.mark.parametrize(
    "url",
    [
        "https://us1.api.mailchimp.com/3.0",
        "http://evil.example:80/3.0",
        "http://127.0.0.1.evil.example:80/3.0",
        "http://127.0.0.1/3.0",
        "http://127.0.0.1:80/",
        "http://127.0.0.1:80/3.0/",
        "http://127.0.0.1:80/3.0?x=1",
        "http://127.0.0.1:80/3.0#x",
        "http://user@127.0.0.1:80/3.0",
        "http://127.0.0.1:80@evil.example/3.0",
        "http://127.0.0.1:0/3.0",
        "http://127.0.0.1:65536/3.0",
        "http://127.0.0.1:８０/3.0",
        "http://0.0.0.0:80/3.0",
        "http://localhost.:80/3.0",
        "HTTP://localhost:80/3.0",
        "http://127x0.0.1:80/3.0",
        "localhost:80/3.0",
        "http://127.0.0.1:80/3.0\n",
    ],
)
def test_a_base_url_anywhere_else_is_a_fault(url: str, tmp_path: Path) -> None:
    assert "MAILCHIMP_API_URL (environment)" in fault_of(GOOD, tmp_path, MAILCHIMP_API_URL=url)


@pytest.mark.parametrize(
    "zone",
    [
        *(
            "Europe/Berln",
            '"Europe/Berlin"',
            "Europe",
            "Berlin",
            "CEST",
            "UTC+1",
            "../etc/localtime",
            "/etc/localtime",
        ),
        *(
            "localtime",
            "posixrules",
            "posix/Europe/Berlin",
            "right/Europe/Berlin",
            "Factory",
            "tzdata.zi",
            "zone.tab",
        ),
        *(
            "Europe/Berlin ",
            "Europe/Berlin\r",
            "Europe//Berlin",
            "Europe/Berlin\u200b",
            "Europe/../UTC",
            "\udcff",
            "-",
        ),
        *("x" * 300, "europe\\berlin"),
    ],
)
def test_a_time_zone_that_does_not_exist_is_a_fault_and_never_utc(zone: str, tmp_path: Path) -> None:
    message = fault_of(GOOD, tmp_path, SENDONCE_TIMEZONE=zone)
    assert "SENDONCE_TIMEZONE (environment)" in message
    assert "is no time zone; wanted: an IANA name, as Europe/Berlin" in message
    assert zone[:6].strip() in message or not zone.isascii()


@pytest.mark.parametrize(
    "zone", ["UTC", "Etc/UTC", "Etc/GMT+5", "Pacific/Kiritimati", "America/Port-au-Prince"]
)
def test_a_time_zone_that_exists_is_taken_as_it_is(zone: str, tmp_path: Path) -> None:
    assert loaded(GOOD, tmp_path, SENDONCE_TIMEZONE=zone).zone == zone


def test_a_machine_without_time_zone_data_is_told_so(tmp_path: Path) -> None:
    written(tmp_path / ".env", lines(GOOD))
    code = (
        "import sys, pathlib\n"
        "sys.modules['tzdata'] = None\n"  # as if the package were not installed
        "from sendonce import settings\n"
        "settings.load(pathlib.Path(sys.argv[1]), None, {}, pathlib.Path('/'))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / ".env")],
        env=os.environ | {"PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "SettingsWrong: Nothing was sent: SENDONCE_TIMEZONE" in run.stderr
    assert (
        '"Europe/Berlin" cannot be looked up: this machine has no time zone data; install tzdata'
        in run.stderr
    )


LIMITS = {
    "SENDONCE_LEASE_SECONDS": ("3", "300", "2.99", "300.1"),
    "SENDONCE_LOCK_WAIT_SECONDS": ("0", "3600", "-1", "3601"),
    "SENDONCE_TIMEOUT_SECONDS": ("1", "600", "0.9", "601"),
    "SENDONCE_SETTLE_SECONDS": ("1", "3600", "0", "3600.5"),
    "SENDONCE_LISTING_SECONDS": ("0", "600", "-0.1", "601"),
    "SENDONCE_DEADLINE_SECONDS": ("5", "86400", "4", "86401"),
}
FIELDS = {
    "SENDONCE_LEASE_SECONDS": "lease_s",
    "SENDONCE_LOCK_WAIT_SECONDS": "lock_wait_s",
    "SENDONCE_TIMEOUT_SECONDS": "timeout_s",
    "SENDONCE_SETTLE_SECONDS": "settle_s",
    "SENDONCE_LISTING_SECONDS": "listing_s",
    "SENDONCE_DEADLINE_SECONDS": "deadline_s",
}


@pytest.mark.parametrize("name", list(LIMITS))
def test_seconds_are_taken_up_to_their_limits_and_not_beyond(name: str, tmp_path: Path) -> None:
    low, high, below, above = LIMITS[name]
    for text in (low, high):
        assert getattr(loaded(GOOD, tmp_path, **{name: text}), FIELDS[name]) == float(text)
    for text in (below, above):
        assert f"seconds from {low} to {high}" in fault_of(GOOD, tmp_path, **{name: text})


def test_guards_that_are_set_arrive_and_those_that_are_not_are_off(tmp_path: Path) -> None:
    off = loaded(GOOD, tmp_path).guards
    assert (off.refuses_stale, off.draft_quiet_s) == (False, None)
    on = loaded(GOOD, tmp_path, SENDONCE_REFUSE_STALE="yes", SENDONCE_DRAFT_QUIET_SECONDS="900").guards
    assert (on.refuses_stale, on.draft_quiet_s) == (True, 900.0)
    assert not loaded(GOOD, tmp_path, SENDONCE_REFUSE_STALE="no").guards.refuses_stale
    for name, text in (
        ("SENDONCE_REFUSE_STALE", "true"),
        ("SENDONCE_DRAFT_QUIET_SECONDS", "0"),
        ("SENDONCE_DRAFT_QUIET_SECONDS", "86401"),
        ("SENDONCE_DRAFT_QUIET_SECONDS", "15m"),
    ):
        assert f"{name} (environment)" in fault_of(GOOD, tmp_path, **{name: text})


@pytest.mark.parametrize(
    ("values", "name", "said"),
    [
        (GOOD_HTML, "SENDONCE_DRAFT_QUIET_SECONDS", "with SENDONCE_SOURCE=html: it is for draft"),
        (GOOD, "SENDONCE_DRAFT_QUIET_SECONDS", ""),
        (GOOD, "SENDONCE_REFUSE_STALE", "with SENDONCE_SOURCE=draft: it is for replicate and html"),
        (GOOD_HTML, "SENDONCE_REFUSE_STALE", "while SENDONCE_SUBJECT has a date in it"),
        (GOOD_HTML | {"SENDONCE_SUBJECT": "News"}, "SENDONCE_REFUSE_STALE", ""),
        (GOOD, "SENDONCE_REFUSE_PLACEHOLDERS", "with SENDONCE_SOURCE=draft: it is for replicate and html"),
        (GOOD_HTML, "SENDONCE_REFUSE_PLACEHOLDERS", ""),
        (GOOD, "SENDONCE_HTML_MAX_AGE_HOURS", "with SENDONCE_SOURCE=draft: it is for html"),
        (GOOD_HTML, "SENDONCE_HTML_MAX_AGE_HOURS", ""),
        (GOOD, "SENDONCE_RECIPIENT_GUARD", "with SENDONCE_SOURCE=draft: it is for replicate and html"),
        (GOOD_HTML, "SENDONCE_RECIPIENT_GUARD", ""),
    ],
)
def test_a_guard_that_can_never_refuse_is_a_warning(
    values: dict[str, str], name: str, said: str, tmp_path: Path
) -> None:
    value = "yes" if "REFUSE" in name else "job" if "RECIPIENT" in name else "900"
    warned = [one for one in loaded(values, tmp_path, **{name: value}).warnings if name in one]
    assert len(warned) == (1 if said else 0)
    assert all(f"{name} guards nothing {said}" in one for one in warned)


def test_a_deadline_within_a_lease_is_a_warning(tmp_path: Path) -> None:
    """Such a run could not watch a foreign marker for a whole lease: it would end with 75 for ever."""
    short = loaded(GOOD, tmp_path, SENDONCE_DEADLINE_SECONDS="60", SENDONCE_LEASE_SECONDS="60")
    assert any("SENDONCE_DEADLINE_SECONDS (60) should be longer" in said for said in short.warnings)
    long = loaded(GOOD, tmp_path, SENDONCE_DEADLINE_SECONDS="61", SENDONCE_LEASE_SECONDS="60")
    assert not any("SENDONCE_DEADLINE_SECONDS" in said for said in long.warnings)


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-inf", "1e2", "1_0", "0x10", "10s", "٣٠", "3,5", "10.", ".5", "+10", "1" * 5000]
)
@pytest.mark.parametrize("name", list(LIMITS))
def test_what_is_not_a_plain_number_of_seconds_is_a_fault(name: str, text: str, tmp_path: Path) -> None:
    message = fault_of(GOOD, tmp_path, **{name: text})
    assert f"{name} (environment)" in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SENDONCE_JOB", "Daily"),
        ("SENDONCE_JOB", "../daily"),
        ("SENDONCE_JOB", "-daily"),
        ("SENDONCE_JOB", "a" * 41),
        ("SENDONCE_JOB", "tägl"),
        ("SENDONCE_JOB", "daily\n"),
        ("SENDONCE_SOURCE", "Draft"),
        ("SENDONCE_SOURCE", "template"),
        ("SENDONCE_LIST_ID", "A1B2C3D4E5"),
        ("SENDONCE_LIST_ID", "a1b2c"),
        ("SENDONCE_LIST_ID", "../campaigns"),
        ("SENDONCE_LIST_ID", "a1b2c3d4e5\n"),
        ("SENDONCE_REPLICATE_FROM", "server"),
        ("SENDONCE_REPLICATE_FROM", "0123456789/actions/send"),
        ("SENDONCE_SEGMENT_ID", "x"),
        ("SENDONCE_SEGMENT_ID", "0"),
        ("SENDONCE_SEGMENT_ID", "-5"),
        ("SENDONCE_SEGMENT_ID", "１"),
        ("SENDONCE_SEGMENT_ID", "1.0"),
        ("SENDONCE_REPLY_TO", "news"),
        ("SENDONCE_REPLY_TO", "news@localhost"),
        ("SENDONCE_REPLY_TO", "a@example.com, b@example.com"),
        ("SENDONCE_REPLY_TO", "News <news@example.com>"),
        ("SENDONCE_REPLY_TO", "news@exa mple.com"),
        ("SENDONCE_REPLY_TO", "news@example..com"),
        ("SENDONCE_REPLY_TO", "news@example.com\nBcc: x@example.com"),
        ("SENDONCE_TITLE", "Daily news"),
        ("SENDONCE_TITLE", "{date:%d %B}"),
        ("SENDONCE_TITLE", "{date} "),
        ("SENDONCE_TITLE", "{title} {date}"),
        ("SENDONCE_SUBJECT", "News {name}"),
        ("SENDONCE_SUBJECT", "News\x1b[31m"),
        ("SENDONCE_FROM_NAME", "A\nB"),
        ("SENDONCE_FROM_NAME", " A"),
        ("SENDONCE_PREVIEW_TEXT", "A\x00"),
        ("SENDONCE_PREVIEW_TEXT", "\udcff"),
        ("SENDONCE_HTML_FILE", "/srv/{day}.html"),
        ("SENDONCE_HTML_FILE", "/srv/{date:%H}.html"),
        ("SENDONCE_HTML_FILE", "content/{date}.html"),
        ("SENDONCE_HTML_FILE", "~/{date}.html"),
        ("SENDONCE_STATE", "state"),
        ("SENDONCE_STATE", "./state"),
        ("SENDONCE_STATE", "~/state"),
        ("SENDONCE_STATE", "~root/state"),
        ("SENDONCE_STATE", "$HOME/state"),
        ("SENDONCE_STATE", "/srv/${NAME}/state"),
        ("SENDONCE_STATE", "/srv/$(hostname)"),
        ("SENDONCE_STATE", "/srv/state\n"),
        ("SENDONCE_STATE", "/srv/state "),
        ("SENDONCE_STATE", "/srv/\0"),
        ("SENDONCE_STATE", "postgresql://u:p@h/db"),
        ("SENDONCE_STATE", "sqlite:///relative.db"),
        ("SENDONCE_LOG_FILE", "sendonce.log"),
        ("SENDONCE_LOG_FILE", "~/sendonce.log"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_setting_and_origin(
    name: str, text: str, tmp_path: Path
) -> None:
    message = fault_of(GOOD, tmp_path, **{name: text})
    assert message.startswith(f"Nothing was sent: {name} (environment): ")
    assert message.isprintable()


def test_nothing_of_a_state_url_that_cannot_be_used_is_shown_but_its_scheme(tmp_path: Path) -> None:
    message = fault_of(GOOD, tmp_path, SENDONCE_STATE="mongodb://user:hunter2@localhost")
    assert "SENDONCE_STATE (environment): the URL begins with mongodb://, which is not known" in message
    assert "hunter2" not in message


def test_a_state_url_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.touch(mode=0o600)
    file.write_text("redis://:hunter2@cache:6379/0\n")
    values = {name: value for name, value in GOOD.items() if name != "SENDONCE_STATE"}
    state = loaded(values | {"SENDONCE_STATE_FILE": str(file)}, tmp_path).state
    assert isinstance(state, StateUrl)
    assert (state.url.reveal(), state.place) == ("redis://:hunter2@cache:6379/0", "redis://cache:6379/0")
    assert "hunter2" not in repr(state)


@pytest.mark.parametrize(
    "text", ["redis:/:hunter2@host/0", "host=db password=hunter2 dbname=x", "postgresql:hunter2@h/db"]
)
def test_what_was_meant_as_a_url_is_neither_a_folder_nor_shown(text: str, tmp_path: Path) -> None:
    message = fault_of(GOOD, tmp_path, SENDONCE_STATE=text)
    assert "SENDONCE_STATE (environment): the value looks like a URL" in message
    assert "hunter2" not in message
    file = written(tmp_path / "url", text)
    values = {name: value for name, value in GOOD.items() if name != "SENDONCE_STATE"}
    message = fault_of(values | {"SENDONCE_STATE_FILE": str(file)}, tmp_path)
    assert "SENDONCE_STATE_FILE" in message
    assert "hunter2" not in message


def test_a_state_and_a_file_for_it_in_one_source_are_a_fault(tmp_path: Path) -> None:
    assert "are both set; leave one" in fault_of(GOOD | {"SENDONCE_STATE_FILE": "url"}, tmp_path)


def test_what_cannot_be_seen_is_shown_by_its_code_point(tmp_path: Path) -> None:
    message = fault_of(GOOD, tmp_path, SENDONCE_LIST_ID="a1b2c3\u200bd4e5\u00a0")
    assert '"a1b2c3<U+200B>d4e5<U+00A0>"' in message


def test_a_very_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    assert len(fault_of(GOOD, tmp_path, SENDONCE_LIST_ID="z" * 100_000)) < 400


@pytest.mark.parametrize(
    "name", [name for name in GOOD_HTML if name not in GOOD and name != "SENDONCE_SOURCE"]
)
def test_html_needs_its_five_settings(name: str, tmp_path: Path) -> None:
    assert loaded(GOOD_HTML, tmp_path).source is Source.HTML
    message = fault_of({n: v for n, v in GOOD_HTML.items() if n != name}, tmp_path)
    assert f"{name} is not set" in message
    assert "SENDONCE_SOURCE=html needs it" in message


def test_replicate_needs_its_source_campaign(tmp_path: Path) -> None:
    message = fault_of(GOOD | {"SENDONCE_SOURCE": "replicate"}, tmp_path)
    assert "SENDONCE_REPLICATE_FROM is not set" in message
    assert "SENDONCE_SOURCE=replicate needs it" in message
    good = GOOD | {"SENDONCE_SOURCE": "replicate", "SENDONCE_REPLICATE_FROM": "1a2b3c4d5e"}
    assert loaded(good, tmp_path).replicate_from == "1a2b3c4d5e"


@pytest.mark.parametrize("job", ["", " ", "Daily", "a/b", "a" * 41, "daily\n"])
def test_a_job_flag_that_cannot_be_a_name_is_wrong_usage(job: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="--job"):
        settings.load(written(tmp_path / ".env", lines(GOOD)), job, {}, Path("/"))


def test_all_faults_are_reported_together_with_name_origin_value_and_what_would_be_right(
    tmp_path: Path,
) -> None:
    text = (
        f"MAILCHIMP_API_KEY={HEX}\n"
        "SENDONCE_STATE=https://x\n"
        "SENDONCE_TIMEZONE=Europe/Berln\n"
        "SENDONCE_TITLE=Daily\n"
        "SENDONCE_SUBJECT=News #1\n"
        "SENDONCE_SOURCE=html\n"
        "SENDONCE_TYPO=1\n"
    )
    message = fault_of(text, tmp_path, SENDONCE_LEASE_SECONDS="1", SENDONCE_LOG_FILE="log")
    head, *faults = message.split("\n  ")
    env = f"{tmp_path}/.env line"
    assert head == "Nothing was sent: there are 12 faults in the settings."
    assert len(faults) == 12
    for said in (
        f'{env} 5: the value of SENDONCE_SUBJECT ends at " #"',
        f"{env} 7: there is no setting SENDONCE_TYPO",
        f"MAILCHIMP_API_KEY ({env} 1): the value (5ec4…) has no data centre at its end",
        f"SENDONCE_STATE ({env} 2): the URL begins with https://, which is not known",
        f'SENDONCE_TIMEZONE ({env} 3): "Europe/Berln" is no time zone',
        f'SENDONCE_TITLE ({env} 4): "Daily" does not identify the date',
        'SENDONCE_LEASE_SECONDS (environment): "1" cannot be used; wanted: seconds from 3 to 300',
        'SENDONCE_LOG_FILE (environment): "log" is relative; a path must be absolute when set in the environment',
        "SENDONCE_LIST_ID is not set",
        "SENDONCE_HTML_FILE is not set",
        "SENDONCE_FROM_NAME is not set",
        "SENDONCE_REPLY_TO is not set",
    ):
        assert sum(fault.startswith(said) for fault in faults) == 1, said


# --- paths


def test_relative_paths_start_at_the_folder_of_the_env_file_whatever_the_working_directory(
    tmp_path: Path,
) -> None:
    paths = {
        "SENDONCE_STATE": "state",
        "SENDONCE_HTML_FILE": "content/{date}.html",
        "SENDONCE_LOG_FILE": "../log",
    }
    folder, a, b = tmp_path / "etc", tmp_path / "a", tmp_path / "b"
    for one in (folder, a, b):
        one.mkdir()
    env = written(folder / ".env", lines(GOOD_HTML | paths))
    from_a = settings.load(env, None, {}, a)
    from_b = settings.load(Path("../etc/.env"), None, {}, b)
    assert from_a.state == from_b.state == folder / "state"
    assert from_a.html_file == from_b.html_file == f"{folder}/content/{{date}}.html"
    assert from_a.log_file == folder / "../log"


def test_relative_paths_start_where_a_linked_env_file_really_lies(tmp_path: Path) -> None:
    """Each deployment links to the one .env: with the link's folder, each would have a ledger of its own."""
    shared, release = tmp_path / "shared", tmp_path / "release"
    shared.mkdir()
    release.mkdir()
    written(shared / ".env", lines(GOOD | {"SENDONCE_STATE": "state"}))
    (release / ".env").symlink_to(shared / ".env")
    assert settings.load(release / ".env", None, {}, Path("/")).state == shared / "state"


def test_a_folder_with_braces_does_not_become_part_of_the_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "{job}"
    folder.mkdir()
    it = loaded(GOOD_HTML, folder)
    assert it.html_file == f"{tmp_path}/{{{{job}}}}/content/{{date}}.html"


# --- who may write it


@pytest.mark.parametrize("mode", [0o602, 0o606, 0o622, 0o666, 0o777])
def test_an_env_file_that_others_may_write_is_a_fault(mode: int, tmp_path: Path) -> None:
    path = written(tmp_path / ".env", lines(GOOD), mode)
    with pytest.raises(SettingsWrong) as caught:
        settings.load(path, None, {}, Path("/"))
    assert f"{path} can be written by others (mode {mode:04o})" in caught.value.message
    assert caught.value.message.endswith(f"Run: chmod go-w {path}")


@pytest.mark.parametrize("mode", [0o604, 0o644])
def test_an_env_file_that_others_may_read_is_a_warning(mode: int, tmp_path: Path) -> None:
    path = written(tmp_path / ".env", lines(GOOD), mode)
    it = settings.load(path, None, {}, Path("/"))
    assert it.warnings == (f"{path} can be read by others (mode {mode:04o}). Run: chmod 600 {path}",)


def test_a_folder_that_others_may_write_is_a_fault_unless_it_is_sticky(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    path = written(folder / ".env", lines(GOOD))
    folder.chmod(0o777)
    with pytest.raises(SettingsWrong, match=re.escape(f"{folder} can be written by others (mode 0777)")):
        settings.load(path, None, {}, Path("/"))
    folder.chmod(0o1777)
    assert settings.load(path, None, {}, Path("/")).warnings == ()


def test_both_folders_of_a_linked_env_file_must_be_safe(tmp_path: Path) -> None:
    safe, unsafe = tmp_path / "safe", tmp_path / "unsafe"
    for here, there in ((safe, unsafe), (unsafe, safe)):
        here.mkdir(exist_ok=True)
        there.mkdir(exist_ok=True)
        unsafe.chmod(0o777)
        target = written(there / "real.env", lines(GOOD))
        (here / "link.env").symlink_to(target)
        with pytest.raises(SettingsWrong, match=re.escape(f"{unsafe} can be written by others")):
            settings.load(here / "link.env", None, {}, Path("/"))


@only_root
def test_an_env_file_of_somebody_else_is_a_fault(tmp_path: Path) -> None:
    path = written(tmp_path / ".env", lines(GOOD))
    os.chown(path, 54321, 0)
    with pytest.raises(
        SettingsWrong, match=rf"{re.escape(str(path))} belongs to uid 54321.*\(uid 0\) or to root"
    ):
        settings.load(path, None, {}, Path("/"))


@only_root
def test_an_env_file_in_a_folder_of_somebody_else_is_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    path = written(folder / ".env", lines(GOOD))
    os.chown(folder, 54321, 0)
    with pytest.raises(SettingsWrong, match=re.escape(f"{folder} belongs to uid 54321")):
        settings.load(path, None, {}, Path("/"))


@only_root
@pytest.mark.parametrize(
    ("gid", "is_safe"), [(0, True), (grp.getgrnam("daemon").gr_gid, False), (54321, False)]
)
def test_a_group_may_write_only_if_nobody_else_is_in_it(gid: int, *, is_safe: bool, tmp_path: Path) -> None:
    path = written(tmp_path / ".env", lines(GOOD))
    os.chown(path, 0, gid)
    path.chmod(0o660)
    if is_safe:
        assert settings.load(path, None, {}, Path("/")).warnings == ()
    else:
        with pytest.raises(SettingsWrong, match="can be written by others"):
            settings.load(path, None, {}, Path("/"))
        path.chmod(0o640)
        assert "can be read by others (mode 0640)" in settings.load(path, None, {}, Path("/")).warnings[0]


@only_root
def test_an_ordinary_user_may_use_a_file_of_root_but_is_told_if_it_cannot_read_it() -> None:
    """A child that gives up root, once it has imported what it may no longer read then."""
    code = (
        "import os, sys, pathlib, grp, pwd, dotenv.parser, zoneinfo\n"
        "from sendonce import settings\n"
        "from sendonce.core.errors import SettingsWrong\n"
        "zoneinfo.ZoneInfo('Europe/Berlin')\n"
        "os.setgroups([]); os.setgid(54321); os.setuid(54321)\n"
        "try: print(settings.load(pathlib.Path(sys.argv[1]), None, {}, pathlib.Path('/')).zone)\n"
        "except SettingsWrong as error: print(error)\n"
    )
    # Not tmp_path: pytest closes the folders above it to others.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        path = written(Path(folder, ".env"), lines(GOOD))

        def said() -> str:
            command = [sys.executable, "-c", code, str(path)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

        assert (
            said()
            == f"Nothing was sent: {path} cannot be read: Permission denied; run sendonce as the user to whom it belongs"
        )
        path.chmod(0o644)
        assert said() == "Europe/Berlin"
        # A made-up uid, as in some containers, has no name that a group could be named after.
        os.chown(path, 0, 54321)
        path.chmod(0o664)
        assert said().startswith(f"Nothing was sent: {path} can be written by others (mode 0664)")


# --- what is published


def test_the_example_file_is_the_one_of_the_table() -> None:
    """To renew it: python -c 'from sendonce import settings; print(settings.example_env(), end="")' > .env.example."""
    assert (Path(__file__).parents[2] / ".env.example").read_text(encoding="utf-8") == settings.example_env()


def test_the_example_needs_nothing_but_a_key(tmp_path: Path) -> None:
    text = settings.example_env()
    assert "MAILCHIMP_API_KEY is not set" in fault_of(text, tmp_path)
    it = loaded(text.replace("MAILCHIMP_API_KEY=\n", f"MAILCHIMP_API_KEY={KEY}\n"), tmp_path)
    assert (it.zone, it.state, it.source) == ("Europe/Berlin", Path("/var/lib/sendonce"), Source.DRAFT)
    assert it.warnings == ()


@pytest.mark.parametrize("source", ["draft", "html", "replicate"])
def test_every_line_of_the_example_can_be_switched_on(source: str, tmp_path: Path) -> None:
    text = settings.example_env().replace("#SENDONCE_", "SENDONCE_").replace("#MAILCHIMP_S", "MAILCHIMP_S")
    text = text.replace("SENDONCE_STATE_FILE", "#SENDONCE_STATE_FILE")
    text = text.replace("#MAILCHIMP_ACCOUNT_ID", "MAILCHIMP_ACCOUNT_ID")
    text = text.replace("#MAILCHIMP_API_URL", "MAILCHIMP_API_URL").replace("SOURCE=draft", f"SOURCE={source}")
    it = loaded(text.replace("MAILCHIMP_API_KEY=\n", f"MAILCHIMP_API_KEY={HEX}-us19\n"), tmp_path)
    files = {"MAILCHIMP_API_KEY_FILE", "SENDONCE_STATE_FILE"}
    assert set(it.origins) == {doc.name for doc in settings.SETTINGS} - files
    assert {origin.partition(" line ")[0] for origin in it.origins.values()} == {f"{tmp_path}/.env"}


def test_the_example_says_that_the_name_is_the_release() -> None:
    assert "the name is the release" in settings.example_env()


def test_the_table_has_one_row_for_each_setting_with_its_default_and_limits() -> None:
    head, rule, *rows = settings.settings_table().splitlines()
    assert (head, rule) == ("| setting | default | meaning |", "|---|---|---|")
    assert len(rows) == len(settings.SETTINGS) == 44
    defaults = {row.split(" | ")[0].strip("| `"): row.split(" | ")[1] for row in rows}
    assert defaults["MAILCHIMP_API_KEY"] == "required"
    assert defaults["MAILCHIMP_SERVER_PREFIX"] == "suffix of the key"
    assert defaults["SENDONCE_JOB"] == "`daily`"
    assert defaults["SENDONCE_TITLE"] == "`{job} {date}`"
    assert defaults["SENDONCE_LEASE_SECONDS"] == "60 (3–300)"
    assert defaults["SENDONCE_LOCK_WAIT_SECONDS"] == "lease + 15 (0–3600)"
    assert defaults["SENDONCE_LIST_ID"] == "–"


# --- what init writes


def test_a_rendered_file_loads_to_what_was_rendered(tmp_path: Path) -> None:
    values = GOOD_HTML | {"SENDONCE_FROM_NAME": 'Bob\'s "#1" \\ Daily', "SENDONCE_PREVIEW_TEXT": "#${x} 100%"}
    it = loaded(settings.render_env(values), tmp_path)
    assert (it.from_name, it.preview_text) == ('Bob\'s "#1" \\ Daily', "#${x} 100%")
    assert (it.subject, it.state) == ("News of {date:%d %B %Y}", Path("/var/lib/sendonce"))


def test_plain_values_are_rendered_without_quotes() -> None:
    assert settings.render_env(
        {"SENDONCE_STATE": "/var/lib/x", "SENDONCE_TITLE": "News {date}", "A": ""}
    ) == ("SENDONCE_STATE=/var/lib/x\nSENDONCE_TITLE='News {date}'\nA=\n")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"SENDONCE_TITLE": "a\nb"}, "SENDONCE_TITLE has a newline"),
        ({"SENDONCE_TITLE": "a\rb"}, "SENDONCE_TITLE has a newline"),
        ({"SENDONCE_TITLE": "a\ud800b"}, "not UTF-8"),
        ({"A B": "x"}, '"A B" is not a name'),
        ({"": "x"}, "is not a name"),
        ({"A\n": "x"}, "is not a name"),
    ],
)
def test_what_no_env_file_can_hold_is_not_rendered(values: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsWrong, match=said):
        settings.render_env(values)


# --- what it costs


def test_importing_settings_brings_in_nothing_heavy() -> None:
    heavy = "dotenv zoneinfo requests urllib3 mailchimp_marketing filelock rich click ssl http.client logging json tempfile"
    code = (
        # A coverage run imports things of its own before.
        "import sys; before = set(sys.modules); from sendonce import settings, exits\n"
        f"print([name for name in {heavy.split()} if name in sys.modules.keys() - before])"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_without_an_env_file_its_parser_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from sendonce import settings\n"
        f"settings.load(None, None, {GOOD!r}, pathlib.Path({str(tmp_path)!r}))\n"
        "print('dotenv' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_a_window_that_closes_when_it_opens_is_called_empty(tmp_path: Path) -> None:
    assert "is empty: it closes when it opens" in fault_of(GOOD, tmp_path, SENDONCE_WINDOW="07:00-07:00")
    assert "ends before it begins" in fault_of(GOOD, tmp_path, SENDONCE_WINDOW="07:01-07:00")


@pytest.mark.parametrize(
    "name",
    ["daily.lock", "daily.json", "daily.json.bak", "daily.json.guard", "daily.lock.guard", "weekly.json"],
)
def test_the_record_of_recipients_is_no_file_of_lease_or_ledger(tmp_path: Path, name: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to("state")
    for place in ("state", "link", "state/../state"):
        values = GOOD | {"SENDONCE_STATE": "state", "SENDONCE_RECIPIENTS_FILE": f"{place}/{name}"}
        assert "is where a job keeps its lock or its ledger" in fault_of(values, tmp_path)
    elsewhere = GOOD | {"SENDONCE_STATE": "state", "SENDONCE_RECIPIENTS_FILE": f"other/{name}"}
    assert loaded(elsewhere, tmp_path).recipients_file == tmp_path / "other" / name


def test_the_record_of_recipients_may_be_in_the_state_folder(tmp_path: Path) -> None:
    values = GOOD | {"SENDONCE_STATE": "state", "SENDONCE_RECIPIENTS_FILE": "state/daily.recipients.db"}
    assert loaded(values, tmp_path).recipients_file == tmp_path / "state/daily.recipients.db"
