"""What is read of a machine: its mounts, its zone, its crontabs and timers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sendonce.adapters.crontabs import Found
from sendonce.adapters.machine import Machine

MOUNTS = r"""21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:40 / /var/lib rw master:3 propagate_from:2 - nfs4 nas:/lib rw
23 22 0:41 / /var/lib/my\040mail rw - xfs /dev/sdb rw
24 21 0:42 / /data rw - tmpfs none rw
25 21 0:43 / /data rw - btrfs /dev/sdc rw
broken line
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS)
    (tmp_path / "etc/cron.d").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "kind", "point"),
    [
        ("srv", "ext4", "/"),
        ("var/lib/sendonce", "nfs4", "/var/lib"),
        ("var/library", "ext4", "/"),
        ("var/lib/my mail/state", "xfs", "/var/lib/my mail"),
        ("data", "btrfs", "/data"),
    ],
)
def test_a_folder_lies_on_the_mount_that_is_nearest_above(
    folder: str, kind: str, point: str, root: Path
) -> None:
    (root / folder).mkdir(parents=True, mode=0o700)
    found = Machine(root).folder(root / folder)
    assert (found.path, found.file_system, found.mount_point) == (f"/{folder}", kind, point)
    assert (found.fault, found.mode, found.owner_uid) == ("", 0o700, os.geteuid())
    assert found.free_bytes > 0


def test_a_link_is_judged_by_where_it_leads(root: Path) -> None:
    (root / "data").mkdir()
    (root / "state").symlink_to(root / "data")
    assert Machine(root).folder(root / "state").file_system == "btrfs"


def test_what_is_no_folder_says_so(root: Path) -> None:
    (root / "file").touch()
    assert Machine(root).folder(root / "file").fault == "it is not a folder"
    assert Machine(root).folder(root / "none").fault == "No such file or directory"


def test_this_machine_tells_of_its_root_folder() -> None:
    machine = Machine(Path("/"))
    assert machine.folder(Path("/")).fault == ""
    assert machine.home_of("root") is not None
    assert machine.home_of("nobody-of-that-name") is None
    assert machine.seen("/etc") == machine.real("/etc") == "/etc"


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("../usr/share/zoneinfo/posix/Asia/Tokyo", "Asia/Tokyo"),
        ("", "Etc/UTC"),
    ],
)
def test_the_zone_is_where_the_link_leads_or_what_the_file_says(target: str, name: str, root: Path) -> None:
    (root / "etc/timezone").write_text("Etc/UTC\n")
    if target:
        (root / "etc/localtime").symlink_to(target)
    assert Machine(root).zone() == name


def test_crontabs_and_timers_are_found_and_odd_files_are_no_trouble(root: Path) -> None:
    spool, units = root / "var/spool/cron/crontabs", root / "etc/systemd/system"
    spool.mkdir(parents=True)
    (units / "timers.target.wants").mkdir(parents=True)
    (spool / "ann").write_bytes(b"# \xff\n")
    os.mkfifo(spool / "bob")
    os.mkfifo(root / "etc/cron.d/pipe")
    (root / "etc/cron.d/link").symlink_to("/nowhere/at/all")
    (root / "etc/cron.d/x.dpkg-new").write_text("sendonce")
    (root / "etc/cron.d/.placeholder").write_text("# nothing")
    (root / "etc/crontab").write_text("# system\n")
    for name in ("a.timer", "b@.timer", "c.timer", "a.service"):
        (units / name).touch()
    for name in ("a.timer", "b@one.timer", "b@two.timer"):
        (units / "timers.target.wants" / name).symlink_to("/nowhere")
    found = Found(root, "ann", "/home/ann")
    assert {(t.path, t.user, t.text) for t in found.tables} == {
        ("/var/spool/cron/crontabs/ann", "ann", "# \N{REPLACEMENT CHARACTER}\n"),
        ("/var/spool/cron/crontabs/bob", "bob", ""),
        ("/etc/crontab", "", "# system\n"),
        ("/etc/cron.d/pipe", "", ""),
    }
    assert found.left_out == ["/etc/cron.d/x.dpkg-new"]
    assert found.unread == [("/etc/cron.d/link", "No such file or directory")]
    assert {u.name: u.instances for u in found.units} == {
        "a.timer": {""},
        "b@.timer": {"one", "two"},
        "c.timer": frozenset(),
        "a.service": frozenset(),
    }
    assert found.is_cron_here


def test_a_machine_without_cron_is_told_apart(tmp_path: Path) -> None:
    found = Found(tmp_path, "ann", "/home/ann")
    assert (found.tables, found.units, found.unread, found.is_cron_here) == ([], [], [], False)


def test_only_cronie_heeds_a_zone_in_a_crontab(root: Path) -> None:
    assert not Found(root, "ann", "/").is_cron_tz_heeded
    (root / "usr/sbin").mkdir(parents=True)
    (root / "usr/sbin/crond").touch()
    assert Found(root, "ann", "/").is_cron_tz_heeded
    (root / "var/spool/cron/crontabs").mkdir(parents=True)  # busybox has a crond, too
    assert not Found(root, "ann", "/").is_cron_tz_heeded


def test_only_a_small_text_file_is_a_script(root: Path) -> None:
    machine = Machine(root)
    (root / "mail.sh").write_text("#!/bin/sh\n")
    (root / "large.sh").write_bytes(b"#" * (64 * 1024 + 1))
    (root / "binary").write_bytes(b"\x7fELF\0")
    os.mkfifo(root / "fifo")
    assert machine.script("/mail.sh") == "#!/bin/sh\n"
    others = ("/large.sh", "/binary", "/fifo", "/etc", "/gone", "/no\0thing", f"/{'x' * 5000}")
    assert [machine.script(name) for name in others] == [""] * len(others)
