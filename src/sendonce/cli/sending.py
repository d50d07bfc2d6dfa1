"""`send-batch`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sendonce import compose, runs
from sendonce.cli.base import cli, common, day_option, reason_text, shared, warnings_of
from sendonce.core.errors import Refused, WrongUsage
from sendonce.core.guards import Guard
from sendonce.core.model import Ending, many

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from sendonce.core.model import Outcome
    from sendonce.exits import ExitCode
    from sendonce.monitoring import Monitor


@cli.command("send-batch")
@day_option("The mailing's date: YYYY-MM-DD, today or yesterday.  [default: today in the job's time zone]")
@click.option("--early", is_flag=True, help="Allow a date in the future.")
@click.option("--dry-run", is_flag=True, help="Only say what a run would do, and end as it would.")
@click.option("--wait", is_flag=True, help="Stay until Mailchimp has finished sending (6 hours at the most).")
@click.option(
    "--test-to", metavar="ADDRESS", help="Only Mailchimp's test mail of the day's draft, to this address."
)
@click.option("--outside-window", is_flag=True, help="Also when SENDONCE_WINDOW is closed.")
@click.option(
    "--override",
    "passed",
    multiple=True,
    type=click.Choice([g.value for g in Guard]),
    help="Pass this guard; needs --reason.",
)
@click.option(
    "--remaining",
    is_flag=True,
    help="Send the date's campaign to those alone who were not sent it: it was canceled half-way, or reached fewer "
    "than counted. Needs --date and --reason.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Mail the date's campaign to all a second time. Asks for the date; needs --date and --reason.",
)
@click.option(
    "--reason",
    default="",
    metavar="TEXT",
    callback=reason_text,
    help="Why, for the record: of --override, --remaining, --again.",
)
@common
def send_batch(
    day: str | None,
    *,
    early: bool,
    dry_run: bool,
    wait: bool,
    test_to: str | None,
    outside_window: bool,
    passed: tuple[str, ...],
    remaining: bool,
    again: bool,
    reason: str,
) -> ExitCode:
    """Send the day's campaign, unless it is sent already.

    Safe to start at any time and as often as you like: the ledger and Mailchimp are
    asked first, and two runs never send side by side.
    """
    if dry_run and wait:
        raise WrongUsage("--dry-run sends nothing that could be waited for: leave out --wait.")
    if test_to is not None and (dry_run or wait):
        raise WrongUsage("--test-to sends no campaign: leave out --dry-run and --wait.")
    if passed and not reason.strip():
        raise WrongUsage("--override needs --reason: why may this guard be passed?")
    if reason.strip() and not (passed or outside_window or remaining or again):
        raise WrongUsage("--reason goes with --override, --outside-window, --remaining or --again.")
    ordered = _ordered(day, reason, is_remaining=remaining, is_again=again)
    if ordered is not None and test_to is not None:
        raise WrongUsage("--test-to sends no campaign: leave out --remaining and --again.")
    names = sorted({*passed, *([Guard.WINDOW.value] if outside_window else [])})
    job = compose.passing(shared.open_job(), names, " ".join(reason.split()) or "--outside-window")
    when = job.day(day, early=early)
    if test_to is not None:
        outcome = runs.send_test(job, when, test_to)
        return shared.voice.outcome("send-batch", outcome, warnings_of(job))
    if dry_run:
        outcome = (None if ordered else compose.already_settled(job, when)) or runs.rehearse(
            job, when, ordered
        )
        job.log.note("ended", outcome=outcome.ending.value, said=outcome.message)
        return shared.voice.outcome("send-batch", compose.with_zone(job, day, outcome), warnings_of(job))
    if again and ordered is not None:
        ordered = ordered._replace(seen=runs.ordered_before(job, when))
        _confirm_again(when, ordered.seen)
    monitor = compose.monitor(job)
    with monitor.told_of_faults(when.isoformat()):
        outcome = _sent(job, when, monitor, ordered, is_waiting=wait)
    code = shared.voice.outcome("send-batch", compose.with_zone(job, day, outcome), warnings_of(job))
    known = len(job.log.warnings)
    monitor.ended(outcome, compose.tries(job, outcome.date))  # others may take their time: it is said by now
    shared.voice.warnings(job.log.warnings[known:])
    return code


def _ordered(day: str | None, reason: str, *, is_remaining: bool, is_again: bool) -> runs.Ordered | None:
    """What is ordered beside the day's campaign. Such an order names its date: it is nothing for a crontab."""
    if not (is_remaining or is_again):
        return None
    from sendonce.core.orders import Kind

    name = "--remaining" if is_remaining else "--again"
    if is_remaining and is_again:
        raise WrongUsage("--remaining and --again exclude each other.")
    if day is None:
        raise WrongUsage(f"{name} needs --date: of which day?")
    if not reason.strip():
        raise WrongUsage(f"{name} needs --reason: why is there another mailing for that date?")
    return runs.Ordered(Kind.REMAINING if is_remaining else Kind.AGAIN, " ".join(reason.split()))


def _confirm_again(day: date, ordered_before: str) -> None:
    """Have the date typed. Raise Refused if it is another, WrongUsage if nobody is there to type it.

    Who repeats the order because its end was not heard of is told here what became of it.
    """
    before = f"Ordered for that date so far: {ordered_before}.\n" if ordered_before else ""
    sys.stderr.write(
        f"--again mails the campaign of {day} once more, also to all who were sent it.\n{before}"
        "If that is meant, type the date (YYYY-MM-DD): "
    )
    sys.stderr.flush()
    typed = sys.stdin.readline() if sys.stdin else ""
    if not typed:
        raise WrongUsage(
            "--again asks for the date to be typed, and nobody was there to type it. Nothing was sent."
        )
    if typed.strip() != day.isoformat():
        raise Refused(f"That was not {day}. Nothing was sent.")


def _sent(
    job: compose.Job, day: date, monitor: Monitor, ordered: runs.Ordered | None, *, is_waiting: bool
) -> Outcome:
    """How the run for the day ended, or that none was needed."""
    outcome = compose.already_settled(job, day) if ordered is None else None
    if outcome is None:
        monitor.started()
        outcome = runs.send(job, day, _say_last(job, day.isoformat(), monitor), ordered)
    job.log.note("ended", outcome=outcome.ending.value, said=outcome.message)
    is_sent = outcome.ending in {Ending.SENT, Ending.FOUND_SENT, Ending.ALREADY_SENT}
    if not (is_waiting and outcome.campaign_id and is_sent):
        return outcome
    outcome = _wait(job, outcome)
    if job.settings.is_recording_recipients:
        from sendonce import recipients

        recipients.sync_after_send(job, outcome.date)
    return outcome


def _say_last(job: compose.Job, day: str, monitor: Monitor) -> Callable[[str], None]:
    """What the deadline's thread does before the process ends. It prints first: others may take their time."""
    from sendonce.core.model import Outcome

    def say_last(said: str) -> None:
        outcome = Outcome(Ending.TEMPORARY, day, said)
        shared.voice.outcome("send-batch", outcome, warnings_of(job))
        monitor.ended(outcome, None)

    return say_last


def _wait(job: compose.Job, outcome: Outcome) -> Outcome:
    if not sys.stderr or not sys.stderr.isatty() or shared.is_quiet or shared.is_json:
        return runs.watch(job, outcome, lambda *_: None)
    from rich.console import Console

    with Console(stderr=True).status(f"Mailchimp is sending {outcome.campaign_id} …") as status:

        def show(word: str, count: int | None) -> None:
            status.update(
                f"Mailchimp: {word}" + ("" if count is None else f", {many(count, 'email')} so far")
            )

        return runs.watch(job, outcome, show)
