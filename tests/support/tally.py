"""What the fault runs of a whole test session came to, summed over its worker processes.

A fault run is one day's mailing in which something was made to go wrong, judged when all its reruns are done: mailed
once is as it should be, more often is a duplicate, never is a loss.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

VARIABLE = "SENDONCE_TALLY"
"""In the environment of the test processes: the folder where each of them keeps its count."""

STATES = "states explored"


def add(kind: str, *, runs: int = 1, duplicates: int = 0, losses: int = 0) -> None:
    """Count fault runs of a kind (a plural, for people). Outside a session that counts, nothing happens."""
    if folder := os.environ.get(VARIABLE):
        line = json.dumps([kind, runs, duplicates, losses])
        with (Path(folder) / str(os.getpid())).open("a") as file:
            file.write(f"{line}\n")


def add_judged(kind: str, deliveries: int) -> None:
    """Count one fault run that led to so many deliveries."""
    add(kind, duplicates=max(0, deliveries - 1), losses=deliveries == 0)


def begin() -> None:
    """Count from now on, in this process and in those that it starts."""
    os.environ[VARIABLE] = tempfile.mkdtemp(prefix="sendonce-tally-")


def end() -> None:
    """Count no longer, and forget what was counted."""
    if folder := os.environ.pop(VARIABLE, None):
        shutil.rmtree(folder)


def total() -> str:
    """Sum up what all processes have counted, in one line; "" if that is nothing."""
    runs: Counter[str] = Counter()
    duplicates = losses = 0
    for file in Path(os.environ[VARIABLE]).iterdir():
        for line in file.read_text().splitlines():
            kind, count, twice, never = json.loads(line)
            runs[kind] += count
            duplicates += twice
            losses += never
    if not runs:
        return ""
    # a state is no run, and there are so many that they would hide the rest
    states = runs.pop(STATES, 0)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(runs.items()))
    explored = f"; {states:,} {STATES}" if states else ""
    return f"fault runs: {runs.total():,}, duplicates: {duplicates}, losses: {losses} ({kinds}{explored})"
