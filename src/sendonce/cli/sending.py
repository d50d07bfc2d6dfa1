"""`send-batch`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sendonce import compose
from sendonce.cli.base import cli, common, day_option, shared, warnings_of
from sendonce.core.errors import WrongUsage
from sendonce.core.guards import Guard
from sendonce.core.model import Ending

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
@click.option("--reason", default="", metavar="TEXT", help="Why a guard is passed, for the record.")
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
    names = sorted({*passed, *([Guard.WINDOW.value] if outside_window else [])})
    job = compose.passing(shared.open_job(), names, " ".join(reason.split()) or "--outside-window")
    when = job.day(day, early=early)
    if test_to is not None:
        outcome = compose.send_test(job, when, test_to)
        return shared.voice.outcome("send-batch", outcome, warnings_of(job))
    if dry_run:
        outcome = compose.already_settled(job, when) or compose.rehearse(job, when)
        job.log.note("ended", outcome=outcome.ending.value, said=outcome.message)
        return shared.voice.outcome("send-batch", compose.with_zone(job, day, outcome), warnings_of(job))
    monitor = compose.monitor(job)
    with monitor.told_of_faults(when.isoformat()):
        outcome = _sent(job, when, monitor, is_waiting=wait)
    code = shared.voice.outcome("send-batch", compose.with_zone(job, day, outcome), warnings_of(job))
    known = len(job.log.warnings)
    monitor.ended(outcome, compose.tries(job, outcome.date))  # others may take their time: it is said by now
    shared.voice.warnings(job.log.warnings[known:])
    return code


def _sent(job: compose.Job, day: date, monitor: Monitor, *, is_waiting: bool) -> Outcome:
    """How the run for the day ended, or that none was needed."""
    outcome = compose.already_settled(job, day)
    if outcome is None:
        monitor.started()
        outcome = compose.send(job, day, say_last=_say_last(job, day.isoformat(), monitor))
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
        return compose.watch(job, outcome, lambda *_: None)
    from rich.console import Console

    with Console(stderr=True).status(f"Mailchimp is sending {outcome.campaign_id} …") as status:

        def show(word: str, count: int | None) -> None:
            status.update(f"Mailchimp: {word}" + ("" if count is None else f", {count} emails so far"))

        return compose.watch(job, outcome, show)
