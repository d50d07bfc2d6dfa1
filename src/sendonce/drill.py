"""`sendonce drill`: the installed command is killed and cut off at every step of a send, and deliveries are counted.

A step is one request of a run that nobody disturbs. Each cell of the drill is one step and one fault that
happens there; after it the command is run again until it is done, as cron would. What counts is what the
sandbox delivered. Nothing of the user's is read or touched (see `stage`) but the way of sending that is
drilled: source, title, subject and times, which are shortened.
"""

from __future__ import annotations

import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, assert_never

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.signals import stop_on_signals
from sendonce.adapters.stores import FileLedger
from sendonce.core.dates import belongs, render
from sendonce.core.errors import SendonceError, Unusable, WrongUsage
from sendonce.core.model import Batch, Source, State
from sendonce.sandbox.account import DEFAULT_LIST_ID
from sendonce.stage import COMMAND, RUN_LIMIT_S, Desk, Ended, Stage, make_desk, scratch, today, usable_zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sendonce.settings import Settings

READERS: Final = 100
WIDTH: Final = 79
ZONE: Final = "UTC"
LANES: Final = 6
"""So many cells are at work at a time; most of each is waiting."""
RERUNS_AT_MOST: Final = 12
LONGEST_S: Final = 3.0
LONGEST_QUICK_S: Final = 1.5
SHORTEST_S: Final = 1.0
"""The settings allow no shorter TIMEOUT and SETTLE."""
HELD_BACK: Final = {"SENDONCE_TIMEOUT_SECONDS": str(RUN_LIMIT_S)}
"""For a run that will be killed while it waits: so that it does wait, however slow this machine is."""
KILLED: Final = -9
GOES_ON: Final = frozenset({KILLED, 75})
"""So ends a run that another one may finish. What ends otherwise, and not with 0, calls for a person: wrong here."""
KEPT: Final = (".json", ".json.bak", ".json.guard", ".lock.guard")
"""What a job has in its state folder when no run is at work, after its name."""


class Show(Protocol):
    """Where it can be watched. `style` is "title", "good", "bad" or "" for plain text."""

    def say(self, text: str, style: str = "") -> None:
        """Say some lines."""
        ...

    def progress(self, done: int, of: int) -> None:
        """Tell how far it is. Called from several threads."""
        ...


# --------------------------------------------------------------------------------------- steps and faults


class Fault(NamedTuple):
    """What happens to a run at a step. `word` is the sandbox's, see sandbox/faults.py."""

    name: str
    said: str
    word: str
    is_kill: bool = False


STALLED: Final = Fault("stalled", "no answer, Mailchimp acts late", "late")
FAULTS: Final = (
    Fault("killed-before", "killed before Mailchimp acts", "stall-before", is_kill=True),
    Fault("killed-after", "killed after Mailchimp acted", "stall-after", is_kill=True),
    Fault("lost-before", "line lost before Mailchimp acts", "reset-before"),
    Fault("lost-after", "line lost after Mailchimp acted", "reset-after"),
    Fault("error-page", "error page after Mailchimp acted", "accept-502html"),
    STALLED,
)

NASTIEST: Final = {
    "create": ("killed-after", "lost-after"),
    "send": ("killed-before", "killed-after", "lost-after", "stalled"),
}
"""For --quick. At all other steps a death is enough of a sample: most are reads, and a lost one is read again."""
NASTY: Final = ("killed-after",)

KNOWN_STEPS: Final = (
    "list", "read-source", "read-source-content", "create", "write-content", "read-content", "read", "list-again",
    "checklist", "send", "read-back",
)  # fmt: skip


class Step(NamedTuple):
    """The `nth` request of an undisturbed run; `request` is the sandbox's name for it."""

    nth: int
    name: str
    request: str


def check_step(name: str) -> None:
    """Raise WrongUsage for a name that no step has, whatever the source."""
    if name.partition("#")[0] not in KNOWN_STEPS:
        raise WrongUsage(f"There is no step {name!r}. The steps: {', '.join(KNOWN_STEPS)}.")


def steps_of(requests: Sequence[str]) -> tuple[Step, ...]:
    """Name the requests of an undisturbed run for people, by what they are for."""
    steps: list[Step] = []
    for nth, request in enumerate(requests, 1):
        before, after = requests[: nth - 1], requests[nth:]
        name = _step_name(request, before, after)
        twins = sum(step.name.partition("#")[0] == name for step in steps)
        steps.append(Step(nth, f"{name}#{twins + 1}" if twins else name, request))
    return tuple(steps)


def _step_name(request: str, before: Sequence[str], after: Sequence[str]) -> str:
    is_source = "create" in after
    match request:
        case "listing":
            return "list-again" if "listing" in before else "list"
        case "campaign":
            return "read-source" if is_source else "read-back" if "send" in before else "read"
        case "content":
            return "read-source-content" if is_source else "read-content"
        case "put":
            return "write-content"
        case _:
            return request


# ---------------------------------------------------------------------------------------- what is drilled


@dataclass(frozen=True)
class Times:
    """Settings that a run waits by, in seconds."""

    timeout_s: float
    settle_s: float
    listing_s: float

    def shortened(self, longest_s: float) -> Times:
        """Return them in their proportions, none longer than `longest_s`; below 1 s as far as is allowed."""
        factor = min(1.0, longest_s / max(self.timeout_s, self.settle_s, self.listing_s))
        timeout_s, settle_s = (max(SHORTEST_S, factor * s) for s in (self.timeout_s, self.settle_s))
        return Times(round(timeout_s, 2), round(settle_s, 2), round(factor * self.listing_s, 2))

    @property
    def late_s(self) -> float:
        """When a stalled request still takes effect: the run has given up on it, and SETTLE is not over."""
        return self.timeout_s + self.settle_s / 2


@dataclass(frozen=True)
class Way:
    """A way of sending: all that a drill takes of the user's settings."""

    source: Source
    job: str
    title: str
    subject: str
    is_for_one_audience: bool
    times: Times


def way_of(settings: Settings, source: Source | None) -> Way:
    """Return the way of sending of these settings, or the same with another source."""
    times = Times(settings.timeout_s, settings.settle_s, settings.listing_s)
    s = settings
    return Way(source or s.source, s.job, s.title, s.subject, bool(s.list_id), times)


@dataclass(frozen=True)
class Cell:
    """One step and one fault, and what came of it.

    `codes` are the exit codes of all runs until it was done, the first that of the run that met the fault
    (-9: killed). `wrong` says what is not as it should be, "" if nothing.
    """

    step: str
    fault: Fault
    codes: tuple[int, ...]
    deliveries: int
    wrong: str

    @property
    def reruns(self) -> int:
        """How often the command was run again."""
        return len(self.codes) - 1


@dataclass(frozen=True)
class Report:
    """What was drilled, with what `times`, and what came of it."""

    way: Way
    times: Times
    steps: tuple[Step, ...]
    cells: tuple[Cell, ...]

    @property
    def good(self) -> int:
        """How many cells are as they should be."""
        return sum(not cell.wrong for cell in self.cells)

    @property
    def is_good(self) -> bool:
        """Whether all of them are."""
        return self.good == len(self.cells)

    @property
    def message(self) -> str:
        """The verdict in a sentence."""
        verdict = f"one delivery in {self.good} of {len(self.cells)}"
        if self.is_good:
            return f"{verdict.capitalize()}: each time the campaign went out once, and once only."
        wrong = ", ".join(f"{cell.step} {cell.fault.name}" for cell in self.cells if cell.wrong)
        return f"This is not as it should be: {verdict}. Wrong: {wrong}."

    def parts(self) -> dict[str, object]:
        """Return it as JSON."""
        return {
            "source": self.way.source.value,
            "times": vars(self.times),
            "steps": [step.name for step in self.steps],
            "cells": [
                {
                    "step": cell.step,
                    "fault": cell.fault.name,
                    "reruns": cell.reruns,
                    "exit_codes": cell.codes,
                    "deliveries": cell.deliveries,
                    "wrong": cell.wrong or None,
                }
                for cell in self.cells
            ],
            "good": self.good,
            "of": len(self.cells),
        }


# ----------------------------------------------------------------------------------------------- the drill


def play(
    way: Way,
    show: Show,
    *,
    step: str | None = None,
    is_quick: bool = False,
    is_verbose: bool = False,
    command: Sequence[str] = COMMAND,
) -> Report:
    """Drill a way of sending: all steps with all faults, one `step` alone, or a quick sample.

    `command` is what is drilled. Raise WrongUsage for a step that a send does not have, Unusable if the
    sandbox does not work or nothing may be killed here. Whatever was started is ended and the scratch folder
    removed when this returns or raises, on a signal (Stopped) too.
    """
    times = way.times.shortened(LONGEST_QUICK_S if is_quick else LONGEST_S)
    with _ground(way, times, command) as ground:
        steps = ground.undisturbed()
        plan = _plan(way, steps, step, is_quick=is_quick)
        _opening(way, times, steps, len(plan), show)
        show.progress(0, len(plan))
        cells = []
        for cell in ground.drill(plan, show):
            show.say(_row(cell, is_verbose=is_verbose), "bad" if cell.wrong else "")
            cells.append(cell)
    report = Report(way, times, steps, tuple(cells))
    show.say(f"\n{report.message}", "good" if report.is_good else "bad")
    return report


def _plan(
    way: Way, steps: Sequence[Step], only: str | None, *, is_quick: bool
) -> tuple[tuple[Step, Fault], ...]:
    """Choose the cells, in the order of a send."""
    chosen = [step for step in steps if only in {None, step.name}]
    if not chosen:
        names = ", ".join(step.name for step in steps)
        raise WrongUsage(f"A send with source {way.source} has no step {only!r}. Its steps: {names}.")
    return tuple(
        (step, fault)
        for step in chosen
        for fault in FAULTS
        if not is_quick or fault.name in NASTIEST.get(step.name, NASTY)
    )


def _opening(way: Way, times: Times, steps: Sequence[Step], count: int, show: Show) -> None:
    show.say(f'A send with source {way.source} and title "{way.title}", killed and cut off', "title")
    pairs = [
        ("TIMEOUT", way.times.timeout_s, times.timeout_s),
        ("SETTLE", way.times.settle_s, times.settle_s),
        ("LISTING", way.times.listing_s, times.listing_s),
    ]
    shortened = ", ".join(f"{name} {was:g} as {now:g} s" for name, was, now in pairs)
    said = (
        f"Mailchimp is a stand-in on this machine with {READERS} readers, the command is the real one. A send has "
        f"{len(steps)} steps; {count} times something happens at one of them, and the command is run again until it "
        f"is done. Your waiting times are shortened: {shortened}."
    )
    show.say(f"\n{textwrap.fill(said, WIDTH)}\n")
    show.say(_line("step", "fault", "reruns", "deliveries"))
    show.say(_line("-" * 19, "-" * 32, "-" * 6, "-" * 10))


def _line(*columns: object) -> str:
    step, fault, reruns, deliveries = map(str, columns)
    return f"{step:<20} {fault:<33} {reruns:>6} {deliveries:>11}"


def _row(cell: Cell, *, is_verbose: bool) -> str:
    notes = [f"exit codes {', '.join(map(str, cell.codes))}"] if is_verbose else []
    notes += [f"WRONG: {cell.wrong}"] if cell.wrong else []
    told = [textwrap.fill(note, WIDTH, initial_indent="    ", subsequent_indent="    ") for note in notes]
    return "\n".join([_line(cell.step, cell.fault.said, cell.reruns, cell.deliveries), *told])


@contextmanager
def _ground(way: Way, times: Times, command: Sequence[str]) -> Iterator[_Ground]:
    """Have a place for the drill, and clear everything away whatever happens."""
    with stop_on_signals() as signals, scratch("drill") as folder:
        ground = _Ground(way, times, Path(folder), command)
        try:
            yield ground
        finally:
            signals.ignore()
            ground.close()


class _Ground:
    """Lanes side by side, and threads that take one cell after the other to whichever is free."""

    def __init__(self, way: Way, times: Times, folder: Path, command: Sequence[str]) -> None:
        self._way, self._times, self._folder, self._command = way, times, folder, command
        self._last_day = today(usable_zone(ZONE)) - timedelta(days=1)
        self._stages = ExitStack()
        self._threads = ThreadPoolExecutor(LANES)
        self._free: SimpleQueue[_Lane] = SimpleQueue()

    def undisturbed(self) -> tuple[Step, ...]:
        """Run once without any fault; the steps of that run. Raise Unusable if it does not get through."""
        self._open(1)
        lane = self._free.get()
        try:
            return lane.undisturbed(self._last_day)
        finally:
            self._free.put(lane)

    def drill(self, plan: Sequence[tuple[Step, Fault]], show: Show) -> Iterator[Cell]:
        """Yield what came of each cell, in the order of the plan."""
        self._open(min(LANES, len(plan)) - 1)
        done: list[Cell] = []

        def work(number: int, step: Step, fault: Fault) -> Cell:
            lane = self._free.get()
            try:
                # every cell has a date of its own, and the one after it
                cell = lane.drill(self._last_day - timedelta(days=2 * (number + 1)), step, fault)
            finally:
                self._free.put(lane)
            done.append(cell)
            show.progress(len(done), len(plan))
            return cell

        # sends have the longest waits: begun last, they would be waited for alone in the end
        order = sorted(range(len(plan)), key=lambda number: plan[number][0].name != "send")
        futures = {number: self._threads.submit(work, number, *plan[number]) for number in order}
        for number in range(len(plan)):
            yield futures[number].result()

    def close(self) -> None:
        """End every process, and with them the threads."""
        self._stages.close()
        self._threads.shutdown(cancel_futures=True)

    def _open(self, count: int) -> None:
        """Open so many more lanes, all at once."""
        lanes = []
        for _ in range(count):
            stage = Stage(f"--audience={READERS}", "--sending=0", command=self._command)
            self._stages.callback(stage.close)
            lanes.append(_Lane(stage, self._way, self._times, self._folder))
        for lane in lanes:
            lane.open()
            self._free.put(lane)


def _faults_of_runs(runs: Sequence[Ended], once_more: Ended) -> Iterator[str]:
    """Say what was wrong with how runs ended."""
    last = runs[-1]
    if last.code in GOES_ON:
        yield f"not done after {RERUNS_AT_MOST} reruns: {last.said.strip()}"
    elif last.code != 0:
        yield f"a run ended with exit code {last.code}: {last.said.strip()}"
    elif once_more.code != 0:
        yield f"when it was done, one more run ended with exit code {once_more.code}: {once_more.said.strip()}"


@dataclass
class _Lane:
    """One sandbox, where cells are drilled one after the other, each on a desk and a date of its own."""

    stage: Stage
    way: Way
    times: Times
    folder: Path
    template: str = ""

    def open(self) -> None:
        """Put in place what is there before any run. Raise Unusable if the sandbox does not start."""
        if self.way.source is Source.REPLICATE:
            self.template = self.stage.ask("POST", "campaigns", {"title": "To be copied each day"})["id"]

    def undisturbed(self, day: date) -> tuple[Step, ...]:
        """Run once without any fault; its steps. Raise Unusable if it does not get through."""
        desk = self._desk(day)
        self.stage.ask("DELETE", "calls")
        ended = self._send(desk, day)
        if ended.code != 0:
            said = f"exit code {ended.code}: {ended.said.strip()}"
            raise Unusable(
                f"A send that nobody disturbed did not get through, so nothing was drilled: {said}"
            )
        return steps_of([call["name"] for call in self._calls()])

    def drill(self, day: date, step: Step, fault: Fault) -> Cell:
        """Have the fault happen at that step, run again until done, and look at what came of it."""
        clock = SystemClock()
        desk = self._desk(day)
        word = f"late:{self.times.late_s:.2f}" if fault is STALLED else fault.word
        self.stage.ask("DELETE", "calls")
        self.stage.ask("PUT", "faults", [{"on": "any", "nth": step.nth, "word": word, "times": 1}])
        runs = [self._run_into(fault, desk, day)]
        struck = [call["name"] for call in self._calls() if call["fault"]]
        over_at_s = clock.monotonic() + (self.times.late_s if fault is STALLED else 0)
        while runs[-1].code in GOES_ON and len(runs) <= RERUNS_AT_MOST:
            if len(runs) > 1:
                self.stage.pause((self.times.timeout_s + self.times.settle_s) / 2)
            runs.append(self._send(desk, day))
        once_more = self._send(desk, day)
        self.stage.pause(over_at_s - clock.monotonic())  # what comes late counts too
        found = []
        if struck != [step.request]:
            found.append(f"the fault was met by {', '.join(struck) or 'nothing'}, not by {step.request}")
        deliveries, wrong = self._deliveries(desk, day)
        found += [*wrong, *_faults_of_runs(runs, once_more), *self._left_behind(desk, day)]
        return Cell(step.name, fault, tuple(run.code for run in runs), deliveries, "; ".join(found))

    # runs

    def _desk(self, day: date) -> Desk:
        """Make a desk for the day, as it is before the first run of a job."""
        folder = self.folder / day.isoformat()
        folder.mkdir()
        self._release(day)
        common = {
            "SENDONCE_JOB": self.way.job,
            "SENDONCE_TIMEZONE": ZONE,
            "SENDONCE_TITLE": self.way.title,
            "SENDONCE_SOURCE": self.way.source.value,
            "SENDONCE_TIMEOUT_SECONDS": f"{self.times.timeout_s:g}",
            "SENDONCE_SETTLE_SECONDS": f"{self.times.settle_s:g}",
            "SENDONCE_LISTING_SECONDS": f"{self.times.listing_s:g}",
            "SENDONCE_DEADLINE_SECONDS": str(RUN_LIMIT_S),
            "SENDONCE_LEASE_SECONDS": "3",
        }
        if self.way.is_for_one_audience:
            common["SENDONCE_LIST_ID"] = DEFAULT_LIST_ID
        return make_desk(folder, self.stage.url, day, **{**common, **self._of_source(folder)})

    def _of_source(self, folder: Path) -> dict[str, str]:
        subject = {"SENDONCE_SUBJECT": self.way.subject} if self.way.subject else {}
        match self.way.source:
            case Source.DRAFT:
                return {}
            case Source.REPLICATE:
                return {"SENDONCE_REPLICATE_FROM": self.template, **subject}
            case Source.HTML:
                (folder / "news.html").write_text("<p>Nothing is new. *|UNSUB|*</p>\n", encoding="utf-8")
                return {
                    "SENDONCE_SUBJECT": "News of {date}",
                    "SENDONCE_LIST_ID": DEFAULT_LIST_ID,
                    "SENDONCE_HTML_FILE": "news.html",
                    "SENDONCE_FROM_NAME": "The drill",
                    "SENDONCE_REPLY_TO": "drill@example.com",
                    **subject,
                }
            case _:
                assert_never(self.way.source)

    def _release(self, day: date) -> None:
        """Have a person finish the day's campaign, where that is a person's work."""
        if self.way.source is Source.DRAFT:
            self.stage.ask("POST", "campaigns", {"title": self._title(day)})

    def _send(self, desk: Desk, day: date) -> Ended:
        return self.stage.run(desk, "send-batch", "--date", day.isoformat())

    def _run_into(self, fault: Fault, desk: Desk, day: date) -> Ended:
        """Run into the fault; for a death, into that."""
        if not fault.is_kill:
            return self._send(desk, day)

        def is_there() -> bool:
            """Whether the request has arrived and, where that is wanted, taken effect."""
            struck = [call for call in self._calls() if call["fault"]]
            has_acted = any(call["effect"] or call["method"] == "GET" for call in struck)
            return has_acted if fault.word == "stall-after" else bool(struck)

        arguments = ("send-batch", "--date", day.isoformat())
        return self.stage.run_until(is_there, desk, *arguments, **HELD_BACK) or Ended(KILLED, "")

    # looking

    def _deliveries(self, desk: Desk, day: date) -> tuple[int, list[str]]:
        """Count the deliveries for the day; and what is wrong with them, or with the record of them."""
        campaigns = [
            campaign
            for campaign in self.stage.ask("GET", "state")["campaigns"]
            if campaign["deliveries"] and belongs(campaign["title"], self._title(day))
        ]
        deliveries = sum(campaign["most"] for campaign in campaigns)
        found = []
        if deliveries != 1:
            found.append(f"{deliveries} deliveries")
        elif campaigns[0]["distinct"] != READERS:
            found.append(f"only {campaigns[0]['distinct']} of {READERS} readers have it")
        found += self._faults_of_record(desk, day, [campaign["id"] for campaign in campaigns])
        return deliveries, found

    def _faults_of_record(self, desk: Desk, day: date, delivered: list[str]) -> Iterator[str]:
        try:
            batch = self._record(desk, day)
        except SendonceError as fault:
            yield f"the ledger cannot be read: {fault.message}"
            return
        if batch.state is not State.SENT:
            yield f'the ledger says "{batch.state}"'
        elif batch.main is None or batch.main.id not in delivered:
            yield f"the ledger names campaign {batch.main.id if batch.main else 'none'}, which was not delivered"

    def _record(self, desk: Desk, day: date) -> Batch:
        host = desk.url.removeprefix("http://").partition("/")[0]
        path = desk.state / f"{self.way.job}.json"
        ledger = FileLedger(path, job=self.way.job, api=host, claim=None, clock=SystemClock())
        return ledger.glance(day.isoformat()).batch

    def _left_behind(self, desk: Desk, day: date) -> list[str]:
        """Name what of a dead run is still there when the next day is sent, the lease say."""
        kept = {f"{self.way.job}{ending}" for ending in KEPT}
        if {path.name for path in desk.state.iterdir()} <= kept:
            return []
        # a date that is sent is not worth a lease: what a dead run has left is tidied by the next that needs one
        tomorrow = day + timedelta(days=1)
        self._release(tomorrow)
        ended = self._send(desk, tomorrow)
        left = sorted({path.name for path in desk.state.iterdir()} - kept)
        found = [f"left behind in the state folder: {', '.join(left)}"] if left else []
        if ended.code != 0:
            found.append(f"the next day ended with exit code {ended.code}: {ended.said.strip()}")
        return found

    def _calls(self) -> list[Any]:
        return list(self.stage.ask("GET", "calls")["calls"])

    def _title(self, day: date) -> str:
        return render(self.way.title, self.way.job, day)
