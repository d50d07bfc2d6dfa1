"""`send-batch`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sendonce import compose
from sendonce.cli.base import cli, common, day_option, shared, warnings_of
from sendonce.core.errors import WrongUsage
from sendonce.core.model import Ending

if TYPE_CHECKING:
    from collections.abc import Callable

    from sendonce.core.model import Outcome
    from sendonce.exits import ExitCode


@cli.command("send-batch")
@day_option("The mailing's date: YYYY-MM-DD, today or yesterday.  [default: today in the job's time zone]")
@click.option("--early", is_flag=True, help="Allow a date in the future.")
@click.option("--dry-run", is_flag=True, help="Only say what a run would do, and end as it would.")
@click.option("--wait", is_flag=True, help="Stay until Mailchimp has finished sending (6 hours at the most).")
@common
def send_batch(day: str | None, *, early: bool, dry_run: bool, wait: bool) -> ExitCode:
    """Send the day's campaign, unless it is sent already.

    Safe to start at any time and as often as you like: the ledger and Mailchimp are
    asked first, and two runs never send side by side.
    """
    if dry_run and wait:
        raise WrongUsage("--dry-run sends nothing that could be waited for: leave out --wait.")
    job = shared.open_job()
    when = job.day(day, early=early)
    outcome = compose.already_settled(job, when)
    if outcome is None and dry_run:
        outcome = compose.rehearse(job, when)
    elif outcome is None:
        outcome = compose.send(job, when, say_last=_say_last(job, when.isoformat()))
    job.log.note("ended", outcome=outcome.ending.value, said=outcome.message)
    if (
        wait
        and outcome.campaign_id
        and outcome.ending in {Ending.SENT, Ending.FOUND_SENT, Ending.ALREADY_SENT}
    ):
        outcome = _wait(job, outcome)
    return shared.voice.outcome("send-batch", compose.with_zone(job, day, outcome), warnings_of(job))


def _say_last(job: compose.Job, day: str) -> Callable[[str], None]:
    """What the deadline's thread prints before the process ends."""
    from sendonce.core.model import Outcome

    return lambda said: (
        shared.voice.outcome("send-batch", Outcome(Ending.TEMPORARY, day, said), warnings_of(job)),
        None,
    )[1]


def _wait(job: compose.Job, outcome: Outcome) -> Outcome:
    if not sys.stderr or not sys.stderr.isatty() or shared.is_quiet or shared.is_json:
        return compose.watch(job, outcome, lambda *_: None)
    from rich.console import Console

    with Console(stderr=True).status(f"Mailchimp is sending {outcome.campaign_id} …") as status:

        def show(word: str, count: int | None) -> None:
            status.update(f"Mailchimp: {word}" + ("" if count is None else f", {count} emails so far"))

        return compose.watch(job, outcome, show)
