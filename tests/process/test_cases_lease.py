"""Cases from the field, through the real command: locks of holders that are gone (L1, L2), impossible lock paths (L6)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.cases import together
from support.interrupts import check_sent_once, never_left_behind, wait_for_call
from support.markers import FOREIGN_HOST, KINDS, make
from support.ordinary_desk import IS_ROOT, US
from support.runs import COMMAND, DAY, Desk, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.ordinary_desk import OrdinaryDesk
    from support.sandbox import Sandbox

LEASE_S = 3
SEND = ("send-batch", "--date", DAY)
UNREADABLE = frozenset({"empty", "cut", "garbage"})


def _traces(path: Path) -> tuple[int, int, bytes]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, path.read_bytes()


# ------------------------------------------------------------------------------- a holder that is gone (L1, L2)


@pytest.fixture
def left_locked(tmp_path: Path, sandbox: Sandbox) -> dict[str, Desk]:
    """A job for each kind of marker, with a draft for `DAY` of its own name."""
    desks = {}
    for kind in KINDS:
        desks[kind] = Desk(tmp_path / kind, sandbox, SENDONCE_TITLE=f"{kind} {{date}}")
        sandbox.add_draft(f"{kind} {DAY}")
        make(desks[kind].lock_file, kind, LEASE_S)
    return desks


def test_whatever_a_holder_that_is_gone_has_left_is_overcome_by_the_first_run_that_may_wait(
    left_locked: dict[str, Desk], sandbox: Sandbox
) -> None:
    ends = dict(zip(left_locked, together(left_locked.values(), lambda desk: desk.send()), strict=True))
    assert {kind: ended.code for kind, ended in ends.items()} == dict.fromkeys(KINDS, 0), ends
    for kind, desk in left_locked.items():
        assert sandbox.deliveries(f"{kind} {DAY}") == 5
        assert desk.leftovers() == []
        # what filelock would never reclaim is removed by the run itself, and that is said
        is_odd = kind in UNREADABLE | {"legacy", "mismatch"}
        assert (f"{desk.lock_file} was removed" in ends[kind].err) == is_odd, ends[kind]
        assert re.search(r"\d+ s old", ends[kind].err) or not is_odd
    assert sandbox.sends() == len(KINDS)


def test_a_run_that_may_not_wait_a_whole_lease_is_temporary_and_leaves_the_lock_alone(
    left_locked: dict[str, Desk], sandbox: Sandbox
) -> None:
    dead = left_locked.pop("dead")
    dead.write_env(SENDONCE_LOCK_WAIT_SECONDS="0")
    assert dead.send().code == 0, "a dead holder of this machine is replaced at once"
    traces = {kind: _traces(desk.lock_file) for kind, desk in left_locked.items()}
    for desk in left_locked.values():
        desk.write_env(SENDONCE_LOCK_WAIT_SECONDS="1")
    ends = together(left_locked.values(), lambda desk: desk.send())
    for (kind, desk), ended in zip(left_locked.items(), ends, strict=True):
        assert ended.code == 75, f"{kind}: {ended}"
        assert str(desk.lock_file) in ended.err
        assert ended.err.splitlines()[1:] == ["What to do: sendonce runbook lease"]
        assert _traces(desk.lock_file) == traces[kind], kind
    assert sandbox.sends() == 1


def test_a_look_at_the_lock_says_who_left_it_and_changes_nothing(left_locked: dict[str, Desk]) -> None:
    traces = {kind: _traces(desk.lock_file) for kind, desk in left_locked.items()}
    looked = together(left_locked.values(), lambda desk: desk.run("lock", "status"))
    said = {}
    for kind, ended in zip(left_locked, looked, strict=True):
        assert ended.code == 0, f"{kind}: {ended}"
        said[kind] = ended.out
    for kind, desk in left_locked.items():
        assert str(desk.lock_file) in said[kind]
        assert re.search(r"\d{5,} s", said[kind]), f"{kind} does not say how old: {said[kind]}"
        assert _traces(desk.lock_file) == traces[kind], kind
    for kind in ("foreign", "mismatch", "legacy"):
        assert f"pid 4242 on host {FOREIGN_HOST}" in said[kind]
    assert "pid 1 on host" in said["recycled"]
    for kind in ("foreign", "mismatch", "legacy", "recycled"):
        assert re.search(r"not renewed for \d+ s: stale", said[kind]), said[kind]
    assert "which has ended" in said["dead"]
    assert "no owner is recorded" in said["empty"]
    for kind in ("cut", "garbage"):
        assert "does not say who holds it" in said[kind]


@pytest.mark.parametrize(
    "kind", ["empty", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("garbage", "foreign"))]
)
def test_twenty_runs_that_watch_the_same_left_lock_send_once(kind: str, desk: Desk) -> None:
    desk.prepare()
    make(desk.lock_file, kind, LEASE_S)
    processes = [desk.start(*SEND) for _ in range(20)]
    with never_left_behind(*processes):
        said = [process.communicate(timeout=90) for process in processes]
    codes = [process.returncode for process in processes]
    assert set(codes) <= {0, 75}, said
    assert 0 in codes
    assert desk.sandbox.sends() == 1
    check_sent_once(desk)


def test_a_changed_lease_setting_does_not_lock_a_job_out(desk: Desk) -> None:
    desk.prepare()
    desk.sandbox.faults({"on": "listing", "word": "stall-before"})
    run = desk.start(*SEND)
    with never_left_behind(run):
        wait_for_call(desk, "listing")
        run.send_signal(signal.SIGSTOP)
        desk.sandbox.faults()
        # the frozen one has 3 s on its marker
        desk.write_env(SENDONCE_LEASE_SECONDS="4")
        assert desk.send().code == 0
    check_sent_once(desk)


@pytest.mark.system
@pytest.mark.skipif(not IS_ROOT, reason="only root can make a pid namespace")
def test_a_run_killed_in_a_container_is_followed_by_one_in_another(desk: Desk, tmp_path: Path) -> None:
    log = tmp_path / "log"
    desk.write_env(SENDONCE_TIMEOUT_SECONDS="60", SENDONCE_LOG_FILE=str(log))
    desk.prepare()
    inside = tmp_path / "inside"
    # a container has a pid namespace and a host name of its own; --kill-child ends it with its keeper
    own = "unshare --pid --uts --fork --mount-proc --kill-child"
    inside.write_text(f'#!/bin/sh\nexec {own} sh -c \'hostname "$0"; exec "$@"\' "$@"\n')
    inside.chmod(0o755)
    desk.sandbox.faults({"on": "listing", "word": "stall-before"})
    first = _contained(desk, inside, "box1")
    with never_left_behind(first):
        wait_for_call(desk, "listing")
        marker = desk.lock_file.read_bytes()
    assert b"host=box1" in marker
    wait_until(lambda: first.poll() is not None)
    desk.sandbox.faults()
    second = _contained(desk, inside, "box2")
    with never_left_behind(second):
        _, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    check_sent_once(desk)


def _contained(desk: Desk, inside: Path, name: str) -> subprocess.Popen[str]:
    command = [str(inside), name, *COMMAND, "--env-file", str(desk.env_file), *SEND]
    return subprocess.Popen(
        command, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, text=True, stderr=subprocess.PIPE
    )


# -------------------------------------------------------------------------------- an impossible lock path (L6)


def _folder(lock: Path) -> str:
    lock.mkdir()
    return "a folder"


def _fifo(lock: Path) -> str:
    os.mkfifo(lock)
    return "FIFO"


def _dangling_link(lock: Path) -> str:
    lock.symlink_to(lock.with_name("nowhere"))
    return "a link"


def _link_to_a_file(lock: Path) -> str:
    lock.with_name("elsewhere").touch()
    lock.symlink_to(lock.with_name("elsewhere"))
    return "a link"


@pytest.mark.parametrize("obstruct", [_folder, _fifo, _dangling_link, _link_to_a_file])
def test_a_lock_path_that_is_no_file_is_unusable_at_once(obstruct: Callable[[Path], str], desk: Desk) -> None:
    # a run that took it for a held lock would wait for longer than a command may here
    desk.write_env(SENDONCE_LOCK_WAIT_SECONDS="300")
    desk.prepare()
    what = obstruct(desk.lock_file)
    before = sorted(desk.state.iterdir())
    for command in (SEND, ("lock", "status"), ("lock", "break", "--yes"), ("ledger", "rebuild", "--yes")):
        ended = desk.run(*command)
        assert ended.code == 78, f"{command}: {ended}"
        assert str(desk.lock_file) in ended.err
        assert what in ended.err
    assert sorted(desk.state.iterdir()) == before
    assert desk.sandbox.sends() == 0


def test_a_folder_that_may_not_be_written_is_unusable_at_once(ordinary_desk: OrdinaryDesk) -> None:
    desk = ordinary_desk
    desk.write_env(SENDONCE_LOCK_WAIT_SECONDS="300")
    desk.give()
    desk.prepare()
    desk.state.chmod(0o555)
    ended = desk.send()
    assert ended.code == 78, ended
    assert str(desk.lock_file) in ended.err
    assert f"we are uid {US}" in ended.err
    assert list(desk.state.iterdir()) == []
    assert desk.sandbox.sends() == 0
    desk.state.chmod(0o755)
    assert desk.send().code == 0
    check_sent_once(desk)


@pytest.mark.parametrize("name", ["missing", "missing/deeper", "x" * 300, "a-file"])
def test_a_state_folder_that_is_none_is_unusable_and_not_made(name: str, desk: Desk) -> None:
    (desk.folder / "a-file").touch()
    place = desk.folder / name
    desk.write_env(SENDONCE_STATE=str(place), SENDONCE_LOCK_WAIT_SECONDS="300")
    desk.prepare()
    before = sorted(desk.folder.rglob("*"))
    for command in (SEND, ("lock", "status"), ("ledger", "list")):
        ended = desk.run(*command)
        assert ended.code == 78, f"{command}: {ended}"
        assert str(place) in ended.err
        assert "Traceback" not in ended.err
    assert sorted(desk.folder.rglob("*")) == before
    assert desk.sandbox.sends() == 0


@pytest.mark.system
@pytest.mark.skipif(not IS_ROOT, reason="only root can mount")
def test_a_first_start_on_a_read_only_mount_is_unusable_at_once(desk: Desk) -> None:
    desk.write_env(SENDONCE_LOCK_WAIT_SECONDS="300")
    desk.prepare()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,mode=0700", "none", desk.state], check=True)
    try:
        ended = desk.send()
    finally:
        subprocess.run(["umount", desk.state], check=True)
    assert ended.code == 78, ended
    assert str(desk.state) in ended.err
    assert "Read-only file system" in ended.err
    assert desk.sandbox.sends() == 0
    assert desk.send().code == 0
    check_sent_once(desk)
