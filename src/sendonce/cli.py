"""The command line: parse, call one function of `compose`, report, exit. Nothing here decides about sending."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sendonce import __version__, compose
from sendonce.core.dates import parse_day
from sendonce.core.errors import Refused, SendonceError, Stopped, WrongUsage
from sendonce.core.model import Ending, State
from sendonce.exits import ExitCode
from sendonce.report import Voice
from sendonce.settings import Settings, environment, load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sendonce.core.model import Outcome

Command = TypeVar("Command", bound="Callable[..., Any]")
EXAMPLE_DAY = date(2000, 1, 1)


@dataclass
class Shared:
    """The options that every command takes, before or after its name."""

    env_file: Path | None = None
    job: str | None = None
    is_json: bool = False
    is_quiet: bool = False
    is_verbose: bool = False

    @property
    def voice(self) -> Voice:
        """How this command speaks."""
        return Voice(is_json=self.is_json, is_quiet=self.is_quiet, is_verbose=self.is_verbose)

    def settings(self, *, needs_mailchimp: bool = True) -> Settings:
        """The settings that these options, the environment and the .env give."""
        if self.is_quiet and self.is_verbose:
            raise WrongUsage("-q and -v exclude each other.")
        return load(self.env_file, self.job, environment(), Path.cwd(), needs_mailchimp=needs_mailchimp)

    def open_job(self, *, needs_mailchimp: bool = True) -> compose.Job:
        """The job that these options mean."""
        settings = self.settings(needs_mailchimp=needs_mailchimp)
        return compose.open_job(settings, talk=self.voice.talk if self.is_verbose else None)


_shared = Shared()


def common(command: Command) -> Command:
    """Give a command the shared options."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
        if value and not ctx.resilient_parsing:
            setattr(_shared, str(parameter.name), value)

    options = (
        click.option("--env-file", type=click.Path(path_type=Path), metavar="FILE", callback=keep, expose_value=False,
                     help="Settings file.  [default: $SENDONCE_ENV_FILE, else ./.env]"),
        click.option("--job", metavar="NAME", callback=keep, expose_value=False,
                     help="Name of the daily mailing.  [default: $SENDONCE_JOB, else daily]"),
        click.option("-v", "--verbose", "is_verbose", is_flag=True, callback=keep, expose_value=False,
                     help="Say each step on standard error."),
        click.option("-q", "--quiet", "is_quiet", is_flag=True, callback=keep, expose_value=False,
                     help="Silent on success, and on what was said before."),
        click.option("--json", "is_json", is_flag=True, callback=keep, expose_value=False,
                     help="Answer with one JSON object."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _day_text(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> str | None:
    """One --date at the most, in the wanted form. Checked before anything else happens."""
    if len(values) > 1:
        raise WrongUsage("--date is given more than once.")
    if values:
        parse_day(values[0], EXAMPLE_DAY)
        return values[0]
    return None


def day_option(text: str) -> Callable[[Command], Command]:
    """The option --date."""
    return click.option("--date", "day", multiple=True, metavar="D", callback=_day_text, help=text)


@click.group(epilog="Exit codes: 0 done, 1 refused, 2 wrong usage, 70 bug, 75 run again, 78 settings or ledger unusable.")
@click.version_option(__version__, prog_name="sendonce")
@common
def cli() -> None:
    """Send the day's Mailchimp campaign from cron, and send it once.

    However often it is started, whatever crashes: one date gets one campaign.
    Try it without an account: sendonce demo
    """


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
    job = _shared.open_job()
    when = job.day(day, early=early)
    outcome = compose.already_settled(job, when)
    if outcome is None and dry_run:
        outcome = compose.rehearse(job, when)
    elif outcome is None:
        outcome = compose.send(job, when, say_last=_say_last(job, when.isoformat()))
    job.log.note("ended", outcome=outcome.ending.value, said=outcome.message)
    if wait and outcome.campaign_id and outcome.ending in {Ending.SENT, Ending.FOUND_SENT, Ending.ALREADY_SENT}:
        outcome = _wait(job, outcome)
    return _shared.voice.outcome("send-batch", outcome, _warnings(job))


def _warnings(job: compose.Job) -> list[str]:
    return [*job.settings.warnings, *job.log.warnings]


def _say_last(job: compose.Job, day: str) -> Callable[[str], None]:
    """What the deadline's thread prints before the process ends."""
    from sendonce.core.model import Outcome

    return lambda said: (
        _shared.voice.outcome("send-batch", Outcome(Ending.TEMPORARY, day, said), _warnings(job)),
        None,
    )[1]


def _wait(job: compose.Job, outcome: Outcome) -> Outcome:
    if not sys.stderr or not sys.stderr.isatty() or _shared.is_quiet or _shared.is_json:
        return compose.watch(job, outcome, lambda *_: None)
    from rich.console import Console

    with Console(stderr=True).status(f"Mailchimp is sending {outcome.campaign_id} …") as status:

        def show(word: str, count: int | None) -> None:
            status.update(f"Mailchimp: {word}" + ("" if count is None else f", {count} emails so far"))

        return compose.watch(job, outcome, show)


# ------------------------------------------------------------------------------------------------------ ledger


@cli.group()
def ledger() -> None:
    """Look at the record of what was sent, and mend it."""


@ledger.command("list")
@click.option("--since", metavar="D", help="From this date on.")
@click.option("--until", metavar="D", help="Up to and with this date.")
@click.option("--state", type=click.Choice([s.value for s in State if s is not State.NONE]), help="Only this state.")
@click.option("--csv", "is_csv", is_flag=True, help="As CSV.")
@common
def ledger_list(since: str | None, until: str | None, state: str | None, *, is_csv: bool) -> ExitCode:
    """List the batches on record."""
    from zoneinfo import ZoneInfo

    from sendonce import report

    job = _shared.open_job(needs_mailchimp=False)
    first = job.day(since, early=True).isoformat() if since is not None else ""
    last = job.day(until, early=True).isoformat() if until is not None else "9999"
    batches = [
        b
        for b in job.ledger().batches()
        if first <= b.date <= last and (state is None or b.state.value == state)
    ]
    rows = report.ledger_rows(batches, ZoneInfo(job.settings.zone))
    voice = _shared.voice
    voice.document("ledger list", ExitCode.OK, batches=[report.batch_parts(b) for b in batches])
    if is_csv:
        voice.result(report.as_csv(report.COLUMNS, rows))
    elif not voice.is_json:
        empty = f"No batch on record for job {job.settings.job}."
        voice.result(report.as_table(report.COLUMNS, rows) if rows else empty)
    voice.warnings(_warnings(job))
    return ExitCode.OK


@ledger.command("show")
@click.argument("of_day", metavar="[DATE]", required=False)
@day_option("The date to show.  [default: today]")
@common
def ledger_show(of_day: str | None, day: str | None) -> ExitCode:
    """Show everything on record of one date."""
    from zoneinfo import ZoneInfo

    from sendonce import report

    if of_day is not None and day is not None:
        raise WrongUsage("The date is given twice.")
    job = _shared.open_job(needs_mailchimp=False)
    when = job.day(day if of_day is None else of_day, early=True).isoformat()
    batch = next((b for b in job.ledger().batches() if b.date == when), None)
    resets = [r for r in job.ledger().resets() if r.date == when]
    voice = _shared.voice
    parts = report.batch_parts(batch) if batch else None
    voice.document("ledger show", ExitCode.OK, batch=parts, resets=[report.reset_parts(r) for r in resets])
    zone = ZoneInfo(job.settings.zone)
    if batch is None:
        told = f"{when}: nothing on record for job {job.settings.job}."
        voice.result("\n".join([told, *report.reset_lines(resets, zone)]))
    else:
        voice.result(report.batch_story(batch, resets, zone))
    voice.warnings(_warnings(job))
    return ExitCode.OK


@ledger.command("reset")
@day_option("The date to forget. Required.")
@click.option("--reason", default="", help="Why; kept with the old record.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Even if the date is recorded as sent.")
@common
def ledger_reset(day: str | None, reason: str, *, yes: bool, force: bool) -> ExitCode:
    """Forget a date, so that a run starts over with it.

    A failed day needs no reset: the next run tries again by itself. A reset does not
    make anything be sent twice either: a run still finds the campaign in Mailchimp.
    """
    if day is None:
        raise WrongUsage("ledger reset needs --date.")
    job = _shared.open_job()
    when = job.day(day, early=True)
    _confirm(f"Forget the record of {when} (job {job.settings.job})? It is kept under resets.", is_agreed=yes)
    was = compose.reset(job, when, reason=reason, force=force)
    text = f"The record of {when} ({was.state.value}) is forgotten and kept under resets. The next run starts over."
    _shared.voice.document("ledger reset", ExitCode.OK, date=when.isoformat(), was=was.state.value, message=text)
    _shared.voice.result(text)
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


@ledger.command("verify")
@common
def ledger_verify() -> ExitCode:
    """Compare the ledger with Mailchimp. Reads only."""
    job = _shared.open_job()
    count, findings = compose.verify(job)
    code = ExitCode.REFUSED if findings else ExitCode.OK
    voice = _shared.voice
    voice.document("ledger verify", code, batches=count, findings=[vars(f) for f in findings])
    if findings:
        from sendonce.report import printable

        voice.result("\n".join(printable(f"{f.date}: {f.said}") for f in findings))
    elif not voice.is_quiet:
        voice.result(f"{count} batches on record, and Mailchimp says the same.")
    voice.warnings(_warnings(job))
    return code


@ledger.command("rebuild")
@click.option("--yes", is_flag=True, help="Put it in place of the ledger without asking.")
@common
def ledger_rebuild(*, yes: bool) -> ExitCode:
    """Make the ledger anew from Mailchimp's campaigns.

    Finds them by the title pattern. The old file is kept aside.
    """
    job = _shared.open_job()
    batches, put = compose.rebuild(job)
    _confirm(
        f"Mailchimp tells of {len(batches)} batches of job {job.settings.job}. Put them in place of the ledger?",
        is_agreed=yes,
    )
    kept = put()
    text = f"The ledger holds {len(batches)} batches now." + (f" The old file is kept as {kept}." if kept else "")
    dates = [b.date for b in batches]
    _shared.voice.document("ledger rebuild", ExitCode.OK, dates=dates, kept=kept or None, message=text)
    _shared.voice.result(text)
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


def _confirm(question: str, *, is_agreed: bool) -> None:
    """Ask on a terminal; without one, `--yes` is the answer. Raise WrongUsage or Refused."""
    if is_agreed:
        return
    if not sys.stdin or not sys.stdin.isatty() or _shared.is_json:
        raise WrongUsage(f"{question} Without a terminal say --yes.")
    if not click.confirm(question, err=True):
        raise Refused("Nothing was changed.")


# -------------------------------------------------------------------------------------------------------- lock


@cli.group()
def lock() -> None:
    """Look at the lease that keeps two runs apart."""


@lock.command("status")
@common
def lock_status() -> ExitCode:
    """Say who holds the lease. Changes nothing."""
    job = _shared.open_job(needs_mailchimp=False)
    text, parts = compose.lock_status(job)
    _shared.voice.document("lock status", ExitCode.OK, holder=parts, message=text)
    _shared.voice.result(text)
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


@lock.command("break")
@click.option("--yes", is_flag=True, help="Even if the holder is alive.")
@common
def lock_break(*, yes: bool) -> ExitCode:
    """Remove the lease of a run that is gone.

    Hardly ever needed: a run takes over the lease of a dead one by itself.
    """
    job = _shared.open_job(needs_mailchimp=False)
    text = compose.break_lock(job, force=yes)
    _shared.voice.document("lock break", ExitCode.OK, message=text)
    _shared.voice.result(text)
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


# -------------------------------------------------------------------------------------------------------- main


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code comes back. Every foreseeable fault is one message."""
    try:
        code = cli.main(arguments, prog_name="sendonce", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        return _shared.voice.fault("sendonce", Stopped("SIGINT"), "Interrupted. Nothing was changed.")
    except click.ClickException as fault:
        return _usage(fault.format_message(), fault.ctx if isinstance(fault, click.UsageError) else None)
    except WrongUsage as fault:
        return _usage(fault.message, click.get_current_context(silent=True))
    except SendonceError as fault:
        return _shared.voice.fault("sendonce", fault, fault.message)
    except (Stopped, KeyboardInterrupt) as fault:
        return _shared.voice.fault("sendonce", fault, "Interrupted. Run again, that is safe.")
    except Exception as fault:  # noqa: BLE001 - the last resort: a bug gets a code of its own, not a traceback
        return _shared.voice.fault("sendonce", fault, _bug(fault))
    return int(code) if isinstance(code, int) else 0


def _usage(message: str, ctx: click.Context | None) -> int:
    from sendonce.report import printable, write

    usage = f"{ctx.get_usage()}\n" if ctx is not None else ""
    write(2, f"{usage}Error: {printable(message)}\n")
    return int(ExitCode.WRONG_USAGE)


def _bug(fault: Exception) -> str:
    """Where it happened, without any value: a value might be the key."""
    place = fault.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{Path(place.tb_frame.f_code.co_filename).name} line {place.tb_lineno}" if place else "an unknown place"
    return (
        f"This is a bug in sendonce: {type(fault).__name__} in {where}. What was sent is in the ledger or in Mailchimp: "
        "run the same command again, it asks both. Please report it."
    )
