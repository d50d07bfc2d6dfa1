"""Processes that a command started, as /proc shows them."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """Every process below a process."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        own = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [*own, *(pid for child in own for pid in children(child))]


def is_alive(pid: int) -> bool:
    """Whether it is there, and not only waits to be asked how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
