"""A dry run: look and decide as a run would, write nothing, and say how the run would end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, assert_never

from sendonce.core.batch import is_out_of_patience, local_time, without
from sendonce.core.decide import (
    Adopt,
    Build,
    Create,
    Done,
    Forget,
    GiveWay,
    Intend,
    LookAgain,
    RecordSent,
    Refuse,
    Scheduled,
    Send,
    Settle,
    decide,
)
from sendonce.core.errors import InvariantBroken, Refused
from sendonce.core.guards import Guard
from sendonce.core.look import (
    alarm_of_earlier,
    guarded,
    look_at,
    mailed_earlier,
    other_account,
    watched,
    with_alarms,
)
from sendonce.core.model import Ending, Outcome, Source, State, many, settled
from sendonce.core.orders import PartOfLedger
from sendonce.core.reach import excluding, saved_segment

if TYPE_CHECKING:
    from datetime import datetime

    from sendonce.core.batch import Ports
    from sendonce.core.campaigns import Campaign, Spec
    from sendonce.core.decide import Look, Rules, Step
    from sendonce.core.guards import Objection
    from sendonce.core.model import Page


class Say(Protocol):
    """Makes an outcome of an ending, a text and the campaign it is about."""

    def __call__(self, ending: Ending, text: str, campaign: Campaign | None = None) -> Outcome:
        """Build the outcome."""
        ...


def rehearse(rules: Rules, ports: Ports) -> Outcome:
    """How a run would end now. Reads only: no lease, no write, no POST. Raises as `Run.go` does for reads."""
    page = PartOfLedger(ports.store, rules.role).load(rules.date)
    if (already := settled(page, rules.today)) is not None:
        return already
    ports.store.check_writable()
    if other := other_account(rules, ports.mailer):
        return Outcome(Ending.REFUSED, rules.date, f"{other.said} A run would refuse.")
    earlier = mailed_earlier(page, ports.mailer, ports.witness)
    alarms = [alarm for batch, campaign in earlier if (alarm := alarm_of_earlier(batch, campaign))]
    look = look_at(page, ports.mailer, rules)
    now = ports.mailer.now()
    step = decide(page, look, now, rules, Done())
    if isinstance(step, Forget):
        page = page._replace(batch=without(page.batch, step.campaign_id))
        step = decide(page, look.without(step.campaign_id), now, rules, Done())
    return with_alarms(foretell(step, page, look, rules, ports), alarms)


def draft_of(rules: Rules, ports: Ports) -> Campaign:
    """The draft that a run would send for the date. Reads only. Raise Refused if there is none, or not any more."""
    if other := other_account(rules, ports.mailer):
        raise Refused(other.said)
    page = PartOfLedger(ports.store, rules.role).load(rules.date)
    look = look_at(page, ports.mailer, rules)
    step: Step | None = None
    if settled(page, rules.today) is None:
        step = decide(page, look, ports.mailer.now(), rules, Done())
    match step:
        case Adopt(campaign) | Build(campaign) | Send(campaign) | Settle(campaign):
            return campaign
        case Refuse(reason) | GiveWay(reason):
            raise Refused(reason)
        case Intend() | Create() | Forget():
            raise Refused(
                f"There is no draft of {rules.date} yet: with this source it is made by the run that sends it."
            )
        case _:
            raise Refused(f"{rules.date} needs no mailing now: it is sent, scheduled, skipped or paused.")


def foretell(step: Step, page: Page, look: Look, rules: Rules, ports: Ports) -> Outcome:
    """How a run would end whose first step this is. Raise InvariantBroken for one that no run begins with."""

    def say(ending: Ending, text: str, campaign: Campaign | None = None) -> Outcome:
        if campaign is None:
            return Outcome(ending, rules.date, text)
        count = campaign.recipient_count
        return Outcome(ending, rules.date, text, campaign.id, campaign.title, campaign.emails_sent, count)

    match step:
        case RecordSent(campaigns):
            return _already_mailed(campaigns, say)
        case Scheduled(campaign, is_on_date):
            ending = Ending.SCHEDULED if is_on_date else Ending.SCHEDULED_ELSEWHEN
            at = "an unknown time" if campaign.send_time is None else local_time(campaign.send_time, rules)
            return say(
                ending,
                f"{_named(campaign)} is scheduled in Mailchimp for {at}; nothing would be sent.",
                campaign,
            )
        case Refuse(reason, campaign):
            return say(Ending.REFUSED, f"{reason} A run would refuse.", campaign)
        case Settle(campaign, until):
            earliest = local_time(until, rules)
            text = f"An earlier send of {_named(campaign)} is not confirmed; it would not be sent again before {earliest}."
            return say(Ending.TEMPORARY, text, campaign)
        case Intend() | Create():
            return _would_create(look, rules, ports, say)
        case Adopt(campaign) | Build(campaign) | Send(campaign):
            return _would_send(campaign, page, look, rules, ports, say)
        case GiveWay(reason):
            return say(Ending.TEMPORARY, f"Nothing would be sent now: {reason}")
        case Forget() | LookAgain():
            raise InvariantBroken(f"{type(step).__name__} cannot be the first step of a rehearsal")
        case _:
            assert_never(step)


def _already_mailed(campaigns: tuple[Campaign, ...], say: Say) -> Outcome:
    first = campaigns[0]
    if len(campaigns) > 1:
        ids = ", ".join(c.id for c in campaigns)
        return say(Ending.ALARM, f"More than one campaign of the date was mailed: {ids}.", first)
    if first.status == "sent" and first.emails_sent == 0:
        return say(
            Ending.ALARM,
            f"{_named(first)} was mailed to nobody (0 emails sent); nothing would be sent.",
            first,
        )
    return say(
        Ending.FOUND_SENT, f"Mailchimp shows {_named(first)} as {first.status}; nothing would be sent.", first
    )


def _objected(objected: Objection | None, say: Say, campaign: Campaign | None = None) -> Outcome | None:
    if objected is None:
        return None
    if objected.heals:
        ending = Ending.WAITING if objected.guard is Guard.QUIET else Ending.TEMPORARY
        return say(ending, f"Nothing would be sent now: {objected.said}", campaign)
    return say(Ending.REFUSED, f"A run would refuse: {objected.said}", campaign)


def _would_create(look: Look, rules: Rules, ports: Ports, say: Say) -> Outcome:
    spec = _todays_spec(ports)
    list_id = str(spec.recipients.get("list_id", ""))
    segment = spec.recipients.get("segment_opts")
    saved = saved_segment(spec)
    size = ports.mailer.audience_size(list_id, saved)
    reached = look.reached_in(list_id)
    if reached:
        kind = ports.mailer.segment_type(list_id, saved) if saved is not None else ""
        excluding(spec, reached, kind)  # refuses as the run would
        size = None if size is None else max(0, size - sum(c.emails_sent or 0 for c in reached))
        if size == 0:
            ids = ", ".join(c.id for c in reached)
            said = (
                f"A run would refuse: it would reach nobody, as all of the audience were sent {ids} already."
            )
            return say(Ending.REFUSED, said)
    if isinstance(segment, dict) and saved is None:
        # how many a condition leaves nobody knows before there is a campaign
        uncounted = rules.guards._replace(min_recipients=None, max_recipients=None)
        rules = replace(rules, guards=uncounted)
    if objected := _objected(guarded(rules, ports.mailer, look, list_id, size, spec), say):
        return objected
    whom = "an unknown number of people" if size is None else many(size, "person", "people")
    if isinstance(segment, dict) and saved is None:
        whom = f"a segment of {whom}"
    if reached:
        whom = f"about {whom}, leaving out who was sent {', '.join(c.id for c in reached)}"
    subject = spec.settings.get("subject_line", "")
    text = f'Would create "{rules.title_key} […]" for {whom} (audience {list_id}) and send it: "{subject}".'
    return say(Ending.WOULD_SEND, text)._replace(recipients=size)


def _would_send(campaign: Campaign, page: Page, look: Look, rules: Rules, ports: Ports, say: Say) -> Outcome:
    count = campaign.recipient_count
    whom = "an unknown number of people" if count is None else many(count, "person", "people")
    is_written = rules.source is not Source.DRAFT and page.batch.state is not State.SENDING
    spec = _todays_spec(ports) if is_written else None  # refuses as the run would
    since = _quiet_since(rules, ports, page, campaign)
    against = guarded(rules, ports.mailer, look, campaign.list_id, count, spec, quiet_since=since)
    objected = _objected(against, say, campaign)
    if is_written:
        if objected:
            return objected
        return say(Ending.WOULD_SEND, f"Would write {_named(campaign)} anew and send it to {whom}.", campaign)
    checklist = ports.mailer.checklist(campaign.id)
    if checklist.is_ready:
        if objected:
            return objected
        return say(
            Ending.WOULD_SEND,
            f"Would send {_named(campaign)} to {whom}; Mailchimp's checklist is ready.",
            campaign,
        )
    said = "; ".join(checklist.errors) or "no reason given"
    if checklist.waits_for_recipients and not is_out_of_patience(campaign, ports.mailer.now()):
        return say(
            Ending.TEMPORARY,
            f"Mailchimp is not done with the recipients of {_named(campaign)}: {said}",
            campaign,
        )
    return say(
        Ending.REFUSED, f"Mailchimp's checklist does not call {_named(campaign)} ready: {said}", campaign
    )


def _quiet_since(rules: Rules, ports: Ports, page: Page, listed: Campaign) -> datetime | None:
    """Since when the draft is as it is now, as far as the ledger knows; None if no guard asks."""
    if rules.guards.draft_quiet_s is None or rules.source is not Source.DRAFT:
        return None
    campaign = ports.mailer.campaign(listed.id)
    entry = None if campaign is None else watched(rules, ports.mailer, page.batch, campaign)
    return None if entry is None else entry.quiet_since


def _todays_spec(ports: Ports) -> Spec:
    if ports.source is None:
        raise InvariantBroken("a draft source creates nothing")
    return ports.source.spec()


def _named(campaign: Campaign) -> str:
    return f'"{campaign.title}" ({campaign.id})'
