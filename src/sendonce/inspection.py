"""To look after a job: whether its mail left, all about a date, and what is wrong with its set-up. Reads only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sendonce.adapters.clock import SystemClock
from sendonce.compose import (
    Job,
    already_settled,
    mailchimp,
    mailchimp_of_account,
    open_job,
    recipient_record,
    rules,
    shared_backend,
    source,
    whoami,
)
from sendonce.runs import rehearse
from sendonce.upkeep import lock_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date, datetime, tzinfo

    from sendonce.core.campaigns import Campaign
    from sendonce.core.model import Batch, Outcome, Reset
    from sendonce.core.recipients import Recorded
    from sendonce.crontabs import Given
    from sendonce.doctor import Finding
    from sendonce.settings import Settings


def check(job: Job, day: date) -> Outcome:
    """Whether the day's mail left, by Mailchimp alone: no ledger, no lease. Only FOUND_SENT means that it did."""
    from sendonce.core.audit import arrival

    rule = rules(job, day)
    return arrival(mailchimp_of_account(job).listing().campaigns, rule.date, rule.title_key, rule.zone)


class Explained(NamedTuple):
    """All there is to say of a date. `campaigns` are Mailchimp's, of the record or of the title.

    `pause` says in words that the job is paused today, "" if it is not.
    """

    batch: Batch
    resets: tuple[Reset, ...]
    lease: str
    campaigns: tuple[Campaign, ...]
    next_run: Outcome
    zone: tzinfo
    is_at_work: bool
    pause: str


def explain(job: Job, day: date) -> Explained:
    """Read the record, the lease and Mailchimp, and rehearse the next run. Raises as a dry run does."""
    from sendonce.core.look import look_at
    from sendonce.core.model import told_pause
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
    pause = told_pause(whole.pause) if whole.pause and whole.pause.holds_on(job.today().isoformat()) else ""
    return Explained(whole.batch, resets, lease, look.campaigns(), next_run, rule.zone, is_at_work, pause)


def examine(
    settings: Settings, root: Path, understood: Callable[[Sequence[str]], Given], *, is_job_named: bool
) -> list[Finding]:
    """Everything that the doctor looks at. `root` is the machine's: crontabs and the like lie below it.

    `understood` reads the words of a command line, as it is in crontabs.
    """
    from sendonce import doctor

    job = open_job(settings, talk=None)
    state = _of_state(job, root)
    of_settings = [*doctor.of_settings(settings, job.clock.now()), *doctor.of_outlets(settings)]
    found = [*of_settings, *_of_holidays(job), *state]
    is_readable = all(f.is_ok for f in state if f.id in {"state", "server", "ledger"})
    found += _of_mailchimp(job, is_ledger_readable=is_readable)
    path = settings.env_file
    return [*found, *of_machine(root, settings, path, understood, is_job_named=is_job_named)]


def of_machine(
    root: Path,
    settings: Settings | None,
    env_file: Path | None,
    understood: Callable[[Sequence[str]], Given],
    *,
    is_job_named: bool,
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
    wanted = crontabs.Wanted(
        env,
        settings.job if settings else "",
        is_named_by_flag=is_job_named,
        understood=understood,
        is_open=_window_of(settings) if settings else None,
    )
    report = crontabs.examine(found.tables, found.units, wanted, here, is_cron_here=found.is_cron_here)
    is_told = settings is not None and bool(settings.ping_url or settings.on_failure)
    about = doctor.of_crontabs(report, found.unread, found.left_out, is_told_otherwise=is_told)
    if settings is None:
        return list(about)
    zone = doctor.of_zone(settings, ZoneInfo(settings.zone), cron_zone, name, now)
    return [zone, *about]


def _window_of(settings: Settings) -> Callable[[datetime], bool] | None:
    """Whether SENDONCE_WINDOW is open at a time; None where it is not set."""
    from zoneinfo import ZoneInfo

    window, zone = settings.guards.window, ZoneInfo(settings.zone)
    if window is None:
        return None
    return lambda at: window.opens <= at.astimezone(zone).time() < window.closes


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
    if is_in_order or s.recipients_file is not None or not isinstance(s.state, Path):
        found += doctor.of_record(lambda: _recorded(job))
    return [*found, doctor.of_lease(job.lease().peek, describe)]


def _recorded(job: Job) -> Sequence[Recorded]:
    """The campaigns whose recipients are on record; a Redis keeps none."""
    s = job.settings
    if s.recipients_file is None and not isinstance(s.state, Path) and s.state.extra == "redis":
        return ()
    return recipient_record(job).campaigns("", "9999-99-99")


def _of_mailchimp(job: Job, *, is_ledger_readable: bool) -> list[Finding]:
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
        is_right = job.settings.account_id in {"", account.id}
        days = doctor.Days(
            listing,
            mailer.now(),
            job.today(),
            settled=lambda day: already_settled(job, day, as_of=day),
            rules=lambda day: rules(job, day),
            source=lambda day: source(job, mailer, day),
            checklist=mailer.checklist,
            # of another account, or a ledger that cannot be read, there is a finding already
            rehearse=(lambda day: rehearse(job, day)) if is_right and is_ledger_readable else None,
        )
        found += doctor.of_days(days)
        found += doctor.of_leftovers(days, job.settings.title, job.settings.job)
    except SendonceError as error:
        found.append(doctor.fault("mailchimp", error.message, "Do what that says, and look again."))
    return found
