"""`recipients`: who got it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from sendonce import compose
from sendonce.cli.base import cli, common, confirm, day_option, shared, warnings_of
from sendonce.core.errors import Refused, Temporary, WrongUsage
from sendonce.exits import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date
    from zoneinfo import ZoneInfo

    from sendonce.compose import Job
    from sendonce.core.recipients import Got, Mailed, Row
    from sendonce.recipients import Checked, Synced
    from sendonce.runbook import Section

CHUNK_ROWS = 5000
COLUMNS = ("date", "campaign", "email_id", "status", "address", "sent_at")


@cli.group()
def recipients() -> None:
    """Keep on record who got it, and ask the record."""


@recipients.command("sync")
@day_option("The date whose reports are read.  [default: today]")
@click.option("--since", metavar="D", help="From this date on.")
@click.option("--until", metavar="D", help="Up to and with this date.")
@click.option("--refresh", is_flag=True, help="Read again what is on record.")
@click.option(
    "--wait-seconds",
    type=click.FloatRange(0, 86400),
    default=1800,
    show_default=True,
    metavar="S",
    help="How long to wait for reports that are not whole yet.",
)
@common
def recipients_sync(
    day: str | None, since: str | None, until: str | None, *, refresh: bool, wait_seconds: float
) -> ExitCode:
    """Read from Mailchimp who got the campaigns of a date.

    Goes on where an earlier one was cut off. A report that is on record is not read again.
    """
    from sendonce import recipients as record

    if wait_seconds != wait_seconds:  # noqa: PLR0124 - nan, which click takes for a number in every range
        raise WrongUsage("--wait-seconds nan is no number of seconds.")
    job = shared.open_job()
    first, last = _span(job, day, since, until)
    with shared.screen as screen:
        found = record.sync(job, first, last, refresh=refresh, wait_s=wait_seconds, show=screen.progress)
    code = _code(found)
    lines = [_line(one) for one in found]
    voice = shared.voice
    message = " ".join(lines)
    section = _section(code, message)
    voice.document(
        "recipients sync",
        code,
        campaigns=[_parts(one.campaign) | _state(one) for one in found],
        message=message,
        runbook=section,
    )
    if code is ExitCode.OK and not voice.is_quiet:
        voice.result("\n".join(lines))
    elif code is not ExitCode.OK:
        from sendonce.report import complain, printable

        complain("\n".join(printable(line) for line in lines))
    voice.warnings(warnings_of(job))
    voice.what_to_do(section)
    return code


def _section(code: ExitCode, message: str) -> Section | None:
    """Where the runbook has a sync that is not complete."""
    if code is ExitCode.OK:
        return None
    from sendonce.runbook import of_error

    error = Refused(message) if code is ExitCode.REFUSED else Temporary(message)
    return of_error("recipients sync", error, message)


def _day(job: Job, text: str | None) -> date:
    """The date that is meant. Raise WrongUsage for a future one: nobody got it yet, whatever else is said."""
    day, today = job.day(text, early=True), job.today()
    if day > today:
        raise WrongUsage(
            f"{day} is in the future (today is {today}, {job.settings.zone}): nobody got anything of it yet."
        )
    return day


def _span(job: Job, day: str | None, since: str | None, until: str | None) -> tuple[date, date]:
    if day is not None and (since is not None or until is not None):
        raise WrongUsage("--date and --since or --until exclude each other.")
    if since is None and until is not None:
        raise WrongUsage("--until needs --since.")
    if since is None:
        when = _day(job, day)
        return when, when
    first, last = _day(job, since), _day(job, until)
    if first > last:
        raise WrongUsage(f"--since {first} lies after --until {last}.")
    return first, last


def _code(found: Sequence[Synced]) -> ExitCode:
    open_ones = [one for one in found if not one.is_complete]
    if not open_ones:
        return ExitCode.OK
    return ExitCode.REFUSED if all(one.is_lost for one in open_ones) else ExitCode.TEMPORARY


def _line(one: Synced) -> str:
    which = f"{one.campaign.date}: campaign {one.campaign.id}"
    if not one.is_complete:
        return f"{which} is not on record: {one.said}." + ("" if one.is_lost else " Run again later.")
    return (
        f"{which} went to {one.total} recipients, {'as is on record' if one.is_known else 'now on record'}."
    )


def _state(one: Synced) -> dict[str, object]:
    return {"complete": one.is_complete, "was_known": one.is_known, "recipients": one.total}


def _parts(campaign: Mailed) -> dict[str, object]:
    return {
        "date": campaign.date,
        "id": campaign.id,
        "web_id": campaign.web_id,
        "title": campaign.title,
        "role": campaign.role,
        "sent_at": campaign.sent_at.isoformat() if campaign.sent_at else None,
    }


@recipients.command("check")
@click.argument("address")
@day_option("Of this date only.  [default: all that is on record; with --live today]")
@click.option("--live", is_flag=True, help="Ask Mailchimp in place of the record.")
@common
def recipients_check(address: str, day: str | None, *, live: bool) -> ExitCode:
    """Say whether a person got it: when, and by which campaign.

    Exit 0 if they did, 1 if not, 75 where that cannot be said yet.
    """
    from zoneinfo import ZoneInfo

    from sendonce import recipients as record
    from sendonce.report import printable

    record.email_id(address)  # one that is none is said before anything else
    job = shared.open_job(needs_mailchimp=live)
    if live:
        found = record.check_live(job, address, _day(job, day))
    else:
        found = record.check(job, address, None if day is None else _day(job, day))
    lines = [_got_line(got, ZoneInfo(job.settings.zone)) for got in found.got]
    if not lines:
        where = "Mailchimp shows" if live else "The record has"
        lines = [
            f"{where} nothing that {address.strip()} got{f' for {job.day(day)}' if day or live else ''}."
        ]
    lines += _open_lines(found, live=live)
    # a report that is missing may name them: that is no "no"
    is_open = found.unknown or found.gone
    code = ExitCode.OK if found.got else ExitCode.TEMPORARY if is_open else ExitCode.REFUSED
    voice = shared.voice
    voice.document(
        "recipients check",
        code,
        got=bool(found.got),
        campaigns=[
            _parts(got.campaign) | {"status": got.status, "forgotten": got.is_forgotten} for got in found.got
        ],
        unknown=[one.id for one in (*found.unknown, *found.gone)],
        gone=[one.id for one in found.gone],
        message=" ".join(lines),
    )
    if not voice.is_quiet:
        voice.result("\n".join(printable(line) for line in lines))
    voice.warnings(warnings_of(job))
    return code


def _got_line(got: Got, zone: ZoneInfo) -> str:
    from sendonce.report import local

    it = got.campaign
    return f'{it.date}: got "{it.title}" ({it.id}), {local(it.sent_at, zone)}, {_fate(got)}'


def _open_lines(found: Checked, *, live: bool) -> list[str]:
    """Of which campaigns it cannot be said whether the person got them."""
    lines = []
    if found.unknown:
        ids = ", ".join(one.id for one in found.unknown)
        what = "whole" if live else "on record"
        lines.append(f"Of campaign {ids} it cannot be said: its report is not {what} yet.")
    if found.gone:
        ids = ", ".join(one.id for one in found.gone)
        lines.append(
            f"Of campaign {ids} Mailchimp can say no more: it was deleted there. Without --live the record is asked, which "
            "knows if it was read before."
        )
    return lines


def _fate(got: Got) -> str:
    said = {"sent": "sent", "hard": "sent, and bounced for good", "soft": "sent, and bounced"}
    fate = said.get(got.status, "sent, with a status that is not known")
    return f"{fate}; the person was forgotten since" if got.is_forgotten else fate


@recipients.command("duplicates")
@day_option("Of this date only.  [default: all that is on record]")
@common
def recipients_duplicates(day: str | None) -> ExitCode:
    """List who got more than one campaign of the same date. Exit 1 if anybody did."""
    from sendonce import recipients as record

    job = shared.open_job(needs_mailchimp=False)
    when = None if day is None else _day(job, day)
    book, unknown = record.on_record(job, when)
    first, last = ("", "9999-99-99") if when is None else (when.isoformat(), when.isoformat())
    found = list(book.duplicates(first, last))
    code = ExitCode.REFUSED if found else ExitCode.TEMPORARY if unknown else ExitCode.OK
    lines = [f"{d.date}: {d.address or d.email_id.hex()} got {' and '.join(d.campaigns)}" for d in found]
    ids = ", ".join(one.id for one in unknown)
    missing = (
        f"Not on record yet, and so not looked at: {ids}. Run `sendonce recipients sync`." if ids else ""
    )
    message = (
        f"{len(found)} got more than one campaign of the same date." if found else "Nobody got two of a date."
    )
    voice = shared.voice
    voice.document(
        "recipients duplicates",
        code,
        duplicates=[
            {
                "date": d.date,
                "email_id": d.email_id.hex(),
                "address": d.address or None,
                "campaigns": d.campaigns,
            }
            for d in found
        ],
        unknown=[one.id for one in unknown],
        message=f"{message} {missing}".strip(),
    )
    from sendonce.report import printable

    if found or not voice.is_quiet:
        voice.result("\n".join(printable(line) for line in [*lines, message]))
    voice.warnings([*([missing] if missing else []), *warnings_of(job)])
    return code


@recipients.command("export")
@day_option("The date. Required.")
@click.option("--csv", "is_csv", is_flag=True, help="As CSV (the default).")
@common
def recipients_export(day: str | None, *, is_csv: bool) -> ExitCode:
    """Write out who is on record for a date, as CSV or with --json.

    Exit 75 if the report of one of its campaigns is missing.
    """
    from sendonce import recipients as record

    if day is None:
        raise WrongUsage("recipients export needs --date.")
    if is_csv and shared.is_json:
        raise WrongUsage("--csv and --json exclude each other.")
    job = shared.open_job(needs_mailchimp=False)
    when = _day(job, day)
    book, unknown = record.on_record(job, when)
    code = ExitCode.TEMPORARY if unknown else ExitCode.OK
    chunks = _chunks(book.rows(when.isoformat()))
    ids = [one.id for one in unknown]
    texts = _as_json(chunks, code, when, ids) if shared.is_json else _as_csv(chunks)
    for text in texts:  # a million rows go out as they are read
        if not _put_out(text):
            break
    missing = [f"Campaign {one.id} of {when} is not on record yet." for one in unknown]
    shared.voice.warnings([*missing, *warnings_of(job)])
    return code


def _as_json(chunks: Iterator[list[Row]], code: ExitCode, when: date, unknown: list[str]) -> Iterator[str]:
    import json

    from sendonce.report import JSON_VERSION

    head = {"version": JSON_VERSION, "command": "recipients export", "exit": int(code)}
    head |= {"date": when.isoformat(), "unknown": unknown}
    yield json.dumps(head)[:-1] + ', "recipients": ['
    comma = ""
    for chunk in chunks:
        rows = (json.dumps(dict(zip(COLUMNS, _cells(row), strict=True))) for row in chunk)
        yield comma + ", ".join(rows)
        comma = ", "
    yield "]}\n"


def _as_csv(chunks: Iterator[list[Row]]) -> Iterator[str]:
    from sendonce.report import as_csv

    yield as_csv(COLUMNS, [])
    for chunk in chunks:
        yield as_csv(COLUMNS, map(_cells, chunk)).partition("\n")[2]


def _put_out(text: str) -> bool:
    """Write all of it to standard output; False if nobody reads on. Raise Temporary if it cannot be written.

    Elsewhere what cannot be said changes nothing. Here it is what the command is for, and half of it looks whole.
    """
    data = text.encode("utf-8", "backslashreplace")
    why = "" if sys.stdout else "it is closed"  # what is there in its place swallows everything
    try:
        while data and not why:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return False
    except OSError as error:
        why = str(error.strerror)
    if why:
        raise Temporary(
            f"The export is not whole: standard output cannot be written ({why}). The record is as it was. Throw away what "
            "came, mend that, and run again."
        )
    return True


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    from itertools import islice

    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield chunk


def _cells(row: Row) -> tuple[str, ...]:
    sent_at = row.campaign.sent_at.isoformat() if row.campaign.sent_at else ""
    return (row.campaign.date, row.campaign.id, row.email_id.hex(), row.status, row.address, sent_at)


@recipients.command("forget")
@click.argument("address")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def recipients_forget(address: str, *, yes: bool) -> ExitCode:
    """Have the record forget a person.

    What stays is a tombstone that counts as one who got it, and that names nobody.
    """
    from sendonce import recipients as record

    who = record.email_id(address)
    job = shared.open_job(needs_mailchimp=False)
    book = compose.recipient_record(job)
    confirm(
        f"Forget {address.strip()} in the record of job {job.settings.job}? There is no way back.",
        is_agreed=yes,
    )
    count = book.forget(who)
    said = "1 entry names nobody any more, and counts as before"
    if count != 1:
        said = f"{count} entries name nobody any more, and count as before"
    text = f"Forgotten: {said}. Reports to come will not name them."
    shared.voice.document("recipients forget", ExitCode.OK, entries=count, message=text)
    if not shared.voice.is_quiet:
        shared.voice.result(text)
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK
