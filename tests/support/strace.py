"""Commands that die, or fail, at their nth system call of a kind, by way of strace.

strace counts each call of a thread for itself. The kill lands before the call takes effect. Nothing here uses
`--seccomp-bpf`, under which signals are silently not injected.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {
    "openat": "openat",
    "write": "write",
    "fsync": "fsync",
    "rename": "?rename,?renameat",
    "exchange": "?renameat2",
    "unlink": "?unlink,?unlinkat",
    "mkdir": "?mkdir,?mkdirat",
    "connect": "connect",
    "sendto": "sendto",
}
"""What a kind of call is called. Of several names a libc uses one, so that there is one count; `?` is for machines
that do not have them all. `exchange` swaps two names, which is how a dead run's lease is taken over."""

WRITTEN = (
    "daily.lock", "daily.lock.guard", "daily.json.guard", "daily.json.tmp", "daily.json.bak.tmp", "daily.json.bak",
)  # fmt: skip
"""The files of a state folder that a run opens to write to them; the first is opened for reading, too."""


@cache
def is_usable() -> bool:
    """Whether there is strace, and it may trace what we start."""
    if shutil.which("strace") is None:
        return False
    tried = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=openat", "true"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def dying(call: str, nth: int, state: Path) -> list[str]:
    """Make a command die by SIGKILL right before its nth call of that kind; a prefix to put in front of it.

    Of the calls of `openat` those count that are about a file of `state` that is ever written to, of the others all.
    """
    places = [state / name for name in WRITTEN] if call == "openat" else []
    return _injecting(call, f"signal=KILL:when={nth}", places)


def failing(call: str, nth: int, error: str, state: Path) -> list[str]:
    """Make each of a command's calls of that kind fail from the nth on, where it is about the files of `state`.

    Of the calls of `openat` only those which write, so not those of the marker: to read needs no space.
    """
    files = [state / name for name in WRITTEN]
    places = files[1:] if call == "openat" else [state, state / "daily.json", *files]
    return _injecting(call, f"error={error}:when={nth}+", places)


def _injecting(call: str, what: str, places: list[Path]) -> list[str]:
    names = NAMES[call]
    narrowed = [part for place in places for part in ("-P", str(place))]
    return [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        *narrowed,
        "-e",
        f"trace={names}",
        "-e",
        f"inject={names}:{what}",
    ]
