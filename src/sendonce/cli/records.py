"""`ledger` and `lock`: to look at what is on record, and to mend it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from sendonce import upkeep
from sendonce.cli.base import cli, common, confirm, day_option, reason_text, shared, warnings_of
from sendonce.core.errors import WrongUsage
from sendonce.core.model import State, many
from sendonce.exits import ExitCode
from sendonce.runbook import OF_COMMANDS

MOST_SKIPPED_DAYS = 366


@cli.group()
def ledger() -> None:
    """Look at the record of what was sent, and mend it."""


@ledger.command("list")
@click.option("--since", metavar="D", help="From this date on.")
@click.option("--until", metavar="D", help="Up to and with this date.")
@click.option(
    "--state", type=click.Choice([s.value for s in State if s is not State.NONE]), help="Only this state."
)
@click.option("--csv", "is_csv", is_flag=True, help="As CSV.")
@common
def ledger_list(since: str | None, until: str | None, state: str | None, *, is_csv: bool) -> ExitCode:
    """List the batches on record."""
    from zoneinfo import ZoneInfo

    from sendonce import report

    job = shared.open_job(needs_mailchimp=False)
    first = job.day(since, early=True).isoformat() if since is not None else ""
    last = job.day(until, early=True).isoformat() if until is not None else "9999-99-99"
    if first > last:
        raise WrongUsage(f"--since {first} lies after --until {last}.")
    if is_csv and shared.is_json:
        raise WrongUsage("--csv and --json exclude each other.")
    batches = [b for b in job.ledger().batches(first, last) if state is None or b.state.value == state]
    rows = report.ledger_rows(batches, ZoneInfo(job.settings.zone), is_short=not is_csv)
    voice = shared.voice
    voice.document("ledger list", ExitCode.OK, batches=[report.batch_parts(b) for b in batches])
    if is_csv:
        voice.result(report.as_csv(report.COLUMNS, rows))
    elif not voice.is_json:
        which = " that matches" if since or until or state else ""
        empty = f"No batch on record for job {job.settings.job}{which}."
        voice.result(report.as_table(report.COLUMNS, rows) if rows else empty)
    voice.warnings(warnings_of(job))
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
    job = shared.open_job(needs_mailchimp=False)
    when = job.day(day if of_day is None else of_day, early=True).isoformat()
    batch = next(iter(job.ledger().batches(when, when)), None)
    resets = [r for r in job.ledger().resets() if r.date == when]
    voice = shared.voice
    parts = report.batch_parts(batch) if batch else None
    voice.document("ledger show", ExitCode.OK, batch=parts, resets=[report.reset_parts(r) for r in resets])
    zone = ZoneInfo(job.settings.zone)
    if batch is None:
        told = f"{when}: nothing on record for job {job.settings.job}."
        voice.result("\n".join([told, *report.reset_lines(resets, zone)]))
    else:
        voice.result(report.batch_story(batch, resets, zone))
    voice.warnings(warnings_of(job))
    return ExitCode.OK


@ledger.command("reset")
@day_option("The date to forget. Required.")
@click.option("--reason", default="", callback=reason_text, help="Why; kept with the old record.")
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
    job = shared.open_job()
    when = job.day(day, early=True)
    confirm(f"Forget the record of {when} (job {job.settings.job})? It is kept under resets.", is_agreed=yes)
    was = upkeep.reset(job, when, reason=reason, force=force)
    text = f"The record of {when} ({was.state.value}) is forgotten and kept under resets. The next run starts over."
    shared.voice.document(
        "ledger reset", ExitCode.OK, date=when.isoformat(), was=was.state.value, message=text
    )
    shared.voice.result(text)
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK


@ledger.command("skip")
@day_option("The date that is not to be mailed.")
@click.option("--from", "first", metavar="D", help="The first of several dates.")
@click.option("--to", "last", metavar="D", help="The last of them.")
@click.option("--reason", metavar="TEXT", callback=reason_text, help="Why, for the record.")
@common
def ledger_skip(day: str | None, first: str | None, last: str | None, reason: str | None) -> ExitCode:
    """Put down that a date is not to be mailed.

    Runs for it end with 0 and say so, until ledger reset. A date that is sent, or may be, cannot be skipped.
    """
    if not reason or not reason.strip():
        raise WrongUsage("Say why, with --reason.")
    if (day is None) == (first is None and last is None) or (first is None) != (last is None):
        raise WrongUsage("Say which date with --date, or several with --from and --to.")
    job = shared.open_job()
    begin, end = (job.day(text, early=True) for text in (day or first, day or last))
    if not 0 <= (end - begin).days < MOST_SKIPPED_DAYS:
        raise WrongUsage(f"--from {begin} --to {end} are no dates, or more than {MOST_SKIPPED_DAYS}.")
    days = [begin + timedelta(days=n) for n in range((end - begin).days + 1)]
    new = upkeep.skip(job, days, reason=" ".join(reason.split()))
    known = len(days) - len(new)
    said = [f"{many(len(new), 'date')} will not be mailed: {', '.join(new)}."] if new else []
    said += [f"{many(known, 'date was', 'dates were')} skipped before: no change."] if known else []
    text = " ".join(said)
    shared.voice.document("ledger skip", ExitCode.OK, dates=new, message=text)
    shared.voice.result(text)
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK


@cli.command()
@click.option(
    "--until", metavar="D", help="The first date that is mailed again.  [default: when resume is called]"
)
@click.option("--reason", metavar="TEXT", callback=reason_text, help="Why, for the record.")
@common
def pause(until: str | None, reason: str | None) -> ExitCode:
    """Send nothing for a while.

    It stands in the ledger, so that all servers that share it see it. Runs end with 0 and say so.
    A send that was requested before is still looked after, and not requested again.
    """
    if not reason or not reason.strip():
        raise WrongUsage("Say why, with --reason.")
    job = shared.open_job()
    end = None if until is None else job.day(until, early=True)
    if end is not None and end <= job.today():
        raise WrongUsage(f"--until {end} is not in the future (today is {job.today()}, {job.settings.zone}).")
    order = upkeep.pause(job, end, reason=" ".join(reason.split()))
    back = (
        f"until {order.until} (that day's mail goes out again)" if order.until else "until `sendonce resume`"
    )
    text = f"Job {job.settings.job} is paused {back}. Nothing is sent meanwhile."
    shared.voice.document("pause", ExitCode.OK, until=order.until or None, reason=order.reason, message=text)
    if not shared.is_quiet:
        shared.voice.result(text)
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK


@cli.command()
@common
def resume() -> ExitCode:
    """End a pause: the next run sends again."""
    job = shared.open_job()
    over = upkeep.resume(job)
    text = f"Job {job.settings.job} was not paused."
    if over is not None:
        text = f"The pause of job {job.settings.job} is over ({over.reason}). The next run sends again."
    shared.voice.document("resume", ExitCode.OK, was_paused=over is not None, message=text)
    if not shared.is_quiet:
        shared.voice.result(text)
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK


@ledger.command("verify")
@common
def ledger_verify() -> ExitCode:
    """Compare the ledger with Mailchimp. Reads only."""
    job = shared.open_job()
    count, findings = upkeep.verify(job)
    code = ExitCode.REFUSED if findings else ExitCode.OK
    voice = shared.voice
    section = OF_COMMANDS["ledger verify"] if findings else None
    told = [vars(f) for f in findings]
    voice.document("ledger verify", code, batches=count, findings=told, runbook=section)
    if findings:
        from sendonce.report import printable

        voice.result("\n".join(printable(f"{f.date}: {f.said}") for f in findings))
    elif not voice.is_quiet:
        voice.result(f"{many(count, 'batch', 'batches')} on record, and Mailchimp says the same.")
    voice.warnings(warnings_of(job))
    voice.what_to_do(section)
    return code


@ledger.command("rebuild")
@click.option("--yes", is_flag=True, help="Put it in place of the ledger without asking.")
@common
def ledger_rebuild(*, yes: bool) -> ExitCode:
    """Make the ledger anew from Mailchimp's campaigns.

    Finds them by the title pattern. The old ledger is kept aside.
    """
    job = shared.open_job()
    batches, lost, is_old_readable, put = upkeep.rebuild(job)
    left = ", ".join(f"{b.date} ({b.state.value})" for b in lost)
    forgotten = "Dates that were skipped, and a pause, may be gone with the old ledger: put them down again."
    confirm(
        f"The ledger of job {job.settings.job} would hold {many(len(batches), 'batch', 'batches')}."
        + (f" Left out, as Mailchimp has nothing of them: {left}." if left else "")
        + ("" if is_old_readable else f" {forgotten}")
        + " Put it in place?",
        is_agreed=yes,
    )
    kept = put()
    text = f"The ledger holds {many(len(batches), 'batch', 'batches')} now." + (
        f" The old ledger is kept as {kept}." if kept else ""
    )
    text += "" if is_old_readable else f" {forgotten}"
    dates = [b.date for b in batches]
    shared.voice.document("ledger rebuild", ExitCode.OK, dates=dates, kept=kept or None, message=text)
    shared.voice.result(text)
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK


@ledger.command("copy")
@click.option("--to", metavar="DIR|URL", help="Folder, or URL without a password.")
@click.option(
    "--to-file",
    type=click.Path(readable=False, path_type=Path),
    metavar="FILE",
    help="File that holds the URL.",
)
@click.option(
    "--yes", is_flag=True, help="Even if there is a ledger of the job already; that one is kept aside."
)
@common
def ledger_copy(to: str | None, to_file: Path | None, *, yes: bool) -> ExitCode:
    """Copy the ledger to another folder or server.

    Every record is read back and compared. The ledger itself stays as it is; SENDONCE_STATE is yours to change.
    """
    from sendonce import setup

    if (to is None) == (to_file is None):
        raise WrongUsage("Say where to, with --to or with --to-file.")
    job = shared.open_job(needs_mailchimp=False)
    target, shown = upkeep.at_another_place(job, setup.place_of(to, to_file))
    there = len(upkeep.prepared(target).batches())
    if there and not yes:
        confirm(
            f"{shown} has a ledger of job {job.settings.job} already, with {many(there, 'batch', 'batches')}. Replace it?",
            is_agreed=yes,
        )
    copied, kept = upkeep.copy_ledger(job, target, may_replace=yes or there > 0)
    text = f"{many(copied, 'batch was', 'batches were')} copied to {shown}, and read back the same."
    text += f" What was there is kept as {kept}." if kept else ""
    shared.voice.document(
        "ledger copy", ExitCode.OK, batches=copied, to=shown, kept=kept or None, message=text
    )
    setting = (
        f"SENDONCE_STATE={to}"
        if to_file is None
        else f"SENDONCE_STATE_FILE={to_file.absolute()}, and no SENDONCE_STATE"
    )
    shared.voice.result(f"{text} To use it, set {setting}.")
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK


# -------------------------------------------------------------------------------------------------------- lock


@cli.group()
def lock() -> None:
    """Look at the lease that keeps two runs apart."""


@lock.command("status")
@common
def lock_status() -> ExitCode:
    """Say who holds the lease. Changes nothing."""
    job = shared.open_job(needs_mailchimp=False)
    text, parts = upkeep.lock_status(job)
    shared.voice.document("lock status", ExitCode.OK, holder=parts, message=text)
    shared.voice.result(text)
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK


@lock.command("break")
@click.option("--yes", is_flag=True, help="Even if the holder is alive.")
@common
def lock_break(*, yes: bool) -> ExitCode:
    """Remove the lease of a run that is gone.

    Hardly ever needed: a run takes over the lease of a dead one by itself.
    """
    job = shared.open_job(needs_mailchimp=False)
    text = upkeep.break_lock(job, force=yes)
    shared.voice.document("lock break", ExitCode.OK, message=text)
    shared.voice.result(text)
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK
