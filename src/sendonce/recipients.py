"""Who got it: reports into the record, and what the record, or Mailchimp itself, says of a person or a date."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sendonce import compose
from sendonce.core.errors import Refused, SendonceError, Stopped, Temporary, WrongUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import date

    from sendonce.adapters.mailchimp.api import Mailchimp
    from sendonce.compose import Job
    from sendonce.core.campaigns import Campaign
    from sendonce.core.ports import RecipientRecord, RecipientWriter
    from sendonce.core.recipients import Got, Mailed, ReportPage

    Show = Callable[[int, int], None]
    """How far a report is: recipients that are there, and all."""

WAIT_S = 1800
LOOK_S = 1.0
PAUSES_S = (1, 2, 5, 10, 20, 30, 60)


class Synced(NamedTuple):
    """What became of one campaign's report. `is_known`: it was on record before; `is_lost`: waiting will not help."""

    campaign: Mailed
    total: int = 0
    is_complete: bool = False
    is_known: bool = False
    is_lost: bool = False
    said: str = ""


# ------------------------------------------------------------------------------------------------------- sync


def sync(
    job: Job, first: date, last: date, *, refresh: bool = False, wait_s: float = WAIT_S, show: Show
) -> tuple[Synced, ...]:
    """Put on record who got the campaigns of these dates. Waits so long for reports that are not whole yet.

    Raise Refused if none of the dates was sent, Temporary if a report changed while it was read.
    """
    from sendonce.adapters.recipients import FileRecipients
    from sendonce.adapters.signals import stop_on_signals

    wanted = _mailed(job, first, last)
    if not wanted:
        when = f"On {first} nothing" if first == last else f"From {first} to {last} nothing"
        raise Refused(f"{when} was sent by job {job.settings.job}: there is no report to read.")
    record = compose.recipient_record(job)
    if isinstance(record, FileRecipients):
        record.warn = job.log.warn
    known = {r.campaign.id: r for r in record.campaigns(first.isoformat(), last.isoformat())}
    done = [
        Synced(m, known[m.id].total, is_complete=True, is_known=True)
        for m in wanted
        if m.id in known and not refresh
    ]
    missing = [m for m in wanted if m.id not in known or refresh]
    if missing:
        with stop_on_signals(), record.writing() as writer:
            done += _read_all(_Reader(job, writer, show), missing, wait_s)
    places = {m.id: place for place, m in enumerate(wanted)}
    return tuple(sorted(done, key=lambda one: places[one.campaign.id]))


def _mailed(job: Job, first: date, last: date) -> list[Mailed]:
    """The campaigns that the ledger has as mailed, or as perhaps mailed."""
    from sendonce.core.recipients import Mailed, entries_of

    store, begin, end = job.ledger(), first.isoformat(), last.isoformat()
    batches = list(store.batches(begin, end))
    # what a reset put aside was mailed all the same
    for day in dict.fromkeys(reset.date for reset in store.resets() if begin <= reset.date <= end):
        batches += store.load(day).forgotten
    found = {
        e.id: Mailed(e.id, batch.date, e.title, e.role, e.web_id, e.sent_at or e.requested_at)
        for batch in reversed(batches)
        for e in entries_of(batch)
    }
    return sorted(found.values(), key=lambda one: one.date)


def _read_all(reader: _Reader, missing: list[Mailed], wait_s: float) -> list[Synced]:
    """Read what is there, and wait for the rest."""
    clock = reader.job.clock
    give_up_at_s = clock.monotonic() + wait_s
    pauses_s = iter(PAUSES_S)
    pause_s: float = next(pauses_s)
    done: dict[str, Synced] = {}
    while True:
        for campaign in missing:
            if campaign.id not in done and (read := reader.read(campaign)) is not None:
                done[campaign.id] = read
        waiting = [m for m in missing if m.id not in done]
        left_s = give_up_at_s - clock.monotonic()
        if not waiting or left_s <= 0:
            break
        reader.job.log.note("waiting for reports", campaigns=" ".join(m.id for m in waiting))
        clock.sleep(min(pause_s, left_s))
        pause_s = next(pauses_s, pause_s)
    said = "Mailchimp has not finished it, or its report is not whole yet"
    return [*done.values(), *(Synced(m, said=said) for m in waiting)]


class _Reader:
    """Reads the reports of a job into its record."""

    def __init__(self, job: Job, writer: RecipientWriter, show: Show) -> None:
        self.job, self._writer, self._show = job, writer, show
        self._keeps_addresses = job.settings.is_keeping_addresses
        self._mailers = [compose.mailchimp(job, keeps_connection=True)]  # one for each connection

    def read(self, campaign: Mailed) -> Synced | None:
        """Read one report; None if it is not whole yet."""
        from sendonce.core.recipients import Verdict, verdict

        mailer = self._mailers[0]
        seen = mailer.campaign(campaign.id)
        page = None if seen is None else self._page(mailer, campaign, 0)
        match verdict(seen, page.total if page else None, mailer.now()):
            case Verdict.NOT_MAILED:
                what = "has no such campaign any more" if seen is None else "shows it as not sent"
                return Synced(campaign, is_lost=True, said=f"Mailchimp {what}: who got it cannot be read")
            case Verdict.NOT_YET:
                return None
            case Verdict.COMPLETE:
                return self._whole(_dated(campaign, seen), page)

    def _whole(self, campaign: Mailed, first: ReportPage | None) -> Synced:
        from sendonce.core.recipients import PAGE_ROWS, fault_of, pages_of

        total = first.total if first else 0
        there = self._writer.begin(campaign, total, keeps_addresses=self._keeps_addresses)
        missing = [number for number in pages_of(total) if number not in there]
        rows = min(total, len(there) * PAGE_ROWS)
        with self._pages(campaign, first, missing) as pages:
            for number, page in pages:
                fault = fault_of(page, number, total) if page else "it is gone"
                if page is None or fault:
                    self._writer.drop(campaign)
                    raise Temporary(
                        f"The report of campaign {campaign.id} changed while it was read: {fault}. It does not count, "
                        "and the record is as it was: run again."
                    )
                self._writer.put(campaign, number, page.rows)
                rows += len(page.rows)
                self._show(rows, total)
        recorded = self._writer.complete(campaign, total)
        return Synced(campaign, recorded.total, is_complete=True)

    def _page(self, mailer: Mailchimp, campaign: Mailed, number: int) -> ReportPage | None:
        return mailer.recipients(campaign.id, number, with_addresses=self._keeps_addresses)

    @contextmanager
    def _pages(
        self, campaign: Mailed, first: ReportPage | None, numbers: list[int]
    ) -> Iterator[Iterable[tuple[int, ReportPage | None]]]:
        """The pages of these numbers, as they come, over several connections. Raises what a read raises."""
        from queue import Full, Queue
        from threading import Event, Lock, Thread

        from sendonce.core.recipients import CONNECTIONS

        came: Queue[tuple[int, ReportPage | None] | BaseException] = Queue(2 * CONNECTIONS)
        is_over, lock = Event(), Lock()
        todo = iter([number for number in numbers if number])

        def hand_over(what: tuple[int, ReportPage | None] | BaseException) -> None:
            while not is_over.is_set():
                try:
                    came.put(what, timeout=LOOK_S)
                except Full:
                    continue
                return

        def work(mailer: Mailchimp) -> None:
            try:
                while not is_over.is_set():
                    with lock:
                        number = next(todo, None)
                    if number is None:
                        return
                    hand_over((number, self._page(mailer, campaign, number)))
            except BaseException as fault:  # noqa: BLE001 - it is raised in the thread that waits for it
                hand_over(fault)

        def pages() -> Iterator[tuple[int, ReportPage | None]]:
            if numbers and not numbers[0]:
                yield 0, first
            for _ in range(len([number for number in numbers if number])):
                what = came.get()
                if isinstance(what, BaseException):
                    raise what
                yield what

        wanted = min(CONNECTIONS, len(numbers))
        while len(self._mailers) < wanted:
            self._mailers.append(compose.mailchimp(self.job, keeps_connection=True))
        for mailer in self._mailers[:wanted]:
            # no such thread holds up the end of the process: a read may take minutes to give up
            Thread(target=work, args=(mailer,), daemon=True).start()
        try:
            yield pages()
        finally:
            is_over.set()


def _dated(campaign: Mailed, seen: Campaign | None) -> Mailed:
    """With Mailchimp's own time and number, which the ledger may not have."""
    if seen is None:
        return campaign
    return campaign._replace(
        sent_at=seen.send_time or campaign.sent_at, web_id=seen.web_id or campaign.web_id
    )


def sync_after_send(job: Job, day: str) -> None:
    """Record who got what was just sent, where that is wanted. What goes wrong is a warning: the mail is out."""
    if not job.settings.is_recording_recipients:
        return
    from sendonce.core.dates import parse_day

    witness = job.log
    later = f"Run `sendonce recipients sync --date {day}`."
    try:
        when = parse_day(day, job.today())
        found = sync(job, when, when, show=lambda *_: None)
    except SendonceError as fault:
        witness.warn(f"Who got it is not on record: {fault.message} {later}")
    except Stopped as stop:
        witness.warn(f"Who got it is not on record: reading was ended by {stop.signal_name}. {later}")
    else:
        for one in found:
            if not one.is_complete:
                witness.warn(f"Who got campaign {one.campaign.id} is not on record: {one.said}. {later}")


# ------------------------------------------------------------------------------------------------------- asking


class Checked(NamedTuple):
    """What a person got; and of which campaigns nothing can be said, as their reports are not on record.

    `gone`: those that Mailchimp does not have any more, so that nothing can be said later either.
    """

    got: tuple[Got, ...]
    unknown: tuple[Mailed, ...]
    gone: tuple[Mailed, ...] = ()


def email_id(address: str) -> bytes:
    """How Mailchimp names a person. Raise WrongUsage if that is no address."""
    from sendonce.core.recipients import email_id_of, is_nameable

    if not is_nameable(address.strip()):
        raise WrongUsage(f"{address!a} is no address; wanted: one as reader@example.com.")
    return email_id_of(address)


def check(job: Job, address: str, day: date | None) -> Checked:
    """What the record says of a person, of one date or all. Raise Refused for a date of which nothing is on record."""
    who = email_id(address)
    record = compose.recipient_record(job)
    if day is None:
        return Checked(_not_empty(record).got(who), ())
    unknown = _unrecorded(job, record, day)
    got = tuple(one for one in record.got(who) if one.campaign.date == day.isoformat())
    return Checked(got, unknown)


def check_live(job: Job, address: str, day: date) -> Checked:
    """What Mailchimp says of a person and a date. Raise Refused for a date never sent."""
    from sendonce.core.recipients import UNSENT, Got

    who = email_id(address)
    wanted = _mailed(job, day, day)
    if not wanted:
        raise Refused(f"On {day} nothing was sent by job {job.settings.job}.")
    mailer = compose.mailchimp(job, keeps_connection=True)
    got, unknown, gone = [], [], []
    for campaign in wanted:
        seen = mailer.campaign(campaign.id)
        if seen is None:
            gone.append(campaign)
            continue
        status = mailer.recipient_status(campaign.id, who)
        if status is not None:
            got.append(Got(_dated(campaign, seen), status))
        elif seen.status not in {*UNSENT, "sent", "canceled"}:
            unknown.append(campaign)  # it is on its way yet
    return Checked(tuple(got), tuple(unknown), tuple(gone))


def on_record(job: Job, day: date | None) -> tuple[RecipientRecord, tuple[Mailed, ...]]:
    """The record, and which campaigns of the date it lacks. Raise Refused if it has nothing of the date, or at all."""
    record = compose.recipient_record(job)
    if day is None:
        return _not_empty(record), ()
    return record, _unrecorded(job, record, day)


def _not_empty(record: RecipientRecord) -> RecipientRecord:
    if not record.campaigns("", "9999-99-99"):
        raise Refused(
            "Nothing is on record of any date. Run `sendonce recipients sync`, with --date or --since."
        )
    return record


def _unrecorded(job: Job, record: RecipientRecord, day: date) -> tuple[Mailed, ...]:
    when = day.isoformat()
    known = {one.campaign.id for one in record.campaigns(when, when)}
    wanted = _mailed(job, day, day)
    if not known and not wanted:
        raise Refused(f"On {day} nothing was sent by job {job.settings.job}, and nothing is on record of it.")
    if not known:
        raise Refused(
            f"Who got what was sent on {day} is not on record. Run `sendonce recipients sync --date {day}`. If the "
            "campaign was deleted in Mailchimp, that cannot help: nobody can say any more."
        )
    return tuple(m for m in wanted if m.id not in known)
