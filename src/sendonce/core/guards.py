"""Guards: what must hold beside the protocol before a campaign is sent. Each is off unless it is set.

A guard can forbid a send, never order one. Its refusal names the numbers, and says the same each time: what was said
once is not said again with -q. Where time heals it, the run ends as
temporary and a later one sends; else a person must look.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo


class Guard(StrEnum):
    """A guard by the name that `--override` takes."""

    ACCOUNT = "account"
    WINDOW = "window"
    RECIPIENTS = "recipients"
    GAP = "gap"
    AGE = "age"
    PLACEHOLDERS = "placeholders"
    STALE = "stale"
    QUIET = "quiet"


class Scope(StrEnum):
    """Whose campaigns of a date count where nobody shall be sent two of them (see `reach`)."""

    OFF = "off"
    JOB = "job"
    AUDIENCE = "audience"


class Window(NamedTuple):
    """From when to when of a day, in the job's zone, a campaign may be sent."""

    opens: time
    closes: time


class Guards(NamedTuple):
    """The guards that are set. `passed`: those that somebody has this run pass."""

    account_id: str = ""
    window: Window | None = None
    min_recipients: int | None = None
    max_recipients: int | None = None
    min_gap_h: float | None = None
    html_max_age_h: float | None = None
    checks_placeholders: bool = False
    refuses_stale: bool = False
    draft_quiet_s: float | None = None
    passed: frozenset[Guard] = frozenset()

    @property
    def counts_recipients(self) -> bool:
        """Whether anybody asks how many there are."""
        return self.min_recipients is not None or self.max_recipients is not None


NO_GUARDS = Guards()


class Mailed(NamedTuple):
    """The campaign that an audience got last."""

    id: str
    title: str
    at: datetime


class Former(NamedTuple):
    """The campaign of this job that was mailed last, and the date (YYYY-MM-DD) that it was for."""

    id: str
    title: str
    date: str


class Facts(NamedTuple):
    """What the guards judge. None: not known, or not asked because no guard wants it.

    `now` is Mailchimp's time; `texts` are subject and content of a campaign that sendonce made; `same_as` is the
    campaign that had the same; since `quiet_since` nobody has changed the draft.
    """

    now: datetime
    recipients: int | None = None
    last_mailed: Mailed | None = None
    made_at: datetime | None = None
    texts: tuple[str, ...] = ()
    same_as: Former | None = None
    quiet_since: datetime | None = None


class Objection(NamedTuple):
    """Why a campaign is not sent now. `heals`: time alone puts it right."""

    guard: Guard
    said: str
    heals: bool = False


PLACEHOLDERS = ("TODO", "FIXME", "XXX", "{{", "{date", "{job", "Lorem ipsum")
"""What stands in a text that is not finished. `*|…|*` are Mailchimp's own merge tags, and fine."""


def of_account(guards: Guards, account_id: str) -> Objection | None:
    """What there is against the account of the key. Asked first: what another account shows says nothing of the date."""
    if not guards.account_id or account_id == guards.account_id or Guard.ACCOUNT in guards.passed:
        return None
    said = f'The key is of account "{account_id}", not of "{guards.account_id}" (MAILCHIMP_ACCOUNT_ID).'
    return Objection(Guard.ACCOUNT, said)


def objection(guards: Guards, facts: Facts, zone: tzinfo) -> Objection | None:
    """The first objection that nobody passed, one that a person must look at before one that time heals."""
    found = [said for said in _objections(guards, facts, zone) if said.guard not in guards.passed]
    return min(found, key=lambda said: said.heals, default=None)


def _objections(guards: Guards, facts: Facts, zone: tzinfo) -> Iterator[Objection]:
    yield from _of_window(guards, facts, zone)
    if guards.counts_recipients:
        yield from _of_recipients(guards, facts.recipients)
    if guards.min_gap_h is not None and facts.last_mailed is not None:
        last, gap = facts.last_mailed, timedelta(hours=guards.min_gap_h)
        if facts.now - last.at < gap:
            yield Objection(
                Guard.GAP,
                f'This audience got "{last.title}" ({last.id}) at {last.at.astimezone(zone):%Y-%m-%d %H:%M}; '
                f"SENDONCE_MIN_GAP_HOURS is {guards.min_gap_h:g}.",
                heals=True,
            )
    yield from _of_age(guards, facts, zone)
    yield from _of_quiet(guards, facts, zone)
    if facts.same_as is not None:
        same = facts.same_as
        said = f'Subject and content are those of "{same.title}" ({same.id}), mailed for {same.date}.'
        yield Objection(Guard.STALE, f"{said} SENDONCE_REFUSE_STALE is set.")
    if guards.checks_placeholders:
        for mark in PLACEHOLDERS:
            if any(mark in text for text in facts.texts):
                said = f'Subject or content still has "{mark}" in it; SENDONCE_REFUSE_PLACEHOLDERS is set.'
                yield Objection(Guard.PLACEHOLDERS, said)
                return


def _of_window(guards: Guards, facts: Facts, zone: tzinfo) -> Iterator[Objection]:
    if guards.window is None:
        return
    local = facts.now.astimezone(zone)
    opens, closes = guards.window
    if opens <= local.time() < closes:
        return
    # before it opens a later run sends; once it is closed, no later run of this day does
    is_early = local.time() < opens
    yield Objection(
        Guard.WINDOW,
        f"SENDONCE_WINDOW is {opens:%H:%M}-{closes:%H:%M}, and "
        f"{'not open yet' if is_early else 'closed'}; --outside-window sends all the same.",
        heals=is_early,
    )


def _of_age(guards: Guards, facts: Facts, zone: tzinfo) -> Iterator[Objection]:
    if guards.html_max_age_h is None or facts.made_at is None:
        return
    if facts.now - facts.made_at > timedelta(hours=guards.html_max_age_h):
        made_at = f"{facts.made_at.astimezone(zone):%Y-%m-%d %H:%M}"
        said = f"The HTML file is of {made_at}; SENDONCE_HTML_MAX_AGE_HOURS is {guards.html_max_age_h:g}."
        yield Objection(Guard.AGE, said)


def _of_quiet(guards: Guards, facts: Facts, zone: tzinfo) -> Iterator[Objection]:
    if guards.draft_quiet_s is None or facts.quiet_since is None:
        return
    until = facts.quiet_since + timedelta(seconds=guards.draft_quiet_s)
    if facts.now < until:
        # rounded up, as the ledger keeps the time: at the second that is named it may be sent
        named = (until + timedelta(seconds=until.microsecond > 0)).astimezone(zone)
        yield Objection(
            Guard.QUIET,
            f"If nobody changes it before, it may be sent from {named:%Y-%m-%d %H:%M:%S %Z} on; "
            f"SENDONCE_DRAFT_QUIET_SECONDS is {guards.draft_quiet_s:g}.",
            heals=True,
        )


def _of_recipients(guards: Guards, recipients: int | None) -> Iterator[Objection]:
    least, most = guards.min_recipients, guards.max_recipients
    if recipients is None:
        yield Objection(Guard.RECIPIENTS, "Mailchimp does not say how many recipients there are.")
    elif least is not None and recipients < least:
        yield Objection(
            Guard.RECIPIENTS, f"There are {recipients} recipients; SENDONCE_MIN_RECIPIENTS is {least}."
        )
    elif most is not None and recipients > most:
        yield Objection(
            Guard.RECIPIENTS, f"There are {recipients} recipients; SENDONCE_MAX_RECIPIENTS is {most}."
        )
