"""`doctor`: what is wrong with a job, its machine and its Mailchimp account, each with what to do. Changes nothing.

A finding is a fact and a remedy. A fault needs a person, a note is worth knowing, the rest is in order. Checks that
would only repeat an earlier fault in other words are left out: without a folder nobody asks for the ledger in it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from sendonce.core.dates import belongs, day_of_title
from sendonce.core.decide import (
    Adopt,
    Build,
    Create,
    Done,
    Forget,
    GiveWay,
    Intend,
    Look,
    LookAgain,
    RecordSent,
    Refuse,
    Scheduled,
    Send,
    Settle,
    decide,
)
from sendonce.core.errors import CredentialsRejected, LedgerDamaged, Refused, SendonceError, Unusable
from sendonce.core.model import Batch, Ending, Page, Source, State, many, told_pause
from sendonce.crontabs import WORKS_ALL_THE_SAME
from sendonce.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import tzinfo

    from sendonce.adapters.holder import Holder
    from sendonce.adapters.machine import Folder
    from sendonce.core.campaigns import Account, Campaign, Checklist, Listing
    from sendonce.core.decide import Rules, Step
    from sendonce.core.errors import SettingsWrong
    from sendonce.core.model import Outcome
    from sendonce.core.ports import CampaignSource, LedgerStore
    from sendonce.crontabs import Line, Report
    from sendonce.settings import Settings

DAYS_AHEAD: Final = 7
CLOCK_OFF_S: Final = 60
ROOM_BYTES: Final = 5 << 20
ROOM_FILES: Final = 20
KEY_AGE_DAYS: Final = 330
KEYS_EXPIRE_SINCE: Final = datetime(2026, 6, 22, tzinfo=UTC)
"""Keys made since then expire after a year: some weeks before, somebody should hear of it."""
MAY_SEND: Final = frozenset({"owner", "admin", "manager"})
MAY_NOT_SEND: Final = frozenset({"author", "viewer"})
TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/run")  # noqa: S108 - places that are warned of
TEMPORARY_TYPES: Final = frozenset({"tmpfs", "ramfs"})
REMOTE_TYPES: Final = re.compile(r"nfs4?|cifs|smb\w*|smbfs|9p|afs|ceph|glusterfs|lustre|fuse(blk|\..*)?")


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """What is, and what to do about it. `details` are lines to look up something in."""

    id: str
    level: Level
    fact: str
    remedy: str = ""
    details: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        """Whether nobody needs to do anything."""
        return self.level is not Level.FAULT


def ok(name: str, fact: str, details: tuple[str, ...] = ()) -> Finding:
    """Something that is in order."""
    return Finding(name, Level.OK, fact, "", details)


def note(name: str, fact: str, remedy: str) -> Finding:
    """Something worth knowing."""
    return Finding(name, Level.NOTE, fact, remedy)


def fault(name: str, fact: str, remedy: str) -> Finding:
    """Something that a person must put right."""
    return Finding(name, Level.FAULT, fact, remedy)


# ------------------------------------------------------------------------------------------------------- settings


def of_wrong_settings(error: SettingsWrong) -> Iterator[Finding]:
    """Settings that cannot be used."""
    for said in error.faults:
        name = "env-rights" if re.search("can be written by others|belongs to uid", said) else "settings"
        yield fault(name, said, "Put it right: no command works before, and the other checks wait for it.")


def of_settings(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Where each setting came from, and what is odd about them."""
    given = {name: place for name, place in settings.origins.items() if place != "default"}
    known = f"{settings.env_file} "
    lines = tuple(
        f"{name} = {_shown(settings, name)} ({place.removeprefix(known)})" for name, place in given.items()
    )
    place = settings.env_file or "the environment alone"
    yield ok(
        "settings",
        f"Job {settings.job}, {place}: {many(len(given), 'setting')} given, the others default.",
        lines,
    )
    for said in settings.warnings:
        if "can be read by others" in said:
            before, _, remedy = said.partition(" Run: ")
            yield fault("env-rights", before, f"Run: {remedy}")
        else:
            yield note("settings-warning", said, "See whether that is meant.")
    yield from _of_key_age(settings.origins.get("MAILCHIMP_API_KEY", ""), now)


def _of_key_age(origin: str, now: datetime) -> Iterator[Finding]:
    """Mailchimp does not tell a key's age; that of the file it stands in is the least that it can be."""
    named = re.match(r"(.+), which MAILCHIMP_API_KEY_FILE names|(.+) line \d+$", origin)
    if named is None:
        return
    path = named[1] or named[2]
    try:
        written = datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)
    except OSError:
        return
    days = (now - written).days
    if written >= KEYS_EXPIRE_SINCE and days > KEY_AGE_DAYS:
        yield note(
            "key-age",
            f"{path}, where the key stands, was last changed {days} days ago. Keys made since June 2026 expire after a "
            "year.",
            "Make a new key in Mailchimp before that one ends, and put it there.",
        )


def _shown(settings: Settings, name: str) -> str:
    """The value of a setting as it is in force; no secret."""
    doc = next(doc for doc in SETTINGS if doc.name == name)
    if name == "MAILCHIMP_API_KEY":
        return str(settings.api_key)
    if name == "SENDONCE_STATE":
        return str(settings.state) if isinstance(settings.state, Path) else settings.state.place
    other = {
        "SENDONCE_TIMEZONE": "zone",
        "MAILCHIMP_API_URL": "base_url",
        "MAILCHIMP_ACCOUNT_ID": "account_id",
    }
    field = name.removeprefix("SENDONCE_").removeprefix("MAILCHIMP_").lower().replace("_seconds", "_s")
    value = getattr(settings, other.get(name, field), None)
    if doc.is_secret or value is None:
        return "(set)"
    if isinstance(value, tuple):
        return " ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def of_outlets(settings: Settings) -> Iterator[Finding]:
    """Whether what is told of a run can be: the commands that are run, the files that are written."""
    for name, words in (("SENDONCE_ON_SENT", settings.on_sent), ("SENDONCE_ON_FAILURE", settings.on_failure)):
        if words and not (Path(words[0]).is_file() and os.access(words[0], os.X_OK)):
            yield fault(
                "command",
                f"{name} begins with {words[0]}, which is no file that can be executed.",
                "Put the program there, and chmod +x it; else nobody hears what it should tell.",
            )
    for name, path in (
        ("SENDONCE_METRICS_FILE", settings.metrics_file),
        ("SENDONCE_LOG_FILE", settings.log_file),
    ):
        if path is None:
            continue
        # metrics are put in place of the file, the log is written on
        is_kept = name == "SENDONCE_LOG_FILE" and path.exists()
        if is_kept:
            why = "" if os.access(path, os.W_OK) else "it may not be written"
        elif not path.parent.is_dir():
            why = f"there is no folder {path.parent}"
        else:
            may_write = os.access(path.parent, os.W_OK | os.X_OK)
            why = "" if may_write else f"nothing may be written in {path.parent}"
        if why or path.is_dir():
            yield fault(
                "file",
                f"{name}, {path}, cannot be written: {why or 'it is a folder'}.",
                "Make the folder, or give it to the user of the runs: they go on without the file.",
            )


def of_zone(
    settings: Settings, zone: tzinfo, cron_zone: tzinfo | None, cron_name: str, now: datetime
) -> Finding:
    """The job's time zone against the one by which cron starts it."""
    here = f"{settings.zone}: {now.astimezone(zone):%Y-%m-%d %H:%M}"
    if cron_zone is None:
        return note(
            "zone",
            f"The job's time zone is {here}; this machine does not say its own.",
            "Set the machine's (timedatectl set-timezone), to know what hours in a crontab mean.",
        )
    days = [datetime(now.year, month, 1, tzinfo=UTC) for month in (1, 7)]
    if all(day.astimezone(zone).utcoffset() == day.astimezone(cron_zone).utcoffset() for day in days):
        return ok("zone", f"The job's time zone is {here}, and so is cron's.")
    return note(
        "zone",
        f"The job's time zone is {here}; cron's is {cron_name}: {now.astimezone(cron_zone):%Y-%m-%d %H:%M}.",
        f"Read the hours in the crontab as those of {cron_name}.",
    )


# ---------------------------------------------------------------------------------------------------------- state


def of_folder(folder: Folder, uid: int) -> Iterator[Finding]:
    """The state folder: whether records last there, and are ours alone."""
    path = folder.path
    if folder.fault:
        yield fault(
            "state",
            f"The state folder {path} cannot be used: {folder.fault}.",
            "Mount it, or correct SENDONCE_STATE. If this is the first start, sendonce init makes it.",
        )
        return
    found = [*_owner_faults(folder, uid), *_place_faults(folder)]
    if folder.free_bytes < ROOM_BYTES or (folder.free_inodes is not None and folder.free_inodes < ROOM_FILES):
        files = "" if folder.free_inodes is None else f" and for {folder.free_inodes} files"
        found.append(
            fault(
                "state-room",
                f"There is room for {folder.free_bytes} bytes{files} at {path}.",
                "Free some: a ledger that cannot be written stops every send.",
            )
        )
    yield from found
    if not found:
        kind = f", {folder.file_system}" if folder.file_system else ""
        yield ok("state", f"{path}: ours, mode {folder.mode:04o}{kind}, {folder.free_bytes >> 20} MiB free.")


def _owner_faults(folder: Folder, uid: int) -> Iterator[Finding]:
    if folder.owner_uid != uid:
        yield fault(
            "state-owner",
            f"The state folder {folder.path} belongs to uid {folder.owner_uid}, and this is uid {uid}.",
            "Run sendonce, and its doctor, as the one user to whom the folder belongs.",
        )
    if folder.mode & 0o077:
        yield fault(
            "state-mode",
            f"The state folder {folder.path} is open to other users (mode {folder.mode:04o}).",
            f"Run: chmod 700 {folder.path}",
        )


def _place_faults(folder: Folder) -> Iterator[Finding]:
    kind, where = folder.file_system, f"The state folder {folder.path}"
    is_below = next(
        (t for t in TEMPORARY if folder.real_path == t or folder.real_path.startswith(f"{t}/")), ""
    )
    if is_below or kind in TEMPORARY_TYPES:
        named = " and ".join(
            [*([is_below] if is_below else []), *([kind] if kind in TEMPORARY_TYPES else [])]
        )
        yield fault(
            "state-temporary",
            f"{where} lies in a place that is emptied ({named}).",
            "Choose one that lasts, as /var/lib/sendonce; move the ledger with sendonce ledger copy.",
        )
    elif kind == "overlay":
        yield fault(
            "state-container",
            f"{where} lies in the container's own layer, which ends with the container.",
            "Mount a volume there.",
        )
    elif REMOTE_TYPES.fullmatch(kind):
        yield fault(
            "state-remote",
            f"{where} is on {kind} ({folder.mount_point}), where locks and renames do not hold as on a disk.",
            "Use a local disk; for several servers the URL of a Redis or a database (docs/several-servers.md).",
        )


def of_ledger(store: LedgerStore, today: date, *, is_write_checked: bool) -> Iterator[Finding]:
    """Whether the ledger can be read, is that of this account's host, and can be written."""
    try:
        batches = store.batches()
        pause = store.load(today.isoformat()).pause
        if is_write_checked:
            store.check_writable()
    except LedgerDamaged as error:
        yield fault("ledger", error.message, "Put back the backup, or run: sendonce ledger rebuild")
    except SendonceError as error:
        yield fault("ledger", error.message, "Do what that says; nothing is sent before.")
    else:
        last = f", the last {batches[-1].date}: {batches[-1].state.value}" if batches else ""
        yield ok("ledger", f"{many(len(batches), 'date')} on record{last}.")
        if pause is not None and pause.holds_on(today.isoformat()):
            said = told_pause(pause)
            yield note("paused", f"{said[:1].upper()}{said[1:]}", "If that is over: sendonce resume")
        yield from _unconfirmed(batches)


def _unconfirmed(batches: Iterable[Batch]) -> Iterator[Finding]:
    """Sends that were asked for, and of which the ledger does not know yet whether Mailchimp took them."""
    for batch in batches:
        # an order beside the day's campaign has a state of its own
        asked = [e for e in batch.campaigns if e.state is State.SENDING]
        if batch.state is State.SENDING and batch.main is not None:
            asked.append(batch.main)
        for entry in asked:
            order = entry.role.partition(" ")[0]
            who = "let cron run" if order == "main" else f"repeat the order (send-batch --{order})"
            yield note(
                "unconfirmed",
                f"{batch.date}: the send of campaign {entry.id or '(not known)'} was asked for, and is not confirmed yet.",
                f"See sendonce explain --date {batch.date}, and {who}: it finds out. Do not send it by hand, do not reset "
                "the date.",
            )


def of_backup(path: Path, store: LedgerStore) -> Iterator[Finding]:
    """The version before the last write, which is what is put back when the ledger is damaged."""
    if not path.exists():
        return
    try:
        yield ok("backup", f"{path} can be read, with {many(len(store.batches()), 'date')}.")
    except SendonceError:
        yield fault(
            "backup",
            f"The ledger's backup {path} cannot be read as a ledger.",
            "Remove it: the next write of the ledger makes a new one.",
        )


def of_record(campaigns: Callable[[], Sequence[object]]) -> Iterator[Finding]:
    """The record of who got what, where there is one."""
    try:
        count = len(campaigns())
    except SendonceError as error:
        yield fault("recipients", error.message, "Do what that says; no mail of a day waits for it.")
    else:
        if count:
            yield ok("recipients", f"Who got {many(count, 'campaign')} is on record.")


def of_lease(peek: Callable[[], Holder | None], describe: Callable[[Holder], str]) -> Finding:
    """Who holds the lease."""
    try:
        holder = peek()
    except SendonceError as error:
        return fault("lock", error.message, "Do what that says; no run can begin before.")
    if holder is None:
        return ok("lease", "The lease is free.")
    said = f"The lease {holder.place} is {describe(holder)}."
    if holder.standing.value in {"live", "dead", "expired"}:
        return ok("lease", said)
    return note("lease", said, "Nothing, if a run is let wait for that long; else see sendonce lock status.")


def of_server(place: str, look: Callable[[], Sequence[str]]) -> Iterator[Finding]:
    """The server that keeps lease and ledger; a fault is the only finding, and then nothing else can be asked."""
    try:
        warnings = look()
    except SendonceError as error:
        yield fault("server", error.message, "Do what that says, or wait until the server is back.")
        return
    yield ok("server", f"{place} can be reached, and is ready for a ledger.")
    for said in warnings:
        yield note("server-settings", said, "Change it on the server, or live with it.")


# ------------------------------------------------------------------------------------------------------ Mailchimp


def of_key(read: Callable[[], Account]) -> tuple[Account | None, Finding]:
    """Whether the key is accepted; the account if it is."""
    try:
        account = read()
    except CredentialsRejected as error:
        return None, fault("key", error.message, "Put a key that works where that one came from.")
    except SendonceError as error:
        return None, fault(
            "mailchimp", error.message, "See the network, the proxy, and status.mailchimp.com."
        )
    return account, ok("key", f'Mailchimp accepts the key: account "{account.name}", id {account.id}.')


def of_account(account: Account, settings: Settings, off_s: float) -> Iterator[Finding]:
    """What the key may do, whose it is, and whether this machine's clock is right: it is `off_s` ahead."""
    if account.role in MAY_SEND:
        yield ok("role", f"The key may send (role {account.role}).")
    elif account.role in MAY_NOT_SEND:
        yield fault(
            "role",
            f"The key is that of a user who may not send: role {account.role}.",
            "Have a manager, admin or owner of the account make the key.",
        )
    else:
        yield note(
            "role", f'The key has the role "{account.role}", which is not known.', "See that it may send."
        )
    if settings.account_id and settings.account_id != account.id:
        yield fault(
            "account",
            f"The key belongs to account {account.id}, and MAILCHIMP_ACCOUNT_ID is {settings.account_id}.",
            "Put in the key of the right account.",
        )
    elif settings.account_id:
        yield ok("account", "It is the account that MAILCHIMP_ACCOUNT_ID names.")
    if abs(off_s) > CLOCK_OFF_S:
        yield fault(
            "clock",
            f"This machine's clock is {abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} Mailchimp's.",
            "Have it set by the network (timedatectl set-ntp true): it decides what today is.",
        )
    else:
        yield ok("clock", f"This machine's clock is within {CLOCK_OFF_S} s of Mailchimp's.")


def of_audience(settings: Settings, size_of: Callable[[str, int | None], int | None]) -> Finding | None:
    """Whether the audience is there, and its size; None where it is the campaign that says it."""
    if not settings.list_id:
        return None
    named = f"audience {settings.list_id}"
    if settings.segment_id is not None:
        named = f"segment {settings.segment_id} of {named}"
    try:
        size = size_of(settings.list_id, settings.segment_id)
    except Refused:
        return fault(
            "audience", f"Mailchimp has no {named}.", "Correct SENDONCE_LIST_ID or SENDONCE_SEGMENT_ID."
        )
    except SendonceError as error:
        return fault("mailchimp", error.message, "See the network, the proxy, and status.mailchimp.com.")
    if size == 0:
        return fault(
            "audience-empty", f"Nobody is in {named}.", "See that this is the audience that is meant."
        )
    people = "? people" if size is None else many(size, "person", "people")
    return ok("audience", f"{named[:1].upper()}{named[1:]} has {people}.")


@dataclass(frozen=True)
class Days:
    """What is needed to judge days: Mailchimp's campaigns, and what the settings make of a date."""

    listing: Listing
    now: datetime
    today: date
    settled: Callable[[date], Outcome | None]
    rules: Callable[[date], Rules]
    source: Callable[[date], CampaignSource | None]
    checklist: Callable[[str], Checklist]
    rehearse: Callable[[date], Outcome] | None
    """A dry run; None where it would only say again what another finding says."""

    def step(self, day: date) -> Step:
        """What a run of that day would do first."""
        rules = self.rules(day)
        listed = tuple(c for c in self.listing.campaigns if belongs(c.title, rules.title_key))
        page = Page(None, Batch(rules.date))
        return decide(page, Look(self.listing.at, listed), self.now, rules, Done())


def of_days(days: Days) -> Iterator[Finding]:
    """The source of today's campaign and of the next days'."""
    today = _of_day(days, days.today, "today")
    yield _rehearsed(days, today) if today.id == "today" and today.level is Level.OK else today
    if days.rules(days.today).source is Source.REPLICATE:
        return  # it is one campaign for all of them
    coming = [_of_day(days, days.today + timedelta(n), "next-days") for n in range(1, DAYS_AHEAD + 1)]
    bad = [finding for finding in coming if finding.level is not Level.OK]
    missing = [finding for finding in bad if finding.id == "draft-missing"]
    other = [finding for finding in bad if finding.id != "draft-missing"]
    if other:
        more = f" And {len(other) - 1} more of the next {DAYS_AHEAD} days." if len(other) > 1 else ""
        yield note("next-days", f"{other[0].fact}{more}", other[0].remedy)
    else:
        paused = sum(finding.id == "paused" for finding in coming)
        ready = len(coming) - len(missing) - paused
        said = [f"{ready} {'is' if ready == 1 else 'are'} ready"]
        said += [f"{len(missing)} {'has' if len(missing) == 1 else 'have'} no draft yet"] if missing else []
        said += [f"{paused} {'is' if paused == 1 else 'are'} paused"] if paused else []
        yield ok("next-days", f"The next {DAYS_AHEAD} days: {', '.join(said)}.")


def _rehearsed(days: Days, today: Finding) -> Finding:
    """What a dry run has to say of today, where nothing is wrong at first sight: it asks the guards."""
    try:
        outcome = days.rehearse(days.today) if days.rehearse else None
    except Unusable:
        outcome = None  # of ledger and key there are findings of their own
    if outcome is None:
        return today
    said = f"{days.today}: {outcome.message}"
    match outcome.ending:
        case Ending.WOULD_SEND:
            return ok("today", said)
        case Ending.TEMPORARY | Ending.WAITING:
            return note("today", said, "Let cron run: a later try of the day sends it.")
        case Ending.REFUSED | Ending.SCHEDULED_ELSEWHEN | Ending.ALARM:
            return fault("today", said, "Put that right before the last try of the day.")
        case _:
            return today


def _of_day(days: Days, day: date, name: str) -> Finding:
    """One day. `name` is the finding's id for what is in order, and for most of what is not."""
    try:
        outcome = days.settled(day)
    except SendonceError:
        outcome = None  # of the ledger there is a finding of its own
    if outcome is not None:
        if outcome.ending is Ending.ALREADY_SENT and outcome.emails_sent == 0:
            return fault(
                name, f"{outcome.message} It was mailed to nobody.", "Look at its audience in Mailchimp."
            )
        is_coming_paused = outcome.ending is Ending.PAUSED and day != days.today
        return ok("paused" if is_coming_paused else name, outcome.message)
    step = days.step(day)
    match step:
        case RecordSent(campaigns):
            return _of_mailed(campaigns, day, name)
        case Scheduled(campaign, is_on_date):
            said = f'{day}: "{campaign.title}" ({campaign.id}) is scheduled in Mailchimp for {campaign.send_time}.'
            remedy = "Mend the schedule, or unschedule it and let sendonce send it."
            return ok(name, said) if is_on_date else fault(name, said, remedy)
        case Refuse(reason, campaign):
            if "There is no campaign named" in reason:
                title = days.rules(day).title_key
                remedy = f'Give the finished campaign that name: "{title}"'
                return note("draft-missing", f'{day}: there is no campaign named "{title}" yet.', remedy)
            return fault(name, f"{day}: {reason}", "Put that right in Mailchimp: a run would refuse.")
        case Adopt(campaign) | Build(campaign) | Send(campaign) | Settle(campaign, _):
            return _of_draft(days, campaign, day, name)
        case Intend() | Create():
            return _of_source(days, day, name)
        case GiveWay() | Forget() | LookAgain():
            return ok(name, f"{day}: the next run looks again.")
        case _:
            assert_never(step)


def _of_mailed(campaigns: Sequence[Campaign], day: date, name: str) -> Finding:
    first = campaigns[0]
    if len(campaigns) > 1:
        ids = ", ".join(campaign.id for campaign in campaigns)
        return fault(
            name, f"{day}: more than one campaign was mailed: {ids}.", "Find out who sent the other."
        )
    said = f'{day}: "{first.title}" ({first.id}) is {first.status}, {many(first.emails_sent or 0, "email")}.'
    if first.status == "sent" and not first.emails_sent:
        return fault(name, said, "It was mailed to nobody: look at its audience in Mailchimp.")
    return ok(name, said)


def _of_draft(days: Days, campaign: Campaign, day: date, name: str) -> Finding:
    if days.source(day) is not None:
        return _of_source(days, day, name)
    verdict = days.checklist(campaign.id)
    named = f'{day}: "{campaign.title}" ({campaign.id})'
    if verdict.is_ready or verdict.waits_for_recipients:
        count = campaign.recipient_count
        whom = "" if count is None else f", for {many(count, 'person', 'people')}"
        return ok(name, f"{named} is ready{whom}.")
    said = "; ".join(verdict.errors) or "no reason given"
    return fault(
        "checklist" if name == "today" else name,
        f"{named} is not ready in Mailchimp: {said}",
        "Put that right in Mailchimp.",
    )


def _of_source(days: Days, day: date, name: str) -> Finding:
    source = days.source(day)
    try:
        spec = source.spec() if source else None
    except Refused as error:
        remedy = "Put the file or campaign there before the first try of the day."
        return fault("source" if name == "today" else name, f"{day}: {error.message}", remedy)
    size = len(spec.content.html or spec.content.plain_text) if spec else 0
    return ok(name, f"{day}: a campaign would be made, with {size} characters of content.")


def of_leftovers(days: Days, pattern: str, job: str) -> Iterator[Finding]:
    """Drafts that no run will send any more: of a date that is past, or was sent otherwise."""
    by_day: dict[date, list[Campaign]] = {}
    for campaign in days.listing.campaigns:
        if (day := day_of_title(campaign.title, pattern, job)) is not None:
            by_day.setdefault(day, []).append(campaign)
    left = []
    for day, campaigns in sorted(by_day.items()):
        is_sent = any(campaign.is_mailed for campaign in campaigns)
        if is_sent or day < days.today:
            why = "was sent" if is_sent else "is past"
            left += [f'"{c.title}" ({c.id}), and {day} {why}' for c in campaigns if c.is_draft]
    if left:
        more = f"; and {len(left) - 1} more" if len(left) > 1 else ""
        yield fault(
            "leftover",
            f"Still a draft in Mailchimp: {left[-1]}{more}.",
            "See with sendonce explain --date D that the date needs it no more, and delete it in Mailchimp.",
        )


# ----------------------------------------------------------------------------------------------------- crontabs


def of_crontabs(
    report: Report, unread: Iterable[tuple[str, str]], left_out: Iterable[str], *, is_told_otherwise: bool
) -> Iterator[Finding]:
    """What starts the job. `is_told_otherwise`: failures are heard of by a ping or a command, too."""
    unread = list(unread)
    for flaw in report.flaws:
        is_note = (
            flaw.is_note
            or (flaw.id == "crontab-silenced" and is_told_otherwise)
            or (flaw.id == "crontab-none" and bool(unread))  # the line may be where we may not look
        )
        yield note(flaw.id, flaw.fact, flaw.remedy) if is_note else fault(flaw.id, flaw.fact, flaw.remedy)
    for path in left_out:
        yield fault(
            "crontab-left-out",
            f"cron does not read {path}: a file there must not have a dot, or the like, in its name.",
            "Rename it to letters, digits, - and _",
        )
    for path, why in unread:
        yield note(
            "crontab-unread",
            f"{path} could not be looked at: {why}.",
            "As root, see whether it starts this job, too.",
        )
    is_started = all(flaw.is_note or flaw.id in WORKS_ALL_THE_SAME for flaw in report.flaws)
    if len(report.lines) == 1 and is_started:
        line = report.lines[0]
        yield ok("crontab", f"Started by {line.place}{_when(line)} as {line.user or 'nobody'}.")


def _when(line: Line) -> str:
    return f" ({line.schedule})" if line.schedule else ""
