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
    from sendonce.core.batch import Ports
    from sendonce.core.campaigns import Campaign
    from sendonce.core.decide import Rules
    from sendonce.core.model import Attempt
    from sendonce.core.ports import CampaignSource, Mailer, RecipientRecord
    from sendonce.monitoring import Monitor
    from sendonce.settings import Settings
    from sendonce.settings.state_url import StateUrl


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
    today = job.today() if as_of is None else as_of
    outcome = settled_without_a_run(seen, today) if as_of is None else settled(seen, today.isoformat())
    # what may have been sent already is looked after on a holiday, too
    if outcome is not None or job.settings.skip_dates is None or seen.batch.state is State.SENDING:
        return outcome
    from sendonce.adapters.holidays import skipped

    why = skipped(job.settings.skip_dates, day)
    if why is None:
        return None
    return settled(Glance(seen.batch._replace(state=State.SKIPPED, reason=why)), today.isoformat())


def settled_without_a_run(seen: Glance, today: date) -> Outcome | None:
    """As `settled`; but while the job is paused, a run is still needed where the end of an earlier date is open."""
    outcome = settled(seen, today.isoformat())
    return (
        None if outcome is not None and outcome.ending is Ending.PAUSED and seen.has_open_earlier else outcome
    )


def with_zone(job: Job, asked: str | None, outcome: Outcome) -> Outcome:
    """Where the date was worked out, say how: the machine, or who reads this, may be on another day."""
    if asked not in {None, "today", "yesterday"}:
        return outcome
    return outcome._replace(
        message=f"{outcome.message} ({asked or 'today'} in {job.settings.zone}: {outcome.date})"
    )


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


@contextmanager
def held(job: Job, what: str) -> Iterator[FileLease | SharedLease]:
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
