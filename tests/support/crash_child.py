"""A process that dies in the middle of a write, at one system call after the other.

python crash_child.py LEDGER JOB API DATE

Saves `DATE` as skipped, in a forked process that is gone the moment it makes its nth call (half of the nth
write still reaches the file). Looks at the ledger, and at what a second save makes of what was left behind, says
a line of JSON about both and puts everything back; then n + 1, until a save gets through.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.stores import FileLedger
from sendonce.core.model import Batch, State

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = ("open", "write", "fsync", "replace", "unlink", "close")
CRASHED = 9


class Ours:
    def is_ours(self) -> bool:
        return True


class Fuse:
    """Counts system calls, and ends the process at the nth."""

    def __init__(self, blows_at: int) -> None:
        self._left = blows_at

    def guard(self, name: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def guarded(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                if name == "write":
                    descriptor, data = arguments
                    real(descriptor, data[: len(data) // 2])
                os._exit(CRASHED)
            return real(*arguments, **options)

        setattr(os, name, guarded)


def save(path: Path, job: str, api: str, date: str) -> None:
    store = FileLedger(path, job=job, api=api, claim=Ours(), clock=SystemClock())
    page = store.load(date)
    store.save(page, Batch(date, State.SKIPPED, reason="written by the child"))


def crash_at(number: int, *what: Any) -> bool:
    child = os.fork()
    if child == 0:
        fuse = Fuse(number)
        for name in CALLS:
            fuse.guard(name)
        save(*what)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == CRASHED


def main() -> None:
    path, (job, api, date) = Path(sys.argv[1]), sys.argv[2:]
    folder, kept = path.parent, path.parent.with_name("kept")
    shutil.copytree(folder, kept)
    number = 1
    while crash_at(number, path, job, api, date):
        crashed = path.read_text()
        save(path, job, api, date)
        names = sorted(left.name for left in folder.iterdir())
        line = {"crashed": crashed, "saved": path.read_text(), "names": names}
        sys.stdout.write(json.dumps(line) + "\n")
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        number += 1


if __name__ == "__main__":
    main()
