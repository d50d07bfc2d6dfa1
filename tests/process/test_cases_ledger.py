"""Cases from the field, through the real command: ledgers that are damaged (D1) or that cannot be written (D3)."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.cases import together
from support.damage import DAMAGES, damaged
from support.interrupts import check_sent_once
from support.ordinary_desk import IS_ROOT, NOBODY, US, OrdinaryDesk
from support.runs import DAY, Desk
from support.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EARLIER = "2026-01-04"
RUN = ("send-batch", "--date", DAY)
COMMANDS = (
    RUN,
    (*RUN, "--dry-run"),
    ("ledger", "list"),
    ("ledger", "show", DAY),
    ("ledger", "reset", "--date", EARLIER, "--yes"),
    ("ledger", "verify"),
)
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can leave something that is not ours")


# ------------------------------------------------------------------------------------------- D1: damaged


@pytest.fixture(scope="module")
def sender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A job that has sent two dates, so that there is a ledger and a backup; the draft of `DAY` is ready."""
    with Sandbox(audience=5, sending=0) as sandbox:
        desk = Desk(tmp_path_factory.mktemp("sender") / "desk", sandbox)
        for day in ("2026-01-03", EARLIER):
            desk.prepare(day)
            assert desk.send(day=day).code == 0
        desk.prepare()
        yield desk


@pytest.fixture
def heir(sender: Desk, tmp_path: Path) -> Desk:
    """Another state folder with that job's ledger and backup."""
    desk = Desk(tmp_path / "desk", sender.sandbox)
    for name in ("daily.json", "daily.json.bak"):
        (desk.state / name).write_bytes((sender.state / name).read_bytes())
        (desk.state / name).chmod(0o600)
    return desk


def _traces(path: Path) -> tuple[int, int, bytes]:
    found = path.lstat()
    return found.st_ino, found.st_mtime_ns, b"" if path.is_dir() else path.read_bytes()


@pytest.mark.parametrize("kind", [*DAMAGES, "dir"])
def test_a_damaged_ledger_stops_every_command_and_is_left_as_it_is(kind: str, heir: Desk) -> None:
    file, asked = heir.ledger_file, heir.sandbox.sends()
    if kind == "dir":
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(damaged(file.read_bytes(), kind))
    backup = heir.state / "daily.json.bak"
    before = _traces(file), _traces(backup)
    for command, ended in zip(COMMANDS, together(COMMANDS, lambda c: heir.run(*c)), strict=True):
        assert ended.code == 78, f"{command}: {ended}"
        assert ended.out == ""
        assert str(file) in ended.err
        assert "Traceback" not in ended.err
        if kind == "dir":
            assert "is a folder, not a file" in ended.err
            continue
        assert f"({file.stat().st_size} bytes)" in ended.err
        # a document of the wrong shape has no byte that is at fault, but a part that is
        assert re.search(r"line \d+, byte \d+|version: ", ended.err), ended.err
        assert str(backup) in ended.err
        assert "sendonce ledger rebuild" in ended.err
    assert (_traces(file), _traces(backup)) == before
    assert heir.sandbox.sends() == asked
    assert set(heir.leftovers()) <= {"daily.json"}


def test_a_damaged_ledger_is_rebuilt_from_mailchimp_and_nothing_goes_out_again(heir: Desk) -> None:
    asked, backup = heir.sandbox.sends(), (heir.state / "daily.json.bak").read_bytes()
    half = damaged(heir.ledger_file.read_bytes(), "half")
    heir.ledger_file.write_bytes(half)
    assert heir.send(day=EARLIER).code == 78
    ended = heir.run("ledger", "rebuild", "--yes")
    assert ended.code == 0, ended
    [kept] = heir.leftovers()
    assert kept in ended.out
    assert (heir.state / kept).read_bytes() == half
    assert (heir.state / "daily.json.bak").read_bytes() == backup
    assert heir.send(day=EARLIER).code == 0
    assert heir.sandbox.sends() == asked
    assert heir.run("ledger", "verify").code == 0
    assert sorted(json.loads(heir.ledger_file.read_text())["batches"]) == ["2026-01-03", EARLIER]


def test_the_backup_that_the_message_names_can_be_put_back(heir: Desk) -> None:
    asked = heir.sandbox.sends()
    heir.ledger_file.write_bytes(b"")
    assert heir.send(day=EARLIER).code == 78
    (heir.state / "daily.json.bak").replace(heir.ledger_file)
    assert heir.send(day=EARLIER).code == 0
    assert heir.record(EARLIER)["state"] == "sent"
    assert heir.sandbox.sends() == asked


def test_an_unknown_field_of_a_person_is_no_damage_and_survives(desk: Desk) -> None:
    desk.prepare(EARLIER)
    assert desk.send(day=EARLIER).code == 0
    document = json.loads(desk.ledger_file.read_text())
    document["x_note"] = document["batches"][EARLIER]["x_note"] = "kept by a person"
    desk.ledger_file.write_text(json.dumps(document))
    desk.prepare()
    assert desk.send().code == 0
    written = json.loads(desk.ledger_file.read_text())
    assert (written["x_note"], written["batches"][EARLIER]["x_note"]) == (
        "kept by a person",
        "kept by a person",
    )
    check_sent_once(desk)


def test_a_ledger_of_a_later_version_stops_every_command_and_is_left_as_it_is(heir: Desk) -> None:
    document = json.loads(heir.ledger_file.read_text())
    heir.ledger_file.write_text(json.dumps(document | {"version": 99}))
    before = _traces(heir.ledger_file)
    commands = (*COMMANDS, ("ledger", "rebuild", "--yes"))
    for command, ended in zip(commands, together(commands, lambda c: heir.run(*c)), strict=True):
        assert ended.code == 78, f"{command}: {ended}"
        assert str(heir.ledger_file) in ended.err
        assert "99" in ended.err
    assert _traces(heir.ledger_file) == before


# --------------------------------------------------------------------------------- D3: cannot be written


def _nobodys(path: Path, mode: int) -> None:
    """As one run by root would leave it."""
    os.chown(path, 0, 0)
    path.chmod(mode)


def _ledger_unreadable(desk: OrdinaryDesk) -> str:
    _nobodys(desk.ledger_file, 0o600)
    return f"{desk.ledger_file}: owner uid 0, mode 0600"


def _ledger_of_root_in_a_sticky_folder(desk: OrdinaryDesk) -> str:
    os.chown(desk.state, 0, NOBODY)
    desk.state.chmod(0o1775)
    _nobodys(desk.ledger_file, 0o644)
    return f"{desk.ledger_file} may not be written: owner uid 0, mode 0644"


def _ledger_of_root_in_a_folder_of_ours(desk: OrdinaryDesk) -> str:
    _nobodys(desk.ledger_file, 0o644)
    return f"{desk.ledger_file} may not be written: owner uid 0, mode 0644"


def _folder_closed(desk: OrdinaryDesk) -> str:
    desk.state.chmod(0o555)
    return f"{desk.state}: owner uid {US}, mode 0555"


def _folder_closed_and_empty(desk: OrdinaryDesk) -> str:
    for file in desk.state.iterdir():
        file.unlink()
    return _folder_closed(desk)


def _folder_of_root(desk: OrdinaryDesk) -> str:
    os.chown(desk.state, 0, 0)
    desk.state.chmod(0o755)
    return f"{desk.state}: owner uid 0, mode 0755"


def _ledger_read_only(desk: Desk) -> str:
    desk.ledger_file.chmod(0o444)
    return f"{desk.ledger_file} may not be written: owner uid {desk.ledger_file.stat().st_uid}, mode 0444"


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(_ledger_unreadable, marks=needs_root),
        pytest.param(_ledger_of_root_in_a_sticky_folder, marks=needs_root),
        pytest.param(_ledger_of_root_in_a_folder_of_ours, marks=needs_root),
        _folder_closed,
        _folder_closed_and_empty,
        pytest.param(_folder_of_root, marks=needs_root),
        _ledger_read_only,
    ],
)
def test_a_record_that_cannot_be_written_is_found_before_anything_is_sent(
    spoil: Callable[[OrdinaryDesk], str], ordinary_desk: OrdinaryDesk
) -> None:
    desk = ordinary_desk
    desk.prepare(EARLIER)
    assert desk.send(day=EARLIER).code == 0
    desk.prepare()
    said = spoil(desk)
    _refuses_three_times(desk, said)
    for ended in (
        desk.run("ledger", "reset", "--date", EARLIER, "--force", "--yes"),
        desk.run("ledger", "rebuild", "--yes"),
    ):
        assert ended.code == 78, ended
    desk.state.chmod(0o755)


def _refuses_three_times(desk: Desk, said: str) -> None:
    asked = desk.sandbox.sends()
    before = {path: _traces(path) for path in desk.state.iterdir()}
    for _ in range(3):
        ended = desk.send()
        assert ended.code == 78, ended
        assert said in ended.err
        assert f"we are uid {_uid(desk)}" in ended.err
        assert "Traceback" not in ended.err
    assert desk.sandbox.sends() == asked, "a run without a record has asked for a send"
    # a guard beside the ledger may come, the record itself may not change
    assert {path: _traces(path) for path in before} == before


def _uid(desk: Desk) -> int:
    """The user id that the desk's commands have."""
    return US if isinstance(desk, OrdinaryDesk) else os.geteuid()


def test_even_root_does_not_replace_a_ledger_that_was_made_read_only(desk: Desk) -> None:
    desk.prepare(EARLIER)
    assert desk.send(day=EARLIER).code == 0
    desk.prepare()
    _refuses_three_times(desk, _ledger_read_only(desk))
    desk.ledger_file.chmod(0o600)
    assert desk.send().code == 0
    check_sent_once(desk)


def test_a_date_that_is_sent_needs_no_record_to_be_written(ordinary_desk: OrdinaryDesk) -> None:
    ordinary_desk.prepare()
    assert ordinary_desk.send().code == 0
    ordinary_desk.state.chmod(0o555)
    assert ordinary_desk.send().code == 0
    ordinary_desk.state.chmod(0o700)


@pytest.mark.system
@needs_root
def test_a_state_folder_mounted_read_only_is_found_before_anything_is_sent(
    ordinary_desk: OrdinaryDesk,
) -> None:
    desk = ordinary_desk
    desk.prepare(EARLIER)
    assert desk.send(day=EARLIER).code == 0
    desk.prepare()
    subprocess.run(["mount", "--bind", desk.state, desk.state], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", desk.state], check=True)
        asked = desk.sandbox.sends()
        for _ in range(3):
            ended = desk.send()
            assert ended.code == 78, ended
            assert str(desk.state) in ended.err
            assert "Read-only file system" in ended.err
        assert desk.sandbox.sends() == asked
    finally:
        subprocess.run(["umount", desk.state], check=True)
    assert desk.send().code == 0
    check_sent_once(desk)
