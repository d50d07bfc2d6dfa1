"""A process that takes a lease and does what it is told, a word a line on standard input.

python lease_child.py LOCK LEASE_S WAIT_S [HELD]

Says "held" or "busy MESSAGE". With HELD it makes that file while it holds the lease, says "two" if the file is
there already (another one holds it, too), removes it and ends. Else it answers "ours" with yes or no and
"release" with released, until its input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.lease import FileLease
from sendonce.core.errors import LeaseBusy


class Silent:
    def note(self, event: str, **facts: object) -> None: ...

    def warn(self, message: str) -> None:
        say(f"warning {message}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def hold_once(held: Path) -> None:
    try:
        held.touch(exist_ok=False)
    except FileExistsError:
        say("two")
        return
    SystemClock().sleep(0.02)
    held.unlink()


def main() -> None:
    lock, lease_s, wait_s, *held = sys.argv[1:]
    lease = FileLease(
        lock, lease_s=float(lease_s), wait_s=float(wait_s), clock=SystemClock(), witness=Silent()
    )
    try:
        lease.acquire(None)
    except LeaseBusy as busy:
        say(f"busy {busy.message}")
        return
    say("held")
    if held:
        hold_once(Path(held[0]))
    else:
        for line in sys.stdin:
            if line.strip() == "ours":
                say("yes" if lease.is_ours() else "no")
            elif line.strip() == "release":
                lease.release()
                say("released")
    lease.release()


if __name__ == "__main__":
    main()
