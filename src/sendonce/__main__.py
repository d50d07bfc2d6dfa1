"""`sendonce`, and `python -m sendonce`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line and end with its exit code."""
    _open_closed_descriptors()
    # ten years of ledger are 40,000 objects without a cycle; `compose` turns it on again for what takes longer
    gc.disable()
    try:
        sys.exit(_run())
    except KeyboardInterrupt:  # before the command has handlers of its own: nothing was done yet
        with suppress(OSError):
            os.write(2, b"Interrupted. Nothing was sent by this run. Run again, that is safe.\n")
            os.write(2, b"What to do: sendonce runbook interrupted\n")
        sys.exit(75)
    finally:
        gc.freeze()  # else the interpreter looks through all that was imported for cycles before it ends: 3 ms


def _run() -> int:
    # nothing may open a file before the descriptors are in order, and so nothing else is imported above
    from sendonce.quick import already_settled  # noqa: PLC0415

    code = already_settled(sys.argv[1:])
    if code is None:
        from sendonce.cli import run  # noqa: PLC0415 - click costs more than all that a sent day needs

        code = run()
    return code


def _open_closed_descriptors() -> None:
    """Open 0 to 2 on the null device where they are closed, as `>&-` and some supervisors leave them.

    Else the next file opened, the ledger say, would get one of their numbers, and a message be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


if __name__ == "__main__":
    main()
