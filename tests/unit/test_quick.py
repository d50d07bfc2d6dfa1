"""The short way answers exactly what the whole command line answers, or stays silent."""

from __future__ import annotations

import itertools

import pytest

from sendonce.quick import Call, plain_call
from support.runs import DAY, Desk

PLAIN = {
    ("send-batch",): Call(),
    ("-q", "send-batch"): Call(is_quiet=True),
    ("--env-file", "/e", "-q", "send-batch"): Call(env_file="/e", is_quiet=True),
    ("--env-file", "/e", "--job", "a", "send-batch", "--date", DAY): Call(env_file="/e", job="a", day=DAY),
    ("send-batch", "--date", "today", "--quiet", "--env-file", "e"): Call(
        env_file="e", day="today", is_quiet=True
    ),
}
LEFT_TO_THE_WHOLE = [
    (),
    ("send-batch", "send-batch"),
    ("send-batch", "--date"),
    ("send-batch", "--date", ""),
    ("send-batch", "--date", DAY, "--date", DAY),
    ("send-batch", f"--date={DAY}"),
    ("--date", DAY, "send-batch"),
    ("send-batch", "--dry-run"),
    ("send-batch", "--json"),
    ("send-batch", "-v"),
    ("send-batch", "--wait"),
    ("send-batch", "--early"),
    ("send-batch", "--help"),
    ("--env-file", "", "send-batch"),
    ("--env-file", "--job", "send-batch"),
    ("ledger", "list"),
    ("-q",),
    ("send-batch", "x"),
]


@pytest.mark.parametrize("arguments", PLAIN, ids=" ".join)
def test_the_plain_call_is_read(arguments: tuple[str, ...]) -> None:
    assert plain_call(arguments) == PLAIN[arguments]


@pytest.mark.parametrize("arguments", LEFT_TO_THE_WHOLE, ids=" ".join)
def test_everything_else_is_left_to_the_whole_command_line(arguments: tuple[str, ...]) -> None:
    assert plain_call(arguments) is None


WORDS = (
    ["--job", "daily"],
    ["-q"],
    ["--date", DAY],
    ["--date", "2026-01-06"],
    ["--date", "9999-01-01"],
    ["--job", "Nope"],
)


def test_both_ways_give_the_same_answer(desk: Desk) -> None:
    """For a sent day, one that is not, a future one, a wrong job: `--` keeps the short way out of it."""
    desk.prepare()
    assert desk.send().code == 0
    pairs = ((WORDS[0], WORDS[1]), (WORDS[1], WORDS[2]), (WORDS[1], WORDS[4]), (WORDS[2], WORDS[3]))
    for chosen in itertools.chain([()], itertools.combinations(WORDS, 1), pairs):
        words = [word for group in chosen for word in group]
        short, whole = desk.run("send-batch", *words), desk.run("send-batch", *words, "--")
        assert short == whole, words
