"""Completion in bash, and manual pages: made from the commands, and taken by bash and man."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from sendonce.cli import cli
from sendonce.exits import ExitCode
from sendonce.settings import SETTINGS
from support.runs import COMMAND, LIMIT_S, _coverage

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(sys.executable).with_name("sendonce")
BASH = shutil.which("bash")


def leaves(group: click.Group = cli, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*above, name))
        else:
            yield (*above, name)


LEAVES = sorted(leaves())


# --- completion


def completed(*words: str, path: str | None = None) -> list[str]:
    """What bash offers for the last of these words, with the completion switched on as the docs say."""
    lines = [
        'eval "$(_SENDONCE_COMPLETE=bash_source sendonce)"',
        "complete -p sendonce >&2",
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}",
        "_sendonce_completion sendonce",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        [str(BASH), "--norc", "-euc", "\n".join(lines)],
        env={"PATH": f"{path or SCRIPT.parent}:/usr/bin:/bin", **_coverage()},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "-F _sendonce_completion sendonce" in done.stderr
    return sorted(done.stdout.split())


needs_bash = pytest.mark.skipif(
    BASH is None or not SCRIPT.exists(), reason="there is no bash, or sendonce is not installed as a command"
)


@needs_bash
def test_bash_completes_commands() -> None:
    assert completed("sendonce", "led") == ["ledger"]
    assert completed("sendonce", "ledger", "re") == ["rebuild", "report", "reset"]
    assert "send-batch" in completed("sendonce", "''")


@needs_bash
def test_bash_completes_options_and_their_values() -> None:
    assert completed("sendonce", "send-batch", "--d") == ["--date", "--dry-run"]
    assert completed("sendonce", "-q", "ledger", "list", "--state", "s") == ["sending", "sent", "skipped"]


@needs_bash
def test_a_date_that_is_not_finished_does_not_disturb_the_completion() -> None:
    assert completed("sendonce", "send-batch", "--date", "2026-", "--ea") == ["--early"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_is_printed(shell: str) -> None:
    environ = {"PATH": "/usr/bin:/bin", "_SENDONCE_COMPLETE": f"{shell}_source", **_coverage()}
    done = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, "_SENDONCE_COMPLETE=" in done.stdout) == (0, True)


# --- manual pages


def manual(*words: str) -> str:
    done = subprocess.run(
        [*COMMAND, "man", *words],
        env={"PATH": "/usr/bin:/bin", **_coverage()},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def shown(roff: str) -> str:
    """The text of a page, as man shows it on a terminal; with whatever the formatter has to object."""
    formatter = shutil.which("groff")
    if formatter is None:
        pytest.skip("there is no groff on this machine")
    done = subprocess.run(
        [formatter, "-man", "-ww", "-Tutf8", "-P-c", "-P-bou"],
        input=roff,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    # lines are justified with blanks, which say nothing
    return " ".join(done.stdout.split())


def test_the_page_has_every_command_setting_and_exit_code() -> None:
    roff = manual()
    assert roff.isascii()
    for words in LEAVES:
        assert f'.SS "sendonce {" ".join(words)}"'.replace("-", "\\-") in roff
    for setting in SETTINGS:
        assert f"\n.B {setting.name}\n" in roff
    for code in ExitCode:
        assert f"\n.B {code.value}\n" in roff


def test_the_page_is_shown_without_a_complaint_and_without_a_slip() -> None:
    text = shown(manual())
    assert (
        "NAME sendonce - send the day's Mailchimp campaign from cron, and send it once SYNOPSIS sendonce ["
        in text
    )
    assert (
        "--date D The mailing's date: YYYY-MM-DD, today or yesterday. [default: today in the job's time zone]"
        in text
    )
    assert "SENDONCE_SOURCE Where the day's campaign comes from: draft (a person makes it), replicate" in text
    assert "\\" not in text
    assert "“today”" in text


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_each_command_has_a_page_of_its_own(words: tuple[str, ...]) -> None:
    from sendonce.cli import roff

    command: click.Command = cli
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    text = shown(roff.page(command, words, cli))
    assert f"sendonce-{'-'.join(words)} - " in text
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in {p.name for p in cli.params}:
            assert parameter.opts[-1] in text


def test_man_takes_a_page(tmp_path: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("there is no man on this machine")
    page = tmp_path / "sendonce.1"
    page.write_text(manual("ledger", "calendar"))
    done = subprocess.run(
        ["man", "--warnings", "-P", "cat", "-l", str(page)],
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--month" in done.stdout


def test_a_page_as_json_and_of_what_does_not_exist() -> None:
    assert json.loads(manual("lock", "--json"))["page"].startswith('.TH "SENDONCE\\-LOCK"')
    told = subprocess.run(
        [*COMMAND, "man", "ledger", "nope"], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (told.returncode, told.stdout) == (2, "")
    assert 'There is no command "ledger nope".' in told.stderr


def test_what_only_the_page_needs_is_not_loaded_for_other_commands() -> None:
    code = "import sys, sendonce.cli; print([m for m in sys.modules if m in %r])"
    heavy = ("sendonce.cli.roff", "sendonce.page", "sendonce.views")
    environ = dict(os.environ)
    told = subprocess.run(
        [sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, env=environ, check=True
    )
    assert told.stdout == "[]\n"
