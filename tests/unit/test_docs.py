"""The pages say what the code says. To renew the README's tables: cog -r README.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from sendonce import __version__
from sendonce.cli import cli
from sendonce.exits import ExitCode
from sendonce.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sendonce.settings import SettingDoc

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CRONTAB = (ROOT / "crontab.example").read_text(encoding="utf-8")
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "crontab.example",
    ".env.example",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
)
SHARED_OPTIONS = {option for parameter in cli.params for option in parameter.opts} | {"--help"}


def commands(group: click.Group = cli, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command and group below a group, with its whole name."""
    for name, command in group.commands.items():
        path = f"{above} {name}".strip()
        yield path, command
        if isinstance(command, click.Group):
            yield from commands(command, path)


ALL = dict(commands())
LEAVES = {path: command for path, command in ALL.items() if not isinstance(command, click.Group)}


def options_of(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def row(table: str, first: str) -> str:
    """The row of a README table whose first cell is `first`."""
    section = README.partition(f"\n## {table}\n")[2].partition("\n## ")[0]
    found = [line for line in section.splitlines() if line.startswith(f"| {first} |")]
    assert len(found) == 1, f"{len(found)} rows for {first} under {table}"
    return found[0]


def shell_lines(page: str) -> list[str]:
    """The lines of a page's shell blocks, comments taken off."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


# --- tables


def test_the_tables_of_the_readme_are_those_of_the_code() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "--diff", "README.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, f"run: cog -r README.md\n{checked.stdout}{checked.stderr}"
    # three tables of several rows, and none lost its end
    assert README.count("[[[cog") == README.count("[[[end]]]") == 3


@pytest.mark.parametrize("doc", SETTINGS, ids=lambda doc: doc.name)
def test_every_setting_is_in_the_readme(doc: SettingDoc) -> None:
    assert doc.meaning in row("Settings", f"`{doc.name}`")


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_in_the_readme(code: ExitCode) -> None:
    assert len(row("Exit codes", str(int(code)))) > len("| 70 | |")


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_and_option_is_in_the_readme(path: str) -> None:
    line = row("Commands", f"`{path}`")
    for option in options_of(LEAVES[path]):
        if not SHARED_OPTIONS & set(option.opts):
            assert any(f"`{name}" in line for name in option.opts), option.opts
    shared = row("Commands", "every command")
    wanted = {option.opts[0] for option in options_of(cli)} - {"--version"}
    assert {name for name in wanted if f"`{name}" not in shared} == set()


@pytest.mark.parametrize("path", ["", *ALL])
def test_every_command_and_option_has_help(path: str) -> None:
    command = ALL.get(path, cli)
    assert command.get_short_help_str(limit=200).strip(".") != ""
    assert [option.opts for option in options_of(command) if not option.help] == []


@pytest.mark.parametrize("path", ALL)
def test_the_first_sentence_of_help_fits_the_list_of_commands(path: str) -> None:
    assert not ALL[path].get_short_help_str(limit=64).endswith("...")


# --- what the pages tell people to type


@pytest.mark.parametrize("page", PAGES)
def test_every_command_in_a_page_exists_with_its_options(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    told = [line.partition(" #")[0] for line in shell_lines(page)] if page.endswith(".md") else []
    told += re.findall(r"`((?:S|sendonce) [^`\n]+)`", text)
    told += [line for line in text.splitlines() if re.match(r"#?\*/", line)]
    for line in told:
        for part in line.split("&&"):
            words = shlex.split(part)
            # the last one: a user may be called sendonce too
            called = [i for i, word in enumerate(words) if re.fullmatch("S|sendonce|.*/bin/sendonce", word)]
            if called and "install" not in words and words[called[-1] + 1 :]:
                assert_is_command(words[called[-1] + 1 :])


def assert_is_command(words: list[str]) -> None:
    """Assert that the words after `sendonce` are a command, and each --option one that it takes."""
    takes_value = {name for option in options_of(cli) if not option.is_flag for name in option.opts}
    command: click.Command = cli
    known = set(SHARED_OPTIONS)
    rest = iter(words)
    for word in rest:
        if word.startswith("-"):
            assert word.partition("=")[0] in known, f"{word} in: sendonce {' '.join(words)}"
            if word in takes_value:
                next(rest, None)
        elif isinstance(command, click.Group):
            assert word in command.commands, f"{word} in: sendonce {' '.join(words)}"
            command = command.commands[word]
            known |= {name for option in options_of(command) for name in option.opts}
            takes_value |= {n for option in options_of(command) if not option.is_flag for n in option.opts}


def test_the_two_commands_for_a_fresh_machine_are_the_first_in_the_readme() -> None:
    assert shell_lines("README.md")[:2] == [
        "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/sendonce demo",
        ".venv/bin/python -m pytest",
    ]


# --- crontab.example


def jobs(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#") and "=" not in line[:8]]


def test_the_crontab_has_one_job_with_full_paths_that_is_quiet() -> None:
    (line,) = jobs(CRONTAB)
    assert line == (
        "*/10 8-11 * * * /opt/sendonce/bin/sendonce --env-file /etc/sendonce/daily.env -q send-batch"
    )
    assert line in README.splitlines()


def test_the_crontab_can_be_pasted() -> None:
    assert CRONTAB.endswith("\n")
    assert "\r" not in CRONTAB
    active = [line for line in CRONTAB.splitlines() if line and not line.startswith("#")]
    assert active[0].startswith("MAILTO=")
    assert active[1:] == jobs(CRONTAB)
    assert not any("%" in line for line in active)


def test_the_variant_for_cron_d_differs_by_the_user_alone() -> None:
    (variant,) = [line for line in CRONTAB.splitlines() if line.startswith("#*")]
    (line,) = jobs(CRONTAB)
    fields = variant.removeprefix("#").split()
    assert fields[5] == "sendonce"
    assert fields[:5] + fields[6:] == line.split()


# --- links, and what no page may name


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".md")])
def test_links_within_the_project_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        if path.startswith("https:"):
            continue
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.is_file(), target
        headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in {
            re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings
        }


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_no_registry_and_no_path_of_somebodys_machine(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    # in halves: this page must not name them either
    hosts = (
        "py" + "pi",
        "python" + "hosted",
        r"debian\." + "org",
        "npm" + "js",
        r"docker\." + "io",
        "gh" + "cr",
    )
    places = (r"\.\./" + "shared", "/wo" + "rk/", "/ho" + "me/", "/Us" + "ers/")
    registries = "|".join((*hosts, *places))
    assert re.findall(registries, text) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_every_page_of_docs_can_be_reached_from_the_readme(page: str) -> None:
    assert f"({page})" in README


def test_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:core|adapters|sandbox|settings|tests|docs)/[\w./-]+|\w+\.py)`", text))
    assert named
    places = (ROOT, ROOT / "src/sendonce", ROOT / "docs")
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()
    tree = text.partition("```")[2].partition("```")[0]
    modules = {path.name for path in (ROOT / "src/sendonce").iterdir() if path.suffix == ".py"} - {
        "__init__.py"
    }
    folders = {path.name for path in (ROOT / "src/sendonce").iterdir() if (path / "__init__.py").exists()}
    assert {name for name in modules if f"\n  {name}" not in tree} == set()
    assert {name for name in folders if f"\n  {name}/" not in tree} == set()


def test_the_changelog_has_this_version() -> None:
    assert f"\n## [{__version__}] - 20" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
