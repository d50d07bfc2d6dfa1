"""The ledger against Mailchimp: what differs, and a ledger made anew from Mailchimp alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sendonce.core.dates import belongs, day_of_title
from sendonce.core.model import Batch, Ending, Entry, Outcome, State, many
from sendonce.core.parts import MAIN, folded, part, roles
from sendonce.core.reach import has_reached, is_of_date

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, tzinfo

    from sendonce.core.campaigns import Campaign

ORDERED_TITLE = re.compile(
    r"(?P<key>.+) \((?P<role>(?:remaining|again) [0-9]+)\)(?: \[(?P<nonce>[0-9a-f]{8})\])?"
)
RANK = {"sent": 0, "sending": 1, "schedule": 2}


@dataclass(frozen=True)
class Finding:
    """A date on which ledger and Mailchimp do not say the same."""

    date: str
    said: str


def verify(
    batches: Iterable[Batch], campaigns: Iterable[Campaign], pattern: str, job: str
) -> tuple[Finding, ...]:
    """Compare every batch with the campaigns of its date. Reads nothing itself, changes nothing."""
    by_day = _by_day(campaigns, pattern, job)
    by_id = {c.id: c for group in by_day.values() for c in group}
    found: list[Finding] = []
    known: set[str] = set()
    for batch in batches:
        known.add(batch.date)
        if said := _difference(batch, by_day.get(batch.date, []), by_id):
            found.append(Finding(batch.date, said))
    for day in sorted(set(by_day) - known):
        past = [c for c in by_day[day] if not c.is_draft]
        if past:
            ids = ", ".join(f"{c.id} ({c.status})" for c in past)
            found.append(Finding(day, f"the ledger has no record, Mailchimp has {ids}"))
    return tuple(sorted(found, key=lambda f: f.date))


def compared(emails: int, recipients: int | None, counted: str) -> str:
    """So many emails beside the recipients, where they are known; `counted` says when or by whom.

    Fewer is no fault: Mailchimp leaves out whom it must not mail, and is slow with contacts just imported (facts §6).
    """
    if recipients is None:
        return many(emails, "email")
    apart = emails - recipients
    difference = f" ({abs(apart)} {'more' if apart > 0 else 'fewer'})" if apart else ""
    return f"{many(emails, 'email')} to {many(recipients, 'recipient')} counted {counted}{difference}"


def arrival(campaigns: Iterable[Campaign], date: str, title_key: str, zone: tzinfo) -> Outcome:
    """Whether the day's mail left, by Mailchimp's campaigns alone. Only FOUND_SENT means that it did.

    Any `sending` will do: for hours its `emails_sent` may be 0. One that was canceled did leave once what was ordered
    for the others (see `orders`) is mailed.
    """
    campaigns = tuple(campaigns)
    group = [c for c in campaigns if belongs(c.title, title_key)]
    mailed = sorted((c for c in group if c.is_mailed), key=lambda c: (RANK[c.status], c.id))
    if len(mailed) > 1:
        ids = ", ".join(f"{c.id} ({c.status})" for c in mailed)
        return Outcome(Ending.ALARM, date, f"{date}: more than one campaign was mailed: {ids}.")
    if not mailed:
        if repaired := _repaired(campaigns, group, date, title_key):
            return repaired
        return Outcome(Ending.REFUSED, date, f"{date}: not sent: {_why_not(group, title_key, zone)}.")
    only = mailed[0]
    recipients = (
        only.recipient_count if only.status == "sent" else None
    )  # while it goes out, fewer means nothing
    count = "" if only.emails_sent is None else f", {compared(only.emails_sent, recipients, 'by Mailchimp')}"
    known = Outcome(
        Ending.FOUND_SENT, date, f'{date}: "{only.title}" ({only.id}) is {only.status}{count}',
        only.id, only.title, only.emails_sent, only.recipient_count,
    )  # fmt: skip
    if only.status == "sent" and not only.emails_sent:
        return known._replace(ending=Ending.ALARM, message=f"{known.message}: it was mailed to nobody.")
    so_far = " so far" if only.status == "sending" and count else ""
    return known._replace(message=f"{known.message}{so_far}.")


def _repaired(
    campaigns: Iterable[Campaign], group: list[Campaign], date: str, title_key: str
) -> Outcome | None:
    """Tell of a canceled campaign, and of those to whom it had not been sent; None if it is not that."""
    canceled = [c for c in group if c.status == "canceled"]
    repairs = [
        (int(found[1]), c)
        for c in campaigns
        if has_reached(c)
        and is_of_date(c.title, title_key)
        and (found := re.match(re.escape(title_key) + r" \(remaining ([0-9]+)\)", c.title)) is not None
    ]
    # a repair that was canceled, too, has left somebody over
    if len(canceled) != 1 or not repairs or not max(repairs, key=lambda one: one[0])[1].is_mailed:
        return None
    first, others = canceled[0], [c for _, c in sorted(repairs, key=lambda one: one[0])]
    told = "; ".join(f'"{c.title}" ({c.id}) is {c.status}{_emails(c)}' for c in [first, *others])
    total = sum(c.emails_sent or 0 for c in [first, *others])
    return Outcome(Ending.FOUND_SENT, date, f"{date}: {told}.", first.id, first.title, total)


def _emails(campaign: Campaign) -> str:
    return "" if campaign.emails_sent is None else f", {many(campaign.emails_sent, 'email')}"


def _why_not(group: list[Campaign], title_key: str, zone: tzinfo) -> str:
    if not group:
        return f'there is no campaign named "{title_key}"'
    said = []
    for campaign in sorted(group, key=lambda c: (RANK.get(c.status, 3), c.id)):
        how = f'is "{campaign.status}" in Mailchimp'
        if campaign.is_draft:
            how = "is a draft"
        elif campaign.status == "schedule" and campaign.send_time is not None:
            how = f"is scheduled for {campaign.send_time.astimezone(zone).isoformat(sep=' ', timespec='minutes')}"
        elif campaign.status == "canceled" and campaign.emails_sent:
            how += f"{_emails(campaign)} (send-batch --remaining mails it to the others)"
        said.append(f'"{campaign.title}" ({campaign.id}) {how}')
    return "; ".join(said)


def rebuild(campaigns: Iterable[Campaign], pattern: str, job: str, now: datetime) -> tuple[Batch, ...]:
    """The batches that Mailchimp's campaigns of the title pattern tell of. A draft tells nothing: a run finds it."""
    batches: list[Batch] = []
    for day, group in sorted(_by_day(campaigns, pattern, job).items()):
        past = sorted((c for c in group if not c.is_draft), key=lambda c: (RANK.get(c.status, 3), c.id))
        if not past:
            continue
        mailed = [c for c in past if c.is_mailed]
        if mailed:
            entries = tuple(_entry(c, "twin" if n else "main", now) for n, c in enumerate(mailed))
            batches.append(Batch(day, State.SENT, campaigns=entries))
        elif past[0].status == "schedule":
            entry = Entry(past[0].id, past[0].title, web_id=past[0].web_id, scheduled_for=past[0].send_time)
            batches.append(Batch(day, State.PLANNED, campaigns=(entry,)))
        else:
            # of a canceled one some have it: it must not be forgotten, should somebody delete it
            sent_at = (past[0].send_time or now) if has_reached(past[0]) else None
            entry = Entry(past[0].id, past[0].title, web_id=past[0].web_id, sent_at=sent_at)
            reason = f'Campaign {past[0].id} is "{past[0].status}" in Mailchimp.'
            batches.append(Batch(day, State.REFUSED, campaigns=(entry,), reason=reason))
    return _with_orders(batches, campaigns, pattern, job, now)


def _with_orders(
    batches: Iterable[Batch], campaigns: Iterable[Campaign], pattern: str, job: str, now: datetime
) -> tuple[Batch, ...]:
    """The batches, with what was ordered beside the days' own campaigns and mailed. Who ordered it is not in Mailchimp."""
    by_date = {batch.date: batch for batch in batches}
    for campaign in sorted(campaigns, key=lambda c: c.id):
        title = ORDERED_TITLE.fullmatch(campaign.title)
        day = day_of_title(title["key"], pattern, job) if title is not None else None
        if title is None or day is None or not campaign.is_mailed:
            continue
        batch = by_date.get(day.isoformat(), Batch(day.isoformat()))
        role = title["role"]
        if role in roles(batch):
            entry = _entry(campaign, f"{role} twin", now)
        else:
            entry = _entry(campaign, role, now)._replace(state=State.SENT, nonce=title["nonce"] or "")
        by_date[batch.date] = batch._replace(campaigns=(*batch.campaigns, entry))
    return tuple(by_date[date] for date in sorted(by_date))


def merge(old: Iterable[Batch], new: Iterable[Batch]) -> tuple[Batch, ...]:
    """What a rebuilt ledger holds: `new`, and of the old one what Mailchimp cannot know or does not contradict.

    A date that Mailchimp shows as mailed is sent. Any other stays as it was if it was sent, skipped or ever asked to
    be sent: a campaign that somebody deleted or renamed must not make room for a second one. What was ordered beside a
    date's campaign (see `parts`) is no part of `new`, and stays as it is on record.
    """
    by_date = {batch.date: batch for batch in new}
    for batch in old:
        rebuilt = by_date.get(batch.date)
        if rebuilt is not None and rebuilt.state is State.SENT:
            by_date[batch.date] = _and_orders(_remembering(part(rebuilt, MAIN), batch), rebuilt)
        elif (
            batch.state in {State.SENT, State.SKIPPED}
            or any(e.requested_at or e.sent_at for e in batch.campaigns)
            or roles(batch)
        ):
            by_date[batch.date] = batch if rebuilt is None else _and_orders(batch, rebuilt)
    return tuple(by_date[date] for date in sorted(by_date))


def _and_orders(batch: Batch, rebuilt: Batch) -> Batch:
    """The batch, with what Mailchimp shows as ordered and the batch does not know."""
    known, ids = roles(batch), {entry.id for entry in batch.campaigns}
    more = (
        e for e in rebuilt.campaigns if e.state is not State.NONE and e.role not in known and e.id not in ids
    )
    return batch._replace(campaigns=(*batch.campaigns, *more))


def _remembering(rebuilt: Batch, old: Batch) -> Batch:
    """A date that was mailed, with the requests, tries and orders that only the old ledger knows of."""
    own = part(old, MAIN).campaigns
    known = {entry.id: entry for entry in own}
    mailed = {entry.id for entry in rebuilt.campaigns}
    if old.state is State.SENT and mailed <= set(known):
        return old
    entries = tuple(_with_request(entry, known.get(entry.id)) for entry in rebuilt.campaigns)
    asked = (e for e in own if e.id not in mailed and e.requested_at is not None)
    former = tuple(entry._replace(role="former") for entry in asked)
    main = rebuilt._replace(nonce=old.nonce, attempts=old.attempts, campaigns=(*entries, *former))
    return folded(old, MAIN, main)


def _with_request(entry: Entry, known: Entry | None) -> Entry:
    if known is None or known.requested_at is None:
        return entry
    return entry._replace(by="sendonce", requested_at=known.requested_at, gave_up_at=known.gave_up_at)


def _difference(batch: Batch, of_day: list[Campaign], by_id: dict[str, Campaign]) -> str:
    main = batch.main
    mailed = [c for c in of_day if c.is_mailed]
    recorded = {e.id for e in batch.campaigns}
    others = [c.id for c in mailed if c.id not in recorded]
    if batch.state is State.SENT and main is not None:
        shown = by_id.get(main.id)
        if shown is None:
            return f"the ledger says sent, and campaign {main.id} is not in Mailchimp's list under the date's title"
        if not shown.is_mailed:
            return f'the ledger says sent, and Mailchimp shows campaign {main.id} as "{shown.status}"'
    elif mailed:
        ids = ", ".join(f"{c.id} ({c.status})" for c in mailed)
        return f"the ledger says {batch.state.value}, and Mailchimp has mailed {ids}"
    if others:
        return f"Mailchimp has mailed more than the ledger knows: {', '.join(others)}"
    if len(mailed) > 1:
        return f"more than one campaign was mailed: {', '.join(c.id for c in mailed)}"
    return ""


def _by_day(campaigns: Iterable[Campaign], pattern: str, job: str) -> dict[str, list[Campaign]]:
    days: dict[str, list[Campaign]] = {}
    for campaign in campaigns:
        day = day_of_title(campaign.title, pattern, job)
        if day is not None:
            days.setdefault(day.isoformat(), []).append(campaign)
    return days


def _entry(campaign: Campaign, role: str, now: datetime) -> Entry:
    """Who sent it is not in Mailchimp: "by hand" would be a guess, and so would "sendonce"."""
    return Entry(
        campaign.id,
        campaign.title,
        role=role,
        web_id=campaign.web_id,
        by="unknown",
        sent_at=campaign.send_time or now,
        emails_sent=campaign.emails_sent if campaign.status == "sent" else None,
    )
