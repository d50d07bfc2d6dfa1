"""What the demo and the drill are played on: the sandbox in a process of its own, and jobs of a scratch folder.

Nothing of the user's is read or touched here: settings, ledger and key are made up and lie in a scratch folder,
and the command runs with every SENDONCE_… and MAILCHIMP_… variable taken out of its environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from sendonce.adapters.clock import SystemClock
from sendonce.core.errors import Unusable
from sendonce.settings import environment, render_env

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

MADE_UP_KEY: Final = "thisisamadeupkeyforthesandbox-us1"
RUN_LIMIT_S: Final = 90
"""A run ends itself after that (its deadline), so nothing here waits for one for ever."""
ANSWER_S: Final = 20
LOOK_S: Final = 0.03
# -P: a file of ours called as a module of Python's, in whatever folder this is, must not be run
PYTHON: Final = (sys.executable, "-P", "-m")
COMMAND: Final = (*PYTHON, "sendonce")


@dataclass(frozen=True)
class Desk:
    """A job on the sandbox: its folder with a `.env` and a state folder, its settings, its day."""

    folder: Path
    url: str
    day: date
    settings: dict[str, str]

    @property
    def env_file(self) -> Path:
        """The `.env`."""
        return self.folder / ".env"

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / "state"


def make_desk(folder: Path, url: str, day: date, **more: str) -> Desk:
    """Make a desk in an empty scratch folder; `more` are settings beside the key, the address and the state."""
    own = {
        "MAILCHIMP_API_KEY": MADE_UP_KEY,
        "MAILCHIMP_API_URL": url,
        "SENDONCE_STATE": str(folder / "state"),
    }
    desk = Desk(folder, url, day, {**own, **more})
    desk.state.mkdir(mode=0o700)
    desk.env_file.touch(mode=0o600)
    desk.env_file.write_text(render_env(desk.settings), encoding="utf-8")
    return desk


def usable_zone(name: str) -> str:
    """Return a zone's name, or UTC if it cannot be used. Raise Unusable without any time zone data."""
    known = available_timezones()
    if not known:
        raise Unusable("This machine has no time zone data. Install it (tzdata) and run again.")
    return name if name in known else "UTC"


def today(zone: str) -> date:
    """Return the date in that zone."""
    return SystemClock().now().astimezone(UTC if zone == "UTC" else ZoneInfo(zone)).date()


def scratch(purpose: str) -> TemporaryDirectory[str]:
    """Make a scratch folder, for a `with` statement that removes it."""
    return TemporaryDirectory(prefix=f"sendonce-{purpose}-", ignore_cleanup_errors=True)


class Ended(NamedTuple):
    """How a run ended: its exit code (negative: the signal that killed it), and all that it printed."""

    code: int
    said: str


class Stage:
    """The sandbox, started at once, and the runs against it, one at a time. `close` ends them all.

    One thread may run commands while another closes the stage: the first then gets Unusable.
    """

    def __init__(self, *options: str, command: Sequence[str] = COMMAND) -> None:
        """Start the sandbox with these options; `command` is what is run against it."""
        self._command = command
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._run: subprocess.Popen[str] | None = None
        # a session of its own: Ctrl-C is for this process, which ends the other; and --until-eof ends it
        # even if this one is killed
        starting = [*PYTHON, "sendonce.sandbox", "--until-eof", *options]
        self._sandbox = _start(starting, stdin=subprocess.PIPE, start_new_session=True)
        self._url = ""

    @property
    def url(self) -> str:
        """The sandbox's address, once it has said it. Raise Unusable if it did not start."""
        if not self._url:
            said = self._sandbox.stdout.readline().strip() if self._sandbox.stdout else ""
            if not said.startswith("http://"):
                raise Unusable(f"The sandbox did not start: {said or 'it said nothing'}")
            self._url = said
        return self._url

    # the command

    def run(self, desk: Desk, *arguments: str) -> Ended:
        """Run a command to its end."""
        run = self._begin(desk, arguments, {})
        said, _ = run.communicate()
        return Ended(run.returncode, said)

    def run_until(
        self, is_time: Callable[[], bool], desk: Desk, *arguments: str, **environ: str
    ) -> Ended | None:
        """Start a command, and kill -9 it when it is time; None. If it ends before, how it ended.

        `environ` are settings that hold for this run alone. Raise Unusable if it is never time.
        """
        run = self._begin(desk, arguments, environ)
        clock = SystemClock()
        give_up_at_s = clock.monotonic() + RUN_LIMIT_S
        while not is_time():
            if run.poll() is not None:
                said, _ = run.communicate()
                return Ended(run.returncode, said)
            if clock.monotonic() > give_up_at_s:
                self.end_run()
                raise Unusable("A run that should have been cut off is still at work and did not get there.")
            self.pause(LOOK_S)
        self.end_run()
        return None

    def pause(self, seconds: float) -> None:
        """Wait, or until the stage is closed."""
        self._closed.wait(seconds)

    def end_run(self) -> None:
        """Kill the run at work, if any. Raise Unusable if this machine does not allow it."""
        run = self._run
        if run is None or run.poll() is not None:
            return
        try:
            run.kill()
        except PermissionError:
            raise Unusable(
                f"This process may not kill the command that it started (pid {run.pid}), so no crash can be "
                "played here. Nothing was mailed to anybody. Try it as another user, or outside the container."
            ) from None
        run.communicate()

    def _begin(
        self, desk: Desk, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed.is_set():
                raise Unusable("The stage is closed.")
            command = [*self._command, "--env-file", str(desk.env_file), *arguments]
            self._run = run = _start(command, environ=environ)
        return run

    # the sandbox

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask the sandbox's control side. Raise Unusable if it does not answer, or says no."""
        connection = HTTPConnection("127.0.0.1", urlsplit(self.url).port, timeout=ANSWER_S)
        try:
            connection.request(method, f"/sandbox/{path}", json.dumps(body))
            answer = connection.getresponse()
            told = json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as fault:
            raise Unusable(f"The sandbox does not answer: {fault}. Nothing was mailed to anybody.") from fault
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise Unusable(f"The sandbox cannot do that ({method} {path}): {told.get('detail')}")
        return told

    # the end

    def close(self) -> None:
        """End the run at work and the sandbox."""
        with self._lock:
            self._closed.set()
        for process in (self._run, self._sandbox):
            if process is not None:
                with suppress(PermissionError):
                    process.kill()
        # where killing is not allowed: the sandbox ends at the end of its input, and a run without it
        if self._sandbox.stdin is not None:
            self._sandbox.stdin.close()
        self._sandbox.wait()
        if self._sandbox.stdout is not None:
            self._sandbox.stdout.close()
        if self._run is not None:
            self._run.wait()


def _start(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    start_new_session: bool = False,
) -> subprocess.Popen[str]:
    """Start one of our modules, with nothing of the user's settings in its environment."""
    clean = {k: v for k, v in environment().items() if not k.startswith(("SENDONCE_", "MAILCHIMP_"))}
    return subprocess.Popen(  # noqa: S603 - our own interpreter, our own modules, no shell
        command,
        env={**clean, **(environ or {})},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=start_new_session,
    )
