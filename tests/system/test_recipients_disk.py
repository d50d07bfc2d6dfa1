"""A disk that is full in the middle of `recipients sync`: one message, and the record as it was."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from support.runs import DAY
from support.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.runs import Desk

PEOPLE = 20_000
SYNC = ("recipients", "sync", "--date", DAY)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(audience=PEOPLE, sending=0) as running:
        yield running


@contextmanager
def small_disk(desk: Desk, size_kib: int) -> Iterator[None]:
    """Have the state folder on a file system of its own, with the files that it has."""
    kept = {path.name: path.read_bytes() for path in desk.state.iterdir()}
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k,mode=0700", "tmpfs", desk.state], check=True
    )
    for name, data in kept.items():
        (desk.state / name).touch(mode=0o600)
        (desk.state / name).write_bytes(data)
    try:
        yield
    finally:
        subprocess.run(["umount", desk.state], check=True)


def on_record(desk: Desk) -> int:
    db = sqlite3.connect(desk.state / "daily.recipients.db")
    try:
        return int(db.execute("SELECT count(*) FROM recipients").fetchone()[0])
    finally:
        db.close()


@pytest.mark.system
# .ci/run, which alone has system tests run, does so as root: there it is not skipped
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("size_kib", [300, 1000, 1400, 1800, 2200, 2600])
def test_a_disk_that_is_full_leaves_the_record_as_it_was_and_room_lets_the_next_sync_go_on(
    desk: Desk, size_kib: int
) -> None:
    """Full while pages come in, and full while they go over into the record."""
    first = desk.sandbox.add_audience([f"first{n}@example.com" for n in range(500)])
    desk.sandbox.add_draft("Digest 2026-01-04", list_id=first)
    assert desk.send(day="2026-01-04").code == 0
    desk.prepare()
    assert desk.send().code == 0
    assert desk.run("recipients", "sync", "--date", "2026-01-04").code == 0
    with small_disk(desk, size_kib):
        ended = desk.run(*SYNC)
        # with the most room it may just do: then all of it is on record
        assert (ended.code, on_record(desk)) in {(78, 500), (0, 500 + PEOPLE)}, ended
        assert ended.code == 78 or size_kib > 1800
        if ended.code == 78:
            assert ended.err.count("\n") == 2
            assert "free some space" in ended.err
        assert desk.run("recipients", "check", "first7@example.com").code == 0
        subprocess.run(["mount", "-o", "remount,size=20m", desk.state], check=True)
        assert desk.run(*SYNC).code == 0
        assert on_record(desk) == 500 + PEOPLE
        assert not list(desk.state.glob("*.part*"))
