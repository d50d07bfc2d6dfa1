"""Findings about what no test can bring about on a machine: a full disk, somebody else's folder."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from sendonce.adapters.machine import Folder
from sendonce.core.campaigns import Account
from sendonce.doctor import Level, of_account, of_folder, of_settings, of_zone
from sendonce.settings import load

if TYPE_CHECKING:
    from pathlib import Path

    from sendonce.settings import Settings

GOOD = Folder(
    path="/var/lib/sendonce",
    real_path="/var/lib/sendonce",
    owner_uid=7,
    mode=0o700,
    file_system="ext4",
    mount_point="/",
    free_bytes=1 << 30,
    free_inodes=100_000,
)


def wrong(**changes: object) -> list[str]:
    from dataclasses import replace

    return [f.id for f in of_folder(replace(GOOD, **changes), 7) if f.level is not Level.OK]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"file_system": ""}, []),
        ({"file_system": "btrfs", "free_inodes": None}, []),
        ({"owner_uid": 0}, ["state-owner"]),
        ({"mode": 0o770}, ["state-mode"]),
        ({"mode": 0o701}, ["state-mode"]),
        ({"free_bytes": 4096}, ["state-room"]),
        ({"free_inodes": 0}, ["state-room"]),
        ({"free_inodes": 3}, ["state-room"]),
        ({"real_path": "/run/user/7/sendonce"}, ["state-temporary"]),
        ({"real_path": "/dev/shm/sendonce"}, ["state-temporary"]),
        ({"real_path": "/var/tmp"}, ["state-temporary"]),
        ({"real_path": "/tmpfiles/sendonce"}, []),
        ({"file_system": "cifs"}, ["state-remote"]),
        ({"file_system": "smb3"}, ["state-remote"]),
        ({"file_system": "fuseblk"}, ["state-remote"]),
        ({"fault": "No such file or directory", "mode": 0o777}, ["state"]),
    ],
)
def test_a_folder_has_just_these_faults(changes: dict[str, object], expected: list[str]) -> None:
    assert wrong(**changes) == expected


def a_job(tmp_path: Path) -> Settings:
    environ = {
        "MAILCHIMP_API_KEY": "0123456789abcdef0123456789abcdef-us1",
        "SENDONCE_TIMEZONE": "Europe/Berlin",
        "SENDONCE_STATE": "/var/lib/sendonce",
    }
    return load(None, None, environ, tmp_path)


def test_zones_with_the_same_hours_are_the_same_to_cron(tmp_path: Path) -> None:
    settings, now = a_job(tmp_path), datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
    berlin = ZoneInfo("Europe/Berlin")
    assert of_zone(settings, berlin, ZoneInfo("Europe/Paris"), "Europe/Paris", now).level is Level.OK
    lagos = of_zone(settings, berlin, ZoneInfo("Africa/Lagos"), "Africa/Lagos", now)
    # one hour ahead of UTC as Berlin is in winter, and not in summer
    assert (lagos.level, "cron's is Africa/Lagos: 2026-11-30 09:00" in lagos.fact) == (Level.NOTE, True)
    assert of_zone(settings, berlin, None, "", now).level is Level.NOTE


@pytest.mark.parametrize(
    ("role", "off_s", "expected"),
    [
        ("owner", 0.0, ["ok", "ok"]),
        ("manager", 59.0, ["ok", "ok"]),
        ("author", 61.0, ["fault", "fault"]),
        ("superuser", -61.0, ["note", "fault"]),
    ],
)
def test_role_and_clock_are_judged(role: str, off_s: float, expected: list[str], tmp_path: Path) -> None:
    found = list(of_account(Account("8d3a", "Ann", role), a_job(tmp_path), off_s))
    assert [(f.id, f.level.value) for f in found] == list(zip(("role", "clock"), expected, strict=True))
    if abs(off_s) > 60:
        assert ("behind" if off_s < 0 else "ahead of") in found[1].fact


@pytest.mark.parametrize(
    ("written", "is_told"),
    [("2026-06-21", False), ("2026-06-23", True), ("2026-09-04", True), ("2026-09-06", False)],
)
@pytest.mark.parametrize("is_in_file", [True, False], ids=["key file", ".env"])
def test_a_key_that_may_soon_expire_is_a_note(
    tmp_path: Path, written: str, *, is_told: bool, is_in_file: bool
) -> None:
    """On 2027-08-01, 330 days after 2026-09-05."""
    key, env = "0123456789abcdef0123456789abcdef-us1", tmp_path / ".env"
    (tmp_path / "key").write_text(key)
    set_as = f"MAILCHIMP_API_KEY_FILE={tmp_path}/key" if is_in_file else f"MAILCHIMP_API_KEY={key}"
    env.write_text(f"SENDONCE_TIMEZONE=UTC\nSENDONCE_STATE={tmp_path}\n{set_as}\n")
    at = datetime.fromisoformat(f"{written}T12:00:00+00:00").timestamp()
    for path in (env, tmp_path / "key"):
        path.chmod(0o600)
        os.utime(path, (at, at))
    settings = load(env, None, {}, tmp_path)
    found = [f for f in of_settings(settings, datetime(2027, 8, 1, 13, tzinfo=UTC)) if f.id == "key-age"]
    assert [f.level for f in found] == ([Level.NOTE] if is_told else [])
    assert all(f"{tmp_path}/{'key' if is_in_file else '.env'}, where" in f.fact for f in found)
