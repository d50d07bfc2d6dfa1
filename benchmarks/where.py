"""Where the time of a run goes: the tables of docs/performance.md.

    python benchmarks/where.py [--rounds 9]

Imports are as `-X importtime` tells them, each charged to the outermost package of others that asked for it first;
what is left of the processor time is the run itself and the end of the interpreter. Medians.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
from collections import defaultdict
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench import PYCACHE, Command, Drafts, sent_day
from sendonce.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

LINE = re.compile(r"import time: +([0-9]+) \| +[0-9]+ \|( +)(\S+)")
OF_OTHERS = {
    "dotenv": "python-dotenv",
    "click": "click",
    "filelock": "filelock",
    "mailchimp_marketing": "the client and requests",
    "requests": "the client and requests",
    "urllib3": "the client and requests",
}
BARE, OWN, OURS, REST = (
    "bare Python",
    "Python's own modules",
    "sendonce's modules",
    "the run itself, and the end",
)


def imports(told: str) -> Mapping[str, float]:
    """Milliseconds of import by whom they are charged to, from what `-X importtime` wrote."""
    charged: dict[str, float] = defaultdict(float)
    above: list[tuple[int, str]] = []
    # a module stands below those it imports: read backwards, it comes first
    for line in reversed(told.splitlines()):
        if found := LINE.match(line):
            took_us, depth, name = int(found[1]), len(found[2]), found[3]
            above = [(at, who) for at, who in above if at < depth]
            above.append((depth, name))
            charged[_payer([who.partition(".")[0] for _, who in above])] += took_us / 1000
    return charged


def _payer(packages: list[str]) -> str:
    of_others = next((OF_OTHERS[name] for name in packages if name in OF_OTHERS), "")
    return of_others or (OURS if packages[-1] == "sendonce" else OWN)


def told(command: Command) -> str:
    """What `-X importtime` writes of a run. Raise CalledProcessError if it fails."""
    with command.start("-X", "importtime", stderr=subprocess.PIPE) as process:
        _, text = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return text.decode()


def table(
    name: str, whole_s: list[float], bare_s: list[float], imported: list[Mapping[str, float]], known_ms: float
) -> None:
    """Print where the time of a run goes, milliseconds and share; `known_ms` of imports are bare Python's."""
    whole_ms, bare_ms = (1000 * statistics.median(times) for times in (whole_s, bare_s))
    # the least: these are times of the clock, in which others may have had the processor
    parts = {who: min(one[who] for one in imported) for who in imported[0]}
    parts[OWN] -= known_ms
    parts = {BARE: bare_ms, **dict(sorted(parts.items(), key=lambda part: part[1]))}
    parts[REST] = whole_ms - sum(parts.values())
    print(f"\n| {name} | ms | share |\n|---|---:|---:|")
    for who, took_ms in [*parts.items(), ("all", whole_ms)]:
        print(f"| {who} | {took_ms:.1f} | {took_ms / whole_ms:.0%} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with TemporaryDirectory() as scratch, PYCACHE, closing(Stage("--sending=0")) as stage:
        folder = Path(scratch)
        drafts = Drafts(stage, folder)
        one, bare = sent_day(folder / "one", 1), Command(["-c", "pass"], folder)

        known_ms = min(imports(told(bare))[OWN] for _ in range(rounds))

        def draft_told() -> str:
            return drafts.with_draft(lambda: told(drafts.command()))

        for name, run, tell in (
            ("a sent day", one, partial(told, one)),
            ("a draft send", drafts.send, draft_told),
        ):
            run()
            taken = [(run(), bare(), imports(tell())) for _ in range(rounds)]
            whole_s, bare_s, imported = ([*column] for column in zip(*taken, strict=True))
            table(name, whole_s, bare_s, imported, known_ms)


if __name__ == "__main__":
    main()
