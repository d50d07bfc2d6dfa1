"""What holds in every case from the field, in one place: `holds`."""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from support.runs import DAY, Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from support.runs import Ended
    from support.sandbox import Sandbox

KEY = "Zq7Kx2Wv9Lp4Tn8Rb6Ym3Hc5Jd1Gf0Sa-us1"
"""No five characters of it come about by chance, as they might with a key of hex digits."""
SHOWN_OF_KEY = 4
LOOKS = (("ledger", "list"), ("ledger", "show", DAY), ("lock", "status"))
NEXT_STEP = re.compile(
    r"\b(run|look|put|write|mend|give|use|leave|say|make|wanted|correct|free|close|mount|move|install|chmod|must|meant|set|there are)\b",
    re.IGNORECASE,
)
_Thing = TypeVar("_Thing")
_Made = TypeVar("_Made")


def case_desk(folder: Path, sandbox: Sandbox, source: str = "draft", **settings: str) -> Desk:
    """Set up a desk with a key that is easily found, and a log; the waiting times are as short as they may be."""
    timing = {"SENDONCE_TIMEOUT_SECONDS": "2", "SENDONCE_SETTLE_SECONDS": "1"}
    told = {"MAILCHIMP_API_KEY": KEY, "SENDONCE_LOG_FILE": str(folder / "run.log"), **timing, **settings}
    return Desk(folder, sandbox, source, **told)


def together(things: Iterable[_Thing], call: Callable[[_Thing], _Made]) -> list[_Made]:
    """Call with each thing, all at once: most of a faulty run is waiting."""
    todo = list(things)
    with ThreadPoolExecutor(len(todo)) as pool:
        return list(pool.map(call, todo))


def run_once(desk: Desk, *arguments: str, day: str = DAY) -> Ended:
    """One `send-batch` alone: it may ask for one send at the most."""
    before = desk.sandbox.sends()
    ended = desk.send(*arguments, day=day)
    assert desk.sandbox.sends() - before <= 1, f"more than one send in a run\n{ended}"
    return ended


def holds(
    desk: Desk,
    *ends: Ended,
    at_most: int = 1,
    killed: int = 0,
    day: str = DAY,
    keys: Iterable[str] = (),
    looks: bool = True,
) -> None:
    """Check what holds in every case, after all runs of a desk (`ends`, and so many that were `killed`).

    `keys` are further API keys that the runs were given. Without `looks` the three commands that only look are left
    out, which cost more than a run: for the many variants of a case. Raise AssertionError.
    """
    looked = look_without_a_trace(desk) if looks else []
    for ended in [*ends, *looked]:
        _speaks_properly(ended)
    assert desk.deliveries(day) <= at_most, f"P = {desk.deliveries(day)}"
    assert desk.sandbox.sends() <= len(ends) + killed, (
        f"Q = {desk.sandbox.sends()} in {len(ends) + killed} runs"
    )
    if not killed and desk.state.exists():
        assert desk.leftovers() == [], "the lease is not free"
    _says_sent_only_if_it_is(desk, day)
    for key in {desk.values.get("MAILCHIMP_API_KEY", KEY), KEY, *keys}:
        shows_nothing_of(key, *(e.all for e in [*ends, *looked]), folder=desk.folder)


def look_without_a_trace(desk: Desk) -> list[Ended]:
    """Run `ledger list`, `ledger show` and `lock status`, which change no file and ask nobody; what they said."""
    before, called = _everything_in(desk.folder), len(desk.sandbox.calls())
    looked = together(LOOKS, lambda look: desk.run(*look))
    assert _everything_in(desk.folder) == before, "looking has changed a file"
    assert len(desk.sandbox.calls()) == called, "looking has asked Mailchimp"
    return looked


def shows_nothing_of(key: str, *texts: str, folder: Path) -> None:
    """Check that no part of the key's secret, plain or as in the HTTP header, is in a text or a file of the folder.

    The `.env` and a key file (`*.key`) are where it belongs.
    """
    secret = key.rpartition("-")[0] or key
    header = base64.b64encode(f"user:{key}".encode()).decode()
    # a key of hex digits: so short a piece is in a random id now and then
    size = 12 if re.fullmatch("[0-9a-f]+", secret) else SHOWN_OF_KEY + 1
    pieces = {secret[at : at + size] for at in range(len(secret) - size + 1)}
    pieces |= {header[at : at + 12] for at in range(8, len(header) - 12)}
    files = [
        p for p in folder.rglob("*") if p.is_file() and p.suffix != ".key" and not p.name.endswith(".env")
    ]
    for where, text in [("the output", t) for t in texts] + [
        (str(p), p.read_text(errors="replace")) for p in files
    ]:
        found = sorted(piece for piece in pieces if piece in text)
        assert not found, f"{found} of the key in {where}: {text}"


def the_object(ended: Ended) -> dict[str, object]:
    """Read the one JSON object that `--json` prints."""
    found: dict[str, object] = json.loads(ended.out)
    assert found["version"] == 1
    assert found["exit"] == ended.code
    return found


def _speaks_properly(ended: Ended) -> None:
    """No traceback, no Python in a sentence; a fault says where and what to do, on standard error."""
    said = ended.err
    assert ended.code in {0, 1, 2, 75, 78}, ended
    for python in ("Traceback", " object at 0x", "Error(", "{'", "b'", "None:"):
        assert python not in ended.all, ended
    if ended.code != 0 and not ended.out.startswith("{"):
        assert ended.out == "", f"a fault is no result: {ended}"
    if not said or ended.code == 0:
        return
    assert NEXT_STEP.search(said), f"does not say what to do next: {ended}"
    if ended.code == 75:
        assert "run again" in said.lower(), ended
    if ended.code == 78:
        assert re.search(r"/\w|[A-Z]+_[A-Z_]+", said), f"names neither file nor setting: {ended}"


def _says_sent_only_if_it_is(desk: Desk, day: str) -> None:
    record = desk.record(day) if _is_readable(desk) else {}
    if record.get("state") == "sent":
        mailed = {
            c["id"]
            for c in desk.sandbox.state()["campaigns"]
            if c["sends_accepted"] or c["status"] in {"sending", "sent"}
        }
        assert {c["id"] for c in record["campaigns"] if c["role"] == "main"} <= mailed, record


def _is_readable(desk: Desk) -> bool:
    try:
        json.loads(desk.ledger_file.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _everything_in(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder: inode, time of change, content."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (status.st_ino, status.st_mtime_ns, content)
    return found
