"""Exit codes are what cron and monitoring see: each error and each ending has exactly one."""

from __future__ import annotations

import pytest

from sendonce import exits
from sendonce.core import errors
from sendonce.core.model import Ending
from sendonce.exits import ExitCode

CODE_OF_ERROR = {
    "WrongUsage": 2,
    "Refused": 1,
    "Temporary": 75,
    "LeaseBusy": 75,
    "ClaimLost": 75,
    "NoAnswer": 75,
    "StoreDown": 75,
    "NotRecorded": 75,
    "Unusable": 78,
    "SettingsWrong": 78,
    "CredentialsRejected": 78,
    "StateUnusable": 78,
    "LedgerDamaged": 78,
    "InvariantBroken": 70,
}

CODE_OF_ENDING = {
    "SENT": 0,
    "FOUND_SENT": 0,
    "ALREADY_SENT": 0,
    "SKIPPED": 0,
    "PAUSED": 0,
    "SCHEDULED": 0,
    "WOULD_SEND": 0,
    "SCHEDULED_ELSEWHEN": 1,
    "ALARM": 1,
    "REFUSED": 1,
    "TEMPORARY": 75,
    "WAITING": 75,
}


def _tree(kind: type[errors.SendonceError]) -> list[type[errors.SendonceError]]:
    below = [one for child in kind.__subclasses__() for one in _tree(child)]
    # Only sendonce's own: a test of another module may have classes of its own below.
    return [one for one in [kind, *below] if one.__module__.startswith("sendonce.")]


@pytest.mark.parametrize("kind", [k for k in _tree(errors.SendonceError) if k is not errors.SendonceError])
def test_every_error_of_the_tree_has_the_exit_code_of_its_branch(kind: type[errors.SendonceError]) -> None:
    assert exits.code_of(kind("what happened")) == CODE_OF_ERROR[kind.__name__]


def test_the_table_of_this_test_names_no_error_that_is_gone() -> None:
    assert {kind.__name__ for kind in _tree(errors.SendonceError)} == {*CODE_OF_ERROR, "SendonceError"}


def test_a_new_error_below_a_branch_needs_no_new_line() -> None:
    class Newer(errors.LeaseBusy):
        pass

    assert exits.code_of(Newer("what happened")) == 75


@pytest.mark.parametrize(
    "error",
    [
        errors.SendonceError("bare"),
        KeyError("x"),
        OSError(28, "full"),
        RecursionError(),
        MemoryError(),
        GeneratorExit(),
    ],
)
def test_whatever_is_no_error_of_ours_is_a_bug(error: BaseException) -> None:
    assert exits.code_of(error) == 70


@pytest.mark.parametrize("error", [errors.Stopped("SIGTERM"), KeyboardInterrupt()])
def test_a_run_that_was_stopped_is_to_be_run_again(error: BaseException) -> None:
    assert exits.code_of(error) == 75


@pytest.mark.parametrize("ending", list(Ending))
def test_every_ending_has_its_exit_code(ending: Ending) -> None:
    assert exits.code_of_ending(ending) == CODE_OF_ENDING[ending.name]


def test_the_table_of_exit_codes_is_the_published_one() -> None:
    assert exits.exit_table() == (
        "| exit | meaning |\n"
        "|---|---|\n"
        "| 0 | sent now, already sent, or nothing to do |\n"
        "| 1 | refused or alarming: a human must look; the message says whether anything left |\n"
        "| 2 | wrong usage |\n"
        "| 70 | a bug in sendonce |\n"
        "| 75 | temporary, interrupted, unclear, or sent but not yet recorded: run again, that is safe |\n"
        "| 78 | configuration, credentials or ledger unusable; nothing was sent by this run |\n"
    )


def test_every_exit_code_has_a_meaning() -> None:
    assert list(exits.EXIT_MEANINGS) == list(ExitCode)
