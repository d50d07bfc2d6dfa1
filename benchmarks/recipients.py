"""What it costs to put on record who got a mailing, beside a bare loop over the same pages.

    python benchmarks/recipients.py [--rows 100000] [--latency 0.05] [--records 0] [--rounds 1]
    python benchmarks/recipients.py --whole    a million rows, and a look-up among five million

The bare loop has as many connections, kept, reads the JSON and counts it. The stand-in for Mailchimp is a Python process
on the same machine, so that without a latency both are measured by how fast that is: `--latency` is what an answer takes
beyond it, in seconds. Mailchimp takes more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.recipients import FileRecipients
from sendonce.core.recipients import CONNECTIONS, PAGE_ROWS, email_id_of
from sendonce.stage import MADE_UP_KEY, Stage, make_desk

if TYPE_CHECKING:
    from sendonce.stage import Desk

DAY: Final = "2026-01-05"
SHARE: Final = 0.85
MEMORY_MB: Final = 150
LOOK_UP_MS: Final = 50
MOST_REQUESTS: Final = 2
FIELDS: Final = "total_items,sent_to.email_id,sent_to.status"


class Took(NamedTuple):
    """Seconds on the wall, and the most memory, in MB."""

    seconds: float
    memory_mb: float


def timed(command: list[str], folder: Path) -> Took:
    """Run a command in a process of its own. Raise CalledProcessError if it fails."""
    kept = {k: v for k, v in os.environ.items() if k in {"PATH", "HOME", "VIRTUAL_ENV"}}
    began_s = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=kept, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Took(time.monotonic() - began_s, usage.ru_maxrss / 1024)


def bare_loop(base_url: str, campaign: str) -> int:
    """Read all pages over kept connections; how many rows. What nothing can be faster than."""
    import requests  # noqa: PLC0415 - only the process that is measured

    def page(session: requests.Session, number: int) -> dict[str, Any]:
        params = {"fields": FIELDS, "count": str(PAGE_ROWS), "offset": str(number * PAGE_ROWS)}
        answer = session.get(f"{base_url}/reports/{campaign}/sent-to", params=params, timeout=30)
        document: dict[str, Any] = answer.json()
        return document

    counts: list[int] = []
    lock = threading.Lock()

    def work(numbers: itertools.count[int], pages: int) -> None:
        with requests.Session() as session:
            session.auth = ("user", MADE_UP_KEY)
            while True:
                with lock:
                    number = next(numbers)
                if number >= pages:
                    return
                counts.append(len(page(session, number)["sent_to"]))

    with requests.Session() as session:
        session.auth = ("user", MADE_UP_KEY)
        first = page(session, 0)
    counts.append(len(first["sent_to"]))
    numbers = itertools.count(1)
    pages = -(-first["total_items"] // PAGE_ROWS)
    threads = [threading.Thread(target=work, args=(numbers, pages)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


class Field:
    """A campaign to so many people that was sent, and the job that sent it."""

    def __init__(self, stage: Stage, folder: Path, latency_s: float) -> None:
        self._stage, self._folder = stage, folder
        self.campaign = str(stage.ask("POST", "campaigns", {"title": f"daily {DAY}"})["id"])
        self._made = 0
        desk = self._desk()
        subprocess.run(self.command(desk, "send-batch", "--date", DAY), check=True, stdout=subprocess.DEVNULL)
        self._ledger = (desk.state / "daily.json").read_bytes()
        if latency_s:
            stage.ask("PUT", "faults", [{"on": "sent-to", "word": f"slow:{latency_s:g}"}])

    def _desk(self) -> Desk:
        self._made += 1
        folder = self._folder / f"job{self._made}"
        folder.mkdir()
        return make_desk(folder, self._stage.url, date.fromisoformat(DAY), SENDONCE_TIMEZONE="UTC")

    @staticmethod
    def command(desk: Desk, *arguments: str) -> list[str]:
        """A command of ours for that desk."""
        return [sys.executable, "-m", "sendonce", "--env-file", str(desk.env_file), *arguments]

    def bare(self) -> Took:
        """The bare loop, in a process of its own."""
        return timed([sys.executable, __file__, "--bare", self._stage.url, self.campaign], self._folder)

    def sync(self) -> tuple[Took, int]:
        """`recipients sync` with an empty record; and how many requests a second one made."""
        desk = self._desk()
        (desk.state / "daily.json").write_bytes(self._ledger)
        command = self.command(desk, "recipients", "sync", "--date", DAY)
        took = timed(command, self._folder)
        self._stage.ask("DELETE", "calls")
        timed(command, self._folder)
        return took, len(self._stage.ask("GET", "calls")["calls"])


def look_up_ms(folder: Path, records: int) -> tuple[float, str]:
    """How long a look-up takes among so many, the file opened for it; and its query plan."""
    path = folder / "many.recipients.db"
    record = FileRecipients(path, job="daily", api="", clock=SystemClock())
    with record.writing():
        pass  # the tables
    from hashlib import md5  # noqa: PLC0415 - only here

    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -200000")
        campaigns = [(n, f"{n:010x}", 4711, f"2026-01-{n:02d}", "main", "daily", None, records // 5, f"{DAY}T08:00:00+00:00")
                     for n in range(1, 6)]  # fmt: skip
        db.executemany("INSERT INTO campaigns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", campaigns)
        people = (
            md5(b"member%07d@example.com" % n, usedforsecurity=False).digest() for n in range(records // 5)
        )
        rows = ((who, n, 0, None) for who in sorted(people) for n in range(1, 6))
        db.executemany("INSERT INTO recipients VALUES (?, ?, ?, ?)", rows)
        db.commit()
    times = []
    for number in range(25):
        began_s = time.perf_counter()
        found = record.got(email_id_of(f"member{number * 7919 % (records // 5):07d}@example.com"))
        times.append(1000 * (time.perf_counter() - began_s))
        if len(found) != len(campaigns):
            raise SystemExit("the look-up found something else than what is there")
    from sendonce.adapters.recipients import LOOK_UP  # noqa: PLC0415 - only here

    with closing(sqlite3.connect(path)) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {LOOK_UP}", (b"", b""))]
    return statistics.median(times), "; ".join(plan)


def say(name: str, found: str, bound: str, *, is_ok: bool) -> bool:
    """Print a figure beside its bound."""
    print(f"{name:<46} {found:>12}  bound {bound:<8} {'ok' if is_ok else 'NOT MET'}", flush=True)
    return is_ok


def measure(folder: Path, *, rows: int, latency_s: float, records: int, rounds: int) -> bool:
    """Measure, print, judge; whether all is within its bounds."""
    verdicts: list[bool] = []
    with closing(Stage("--sending=0", f"--audience={rows}")) as stage:
        field = Field(stage, folder, latency_s)
        bare, ours, requests = [], [], 0
        for _ in range(rounds):
            bare.append(field.bare())
            took, requests = field.sync()
            ours.append(took)
    bare_s, ours_s = (statistics.median(t.seconds for t in many) for many in (bare, ours))
    memory_mb = max(t.memory_mb for t in ours)
    print(
        f"{rows:,} recipients, {CONNECTIONS} connections, {latency_s:g} s for each answer beyond the stand-in's own time"
    )
    print(
        f"  bare loop {bare_s:7.2f} s  {rows / bare_s:10,.0f} rows/s  {max(t.memory_mb for t in bare):4.0f} MB"
    )
    print(f"  sync      {ours_s:7.2f} s  {rows / ours_s:10,.0f} rows/s  {memory_mb:4.0f} MB")
    share = bare_s / ours_s
    verdicts += [
        say("rows of a sync : those of the bare loop", f"{share:.0%}", f"{SHARE:.0%}", is_ok=share >= SHARE),
        say("most memory of a sync", f"{memory_mb:.0f} MB", f"{MEMORY_MB} MB", is_ok=memory_mb < MEMORY_MB),
        say("requests of a second sync", str(requests), str(MOST_REQUESTS), is_ok=requests <= MOST_REQUESTS),
    ]
    if records:
        took_ms, plan = look_up_ms(folder, records)
        name = f"a look-up among {records:,}"
        verdicts.append(say(name, f"{took_ms:.1f} ms", f"{LOOK_UP_MS} ms", is_ok=took_ms < LOOK_UP_MS))
        print(f"  plan: {plan}")
    return all(verdicts)


def sync_against_bare(folder: Path, rows: int = 100_000, latency_s: float = 0.05) -> float:
    """How many times as long as the bare loop a sync takes, in short; benchmarks/bench.py prints it among the others."""
    with (
        TemporaryDirectory(dir=folder) as scratch,
        closing(Stage("--sending=0", f"--audience={rows}")) as stage,
    ):
        field = Field(stage, Path(scratch), latency_s)
        bare_s = field.bare().seconds
        return field.sync()[0].seconds / bare_s


def main() -> int:
    """Measure what the command line says."""
    if sys.argv[1:2] == ["--bare"]:
        rows = bare_loop(*sys.argv[2:4])
        print(json.dumps({"rows": rows, "memory_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--latency", type=float, default=0.05, metavar="SECONDS")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--whole", action="store_true")
    said = parser.parse_args()
    rows, records = (1_000_000, 5_000_000) if said.whole else (said.rows, said.records)
    with TemporaryDirectory() as scratch:
        is_ok = measure(Path(scratch), rows=rows, latency_s=said.latency, records=records, rounds=said.rounds)
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
