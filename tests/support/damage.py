"""Ledgers as power failures, full disks, editors and merges leave them, made from one that the command wrote itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

DAMAGES = (
    "zero", "nul", "nul-tail", "half", "cut-last-byte", "two-docs", "bom", "utf16", "latin1-tail", "conflict", "dup-keys",
    "nan", "list", "null", "string", "number", "empty-object", "deep", "huge-int",
)  # fmt: skip


def damaged(good: bytes, kind: str) -> bytes:
    """The bytes of a good ledger after a damage of that kind."""
    body = good.rstrip()
    open_end = body[:-1]  # without the last brace
    made: dict[str, Callable[[], bytes]] = {
        "zero": lambda: b"",
        "nul": lambda: bytes(len(good)),
        "nul-tail": lambda: good + bytes(512),
        "half": lambda: good[: len(good) // 2],
        "cut-last-byte": lambda: open_end,
        "two-docs": lambda: good + good,
        "bom": lambda: b"\xef\xbb\xbf" + good,
        "utf16": lambda: good.decode().encode("utf-16"),
        "latin1-tail": lambda: open_end + b', "note": "caf\xe9"}',
        "conflict": lambda: _merged(good),
        "dup-keys": lambda: _doubled(good),
        "nan": lambda: open_end + b', "x": NaN}',
        "list": lambda: b"[]\n",
        "null": lambda: b"null\n",
        "string": lambda: b'"2026-01-05"\n',
        "number": lambda: b"7\n",
        "empty-object": lambda: b"{}\n",
        "deep": lambda: b"[" * 100_000 + b"]" * 100_000,
        "huge-int": lambda: open_end + b', "x": ' + b"9" * 5000 + b"}",
    }
    return made[kind]()


def _merged(good: bytes) -> bytes:
    """Half of it from two sides of a merge."""
    lines = good.splitlines()
    middle = len(lines) // 2
    parts = [*lines[:middle], b"<<<<<<< HEAD", *lines[middle:], b"=======", *lines[middle:], b">>>>>>> other"]
    return b"\n".join(parts) + b"\n"


def _doubled(good: bytes) -> bytes:
    """A second, empty record for the last date: of two equal keys the last wins for most readers."""
    document: dict[str, Any] = json.loads(good)
    last = max(document["batches"])
    batches = json.dumps(document["batches"])[:-1] + f', "{last}": null}}'
    rest = json.dumps({name: value for name, value in document.items() if name != "batches"})[:-1]
    return f'{rest}, "batches": {batches}}}\n'.encode()
