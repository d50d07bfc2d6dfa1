"""Things to try out: a desk on the sandbox, and the whole story told on it.

Nothing of the user's is read or touched: settings, ledger and key are made up and lie in a scratch folder,
and the command runs with every SENDONCE_… and MAILCHIMP_… variable taken out of its environment.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.signals import stop_on_signals
from sendonce.core.dates import render
from sendonce.core.errors import Stopped, Unusable
from sendonce.sandbox.account import DEFAULT_LIST_ID, Setup
from sendonce.settings import environment, render_env

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from tempfile import TemporaryDirectory

TITLE: Final = "Daily news {date}"
JOB: Final = "daily"
MADE_UP_KEY: Final = "thisisamadeupkeyforthesandbox-us1"
READERS: Final = 100
WIDTH: Final = 80
ANSWER_S: Final = 20
RUN_LIMIT_S: Final = 60
"""A run of the demo ends itself after that (its deadline), so nothing here waits for one for ever."""
HELD_S: Final = 120
"""How long the sandbox keeps the answer back from the run that is killed: longer than all of it takes."""


class Say(Protocol):
    """Where the story goes. `style` is "title", "quote", "good", "bad" or "" for plain text."""

    def __call__(self, text: str, style: str = "") -> None:
        """Say some lines."""
        ...


# ---------------------------------------------------------------------------------------------------- a desk


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


def make_desk(folder: Path, url: str, zone: str, **more: str) -> Desk:
    """Make a desk in an empty scratch folder."""
    state = folder / "state"
    settings = {
        "MAILCHIMP_API_KEY": MADE_UP_KEY,
        "MAILCHIMP_API_URL": url,
        "SENDONCE_STATE": str(state),
        "SENDONCE_TIMEZONE": zone,
        "SENDONCE_TITLE": TITLE,
        "SENDONCE_LIST_ID": DEFAULT_LIST_ID,
        **more,
    }
    state.mkdir(mode=0o700)
    desk = Desk(folder, url, today(zone), settings)
    desk.env_file.touch(mode=0o600)
    desk.env_file.write_text(render_env(settings), encoding="utf-8")
    return desk


def title_of(day: date) -> str:
    """Return the title that releases the day's campaign."""
    return render(TITLE, JOB, day)


def usable_zone(name: str) -> str:
    """Return a zone's name, or UTC if it cannot be used. Raise Unusable without any time zone data."""
    from zoneinfo import available_timezones

    known = available_timezones()
    if not known:
        raise Unusable("This machine has no time zone data. Install it (tzdata) and run again.")
    return name if name in known else "UTC"


def today(zone: str) -> date:
    """Return the date in that zone."""
    from zoneinfo import ZoneInfo

    return SystemClock().now().astimezone(UTC if zone == "UTC" else ZoneInfo(zone)).date()


def _scratch(purpose: str) -> TemporaryDirectory[str]:
    from tempfile import TemporaryDirectory

    return TemporaryDirectory(prefix=f"sendonce-{purpose}-", ignore_cleanup_errors=True)


# ------------------------------------------------------------------------------------------------- `sandbox`


def serve_sandbox(
    *, port: int, audience: int, drafts: Sequence[str], zone: str, ready: Callable[[Desk], None]
) -> None:
    """Serve the sandbox with a desk until SIGTERM, SIGHUP or Ctrl-C; then the desk is removed.

    `ready` is told the desk once connections are accepted. Raise Unusable if the port cannot be had.
    """
    from sendonce.sandbox.server import serve

    setup = Setup(members=audience, drafts=(title_of(today(zone)), *drafts))
    with stop_on_signals(), _scratch("sandbox") as folder:
        try:
            serve(port, ready=lambda url: ready(make_desk(Path(folder), url, zone)), setup=setup)
        except Stopped:
            return


def guide(desk: Desk, audience: int, command: str) -> str:
    """Say what can be done with a sandbox that serves; `command` is how sendonce is called."""
    exports = {"SENDONCE_ENV_FILE": str(desk.env_file), **desk.settings}
    control = desk.url.removesuffix("/3.0") + "/sandbox"
    tomorrow = title_of(desk.day + timedelta(days=1))
    return "\n".join(
        [
            f"A stand-in for Mailchimp is at {desk.url}. It mails nobody.",
            "It ends with Ctrl-C, and then forgets everything, the scratch folder below too.",
            "",
            "Paste this into another terminal:",
            "",
            *(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
            "",
            f'A campaign "{title_of(desk.day)}" for {audience} people is ready. Try:',
            "",
            f"{command} send-batch --dry-run",
            f"{command} send-batch",
            f"{command} send-batch    # again: already sent",
            f"{command} ledger list",
            "",
            "Put another finished campaign in place (its title releases it), look into the",
            "mailbox, have the answer to the next send get lost:",
            "",
            f'curl -d \'{{"title": "{tomorrow}"}}\' {control}/campaigns',
            f"curl {control}/mailbox",
            f'curl -X PUT -d \'[{{"on": "send", "word": "accept-reset", "times": 1}}]\' {control}/faults',
        ]
    )


# ---------------------------------------------------------------------------------------------------- `demo`


@dataclass(frozen=True)
class DayCount:
    """What the sandbox counted for one date: requests to send, those it accepted, and mails."""

    date: str
    asked: int
    accepted: int
    mails: int
    people: int
    most_to_one: int

    @property
    def is_once(self) -> bool:
        """Whether the date was delivered once to everybody, and not only because the sandbox refused more."""
        return self.asked == self.accepted == self.most_to_one == 1 and self.mails == self.people == READERS


@dataclass(frozen=True)
class Verdict:
    """How the story ended: what was delivered, and the exit codes of runs that did not end as told."""

    days: tuple[DayCount, ...]
    surprises: tuple[int, ...]

    @property
    def is_good(self) -> bool:
        """One delivery for each date, and every run that was not killed ended with 0."""
        return all(day.is_once for day in self.days) and not self.surprises

    @property
    def message(self) -> str:
        """The verdict in a sentence."""
        if self.is_good:
            number = len(self.days)
            return f"{number} days, {number} deliveries: each day's campaign went out once, and once only."
        wrong = ", ".join(day.date for day in self.days if not day.is_once)
        if wrong:
            return f"This is not as it should be: not exactly one delivery for {wrong}."
        codes = ", ".join(map(str, self.surprises))
        return (
            f"This is not as it should be: one delivery for each day, but runs ended with exit code {codes}."
        )


def play(zone: str, say: Say, *, is_verbose: bool = False) -> Verdict:
    """Tell the whole story: real runs in real processes against the sandbox in its own. Takes some seconds.

    Raise Unusable if the sandbox cannot be started or does not answer. Whatever was started is ended and the
    scratch folder removed when this returns or raises, on a signal (Stopped) too.
    """
    with _stage(zone, is_verbose=is_verbose) as stage:
        day = stage.desk.day
        yesterday, day_before = day - timedelta(days=1), day - timedelta(days=2)
        _opening(say)
        _ordinary_day(stage, day, say)
        _started_again(stage, day, say)
        _lost_answer(stage, yesterday, say)
        _killed(stage, day_before, say)
        return _ending(stage, (day_before, yesterday, day), say)


def _opening(say: Say) -> None:
    say("sendonce sends the day's campaign, and sends it once. See for yourself.", "title")
    say(f"""
Nothing here is real but sendonce itself: Mailchimp is a stand-in on this
machine, with {READERS} readers. Four things happen, as they do to every newsletter.""")


def _ordinary_day(stage: _Stage, day: date, say: Say) -> None:
    say("\n1. An ordinary day", "title")
    say(f"""\
A colleague has finished the campaign "{title_of(day)}".
In the morning the computer starts sendonce.""")
    stage.release(day)
    stage.send(day, say)


def _started_again(stage: _Stage, day: date, say: Say) -> None:
    say("\n2. It is started a second time", "title")
    say("""\
A timer set up twice, a computer that restarts, somebody who wants to be sure:
sendonce looks into its records and does nothing.""")
    stage.send(day, say)


def _lost_answer(stage: _Stage, day: date, say: Say) -> None:
    say("\n3. Mailchimp sends, but its answer gets lost", "title")
    say(f"""\
The campaign of {day} has gone out, and the line breaks before Mailchimp
can say so. Sending again would mail everybody twice; giving up could mail
nobody. sendonce does neither: it asks what became of the campaign.""")
    stage.release(day)
    stage.order_fault("accept-reset")
    stage.send(day, say)


def _killed(stage: _Stage, day: date, say: Say) -> None:
    say("\n4. The computer dies while Mailchimp is sending", "title")
    say(f"""\
The campaign of {day} has just gone out when sendonce is cut off, as by a
power failure. It had written down what it was about to do:""")
    campaign = stage.release(day)
    stage.order_fault(f"accept-slow:{HELD_S}")
    stage.kill_when_sent(campaign, "send-batch", "--date", day.isoformat())
    code, said = stage.run("ledger", "show", day.isoformat())
    stage.expect_ok(code)
    say(_quoted(said.partition("\n")[0]), "quote")
    say("The computer is back and starts sendonce again. It asks Mailchimp first:")
    stage.send(day, say)


def _ending(stage: _Stage, days: Sequence[date], say: Say) -> Verdict:
    say("\nWhat sendonce has on record", "title")
    code, table = stage.run("ledger", "list")
    stage.expect_ok(code)
    say(table.strip("\n"))
    say("\nWhat arrived in the readers' mailboxes", "title")
    verdict = Verdict(stage.count(days), tuple(stage.surprises))
    for day in verdict.days:
        twice = "nobody got it twice" if day.most_to_one <= 1 else f"some got it {day.most_to_one} times"
        say(f" {day.date}   {day.mails} mails to {day.people} people, {twice}", "" if day.is_once else "bad")
    say(f"\n{verdict.message}", "good" if verdict.is_good else "bad")
    return verdict


def _quoted(text: str) -> str:
    """Return what a run printed, indented and not wider than a terminal of 80 columns."""
    import textwrap

    lines = text.strip("\n").splitlines()
    return "\n".join(
        textwrap.fill(line, WIDTH, initial_indent="   > ", subsequent_indent="     ") for line in lines
    )


@dataclass
class _Stage:
    """The desk, the sandbox process, and the run that is at work, if any."""

    desk: Desk
    is_verbose: bool
    surprises: list[int] = field(default_factory=list)
    _run: subprocess.Popen[str] | None = None

    # the real command

    def send(self, day: date, say: Say) -> None:
        """Run `send-batch` for a date and show what it says."""
        loud = ["-v"] if self.is_verbose else []
        code, said = self.run("send-batch", "--date", day.isoformat(), *loud)
        say(_quoted(said), "quote")
        self.expect_ok(code)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end; its exit code and what it printed."""
        self._run = run = _start("sendonce", "--env-file", str(self.desk.env_file), *arguments)
        said, _ = run.communicate()
        return run.returncode, said

    def kill_when_sent(self, campaign_id: str, *arguments: str) -> None:
        """Start a command, and kill -9 it once the sandbox has accepted the send and holds the answer."""
        self._run = run = _start("sendonce", "--env-file", str(self.desk.env_file), *arguments)
        clock = SystemClock()
        give_up_at = clock.monotonic() + RUN_LIMIT_S
        while not self.ask("GET", "state")["sends"]["accepted_by_campaign"].get(campaign_id):
            if run.poll() is not None or clock.monotonic() > give_up_at:
                said = run.communicate()[0] if run.poll() is not None else "it is still at work"
                raise Unusable(
                    f"The run that should have been cut off in mid-send did not get there: {said.strip()}"
                )
            clock.sleep(0.02)
        self.end_run()

    def expect_ok(self, code: int) -> None:
        """Keep an exit code that is not 0 for the verdict."""
        if code:
            self.surprises.append(code)

    def end_run(self) -> None:
        """Kill the run at work, if any."""
        if self._run is not None and self._run.poll() is None:
            self._run.kill()
            self._run.communicate()

    # the sandbox

    def release(self, day: date) -> str:
        """Put the day's finished campaign in place; its id."""
        return str(self.ask("POST", "campaigns", {"title": title_of(day)})["id"])

    def order_fault(self, word: str) -> None:
        """Have the next send meet a fault, see sandbox/faults.py."""
        self.ask("PUT", "faults", [{"on": "send", "word": word, "times": 1}])

    def count(self, days: Sequence[date]) -> tuple[DayCount, ...]:
        """Count what was delivered for each date."""
        campaigns = self.ask("GET", "state")["campaigns"]
        mailbox = self.ask("GET", "mailbox")["titles"]
        counts = []
        for day in days:
            title = title_of(day)
            sends = [(c["sends_arrived"], c["sends_accepted"]) for c in campaigns if c["title"] == title]
            asked, accepted = (sum(numbers) for numbers in zip(*sends, strict=True))
            got = mailbox.get(title, {"deliveries": 0, "distinct": 0, "most": 0})
            mails, people, most = got["deliveries"], got["distinct"], got["most"]
            counts.append(DayCount(day.isoformat(), asked, accepted, mails, people, most))
        return tuple(counts)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask the sandbox's control side. Raise Unusable if it does not answer."""
        import json
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection("127.0.0.1", urlsplit(self.desk.url).port, timeout=ANSWER_S)
        try:
            connection.request(method, f"/sandbox/{path}", json.dumps(body))
            return json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError) as fault:
            raise Unusable(f"The sandbox does not answer: {fault}. Nothing was mailed to anybody.") from fault
        finally:
            connection.close()


@contextmanager
def _stage(zone: str, *, is_verbose: bool) -> Iterator[_Stage]:
    """Set the stage, and clear it whatever happens on it."""
    with stop_on_signals() as signals, _scratch("demo") as folder:
        # a session of its own: Ctrl-C is for this process, which ends the other; and --until-eof ends it
        # even if this one is killed
        options = ("--until-eof", f"--audience={READERS}", "--sending=0")
        sandbox = _start("sendonce.sandbox", *options, stdin=subprocess.PIPE, start_new_session=True)
        stage: _Stage | None = None
        try:
            url = sandbox.stdout.readline().strip() if sandbox.stdout else ""
            if not url.startswith("http://"):
                raise Unusable(f"The sandbox did not start: {url or 'it said nothing'}")
            deadline = {"SENDONCE_DEADLINE_SECONDS": str(RUN_LIMIT_S)}
            stage = _Stage(make_desk(Path(folder), url, zone, **deadline), is_verbose)
            yield stage
        finally:
            signals.ignore()
            if stage is not None:
                stage.end_run()
            sandbox.kill()
            sandbox.communicate()


def _start(
    module: str, *arguments: str, stdin: int = subprocess.DEVNULL, start_new_session: bool = False
) -> subprocess.Popen[str]:
    """Start one of our modules, with nothing of the user's settings in its environment."""
    clean = {k: v for k, v in environment().items() if not k.startswith(("SENDONCE_", "MAILCHIMP_"))}
    # -P: a file of ours called as a module of Python's, in whatever folder this is, must not be run
    command = [sys.executable, "-P", "-m", module, *arguments]
    return subprocess.Popen(  # noqa: S603 - our own interpreter, our own modules, no shell
        command,
        env=clean,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=start_new_session,
    )
