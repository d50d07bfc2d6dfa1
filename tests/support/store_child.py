"""A process that takes a lease and writes when it is told, a word a line on standard input.

python store_child.py KIND WHERE JOB LEASE_S WAIT_S DATE

Says "held FENCE" or "busy". Then "save" has it write the page that it read before, and it says "saved" or "lost";
"ours" has it say yes or no. It ends with its input, without giving the lease back.
"""

from __future__ import annotations

import os
import sys

from sendonce.core.errors import ClaimLost, LeaseBusy
from sendonce.core.model import Batch, State
from support.places import Place, Recorder


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    kind, where, job, lease_s, wait_s, date = sys.argv[1:]
    place, witness = Place(kind, where, job), Recorder()
    lease = place.lease(lease_s=float(lease_s), wait_s=float(wait_s), witness=witness)
    try:
        lease.acquire(None)
    except LeaseBusy:
        say("busy")
        return
    store = place.ledger(lease)
    page = store.load(date)
    say(f"held {witness.fence() if place.is_shared else 0}")
    for word in sys.stdin:
        if word.strip() == "ours":
            say("yes" if lease.is_ours() else "no")
            continue
        try:
            page = store.save(page, Batch(date, State.PLANNED, nonce=f"{os.getpid():08x}"[-8:]))
        except ClaimLost:
            say("lost")
        else:
            say("saved")
    os._exit(0)


if __name__ == "__main__":
    main()
