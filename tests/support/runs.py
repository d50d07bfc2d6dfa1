"""A job's desk: a scratch folder with a `.env`, and the real command run in it as cron would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.sandbox import API_KEY, LIST_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from support.sandbox import Sandbox

DAY = "2026-01-05"
COMMAND = [sys.executable, "-m", "sendonce"]
LIMIT_S = 60


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        """Both streams."""
        return self.out + self.err


class Desk:
    """One job: settings, state folder and HTML file in `folder`, against `sandbox`. Waiting times are short."""

    def __init__(self, folder: Path, sandbox: Sandbox, source: str = "draft", **settings: str) -> None:
        self.folder, self.sandbox, self.source = folder, sandbox, source
        self.state = folder / "state"
        self.state.mkdir(mode=0o700, parents=True)
        self.env_file = folder / ".env"
        self.values: dict[str, str] = {
            "MAILCHIMP_API_KEY": API_KEY,
            "MAILCHIMP_API_URL": sandbox.url,
            "SENDONCE_TITLE": "Digest {date}",
            "SENDONCE_STATE": str(self.state),
            "SENDONCE_TIMEZONE": "Europe/Berlin",
            "SENDONCE_LEASE_SECONDS": "3",
            "SENDONCE_TIMEOUT_SECONDS": "3",
            "SENDONCE_SETTLE_SECONDS": "1",
            "SENDONCE_LISTING_SECONDS": "1",
            **self._of_source(source),
            **settings,
        }
        self.write_env()

    def _of_source(self, source: str) -> dict[str, str]:
        if source == "draft":
            return {}
        if source == "replicate":
            template = self.sandbox.add_draft("Template", list_id=LIST_ID)
            return {
                "SENDONCE_SOURCE": "replicate",
                "SENDONCE_REPLICATE_FROM": template,
                "SENDONCE_SUBJECT": "News of {date}",
            }
        (self.folder / "day.html").write_text("<p>Hello *|UNSUB|*</p>")
        return {
            "SENDONCE_SOURCE": "html",
            "SENDONCE_LIST_ID": LIST_ID,
            "SENDONCE_SUBJECT": "News of {date}",
            "SENDONCE_HTML_FILE": "day.html",
            "SENDONCE_FROM_NAME": "Ed",
            "SENDONCE_REPLY_TO": "ed@example.com",
        }

    def write_env(self, **changes: str | None) -> None:
        """Write the `.env`, with changes; None takes a setting out."""
        for name, value in changes.items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value
        self.env_file.touch(mode=0o600)
        self.env_file.write_text("".join(f"{name}='{value}'\n" for name, value in self.values.items()))

    def prepare(self, day: str = DAY) -> None:
        """With a draft source: have a person release the day's campaign."""
        if self.source == "draft":
            self.sandbox.add_draft(f"Digest {day}", list_id=LIST_ID)

    def start(
        self, *arguments: str, environ: Mapping[str, str] | None = None, under: Sequence[str] = (), **how: Any
    ) -> subprocess.Popen[str]:
        """Start a command as cron would: an empty environment, cwd /, no terminal, no standard input.

        `under` is a command that runs the command: strace and its options, for example.
        """
        clean = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", **_coverage(), **(environ or {})}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        how = {**streams, "cwd": "/", **how}
        command = [*under, *COMMAND, "--env-file", str(self.env_file), *arguments]
        return subprocess.Popen(command, env=clean, text=True, **how)

    def run(self, *arguments: str, environ: Mapping[str, str] | None = None, **how: Any) -> Ended:
        """Run a command to its end."""
        with self.start(*arguments, environ=environ, **how) as process:
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Ended(process.returncode, out or "", err or "")

    def send(self, *arguments: str, day: str = DAY, **how: Any) -> Ended:
        """`send-batch --date day`."""
        return self.run("send-batch", "--date", day, *arguments, **how)

    def send_until_done(self, *, at_most: int = 12, day: str = DAY) -> list[int]:
        """Send again and again, as cron's window of tries does, until 0; the exit codes."""
        codes: list[int] = []
        while len(codes) < at_most and (not codes or codes[-1] != 0):
            codes.append(self.send(day=day).code)
        return codes

    @property
    def ledger_file(self) -> Path:
        """The ledger."""
        return self.state / "daily.json"

    @property
    def lock_file(self) -> Path:
        """The lease's marker."""
        return self.state / "daily.lock"

    def record(self, day: str = DAY) -> dict[str, Any]:
        """The ledger's record of a day, {} if there is none."""
        if not self.ledger_file.exists():
            return {}
        found: dict[str, Any] = json.loads(self.ledger_file.read_text())["batches"].get(day, {})
        return found

    def deliveries(self, day: str = DAY) -> int:
        """How many campaigns of the day were mailed, as the sandbox counts: accepted sends under its title."""
        key = f"Digest {day}"
        return sum(
            c["sends_accepted"]
            for c in self.sandbox.state()["campaigns"]
            if c["title"] == key or c["title"].startswith(f"{key} [")
        )

    def leftovers(self) -> list[str]:
        """Files in the state folder that belong to no finished run."""
        kept = {"daily.json", "daily.json.bak", "daily.json.guard", "daily.lock.guard"}
        return sorted(p.name for p in self.state.iterdir() if p.name not in kept)


def _coverage() -> dict[str, str]:
    """What coverage's subprocess patch needs to follow a child into an empty environment."""
    return {k: v for k, v in os.environ.items() if k.startswith("COVERAGE_")}


def wait_until(condition: Callable[[], bool], *, within_s: float = 20, what: str = "") -> None:
    """Wait until something is so; a guard against hanging, not a claim of speed."""
    give_up_at = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"did not come about within {within_s} s: {what or condition}")
        time.sleep(0.02)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait for the end of it."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
