"""Things to try out: a desk on the sandbox, and the whole story told on it.

Nothing of the user's is read or touched, see `stage`.
"""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sendonce.adapters.signals import stop_on_signals
from sendonce.core.dates import render
from sendonce.core.errors import Stopped, Unusable
from sendonce.sandbox.account import DEFAULT_LIST_ID, Setup
from sendonce.sandbox.account import Settings as SandboxSettings
from sendonce.stage import MADE_UP_KEY, RUN_LIMIT_S, Desk, Stage, make_desk, scratch, today

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TITLE: Final = "Daily news {date}"
JOB: Final = "daily"
READERS: Final = 100
WIDTH: Final = 80
HELD_S: Final = 120
"""How long the sandbox keeps the answer back from the run that is killed: longer than all of it takes."""


class Say(Protocol):
    """Where the story goes. `style` is "title", "quote", "good", "bad" or "" for plain text."""

    def __call__(self, text: str, style: str = "") -> None:
        """Say some lines."""
        ...


def title_of(day: date) -> str:
    """Return the title that releases the day's campaign."""
    return render(TITLE, JOB, day)


def _make_desk(folder: Path, url: str, zone: str, **more: str) -> Desk:
    of_job = {"SENDONCE_TIMEZONE": zone, "SENDONCE_TITLE": TITLE, "SENDONCE_LIST_ID": DEFAULT_LIST_ID}
    return make_desk(folder, url, today(zone), **of_job, **more)


# ------------------------------------------------------------------------------------------------- `sandbox`


def serve_sandbox(
    *, port: int, audience: int, drafts: Sequence[str], zone: str, ready: Callable[[Desk], None]
) -> None:
    """Serve the sandbox with a desk until SIGTERM, SIGHUP or Ctrl-C; then the desk is removed.

    `ready` is told the desk once connections are accepted. Raise Unusable if the port cannot be had.
    """
    from sendonce.sandbox.server import serve

    # only the key that is handed out, so that a wrong one can be tried, too
    setup = Setup(
        members=audience,
        drafts=(title_of(today(zone)), *drafts),
        settings=SandboxSettings(api_key=MADE_UP_KEY),
    )
    with stop_on_signals(), scratch("sandbox") as folder:
        try:
            serve(port, ready=lambda url: ready(_make_desk(Path(folder), url, zone)), setup=setup)
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
    with _told_on_a_stage(zone, is_verbose=is_verbose) as story:
        day = story.desk.day
        yesterday, day_before = day - timedelta(days=1), day - timedelta(days=2)
        _opening(say)
        _ordinary_day(story, day, say)
        _started_again(story, day, say)
        _lost_answer(story, yesterday, say)
        _killed(story, day_before, say)
        return _ending(story, (day_before, yesterday, day), say)


def _opening(say: Say) -> None:
    say("sendonce sends the day's campaign, and sends it once. See for yourself.", "title")
    say(f"""
Nothing here is real but sendonce itself: Mailchimp is a stand-in on this
machine, with {READERS} readers. Four things happen, as they do to every newsletter.""")


def _ordinary_day(story: _Story, day: date, say: Say) -> None:
    say("\n1. An ordinary day", "title")
    say(f"""\
A colleague has finished the campaign "{title_of(day)}".
In the morning the computer starts sendonce.""")
    story.release(day)
    story.send(day, say)


def _started_again(story: _Story, day: date, say: Say) -> None:
    say("\n2. It is started a second time", "title")
    say("""\
A timer set up twice, a computer that restarts, somebody who wants to be sure:
sendonce looks into its records and does nothing.""")
    story.send(day, say)


def _lost_answer(story: _Story, day: date, say: Say) -> None:
    say("\n3. Mailchimp sends, but its answer gets lost", "title")
    say(f"""\
The campaign of {day} has gone out, and the line breaks before Mailchimp
can say so. Sending again would mail everybody twice; giving up could mail
nobody. sendonce does neither: it asks what became of the campaign.""")
    story.release(day)
    story.order_fault("accept-reset")
    story.send(day, say)


def _killed(story: _Story, day: date, say: Say) -> None:
    say("\n4. The computer dies while Mailchimp is sending", "title")
    say(f"""\
The campaign of {day} has just gone out when sendonce is cut off, as by a
power failure. It had written down what it was about to do:""")
    campaign = story.release(day)
    story.order_fault(f"accept-slow:{HELD_S}")
    story.kill_when_sent(campaign, "send-batch", "--date", day.isoformat())
    on_record = story.run("ledger", "show", day.isoformat())
    say(_quoted(on_record.partition("\n")[0]), "quote")
    say("The computer is back and starts sendonce again. It asks Mailchimp first:")
    story.send(day, say)


def _ending(story: _Story, days: Sequence[date], say: Say) -> Verdict:
    say("\nWhat sendonce has on record", "title")
    say(story.run("ledger", "list").strip("\n"))
    say("\nWhat arrived in the readers' mailboxes", "title")
    verdict = Verdict(story.count(days), tuple(story.surprises))
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
class _Story:
    """The stage, the desk on it, and exit codes that were not as told."""

    stage: Stage
    desk: Desk
    is_verbose: bool
    surprises: list[int] = field(default_factory=list)

    # the real command

    def send(self, day: date, say: Say) -> None:
        """Run `send-batch` for a date and show what it says."""
        loud = ["-v"] if self.is_verbose else []
        say(_quoted(self.run("send-batch", "--date", day.isoformat(), *loud)), "quote")

    def run(self, *arguments: str) -> str:
        """Run a command to its end and return what it printed; an exit code that is not 0 is kept for the verdict."""
        code, said = self.stage.run(self.desk, *arguments)
        if code:
            self.surprises.append(code)
        return said

    def kill_when_sent(self, campaign_id: str, *arguments: str) -> None:
        """Start a command, and kill -9 it once the sandbox has accepted the send and holds the answer."""

        def is_accepted() -> bool:
            sends = self.stage.ask("GET", "state")["sends"]["accepted_by_campaign"]
            return bool(sends.get(campaign_id))

        ended = self.stage.run_until(is_accepted, self.desk, *arguments)
        if ended is not None:
            said = ended.said.strip()
            raise Unusable(f"The run that should have been cut off in mid-send did not get there: {said}")

    # the sandbox

    def release(self, day: date) -> str:
        """Put the day's finished campaign in place; its id."""
        return str(self.stage.ask("POST", "campaigns", {"title": title_of(day)})["id"])

    def order_fault(self, word: str) -> None:
        """Have the next send meet a fault, see sandbox/faults.py."""
        self.stage.ask("PUT", "faults", [{"on": "send", "word": word, "times": 1}])

    def count(self, days: Sequence[date]) -> tuple[DayCount, ...]:
        """Count what was delivered for each date."""
        campaigns = self.stage.ask("GET", "state")["campaigns"]
        mailbox = self.stage.ask("GET", "mailbox")["titles"]
        counts = []
        for day in days:
            title = title_of(day)
            sends = [(c["sends_arrived"], c["sends_accepted"]) for c in campaigns if c["title"] == title]
            asked, accepted = (sum(numbers) for numbers in zip(*sends, strict=True))
            got = mailbox.get(title, {"deliveries": 0, "distinct": 0, "most": 0})
            mails, people, most = got["deliveries"], got["distinct"], got["most"]
            counts.append(DayCount(day.isoformat(), asked, accepted, mails, people, most))
        return tuple(counts)


@contextmanager
def _told_on_a_stage(zone: str, *, is_verbose: bool) -> Iterator[_Story]:
    """Set the stage, and clear it whatever happens on it."""
    with stop_on_signals() as signals, scratch("demo") as folder:
        stage = Stage(f"--audience={READERS}", "--sending=0")
        try:
            deadline = {"SENDONCE_DEADLINE_SECONDS": str(RUN_LIMIT_S)}
            yield _Story(stage, _make_desk(Path(folder), stage.url, zone, **deadline), is_verbose)
        finally:
            signals.ignore()
            stage.close()
