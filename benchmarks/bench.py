"""What a run costs, as ratios of interleaved runs (medians), beside the bound it is held to.

    python benchmarks/bench.py [--rounds 15]

Exit 1 only if a ratio is beyond 1.3 x its bound twice in a row: machines that run this are shared and noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

TOLERANCE = 1.3
DAY = "2026-01-05"


@dataclass(frozen=True)
class Ratio:
    """A command against another, and how much it may cost at the most."""

    name: str
    command: list[str]
    against: list[str]
    bound: float


def batch(day: str) -> dict[str, object]:
    """A day that was sent, as a ledger keeps it."""
    campaign = {
        "role": "main", "id": "1a2b3c4d5e", "web_id": 4711, "title": f"daily {day}", "by": "sendonce",
        "requested_at": f"{day}T08:00:04Z", "gave_up_at": None, "sent_at": f"{day}T08:00:05Z", "emails_sent": 4812,
        "recipients": 4812,
    }  # fmt: skip
    attempt = {
        "run": "5e0e96f7", "host": "web1", "pid": 812, "started_at": f"{day}T08:00:03Z", "ended_at": f"{day}T08:00:06Z",
        "outcome": "sent", "detail": f'Sent: "daily {day}" (1a2b3c4d5e) for {day}.',
    }  # fmt: skip
    return {"state": "sent", "nonce": "", "campaigns": [campaign], "attempts": [attempt]}


def job(folder: Path, batches: int) -> list[str]:
    """The command of a job whose day is sent, with so many batches in its ledger."""
    state = folder / "state"
    state.mkdir(parents=True, mode=0o700)
    env = folder / ".env"
    env.touch(mode=0o600)
    env.write_text(
        "MAILCHIMP_API_KEY=0123456789abcdef0123456789abcdef-us1\nSENDONCE_TIMEZONE=Europe/Berlin\nSENDONCE_STATE=state\n"
    )
    days = [(date.fromisoformat(DAY) - timedelta(days=n)).isoformat() for n in range(batches)]
    ledger = {
        "version": 1, "job": "daily", "api": "us1.api.mailchimp.com",
        "batches": {day: batch(day) for day in reversed(days)}, "resets": [],
    }  # fmt: skip
    (state / "daily.json").write_text(json.dumps(ledger, indent=1) + "\n")
    return [sys.executable, "-m", "sendonce", "--env-file", str(env), "send-batch", "--date", DAY]


def seconds(command: list[str], environ: dict[str, str]) -> float:
    """The processor time of one run of a command, user and system: what else the machine does counts little."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environ
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


def measure(ratio: Ratio, rounds: int, environ: dict[str, str]) -> float:
    """The ratio of the medians of interleaved runs, after one run of each that is not counted."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for command, times in zip((ratio.command, ratio.against), taken, strict=True):
            one = seconds(command, environ)
            if number:
                times.append(one)
    return statistics.median(taken[0]) / statistics.median(taken[1])


def ratios(folder: Path) -> list[Ratio]:
    """Everything that is measured here."""
    one, many = job(folder / "one", 1), job(folder / "many", 3650)
    bare, click = [sys.executable, "-c", "pass"], [sys.executable, "-c", "import click"]
    return [
        Ratio("a sent day : import click", one, click, 2.2),
        Ratio("a sent day : python -c pass", one, bare, 6.0),
        Ratio("a sent day, 3,650 batches : 1 batch", many, one, 1.5),
    ]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    # a cache of compiled modules as an installed package has it, in a place of our own
    is_bad = False
    with tempfile.TemporaryDirectory() as scratch:
        kept = {k: v for k, v in os.environ.items() if k in {"PATH", "HOME", "VIRTUAL_ENV"}}
        environ = {**kept, "PYTHONPYCACHEPREFIX": f"{scratch}/pycache"}
        for ratio in ratios(Path(scratch)):
            found = measure(ratio, rounds, environ)
            if found > TOLERANCE * ratio.bound:
                found = min(found, measure(ratio, rounds, environ))
            is_over = found > TOLERANCE * ratio.bound
            is_bad |= is_over
            verdict = (
                "TOO SLOW"
                if is_over
                else "ok"
                if found <= ratio.bound
                else "over the bound, within tolerance"
            )
            print(f"{ratio.name:<40} {found:5.2f}  bound {ratio.bound:.2f}  {verdict}")
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
