"""`ledger calendar` and `ledger report`: the ledger to look at."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import click

from sendonce.cli.base import common, shared, warnings_of
from sendonce.cli.records import ledger
from sendonce.core.errors import SettingsWrong, WrongUsage
from sendonce.core.model import many
from sendonce.exits import ExitCode
from sendonce.settings import environment, working_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sendonce.compose import Job
    from sendonce.views import History


@ledger.command("calendar")
@click.option("--month", metavar="YYYY-MM", help="One month.  [default: this month and the two before]")
@click.option("--year", metavar="YYYY", help="A whole year, a line for each month.")
@common
def ledger_calendar(month: str | None, year: str | None) -> ExitCode:
    """Show a calendar: what became of each day.

    Each day has a sign, and a colour on a terminal (not with NO_COLOR). "missing" is a day that passed without
    a record, after the first one; "begun" has a campaign that is not sent.
    """
    from sendonce import views
    from sendonce.report import terminal_width

    job = shared.open_job(needs_mailchimp=False)
    today = job.today()
    months = views.months_meant(month, year, today)
    known = _with_holidays(job, views.history(job.ledger().batches(), today), views.days_of(months))
    marks = {day: known.mark(day) for day in views.days_of(months)}
    totals = views.counts(marks.values())
    voice = shared.voice
    days = [{"date": d, "mark": m.value} for d, m in marks.items() if m is not views.Mark.BEFORE]
    counted = {mark.value: count for mark, count in totals.items()}
    voice.document("ledger calendar", ExitCode.OK, today=today.isoformat(), days=days, totals=counted)
    pen, width = views.pen_for(environment()), terminal_width()
    sheets = views.as_year(known, months[0][0], pen) if year else views.as_months(known, months, pen, width)
    told = f"Job {job.settings.job}; today is {today} ({job.settings.zone})."
    voice.result("\n".join([told, "", sheets, views.legend(totals, pen, width)]))
    voice.warnings(warnings_of(job))
    return ExitCode.OK


@ledger.command("report")
@click.option("--html", "file", metavar="FILE", help="Where to write it; - is standard output. Required.")
@click.option("--year", "years", metavar="YYYY", multiple=True, help="Only this year; repeatable.")
@common
def ledger_report(file: str | None, years: tuple[str, ...]) -> ExitCode:
    """Write the whole ledger as one web page.

    The page needs nothing else: no script, no other file. It is written whole or not at all, readable for you
    alone (0600), as it has the titles and the resets.
    """
    from sendonce import page, views

    if not file:
        raise WrongUsage("ledger report needs --html FILE; - is standard output.")
    if file == "-" and shared.is_json:
        raise WrongUsage("--html - and --json exclude each other: both go to standard output.")
    wanted = frozenset(views.year_meant(year) for year in years)
    job = shared.open_job(needs_mailchimp=False)
    store = job.ledger()
    known, resets = views.history(store.batches(), job.today()), store.resets()
    shown = page.years_shown(known, (reset.date for reset in resets), wanted)
    known = _with_holidays(job, known, views.days_of([(year, m) for year in shown for m in range(1, 13)]))
    about = page.About(job.settings.job, job.settings.zone, job.clock.now())
    text = page.render(known, resets, about, wanted)
    voice = shared.voice
    if file == "-":
        voice.result(text)
    else:
        path = working_folder() / file
        page.put(path, text)
        count = sum(int(day[:4]) in shown for day in known.batches)
        of_years = f" of {' and '.join(map(str, sorted(wanted)))}" if wanted else ""
        said = f"Wrote {path}: {many(count, 'batch', 'batches')}{of_years} on record."
        voice.document("ledger report", ExitCode.OK, file=str(path), batches=count, message=said)
        if not voice.is_quiet:
            voice.result(said)
    voice.warnings(warnings_of(job))
    return ExitCode.OK


def _with_holidays(job: Job, known: History, days: Iterable[str]) -> History:
    """The ledger by days, with those of `days` that a pause or SENDONCE_SKIP_DATES names: a run leaves no record.

    A file that cannot be read is a warning: what is on record can be shown all the same.
    """
    from sendonce import views

    bare = views.without_record(known, days)
    paused = views.paused_days(job.ledger().pauses(), bare, job.zone)
    if (path := job.settings.skip_dates) is None:
        return known._replace(holidays=paused)
    from sendonce.adapters.holidays import skipped

    try:
        asked = {day: skipped(path, date.fromisoformat(day)) for day in bare}
    except SettingsWrong as fault:
        shared.voice.warnings([fault.message])
        return known._replace(holidays=paused)
    return known._replace(holidays=paused | {day: why for day, why in asked.items() if why is not None})
