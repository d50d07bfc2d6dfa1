"""What Mailchimp shows of a date, and what the guards and earlier dates have to say to it. Reads only."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sendonce.core.campaigns import Campaign, fingerprint, is_same_text
from sendonce.core.dates import belongs, day_of_title
from sendonce.core.decide import Look
from sendonce.core.errors import CredentialsRejected, NoAnswer, Refused
from sendonce.core.guards import NO_GUARDS, Facts, Former, Guard, Mailed, Scope, objection, of_account
from sendonce.core.model import Batch, Ending, Entry, Outcome, Page, Source, State
from sendonce.core.reach import has_reached, is_of_date

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from sendonce.core.campaigns import Listing, Spec
    from sendonce.core.decide import Rules
    from sendonce.core.guards import Objection
    from sendonce.core.ports import Mailer, Witness

HEALING = frozenset({Ending.TEMPORARY, Ending.WAITING})
"""Ends that a later run heals by itself."""
NEVER_THROUGH = frozenset({"rss", "automation"})
"""Campaigns that stay in `sending` for as long as they mail others (facts §7)."""
ABOUT_TO_BE_SENT_S = 30 * 60
NONCE_AT_END = re.compile(r" \[[0-9a-f]{8}\]$")
EARLIER_READ_AT_MOST = 7
"""So many open earlier batches are read by a run: reading them must not eat the run's time."""


def look_at(page: Page, mailer: Mailer, rules: Rules) -> Look:
    """Everything Mailchimp shows of the date: the ids that the ledger knows, then a complete listing."""
    by_id: dict[str, Campaign | None] = {}
    for entry in page.batch.campaigns:
        by_id[entry.id] = mailer.campaign(entry.id)
    for forgotten in page.forgotten:
        for entry in forgotten.campaigns:
            if entry.id in by_id:
                continue
            shown = mailer.campaign(entry.id)
            # of a reset record only what was mailed, or still may be, counts
            if shown is not None and (forgotten.state is State.SENDING or not shown.is_draft):
                by_id[entry.id] = shown
    listing = mailer.listing()
    of_date = tuple(c for c in listing.campaigns if belongs(c.title, rules.title_key))
    date_key = rules.date_key or rules.title_key
    others = tuple(c for c in listing.campaigns if not is_of_date(c.title, date_key))
    former = _former(others, rules) if rules.guards.refuses_stale else None
    look = Look(listing.at, of_date, by_id, last_mailed=_last_mailed(others), former=former)
    return look if rules.scope is Scope.OFF else _with_reached(look, page, listing, mailer, rules)


def _with_reached(look: Look, page: Page, listing: Listing, mailer: Mailer, rules: Rules) -> Look:
    """The look, with the other campaigns of the date that somebody was sent, and those on record that are gone."""
    own = {*look.by_id, *(c.id for c in look.listed)}
    found = {c.id: c for c in listing.campaigns if c.id not in own and _counts(c, rules)}
    lost = []
    forgotten = (entry for batch in page.forgotten for entry in batch.campaigns if entry.id not in look.by_id)
    for entry in (*page.beside, *forgotten):
        shown = mailer.campaign(entry.id)
        if shown is not None and has_reached(shown):
            found[shown.id] = shown
        elif shown is None and (entry.requested_at is not None or entry.sent_at is not None):
            lost.append(entry.id)
    ahead = [c for c in listing.campaigns if c.id not in own and _is_about_to_be_sent(c, listing.at)]
    is_wide = rules.scope is Scope.AUDIENCE
    return replace(
        look, reached=tuple(found.values()), lost=tuple(lost), ahead=tuple(ahead) if is_wide else ()
    )


def _is_about_to_be_sent(campaign: Campaign, now: datetime) -> bool:
    """Whether it is a draft that a sendonce has just created, and so will send in the next minutes.

    One that a crash left behind holds nothing up for long.
    """
    made_at = campaign.create_time
    is_ours = campaign.is_draft and NONCE_AT_END.search(campaign.title) is not None
    return is_ours and made_at is not None and now - made_at < timedelta(seconds=ABOUT_TO_BE_SENT_S)


def _counts(campaign: Campaign, rules: Rules) -> bool:
    """Whether the listing shows it as one that somebody was sent on the date, as far as the scope goes."""
    if not has_reached(campaign):
        return False
    if is_of_date(campaign.title, rules.date_key or rules.title_key):
        return True
    if campaign.type in NEVER_THROUGH:
        return False  # what it mails are campaigns of their own
    if rules.scope is not Scope.AUDIENCE or campaign.send_time is None:
        return False
    # of a date that is caught up, also what went out today: nobody shall get both on one day
    sent_on = campaign.send_time.astimezone(rules.zone).date().isoformat()
    return sent_on in {rules.date, rules.today}


def _former(campaigns: Iterable[Campaign], rules: Rules) -> Former | None:
    """The campaign of the job that was mailed last, of those for an earlier date."""
    mailed: list[tuple[datetime, str, Campaign]] = []
    for c in campaigns:
        if c.is_mailed and c.send_time is not None:
            day = day_of_title(c.title, rules.title_pattern, rules.job)
            if day is not None and day.isoformat() < rules.date:
                mailed.append((c.send_time, day.isoformat(), c))
    if not mailed:
        return None
    _, day_sent, last = max(mailed, key=lambda one: one[:2])
    return Former(last.id, last.title, day_sent)


def _last_mailed(campaigns: Iterable[Campaign]) -> dict[str, Mailed]:
    found: dict[str, Mailed] = {}
    for c in campaigns:
        if c.is_mailed and c.send_time is not None:
            known = found.get(c.list_id)
            if known is None or known.at < c.send_time:
                found[c.list_id] = Mailed(c.id, c.title, c.send_time)
    return found


def other_account(rules: Rules, mailer: Mailer) -> Objection | None:
    """What there is against the account that the key is of; None if nothing, or if any account will do."""
    return of_account(rules.guards, mailer.account().id) if rules.guards.account_id else None


def guarded(
    rules: Rules,
    mailer: Mailer,
    look: Look,
    list_id: str,
    recipients: int | None,
    spec: Spec | None,
    *,
    written: Campaign | None = None,
    quiet_since: datetime | None = None,
) -> Objection | None:
    """What the guards have against a send to so many of an audience, None if nothing. Asks only what they want to know.

    `written` is the draft, read by id, once `spec` is written to it; `quiet_since` as in the ledger's entry.
    """
    guards = rules.guards
    if guards == NO_GUARDS:
        return None
    texts: tuple[str, ...] = ()
    if spec is not None:
        texts = (str(spec.settings.get("subject_line", "")), spec.content.html, spec.content.plain_text)
    facts = Facts(
        now=mailer.now(),
        recipients=recipients,
        last_mailed=look.last_mailed.get(list_id),
        made_at=None if spec is None else spec.made_at,
        texts=texts,
        same_as=_same_as(rules, mailer, look.former, spec, written),
        quiet_since=quiet_since,
    )
    return objection(guards, facts, rules.zone)


def _same_as(
    rules: Rules, mailer: Mailer, former: Former | None, spec: Spec | None, written: Campaign | None
) -> Former | None:
    """The campaign that was mailed last, if the day's has the same subject and content.

    Both as Mailchimp shows them, which may change what it is given; a dry run has only what would be written.
    """
    if former is None or spec is None or Guard.STALE in rules.guards.passed:
        return None
    earlier = mailer.campaign(former.id)
    settings = spec.settings if written is None else written.settings
    if earlier is None or not is_same_text(_subject(settings), _subject(earlier.settings)):
        return None
    mailed = mailer.content(former.id)
    content = spec.content if written is None else mailer.content(written.id)
    # what sendonce does not write, Mailchimp makes
    parts = [part for part in ("html", "plain_text") if getattr(spec.content, part)]
    is_same = all(is_same_text(getattr(content, part), getattr(mailed, part)) for part in parts)
    return former if is_same else None


def _subject(settings: Mapping[str, object]) -> str:
    return str(settings.get("subject_line", ""))


def watched(rules: Rules, mailer: Mailer, batch: Batch, campaign: Campaign) -> Entry | None:
    """The draft's entry as it is to stand in the ledger while the guard `quiet` waits; None if that does not ask.

    `campaign` was read by id. What may have left already is not held up.
    """
    guards, main = rules.guards, entry_of(campaign, batch)
    is_asked = guards.draft_quiet_s is not None and Guard.QUIET not in guards.passed
    if not is_asked or rules.source is not Source.DRAFT or batch.state is State.SENDING:
        return None
    seen = fingerprint(campaign, mailer.content(campaign.id))
    if seen == main.draft_hash and main.quiet_since is not None:
        return main
    return main._replace(draft_hash=seen, quiet_since=mailer.now())


def mailed_earlier(page: Page, mailer: Mailer, witness: Witness) -> Iterator[tuple[Batch, Campaign]]:
    """Yield the earlier batches whose end was open and that were mailed. One that cannot be read holds nothing up."""
    for batch in page.open_earlier[-EARLIER_READ_AT_MOST:]:
        main = batch.main
        if main is None:
            continue
        try:
            campaign = mailer.campaign(main.id, tries=1)
        except (NoAnswer, CredentialsRejected, Refused) as fault:
            witness.warn(f"{batch.date}: campaign {main.id} could not be read. {fault.message}")
            if isinstance(fault, Refused):
                continue  # this one's own matter: the others may be readable
            return
        if campaign is None or campaign.is_draft:
            witness.warn(
                f"{batch.date}: campaign {main.id} "
                f"{'is gone from Mailchimp' if campaign is None else 'is not sent'} although the ledger "
                f"says {batch.state}; nothing is sent for an earlier date without --date {batch.date}."
            )
        elif campaign.is_mailed:
            yield batch, campaign
        elif campaign.status != "schedule":
            witness.warn(f'{batch.date}: campaign {main.id} is "{campaign.status}" in Mailchimp.')


def alarm_of_earlier(batch: Batch, campaign: Campaign) -> str:
    """What to say of an earlier batch that reached nobody; empty if it reached somebody or is still being mailed."""
    if campaign.status != "sent" or campaign.emails_sent != 0:
        return ""
    return f"Campaign {campaign.id} of {batch.date} was mailed to nobody (0 emails sent)."


def with_alarms(outcome: Outcome, alarms: list[str]) -> Outcome:
    """Put alarms into an outcome. A 75 says none of them: nothing is recorded then, and the next run finds them again."""
    if not alarms or outcome.ending in HEALING:
        return outcome
    is_fine = outcome.ending not in {Ending.REFUSED, Ending.SCHEDULED_ELSEWHEN}
    ending = Ending.ALARM if is_fine else outcome.ending
    return outcome._replace(message=" ".join([outcome.message, *alarms]), ending=ending)


def entry_of(campaign: Campaign, *records: Batch) -> Entry:
    """What the first record that knows the campaign says of it; a new entry if none does."""
    known = (e for batch in records for e in batch.campaigns if e.id == campaign.id)
    return next(known, Entry(campaign.id, campaign.title, web_id=campaign.web_id))
