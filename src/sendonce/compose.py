"""Where settings become adapters, and a command becomes one call. Nothing heavy is imported before it is needed.

A date that is sent costs `already_settled` and nothing else: no lease, no network, no import of either.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, assert_never

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.log import Log
from sendonce.core.dates import parse_day
from sendonce.core.errors import Refused, WrongUsage
from sendonce.core.model import Ending, Glance, Outcome, State, settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date, tzinfo

    from sendonce.adapters.lease import FileLease
    from sendonce.adapters.mailchimp.api import Mailchimp
    from sendonce.adapters.shared.backend import Backend
    from sendonce.adapters.shared.lease import SharedLease
    from sendonce.adapters.shared.ledger import SharedLedger
    from sendonce.adapters.stores import FileLedger
    from sendonce.core import audit
    from sendonce.core.batch import Ports, Run
    from sendonce.core.campaigns import Campaign
    from sendonce.core.decide import Rules
    from sendonce.core.model import Attempt, Batch, Pause, Reset
    from sendonce.core.orders import Kind
    from sendonce.core.ports import CampaignSource, Mailer, RecipientRecord
    from sendonce.doctor import Finding
    from sendonce.monitoring import Monitor
    from sendonce.settings import Settings
    from sendonce.settings.state_url import StateUrl

WATCH_AT_MOST_S = 6 * 3600
WATCH_PAUSES_S = (1, 2, 3, 5, 10, 20, 30)


class Job(NamedTuple):
    """One job as one command sees it: its settings, its clock, its log."""

    settings: Settings
    clock: SystemClock
    log: Log
    run: str
    passing: str = ""

    @property
    def zone(self) -> tzinfo:
        """The job's time zone."""
        from zoneinfo import ZoneInfo

        return ZoneInfo(self.settings.zone)

    def today(self) -> date:
        """The date it is in the job's time zone."""
        return self.clock.now().astimezone(self.zone).date()

    def day(self, text: str | None, *, early: bool = False) -> date:
        """The date that is meant, today if none is given. Raise WrongUsage for a future one without `early`."""
        today = self.today()
        day = today if text is None else parse_day(text, today)
        if day > today and not early:
            raise WrongUsage(
                f"{day} is in the future (today is {today}, {self.settings.zone}). Say --early if it is meant."
            )
        return day

    def ledger(self, lease: FileLease | SharedLease | None = None) -> FileLedger | SharedLedger:
        """The job's ledger; without its lease it can only be read."""
        s = self.settings
        if isinstance(s.state, Path):
            from sendonce.adapters.stores import FileLedger

            # the claim is the lease beside it
            path = s.state / f"{s.job}.json"
            return FileLedger(path, job=s.job, api=s.api_host, claim=lease, clock=self.clock)
        from sendonce.adapters.shared.lease import SharedLease
        from sendonce.adapters.shared.ledger import SharedLedger

        claim = lease if isinstance(lease, SharedLease) else None
        backend = claim.backend if claim else shared_backend(s.state, s.job)
        return SharedLedger(backend, job=s.job, api=s.api_host, claim=claim, clock=self.clock)

    def lease(self, wait_s: float | None = None) -> FileLease | SharedLease:
        """The job's lease, not taken yet."""
        s = self.settings
        wait_s = s.lock_wait_s if wait_s is None else wait_s
        if isinstance(s.state, Path):
            from sendonce.adapters.lease import FileLease

            path = s.state / f"{s.job}.lock"
            return FileLease(path, lease_s=s.lease_s, wait_s=wait_s, clock=self.clock, witness=self.log)
        from sendonce.adapters.shared.lease import SharedLease

        backend = shared_backend(s.state, s.job)
        return SharedLease(backend, lease_s=s.lease_s, wait_s=wait_s, clock=self.clock, witness=self.log)


def shared_backend(url: StateUrl, job: str) -> Backend:
    """The server that keeps lease and ledger. Raise StateUnusable if its driver is not installed."""
    import sys

    from sendonce.core.errors import StateUnusable

    try:
        if url.extra == "redis":
            from sendonce.adapters.shared.redis import RedisBackend

            return RedisBackend(url.url.reveal(), url.place, job)
        from sendonce.adapters.shared.sql import SqlBackend

        return SqlBackend(url.url.reveal(), url.place, job)
    except ImportError as error:
        raise StateUnusable(
            f"SENDONCE_STATE is {url.place}, and what talks to it is not installed ({error.name}). Nothing was sent: run "
            f"{sys.executable} -m pip install 'sendonce[{url.extra}]'"
        ) from None


def recipient_record(job: Job) -> RecipientRecord:
    """Who got the job's campaigns. Raise StateUnusable where nobody has said where it is to be."""
    from sendonce.adapters.recipients import FileRecipients
    from sendonce.core.errors import InvariantBroken, StateUnusable

    s = job.settings
    path = s.recipients_file
    if path is None and isinstance(s.state, Path):
        path = s.state / f"{s.job}.recipients.db"
    if path is not None:
        return FileRecipients(path, job=s.job, api=s.api_host, clock=job.clock)
    if isinstance(s.state, Path) or s.state.extra == "redis":
        raise StateUnusable(
            "SENDONCE_STATE is a Redis, which does not keep who got a mailing. Set SENDONCE_RECIPIENTS_FILE to the path "
            "of a file on this machine."
        )
    backend = shared_backend(s.state, s.job)
    from sendonce.adapters.shared.recipients import SqlRecipients
    from sendonce.adapters.shared.sql import SqlBackend

    if not isinstance(backend, SqlBackend):
        raise InvariantBroken("a state that is neither folder, Redis nor SQL")
    return SqlRecipients(backend, job=s.job, clock=job.clock)


def open_job(settings: Settings, *, talk: Callable[[str], None] | None) -> Job:
    """A job with its log. `talk` gets each event as a line, for `-v`."""
    clock = SystemClock()
    run = random_hex(4)
    path = str(settings.log_file) if settings.log_file else ""
    log = Log(run=run, path=path, now=clock.now, talk=talk, is_json=settings.is_log_json)
    return Job(settings, clock, log, run)


def random_hex(size_bytes: int) -> str:
    """So many random bytes as hex digits: run ids and nonces."""
    import os

    return os.urandom(size_bytes).hex()


def already_settled(job: Job, day: date, *, as_of: date | None = None) -> Outcome | None:
    """What can be answered without Mailchimp: the date is sent or skipped, the job paused. None if there is work to do.

    `as_of` is the date of the run that is asked about, if not today.
    """
    seen = job.ledger().glance(day.isoformat())
    today = (as_of or job.today()).isoformat()
    outcome = settled(seen, today)
    # what may have been sent already is looked after on a holiday, too
    if outcome is not None or job.settings.skip_dates is None or seen.batch.state is State.SENDING:
        return outcome
    from sendonce.adapters.holidays import skipped

    why = skipped(job.settings.skip_dates, day)
    if why is None:
        return None
    return settled(Glance(seen.batch._replace(state=State.SKIPPED, reason=why)), today)


def with_zone(job: Job, asked: str | None, outcome: Outcome) -> Outcome:
    """Where the date was worked out, say how: the machine, or who reads this, may be on another day."""
    if asked not in {None, "today", "yesterday"}:
        return outcome
    return outcome._replace(
        message=f"{outcome.message} ({asked or 'today'} in {job.settings.zone}: {outcome.date})"
    )


# -------------------------------------------------------------------------------------------------- a send


class Ordered(NamedTuple):
    """What an operator orders beside the day's campaign, and why."""

    kind: Kind
    reason: str


def send(job: Job, day: date, say_last: Callable[[str], None], ordered: Ordered | None = None) -> Outcome:
    """One run: lease, protocol, release. `say_last` prints if the deadline ends the run from its own thread."""
    from sendonce.adapters.signals import deadline, stop_on_signals
    from sendonce.core.errors import NotRecorded, SendonceError, Stopped

    lease = job.lease()
    give_up_at_s = job.clock.monotonic() + job.settings.deadline_s
    this = attempt(job)
    run: Run | None = None
    over = f"This run was ended by its own deadline (SENDONCE_DEADLINE_SECONDS={job.settings.deadline_s:g})."

    def last_words() -> None:
        said = f"{over} Run again, that is safe."
        try:
            if run is None:  # it waits for the lease, or has just got it, and must not begin any more
                lease.abandon()
            else:
                said = run.last_words(over) or said
        except NotRecorded as fault:
            said = fault.message  # it says that the run was ended, and what may have left
        except SendonceError as fault:
            said = f"{said} {fault.message}"
        job.log.note("deadline", said=said)
        lease.abandon()
        lease.release()
        say_last(said)

    with stop_on_signals() as signals, deadline(job.settings.deadline_s, last_words, exit_code=75):
        try:
            job.log.note("started", date=day, job=job.settings.job)
            lease.acquire(give_up_at_s)
            # the client costs more to import than all the rest, and most who waited find the date sent
            seen = job.ledger(lease).glance(day.isoformat())
            if (already := _settled(job, seen, ordered)) is not None:
                return already
            from sendonce.core.batch import Run as _Run

            run = _Run(*_rules_and_ports(job, lease, day, ordered), this)
            return run.go()
        except Stopped as stop:
            # before `run` began or after it ended: in between it answers for itself
            ended = f"This run was ended by {stop.signal_name}. Run again, that is safe."
            if ordered is not None and ordered.kind == "again":
                # one that is through would be followed by another
                ended = f"This run was ended by {stop.signal_name}. Look at the date's status before you order it again."
            return Outcome(Ending.TEMPORARY, day.isoformat(), ended)
        finally:
            signals.ignore()
            lease.release()


def ordered_before(job: Job, day: date) -> str:
    """What was ordered beside the date's campaign so far, for who is about to order one more; "" if nothing."""
    batch = job.ledger().glance(day.isoformat()).batch
    return ", ".join(
        f"{entry.role} is {entry.state}" for entry in batch.campaigns if entry.state is not State.NONE
    )


def _settled(job: Job, seen: Glance, ordered: Ordered | None) -> Outcome | None:
    """As `settled`. A date that is sent is what an order is about, and a skipped one is refused by the order."""
    if ordered is not None and seen.batch.state in {State.SENT, State.SKIPPED}:
        seen = seen._replace(batch=seen.batch._replace(state=State.NONE))
    return settled(seen, job.today().isoformat())


def _rules_and_ports(
    job: Job, lease: FileLease | SharedLease | None, day: date, ordered: Ordered | None
) -> tuple[Rules, Ports]:
    """What the run is about, and the world. Raise Refused or Temporary for an order that cannot be carried out now."""
    from dataclasses import replace

    from sendonce.core.batch import other_account
    from sendonce.core.guards import Scope
    from sendonce.core.model import Source
    from sendonce.core.orders import Kind as _Kind
    from sendonce.core.orders import order_of

    rule, them = rules(job, day), ports(job, lease, day)
    if ordered is None:
        return rule, them
    if objected := other_account(rule, them.mailer):
        raise Refused(objected.said)
    order = order_of(ordered.kind, them.store.load(rule.date).batch, rule.title_key, them.mailer)
    is_rest = ordered.kind is _Kind.REMAINING
    scope = Scope.AUDIENCE if job.settings.recipient_guard is Scope.AUDIENCE else Scope.JOB
    # a rehearsal makes nothing, not even a tag
    tag, covered = _tagged(job, order.first, day) if is_rest and lease else (0, frozenset[str]())
    rule = replace(
        rule,
        source=Source.REPLICATE,
        role=order.role,
        order=f"{whoami()}: {ordered.reason}",
        title_key=order.title_key(rule.title_key),
        date_key=rule.title_key,
        scope=scope if is_rest else Scope.OFF,
        tag=tag,
        covered=covered,
        guards=rule.guards._replace(refuses_stale=False),  # the same content once more is what is ordered
    )
    return rule, replace(them, source=copy_of(job, them.mailer, order.first))


def _tagged(job: Job, first: Campaign, day: date) -> tuple[int, frozenset[str]]:
    """A tag of those who are on the local record as having got the date, and the campaigns all of whose recipients it has.

    0 where there is no such record, or more of them than Mailchimp takes in one call: what Mailchimp itself knows of who
    was sent what leaves them out all the same.
    """
    from hashlib import sha256

    from sendonce.adapters.mailchimp.api import TAG_AT_MOST
    from sendonce.core.errors import StateUnusable

    date_ = day.isoformat()
    try:
        record = recipient_record(job)
        recorded = record.campaigns(date_, date_)
        addresses = sorted(record.addresses_of(date_, TAG_AT_MOST + 1)) if recorded else []
        is_whole = bool(addresses) and len(addresses) == record.count(date_)
    except StateUnusable as fault:
        job.log.note("no record of recipients", said=fault.message)
        return 0, frozenset()
    if not addresses or len(addresses) > TAG_AT_MOST:
        return 0, frozenset()
    # one name for one list of people: repeated, the order finds the tag that it made before
    digest = sha256("\n".join(addresses).encode()).hexdigest()[:8]
    tag = mailchimp(job).tag(
        first.list_id, f"sendonce {job.settings.job} {date_}: sent [{digest}]", addresses
    )
    return tag, frozenset(one.campaign.id for one in recorded) if is_whole else frozenset()


def monitor(job: Job) -> Monitor:
    """Those who are to be told how the run ends."""
    from sendonce.monitoring import Monitor as _Monitor
    from sendonce.settings import environment

    return _Monitor(job.settings, job.clock, job.log, environ=environment(), run_id=random_hex(16))


def tries(job: Job, day: str) -> int | None:
    """How many runs the date took so far, for the metrics; None if they are not wanted, or it cannot be said."""
    from sendonce.core.errors import SendonceError

    if job.settings.metrics_file is None:
        return None
    try:
        return len(job.ledger().glance(day).batch.attempts)
    except SendonceError:
        return None


def rehearse(job: Job, day: date, ordered: Ordered | None = None) -> Outcome:
    """A dry run."""
    from sendonce.core.rehearse import rehearse as rehearsal

    try:
        return rehearsal(*_rules_and_ports(job, None, day, ordered))
    except Refused as fault:
        text = f"{fault.message} A run would refuse, and send nothing: put that right and look again."
        return Outcome(Ending.REFUSED, day.isoformat(), text)


def send_test(job: Job, day: date, address: str) -> Outcome:
    """Have Mailchimp mail the day's draft to one address, as a test. Nothing is recorded: it is no mailing."""
    from sendonce.core.rehearse import draft_of
    from sendonce.settings import is_address

    if not is_address(address):
        raise WrongUsage("--test-to wants an address, as me@example.com.")
    them = ports(job, None, day)
    campaign = draft_of(rules(job, day), them)
    mailchimp(job).send_test(campaign.id, address, is_plain=campaign.type == "plaintext")
    text = f'A test mail of "{campaign.title}" ({campaign.id}) is on its way to {address}. Nothing else was sent.'
    return Outcome(Ending.WOULD_SEND, day.isoformat(), text, campaign.id, campaign.title)


def watch(job: Job, outcome: Outcome, progress: Callable[[str, int | None], None]) -> Outcome:
    """Wait until Mailchimp has finished sending, for 6 h at the most. `progress` gets the status and the count."""
    from sendonce.adapters.signals import stop_on_signals
    from sendonce.core.errors import NoAnswer, SendonceError, Stopped

    give_up_at_s = job.clock.monotonic() + WATCH_AT_MOST_S
    pauses_s = iter(WATCH_PAUSES_S)
    pause_s: float = next(pauses_s)
    sent = f"Campaign {outcome.campaign_id} was sent"
    with stop_on_signals():
        try:
            mailer = mailchimp(job)
            while job.clock.monotonic() < give_up_at_s:
                try:
                    seen = mailer.campaign(outcome.campaign_id)
                except NoAnswer as fault:
                    job.log.note("waiting", said=fault.message)
                else:
                    if seen is None or not seen.is_mailed:
                        status = "gone" if seen is None else seen.status
                        text = f'{sent}, and Mailchimp shows it as "{status}" now. A human must look.'
                        return outcome._replace(ending=Ending.ALARM, message=text)
                    progress(seen.status, seen.emails_sent)
                    if seen.status == "sent":
                        return _finished(job, outcome, seen.emails_sent)
                job.clock.sleep(pause_s)
                pause_s = next(pauses_s, pause_s)
        except SendonceError as fault:
            # the mail is out: whatever stands in the way of watching it is not "nothing was sent"
            text = (
                f"{sent} and is recorded. Whether Mailchimp has finished could not be seen: {fault.message}"
            )
            return outcome._replace(ending=Ending.ALARM, message=text)
        except Stopped as stop:
            text = f"{sent}; waiting for the end of delivery was ended by {stop.signal_name}."
            return outcome._replace(ending=Ending.TEMPORARY, message=text)
    return outcome._replace(
        ending=Ending.TEMPORARY, message=f"{sent}; Mailchimp has not finished within 6 hours."
    )


def _finished(job: Job, outcome: Outcome, emails_sent: int | None) -> Outcome:
    from sendonce.core.audit import compared

    if emails_sent is None:
        text = f"{outcome.message} Mailchimp has finished, and does not say how many emails it sent."
        return outcome._replace(message=text)
    _keep_count(job, outcome, emails_sent)
    text = f"{outcome.message} Mailchimp has finished: {compared(emails_sent, outcome.recipients, 'before the send')}."
    if emails_sent == 0:
        text += " It was mailed to nobody: look at its audience in Mailchimp; it will not be sent again."
        return outcome._replace(ending=Ending.ALARM, message=text, emails_sent=0)
    return outcome._replace(message=text, emails_sent=emails_sent)


def _keep_count(job: Job, outcome: Outcome, emails_sent: int) -> None:
    """Record what `--wait` has seen. If the lease is not to be had, the next run reads and records it."""
    from sendonce.core.errors import SendonceError, Stopped

    try:
        with _held(job, "record the number of mails") as lease:
            store = job.ledger(lease)
            page = store.load(outcome.date)
            campaigns = tuple(
                entry._replace(emails_sent=emails_sent) if entry.id == outcome.campaign_id else entry
                for entry in page.batch.campaigns
            )
            if campaigns != page.batch.campaigns:
                store.save(page, page.batch._replace(campaigns=campaigns))
    except SendonceError as fault:
        job.log.note("not recorded", said=fault.message)
    except Stopped:
        return  # the outcome is in hand, and must be said: a count of 0 on record is read by no later run


def rules(job: Job, day: date) -> Rules:
    """What the settings say of the job on that day."""
    from sendonce.core.dates import render
    from sendonce.core.decide import Rules as _Rules
    from sendonce.core.guards import Scope
    from sendonce.core.model import Source

    s = job.settings
    return _Rules(
        job=s.job,
        date=day.isoformat(),
        zone=job.zone,
        source=s.source,
        title_key=render(s.title, s.job, day),
        list_id=s.list_id,
        settle_s=s.settle_s,
        listing_s=s.listing_s,
        timeout_s=s.timeout_s,
        today=job.today().isoformat(),
        guards=s.guards,
        scope=s.recipient_guard if s.source is not Source.DRAFT else Scope.OFF,
        title_pattern=s.title,
    )


def ports(job: Job, lease: FileLease | SharedLease | None, day: date) -> Ports:
    """The real world."""
    from sendonce.core.batch import Ports as _Ports

    mailer = mailchimp(job)
    return _Ports(
        store=job.ledger(lease),
        mailer=mailer,
        source=source(job, mailer, day),
        clock=job.clock,
        witness=job.log,
        new_nonce=lambda: random_hex(4),
    )


def mailchimp(job: Job, *, keeps_connection: bool = False) -> Mailchimp:
    """Mailchimp with the job's key, for one thread; `keeps_connection` only for many reads in a row."""
    import gc

    from sendonce import __version__
    from sendonce.adapters.mailchimp.api import Mailchimp as _Mailchimp
    from sendonce.adapters.mailchimp.wire import Wire
    from sendonce.core.errors import InvariantBroken

    gc.freeze()  # what is imported by now stays to the end, and need not be looked through again and again
    gc.enable()
    s = job.settings
    if s.api_key is None:
        raise InvariantBroken("a command that talks to Mailchimp was let through without a key")
    agent = f"sendonce/{__version__}"
    wire = Wire(
        s.base_url,
        s.api_key.reveal(),
        timeout_s=s.timeout_s,
        user_agent=agent,
        keeps_connection=keeps_connection,
    )
    key_from = s.origins.get("MAILCHIMP_API_KEY") or s.origins.get("MAILCHIMP_API_KEY_FILE", "the settings")
    return _Mailchimp(wire, job.clock, job.log, list_id=s.list_id, timeout_s=s.timeout_s, key_from=key_from)


def mailchimp_of_account(job: Job) -> Mailchimp:
    """Mailchimp, for what believes it without a run. Raise Refused if the key is of another account than it must be."""
    from sendonce.core.guards import of_account

    mailer = mailchimp(job)
    guards = job.settings.guards
    if guards.account_id and (objected := of_account(guards, mailer.account().id)):
        raise Refused(objected.said)
    return mailer


def source(job: Job, mailer: Mailchimp, day: date) -> CampaignSource | None:
    """Where the day's campaign comes from; None where a person makes it."""
    from sendonce.adapters.sources import Copy, HtmlFile
    from sendonce.core.dates import render
    from sendonce.core.model import Source

    s = job.settings
    subject = render(s.subject, s.job, day) if s.subject else ""
    match s.source:
        case Source.DRAFT:
            return None
        case Source.REPLICATE:
            return Copy(mailer, s.replicate_from, list_id=s.list_id, subject=subject)
        case Source.HTML:
            settings = {"subject_line": subject, "from_name": s.from_name, "reply_to": s.reply_to}
            if s.preview_text:
                settings["preview_text"] = s.preview_text
            path = render(s.html_file, s.job, day)
            return HtmlFile(path, list_id=s.list_id, segment_id=s.segment_id, settings=settings)
        case _:
            assert_never(s.source)


def copy_of(job: Job, mailer: Mailer, first: Campaign) -> CampaignSource:
    """The same settings and content once more, for what is ordered beside the day's campaign."""
    from sendonce.adapters.sources import Copy

    return Copy(mailer, first.id, list_id=job.settings.list_id, subject="", named="the campaign of the date")


def passing(job: Job, names: Sequence[str], reason: str) -> Job:
    """The job with these guards passed, by whom and why: that is put down with the run."""
    if not names:
        return job
    from sendonce.core.guards import Guard

    guards = job.settings.guards._replace(passed=frozenset(map(Guard, names)))
    said = f"Guard {' and '.join(names)} passed by {whoami()}: {reason}."
    return job._replace(settings=job.settings._replace(guards=guards), passing=said)


def attempt(job: Job) -> Attempt:
    """This process, for the record."""
    import os

    from sendonce.core.model import Attempt as _Attempt

    return _Attempt(job.run, os.uname().nodename, os.getpid(), started_at=job.clock.now(), detail=job.passing)


# ------------------------------------------------------------------------------------------ the operator's commands


def reset(job: Job, day: date, *, reason: str, force: bool) -> Batch:
    """Have the ledger forget a date; the record that it held. Raise Refused where that is not to be done."""
    from sendonce.core.model import Reset as _Reset

    with _held(job, f"reset {day}") as lease:
        store = job.ledger(lease)
        page = store.load(day.isoformat())
        batch = page.batch
        if batch.state is State.NONE:
            raise Refused(f"The ledger has no record of {day}: there is nothing to reset.")
        if batch.state is State.SENT and not force:
            raise Refused(
                f"{day} is recorded as sent. A reset would not send it again: a run reads Mailchimp first and would "
                "record it as sent once more. Say --force if the record itself is wrong."
            )
        store.reset(page, _Reset(day.isoformat(), job.clock.now(), whoami(), reason, {}))
        return batch


def skip(job: Job, days: Sequence[date], *, reason: str) -> list[str]:
    """Put down that these dates are not to be mailed; those that were not put down so before.

    Raise Refused, with nothing changed, if one of them is sent or may have been.
    """
    with _held(job, "skip") as lease:
        store = job.ledger(lease)
        pages = [store.load(day.isoformat()) for day in days]
        if gone := [p.batch for p in pages if p.batch.state in {State.SENDING, State.SENT}]:
            which = ", ".join(f"{batch.date} is {batch.state.value}" for batch in gone)
            raise Refused(f"Nothing was changed: {which}. What is sent, or may have been, cannot be skipped.")
        if planned := [p.batch.date for p in pages if p.batch.main and p.batch.main.scheduled_for]:
            raise Refused(
                f"Nothing was changed: {', '.join(planned)} is scheduled in Mailchimp, which would mail it all the same. "
                "Unschedule it there first."
            )
        new = [
            day.isoformat()
            for day, page in zip(days, pages, strict=True)
            if page.batch.state is not State.SKIPPED
        ]
        for day in new:
            page = store.load(day)  # of the ledger as the date before it left it
            store.save(page, page.batch._replace(state=State.SKIPPED, reason=f"{reason} ({whoami()})"))
        return new


def pause(job: Job, until: date | None, *, reason: str) -> Pause:
    """Put down that the job sends nothing before `until`, or before `resume`; what was put down. Raises as `skip`."""
    from sendonce.core.model import Pause as _Pause

    with _held(job, "pause") as lease:
        store = job.ledger(lease)
        order = _Pause(reason, whoami(), job.clock.now(), until.isoformat() if until else "")
        store.set_pause(store.load(job.today().isoformat()), order)
        return order


def resume(job: Job) -> Pause | None:
    """Put down that the job sends again; the pause that is over, None if there was none."""
    with _held(job, "resume") as lease:
        store = job.ledger(lease)
        page = store.load(job.today().isoformat())
        if page.pause is not None:
            store.set_pause(page, None)
        return page.pause


def rebuild(job: Job) -> tuple[tuple[Batch, ...], tuple[Batch, ...], Callable[[], str]]:
    """What a rebuilt ledger would hold, what of the old one it would not, and a call that puts it in place."""
    from sendonce.core.audit import merge
    from sendonce.core.audit import rebuild as rebuilt
    from sendonce.core.errors import LedgerDamaged

    mailer = mailchimp_of_account(job)
    listing = mailer.listing()
    told = rebuilt(listing.campaigns, job.settings.title, job.settings.job, mailer.now())

    def on_record(store: FileLedger | SharedLedger) -> tuple[Batch, ...]:
        try:
            return store.batches()
        except LedgerDamaged:
            return ()

    def put() -> str:
        with _held(job, "rebuild the ledger") as lease:
            store = job.ledger(lease)
            return store.rebuild(merge(on_record(store), told))

    old = on_record(job.ledger())
    made = merge(old, told)
    return made, tuple(b for b in old if b.date not in {m.date for m in made}), put


def verify(job: Job) -> tuple[int, tuple[audit.Finding, ...]]:
    """How many batches the ledger has, and where Mailchimp says otherwise."""
    from sendonce.core.audit import verify as verified

    batches = job.ledger().batches()
    listing = mailchimp(job).listing()
    return len(batches), verified(batches, listing.campaigns, job.settings.title, job.settings.job)


def at_another_place(job: Job, place: Path | StateUrl) -> tuple[Job, str]:
    """The same job with its ledger in another place, and that place for people. Raise StateUnusable as a run would."""
    source = job.ledger().whole()
    if source.job != job.settings.job:
        raise Refused(f"That ledger is the one of job {source.job}, not of {job.settings.job}.")
    api = job.settings.api_host or source.api
    if not api:
        raise Refused("There is no ledger to copy.")
    if source.api != api:
        raise Refused(
            f"The ledger is the memory of {source.api}, and the settings say {api}: copied, it would silence the mail "
            "of another account. Copy it with the settings that it was made with."
        )
    if place == job.settings.state:
        raise WrongUsage("That is where the ledger is already.")
    settings = job.settings._replace(state=place, api_host=api)
    return job._replace(settings=settings), str(place) if isinstance(place, Path) else place.place


def prepared(job: Job) -> FileLedger | SharedLedger:
    """The job's ledger, in a place that has been made ready for it."""
    prepare_state(job.settings)
    return job.ledger()


def copy_ledger(job: Job, target: Job, *, may_replace: bool) -> tuple[int, str]:
    """Copy the ledger; how many batches, and where the one that was there is kept. Both leases are held meanwhile.

    Raise LeaseBusy while a run is at work at either place, Refused if there is a ledger already that may not be
    replaced, StateUnusable if what is read back is not the same.
    """
    from sendonce.core.errors import StateUnusable

    with _held(job, "copy the ledger"), _held(target, "copy the ledger") as lease:
        source = job.ledger().whole()
        store = target.ledger(lease)
        if not may_replace and store.batches():
            raise Refused(
                "There is a ledger of the job already. Say --yes to have it kept aside and replaced."
            )
        kept = store.replace(lambda _: source)
        there = store.whole()
        same = [(one.job, one.api, one.rows(), one.reset_rows(), one.pause) for one in (source, there)]
        if same[0] != same[1]:
            raise StateUnusable(
                "What was copied does not read back the same. The ledger that was copied is as it was: keep "
                "SENDONCE_STATE as it is."
            )
        return len(source.rows()), kept


def prepare_state(settings: Settings) -> tuple[bool, list[str]]:
    """Make the state folder (0700), or what a server needs, if it is not there; whether a folder was made; warnings.

    Raise StateUnusable, or StoreDown for a server that cannot be reached.
    """
    from sendonce.core.errors import StateUnusable

    if not isinstance(settings.state, Path):
        return False, list(shared_backend(settings.state, settings.job).prepare())
    try:
        settings.state.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return False, []
    except OSError as fault:
        raise StateUnusable(
            f"The state folder {settings.state} cannot be made ({fault.strerror})."
        ) from fault
    return True, []


def lock_status(job: Job) -> tuple[str, dict[str, object] | None]:
    """The lease in words and as JSON (None if it is free). Changes nothing."""
    from sendonce.adapters.holder import describe

    holder = job.lease().peek()
    if holder is None:
        return "The lease is free.", None
    parts = {k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in vars(holder).items()}
    return f"The lease {holder.place} is {describe(holder)}.", parts | {"place": str(holder.place)}


def break_lock(job: Job, *, force: bool) -> str:
    """Remove the lease's marker; what it was, in words. Raise Refused for a live holder without `force`."""
    from sendonce.adapters.holder import describe

    holder = job.lease().break_lock(force=force)
    if holder is None:
        return "The lease is free, there is nothing to break."
    return f"The lease was removed. It was {describe(holder)}."


# ----------------------------------------------------------------------------------------------- looking after it


def check(job: Job, day: date) -> Outcome:
    """Whether the day's mail left, by Mailchimp alone: no ledger, no lease. Only FOUND_SENT means that it did."""
    from sendonce.core.audit import arrival

    rule = rules(job, day)
    return arrival(mailchimp_of_account(job).listing().campaigns, rule.date, rule.title_key, rule.zone)


class Explained(NamedTuple):
    """All there is to say of a date. `campaigns` are Mailchimp's, of the record or of the title."""

    batch: Batch
    resets: tuple[Reset, ...]
    lease: str
    campaigns: tuple[Campaign, ...]
    next_run: Outcome
    zone: tzinfo
    is_at_work: bool


def explain(job: Job, day: date) -> Explained:
    """Read the record, the lease and Mailchimp, and rehearse the next run. Raises as a dry run does."""
    from sendonce.core.batch import look_at
    from sendonce.core.orders import PartOfLedger

    rule = rules(job, day)
    store = job.ledger()
    whole = store.load(rule.date)
    page = PartOfLedger(store, rule.role).load(rule.date)
    look = look_at(page, mailchimp(job), rule)
    next_run = already_settled(job, day) or rehearse(job, day)
    resets = tuple(reset for reset in store.resets() if reset.date == rule.date)
    lease, holder = lock_status(job)
    is_at_work = holder is not None and holder["standing"] == "live"
    return Explained(whole.batch, resets, lease, look.campaigns(), next_run, rule.zone, is_at_work)


def examine(settings: Settings, root: Path, *, is_job_named: bool) -> list[Finding]:
    """Everything that the doctor looks at. `root` is the machine's: crontabs and the like lie below it."""
    from sendonce import doctor

    job = open_job(settings, talk=None)
    found = [*doctor.of_settings(settings, job.clock.now()), *_of_holidays(job), *_of_state(job, root)]
    found += _of_mailchimp(job)
    path = settings.env_file
    return [*found, *of_machine(root, settings, path, is_job_named=is_job_named)]


def of_machine(
    root: Path, settings: Settings | None, env_file: Path | None, *, is_job_named: bool
) -> list[Finding]:
    """What starts the job, and by which clock; without settings (they are wrong) of the job of this `.env`."""
    from zoneinfo import ZoneInfo

    from sendonce import crontabs, doctor
    from sendonce.adapters.crontabs import Found
    from sendonce.adapters.machine import Machine
    from sendonce.settings import zone_exists

    now = SystemClock().now()
    machine = Machine(root)
    name = machine.zone()
    cron_zone = ZoneInfo(name) if name and zone_exists(name) else None
    user = whoami().partition("@")[0]
    found = Found(machine.root, user, machine.home_of(user) or "/")
    here = crontabs.Machine(
        machine.home_of, machine.exists, machine.real, cron_zone or ZoneInfo("UTC"), name or "UTC",
        is_cron_tz_heeded=found.is_cron_tz_heeded, today=now.date(), script=machine.script,
    )  # fmt: skip
    env = machine.real(machine.seen(env_file.absolute())) if env_file else ""
    wanted = crontabs.Wanted(env, settings.job if settings else "", is_named_by_flag=is_job_named)
    report = crontabs.examine(found.tables, found.units, wanted, here, is_cron_here=found.is_cron_here)
    is_told = settings is not None and bool(settings.ping_url or settings.on_failure)
    about = doctor.of_crontabs(report, found.unread, found.left_out, is_told_otherwise=is_told)
    if settings is None:
        return list(about)
    zone = doctor.of_zone(settings, ZoneInfo(settings.zone), cron_zone, name, now)
    return [zone, *about]


def _of_holidays(job: Job) -> list[Finding]:
    """The file of dates that are not mailed, where one is set."""
    from sendonce import doctor
    from sendonce.core.errors import SendonceError

    path = job.settings.skip_dates
    if path is None:
        return []
    from sendonce.adapters.holidays import skipped

    try:
        why = skipped(path, job.today())
    except SendonceError as error:
        return [doctor.fault("skip-dates", error.message, "Put it right: nothing is sent before.")]
    return [doctor.ok("skip-dates", f"{path} says of today: {why or 'not skipped'}.")]


def _of_state(job: Job, root: Path) -> list[Finding]:
    """State folder or server, ledger, backup and lease."""
    import os

    from sendonce import doctor
    from sendonce.adapters.holder import describe
    from sendonce.adapters.machine import Machine
    from sendonce.core.errors import StateUnusable

    s = job.settings
    if isinstance(s.state, Path):
        found = list(doctor.of_folder(Machine(root).folder(s.state), os.geteuid()))
        if found[0].id == "state" and not found[0].is_ok:
            return found
    else:
        try:
            backend = shared_backend(s.state, s.job)
        except StateUnusable as error:
            return [doctor.fault("server", error.message, "Install it where this sendonce is installed.")]
        found = list(doctor.of_server(s.state.place, backend.look))
        if not found[0].is_ok:
            return found
    is_in_order = isinstance(s.state, Path) and all(finding.is_ok for finding in found)
    found += doctor.of_ledger(job.ledger(), job.today(), is_write_checked=is_in_order)
    if isinstance(s.state, Path):
        from sendonce.adapters.stores import FileLedger

        path = s.state / f"{s.job}.json.bak"
        backup = FileLedger(path, job=s.job, api=s.api_host, claim=None, clock=job.clock)
        found += doctor.of_backup(path, backup)
    return [*found, doctor.of_lease(job.lease().peek, describe)]


def _of_mailchimp(job: Job) -> list[Finding]:
    """Key, role, account, clock, audience, and the campaigns of today and the next days."""
    from sendonce import doctor
    from sendonce.core.errors import SendonceError

    found: list[Finding] = []
    try:
        mailer = mailchimp(job)
        account, key = doctor.of_key(mailer.account)
        found.append(key)
        if account is None:
            return found
        off_s = (job.clock.now() - mailer.now()).total_seconds()
        found += doctor.of_account(account, job.settings, off_s)
        audience = doctor.of_audience(job.settings, mailer.audience_size)
        found += [audience] if audience else []
        if audience is not None and audience.id == "audience" and not audience.is_ok:
            return found  # what is listed is that audience's alone
        listing = mailer.listing()
        days = doctor.Days(
            listing,
            mailer.now(),
            job.today(),
            settled=lambda day: already_settled(job, day, as_of=day),
            rules=lambda day: rules(job, day),
            source=lambda day: source(job, mailer, day),
            checklist=mailer.checklist,
        )
        found += doctor.of_days(days)
        found += doctor.of_leftovers(days, job.settings.title, job.settings.job)
    except SendonceError as error:
        found.append(doctor.fault("mailchimp", error.message, "Do what that says, and look again."))
    return found


@contextmanager
def _held(job: Job, what: str) -> Iterator[FileLease | SharedLease]:
    """The lease, for an operator's write. Raise LeaseBusy (75) at once while a run that lives holds it."""
    from sendonce.adapters.holder import Standing, describe
    from sendonce.adapters.signals import stop_on_signals
    from sendonce.core.errors import LeaseBusy

    lease = job.lease()
    if (holder := lease.peek()) is not None and holder.standing is Standing.LIVE:
        raise LeaseBusy(
            f"Could not {what}: a run is at work, the lease is {describe(holder)}. "
            "Nothing was changed. Run again when it is done."
        )
    with stop_on_signals() as signals:
        try:
            lease.acquire(job.clock.monotonic() + job.settings.deadline_s)
            yield lease
        finally:
            signals.ignore()
            lease.release()


def whoami() -> str:
    """Who gives the order, as user@host; the names are for people and prove nothing."""
    import os
    import pwd

    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's made-up uid
        name = str(uid)
    return f"{name}@{os.uname().nodename}"
