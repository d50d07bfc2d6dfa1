"""The runbook: every end of a command has a section, every section an end, and every message its line."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sendonce import runbook
from sendonce.core import errors
from sendonce.core.model import Ending, Outcome
from sendonce.exits import ExitCode, code_of, code_of_ending
from sendonce.runbook import Section

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCES = [p for p in sorted((ROOT / "src/sendonce").rglob("*.py")) if "sandbox" not in p.parts]
BULLETS = re.findall(r"^- ((?:`[^`\n]+`[,\s]*)+)", runbook.page().partition("\n## ")[2], re.MULTILINE)
PHRASES = [phrase for bullet in BULLETS for phrase in re.findall(r"`([^`\n]+)`", bullet)]
"""What a message has in it by which it is found in the page: a bullet begins with it."""


def kinds(above: type[errors.SendonceError] = errors.SendonceError) -> Iterator[type[errors.SendonceError]]:
    for kind in above.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from kinds(kind)


def exits_told(section: str) -> set[int]:
    """The exit codes that a section says it is about."""
    first = section.partition("**You see**")[0]
    return {int(code) for code in re.findall(r"\b(?:0|1|2|70|75|78)\b", first)}


# --- the sections


def test_the_page_has_each_section_in_order_and_no_other() -> None:
    assert list(runbook.sections()) == [section.value for section in Section]


@pytest.mark.parametrize("section", Section)
def test_each_section_says_what_is_seen_the_state_and_what_to_do(section: Section) -> None:
    text = runbook.sections()[section]
    parts = [text.index(part) for part in ("Exit ", "**You see**", "**State:**", "**Do:")]
    assert parts == sorted(parts)
    assert exits_told(text)


def test_the_list_at_the_beginning_has_each_section_under_its_exit_codes() -> None:
    head = runbook.page().partition("\n## ")[0]
    listed = re.findall(r"^- (\d+): ((?:[a-z, \n-]|\n  )+?)\n(?=- |\n)", head, re.MULTILINE)
    told = {int(code): set(re.split(r",\s+", names.strip())) for code, names in listed}
    assert set(told) == {int(code) for code in ExitCode}
    wanted: dict[int, set[str]] = {int(code): set() for code in ExitCode}
    for name, text in runbook.sections().items():
        for code in exits_told(text) - ({1} if name == "unclear" else set()):
            wanted[code].add(name)
    assert told == wanted


def test_every_section_is_one_that_some_end_belongs_to() -> None:
    by_message = {Section.UNCLEAR, Section.GUARD, Section.REFUSED_COMMAND}
    reached = {runbook.of_ending(ending) for ending in Ending}
    reached |= {*runbook.OF_ERRORS.values(), *runbook.OF_COMMANDS.values()}
    assert reached | by_message == set(Section)


@pytest.mark.parametrize("ending", Ending)
def test_every_ending_has_a_section_of_its_exit_code(ending: Ending) -> None:
    outcome = Outcome(ending, "2026-11-30", "Said.")
    for command in ("send-batch", "check", "explain"):
        section = runbook.of_outcome(command, outcome)
        assert int(code_of_ending(ending)) in exits_told(runbook.sections()[section])


@pytest.mark.parametrize(
    "kind", [*kinds(), errors.Stopped, KeyboardInterrupt], ids=lambda kind: kind.__name__
)
def test_every_error_class_has_a_section_of_its_exit_code(kind: type[BaseException]) -> None:
    assert kind in runbook.OF_ERRORS
    for command in ("send-batch", "ledger reset", "lock break", "init"):
        section = runbook.of_error(command, kind("Said."), "Said.")
        assert int(code_of(kind("Said."))) in exits_told(runbook.sections()[section])


def test_what_is_not_in_the_tree_is_a_bug() -> None:
    assert runbook.of_error("send-batch", ZeroDivisionError(), "This is a bug.") is Section.BUG


@pytest.mark.parametrize(
    ("ending", "message", "section"),
    [
        (Ending.TEMPORARY, "The send of campaign a1 was requested and is not confirmed: x.", Section.UNCLEAR),
        (Ending.TEMPORARY, "This run was ended by SIGTERM. The outcome of the send of campaign a1 is not known yet.", Section.UNCLEAR),
        (Ending.TEMPORARY, "This run was ended by SIGTERM. Nothing was sent by this run.", Section.INTERRUPTED),
        (Ending.TEMPORARY, "It is not known whether Mailchimp did create: x.", Section.TEMPORARY),
        (Ending.REFUSED, "Campaign a1 is gone. An earlier run asked for its send, whether it left is not known.", Section.UNCLEAR),
        (Ending.REFUSED, "Campaign a1 is not sent: There are 3 recipients; SENDONCE_MIN_RECIPIENTS is 4.", Section.GUARD),
        (Ending.TEMPORARY, "Campaign a1 is not sent: SENDONCE_WINDOW is 07:00-08:00, and not open yet.", Section.GUARD),
        (Ending.REFUSED, "A run would refuse: There are 3 recipients.", Section.GUARD),
        (Ending.REFUSED, 'The key is of account "a", not of "b" (MAILCHIMP_ACCOUNT_ID). Nothing was sent.', Section.GUARD),
        # a title is text from outside
        (Ending.REFUSED, 'There is no campaign named "this is not sent: x" in Mailchimp.', Section.REFUSED),
        (Ending.ALARM, "Campaign a1 was mailed to nobody (0 emails sent).", Section.ALARM),
    ],
)  # fmt: skip
def test_an_end_that_may_have_left_or_that_a_guard_caused_has_its_own_section(
    ending: Ending, message: str, section: Section
) -> None:
    assert runbook.of_outcome("send-batch", Outcome(ending, "2026-11-30", message)) is section


def test_an_order_that_is_refused_is_told_from_a_send_that_is() -> None:
    refused = errors.Refused("Nothing was changed.")
    assert runbook.of_error("ledger reset", refused, "Nothing was changed.") is Section.REFUSED_COMMAND
    assert runbook.of_error("send-batch", refused, "It is no id.") is Section.REFUSED


# --- the messages


def texts(node: ast.expr) -> str:
    """The text of a message, with its values as a sign that no phrase has."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(map(texts, values))
        case ast.FormattedValue(ast.IfExp(_, body, other)):
            return f"{texts(body)}|{texts(other)}"
        case ast.BinOp(left, _, right):
            return texts(left) + texts(right)
        case _:
            return "\0"


RAISED = {
    *("Refuse", "Refused", "Temporary", "LeaseBusy", "ClaimLost", "NoAnswer", "StoreDown", "NotRecorded"),
    *("CredentialsRejected", "StateUnusable", "Objection", "GiveWay"),
}
MESSAGES = {
    f"{path.name}:{node.lineno}": said
    for path in SOURCES
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISED
    for arg in [*node.args[:2], *(k.value for k in node.keywords)]
    if len(re.sub(r"[\0\s]", "", said := texts(arg))) > 1
    # the reason alone, which another message has in it
    if not said.startswith("its version is")
}


def test_there_are_many_messages() -> None:
    assert len(MESSAGES) > 60


@pytest.mark.parametrize("place", MESSAGES)
def test_every_message_of_the_code_is_in_the_page(place: str) -> None:
    assert [phrase for phrase in PHRASES if phrase in MESSAGES[place]] != [], MESSAGES[place]


def test_the_messages_that_the_page_explains_are_those_of_the_code() -> None:
    known = "\n".join(
        texts(node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    )
    assert len(PHRASES) > 60
    assert [phrase for phrase in PHRASES if phrase not in known] == []
    assert [
        said for said in (*runbook.UNCLEAR, *runbook.GUARD[1:], "(MAILCHIMP_ACCOUNT_ID)") if said not in known
    ] == []


@pytest.mark.parametrize("said", runbook.UNCLEAR)
def test_each_word_of_an_open_send_is_in_its_section(said: str) -> None:
    assert f"`{said}`" in runbook.sections()[Section.UNCLEAR]


# --- to read it


def test_the_page_fits_80_columns_as_it_is() -> None:
    assert [line for line in runbook.page().splitlines() if len(line) > 80] == []
    assert runbook.page().isascii()


def test_as_plain_text_a_heading_is_underlined_and_nothing_is_bold() -> None:
    text = runbook.plain(runbook.sections()["guard"])
    assert text.startswith("guard\n-----\n\nExit 1, or 75 where time heals it.\n")
    assert "**" not in text
    assert "\nState: nothing was sent." in text
