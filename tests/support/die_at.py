"""A command of ours that dies at its nth call of a kind, where there is no strace.

python die_at.py CALL NTH STATE PYTHON -m MODULE ARGUMENTS…

Runs the module as `PYTHON -m MODULE ARGUMENTS…` would, in this interpreter, and dies by SIGKILL right before the nth
call: Python's audit events tell of most calls, `write` and `fsync` of module os are replaced. Of the events about
files those count that are about the folder STATE.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = {
    "openat": "open",
    "rename": "os.rename",
    "unlink": "os.remove",
    "mkdir": "os.mkdir",
    "connect": "socket.connect",
    "sendto": "http.client.send",
}
"""The audit event before each kind of call."""
REPLACED = frozenset({"write", "fsync"})
TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def dying(call: str, nth: int, state: Path) -> list[str]:
    """Make a command die by SIGKILL right before its nth call of that kind; a prefix to put in front of it."""
    return [sys.executable, __file__, call, str(nth), str(state)]


class Fuse:
    """Counts, and ends this process at the nth."""

    def __init__(self, nth: int, state: str) -> None:
        self._left, self._state = nth, state

    def burn(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, call: str) -> None:
        wanted, is_file = EVENTS[call], call not in {"connect", "sendto"}

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event != wanted or (event == "open" and not arguments[2] & TO_WRITE):
                return
            if not is_file or str(arguments[0]).startswith(self._state):
                self.burn()

        sys.addaudithook(hook)

    def replace(self, call: str) -> None:
        real: Callable[..., Any] = getattr(os, call)

        def burning(*arguments: Any) -> Any:
            self.burn()
            return real(*arguments)

        setattr(os, call, burning)


def main() -> None:
    call, nth, state, _python, _m, module, *arguments = sys.argv[1:]
    fuse = Fuse(int(nth), str(Path(state).resolve()))
    if call in REPLACED:
        fuse.replace(call)
    else:
        fuse.watch(call)
    sys.path.pop(0)  # this folder, which the command does not have
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
