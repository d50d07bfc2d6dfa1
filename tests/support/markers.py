"""Lock files as dead, foreign and odd holders leave them, in filelock's format (4.x, "filelock/2")."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG_AGO_S = 1_767_600_000
"""2026-01-05 08:00 UTC: so old that an age by mtime is large, which must count for nothing."""

FOREIGN_HOST = "3f9c2e1d7a55"
KINDS = ("foreign", "recycled", "dead", "mismatch", "empty", "cut", "legacy", "garbage")


def record(pid: int, host: str, lease_s: float, *extra: str) -> str:
    """Give the record of a lease holder without a start token."""
    lines = [
        "filelock/2",
        f"pid={pid}",
        f"host={host}",
        "mode=lease",
        f"token={'ab' * 16}",
        f"duration={lease_s!r}",
    ]
    return "".join(f"{line}\n" for line in (*lines, *extra))


def ended_pid() -> int:
    """Give the pid of a process that has just ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def text_of(kind: str, lease_s: float) -> str:
    """Tell what stands in a marker of `kind` (one of KINDS, or "dead mismatch").

    foreign        another host, well formed: a container that is gone
    recycled       this host and pid 1, alive but never ours, no start token: a reboot gave the pid away again
    dead           this host, a pid that has just ended
    mismatch       another host, three times the lease: the setting was changed since
    empty, cut     power loss or a full disk: no record, and half of one
    legacy         two lines of an older filelock, another host
    garbage        what a person typed
    """
    here = socket.gethostname()
    foreign = record(4242, FOREIGN_HOST, lease_s)
    made: dict[str, Callable[[], str]] = {
        "foreign": lambda: foreign,
        "recycled": lambda: record(1, here, lease_s),
        "dead": lambda: record(ended_pid(), here, lease_s),
        "dead mismatch": lambda: record(ended_pid(), here, lease_s * 3),
        "mismatch": lambda: record(4242, FOREIGN_HOST, lease_s * 3),
        "empty": lambda: "",
        "cut": lambda: foreign[:45],
        "legacy": lambda: f"4242\n{FOREIGN_HOST}\n",
        "garbage": lambda: "do not run today, ask ops\n",
    }
    return made[kind]()


def make(path: Path, kind: str, lease_s: float) -> None:
    """Write a marker of `kind` that looks long unchanged."""
    path.write_text(text_of(kind, lease_s))
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))
