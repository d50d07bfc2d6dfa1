"""A run of `send-batch`: the real one, the rehearsal, the test mail, the wait for the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sendonce.compose import (
    Job,
    attempt,
    copy_of,
    held,
    mailchimp,
    ports,
    recipient_record,
    rules,
    settled_without_a_run,
    whoami,
)
from sendonce.core.errors import Refused, WrongUsage
from sendonce.core.model import Batch, Ending, Glance, Outcome, State, settled

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from sendonce.adapters.lease import FileLease
    from sendonce.adapters.shared.lease import SharedLease
    from sendonce.core.batch import Ports, Run
    from sendonce.core.campaigns import Campaign
    from sendonce.core.decide import Rules
    from sendonce.core.orders import Kind

WATCH_AT_MOST_S = 6 * 3600
WATCH_PAUSES_S = (1, 2, 3, 5, 10, 20, 30)


class Ordered(NamedTuple):
    """What an operator orders beside the day's campaign, and why. `seen`: what was ordered before, as they were shown it."""

    kind: Kind
    reason: str
    seen: str = ""


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
    return _orders_of(job.ledger().glance(day.isoformat()).batch)


def _orders_of(batch: Batch) -> str:
    return ", ".join(
        f"{entry.role} is {entry.state}" for entry in batch.campaigns if entry.state is not State.NONE
    )


def _settled(job: Job, seen: Glance, ordered: Ordered | None) -> Outcome | None:
    """As `settled`. A date that is sent is what an order is about, and a skipped one is refused by the order."""
    if ordered is None:
        return settled_without_a_run(seen, job.today())
    if any(entry.state is State.SENDING for entry in seen.batch.campaigns):
        return None  # what may have been mailed already is looked after, paused or not
    return settled(Glance(Batch(seen.batch.date), seen.pause), job.today().isoformat())


def _rules_and_ports(
    job: Job, lease: FileLease | SharedLease | None, day: date, ordered: Ordered | None
) -> tuple[Rules, Ports]:
    """What the run is about, and the world. Raise Refused or Temporary for an order that cannot be carried out now."""
    from dataclasses import replace

    from sendonce.core.guards import Scope
    from sendonce.core.look import other_account
    from sendonce.core.model import Source
    from sendonce.core.orders import Kind as _Kind
    from sendonce.core.orders import order_of, with_first

    rule, them = rules(job, day), ports(job, lease, day)
    if ordered is None:
        if job.settings.skip_dates is not None:
            from sendonce.adapters.holidays import skipped

            why = skipped(job.settings.skip_dates, day)
            rule = replace(rule, skipped="" if why is None else f"{day} is skipped: {why}.")
        return rule, them
    if objected := other_account(rule, them.mailer):
        raise Refused(objected.said)
    page = them.store.load(rule.date)
    if ordered.kind is _Kind.AGAIN and lease and (now := _orders_of(page.batch)) != ordered.seen:
        raise Refused(
            f"Meanwhile somebody else ordered something for {day}: {now}. Nothing was sent by this run. "
            "Look at it (ledger show) before you order it again."
        )
    order = order_of(ordered.kind, page.batch, rule.title_key, them.mailer)
    if page.batch.main is None and lease:
        them.store.save(page, with_first(page.batch, order.first))
    is_rest = ordered.kind is _Kind.REMAINING
    scope = Scope.AUDIENCE if job.settings.recipient_guard is Scope.AUDIENCE else Scope.JOB
    addresses, covered = _recorded(job, day) if is_rest else ([], frozenset[str]())
    # a rehearsal makes nothing, not even a tag
    tag = _tag(job, order.first, day, addresses) if addresses and lease else 0
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


def _recorded(job: Job, day: date) -> tuple[list[str], frozenset[str]]:
    """Those who are on the local record as having got the date, and the campaigns all of whose recipients they are.

    Nobody where there is no such record, or more than Mailchimp takes into a tag in one call: what Mailchimp itself knows
    of who was sent what leaves them out all the same.
    """
    from sendonce.adapters.mailchimp.api import TAG_AT_MOST
    from sendonce.core.errors import StateUnusable

    when = day.isoformat()
    try:
        record = recipient_record(job)
        recorded = record.campaigns(when, when)
        addresses = sorted(record.addresses_of(when, TAG_AT_MOST + 1)) if recorded else []
        is_whole = len(addresses) == record.count(when)
    except StateUnusable as fault:
        job.log.note("no record of recipients", said=fault.message)
        return [], frozenset()
    if not addresses or len(addresses) > TAG_AT_MOST:
        return [], frozenset()
    return addresses, frozenset(one.campaign.id for one in recorded) if is_whole else frozenset()


def _tag(job: Job, first: Campaign, day: date, addresses: list[str]) -> int:
    """A tag of these people. One name for one list of them: repeated, an order finds the tag that it made before."""
    from hashlib import sha256

    digest = sha256("\n".join(addresses).encode()).hexdigest()[:8]
    name = f"sendonce {job.settings.job} {day}: sent [{digest}]"
    return mailchimp(job).tag(first.list_id, name, addresses)


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
        with held(job, "record the number of mails") as lease:
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
