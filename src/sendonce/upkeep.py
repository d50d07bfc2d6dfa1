"""The operator's commands: what mends, moves or stops what a job has on record, each under the lease."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sendonce.compose import Job, held, mailchimp, mailchimp_of_account, prepare_state, whoami
from sendonce.core.errors import Refused, WrongUsage
from sendonce.core.model import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from sendonce.adapters.shared.ledger import SharedLedger
    from sendonce.adapters.stores import FileLedger
    from sendonce.core import audit
    from sendonce.core.campaigns import Campaign
    from sendonce.core.model import Batch, Pause
    from sendonce.settings.state_url import StateUrl

LAST = "9999-99-99"
"""Later than every date."""


def reset(job: Job, day: date, *, reason: str, force: bool) -> Batch:
    """Have the ledger forget a date; the record that it held. Raise Refused where that is not to be done."""
    from sendonce.core.model import Reset as _Reset

    with held(job, f"reset {day}") as lease:
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

    Raise Refused, with nothing changed, if one of them is sent or may have been, or if Mailchimp has it scheduled.
    """
    with held(job, "skip") as lease:
        store = job.ledger(lease)
        first, last = days[0].isoformat(), days[-1].isoformat()
        known = {batch.date: batch for batch in store.batches(first, last)}
        if gone := [batch for batch in known.values() if _may_be_mailed(batch)]:
            which = ", ".join(f"{batch.date} is {batch.state.value}" for batch in gone)
            raise Refused(f"Nothing was changed: {which}. What is sent, or may have been, cannot be skipped.")
        if planned := _scheduled(job, first, last):
            raise Refused(
                f"Nothing was changed: {_named(planned)} in Mailchimp, which would mail it all the same. "
                "Unschedule it there first."
            )
        skipped = {date for date, batch in known.items() if batch.state is State.SKIPPED}
        new = [day.isoformat() for day in days if day.isoformat() not in skipped]
        for day in new:
            page = store.load(day)  # of the ledger as the date before it left it
            store.save(page, page.batch._replace(state=State.SKIPPED, reason=f"{reason} ({whoami()})"))
        return new


def _may_be_mailed(batch: Batch) -> bool:
    """Whether somebody was sent something for the date, or may have been."""
    states = {batch.state, *(entry.state for entry in batch.campaigns)}
    return not states.isdisjoint({State.SENDING, State.SENT}) or any(e.sent_at for e in batch.campaigns)


def _scheduled(job: Job, first: str, last: str) -> list[tuple[str, Campaign]]:
    """The campaigns of the job that Mailchimp mails on its own, of these dates. A warning if it cannot be asked."""
    from sendonce.core.dates import day_of_title
    from sendonce.core.errors import NoAnswer

    witness = job.log
    try:
        campaigns = mailchimp_of_account(job).listing().campaigns
    except NoAnswer as fault:
        witness.warn(f"Whether Mailchimp has one scheduled is not known. {fault.message}")
        return []
    named = ((day_of_title(c.title, job.settings.title, job.settings.job), c) for c in campaigns)
    found = [(day.isoformat(), c) for day, c in named if day is not None and c.status == "schedule"]
    return [(day, c) for day, c in found if first <= day <= last]


def _named(planned: list[tuple[str, Campaign]]) -> str:
    return ", ".join(f"{day} is scheduled ({c.id})" for day, c in planned)


def pause(job: Job, until: date | None, *, reason: str) -> Pause:
    """Put down that the job sends nothing before `until`, or before `resume`; what was put down. Raises as `skip`.

    What Mailchimp has scheduled goes out all the same: a warning. Raise Refused if a pause that lasts longer holds
    already: somebody else's reason may still be good.
    """
    from sendonce.core.model import Pause as _Pause
    from sendonce.core.model import told_pause

    witness = job.log
    with held(job, "pause") as lease:
        store = job.ledger(lease)
        page, today = store.load(job.today().isoformat()), job.today().isoformat()
        order = _Pause(reason, whoami(), job.clock.now(), until.isoformat() if until else "")
        known = page.pause
        if known is not None and known.holds_on(today) and (known.until or LAST) > (order.until or LAST):
            raise Refused(
                f"Nothing was changed: {told_pause(known)} If that is over, `sendonce resume` first."
            )
        if planned := _scheduled(job, today, order.until or LAST):
            witness.warn(f"{_named(planned)} in Mailchimp, which mails it all the same: unschedule it there.")
        store.set_pause(page, order)
        return order


def resume(job: Job) -> Pause | None:
    """Put down that the job sends again; the pause that is over, None if there was none."""
    with held(job, "resume") as lease:
        store = job.ledger(lease)
        page = store.load(job.today().isoformat())
        if page.pause is not None:
            store.set_pause(page, page.pause._replace(ended_at=job.clock.now(), ended_by=whoami()))
        return page.pause


class Rebuilt(NamedTuple):
    """What a rebuilt ledger would hold, what of the old one it would not, and a call that puts it in place."""

    batches: tuple[Batch, ...]
    lost: tuple[Batch, ...]
    is_old_readable: bool
    put: Callable[[], str]


def rebuild(job: Job) -> Rebuilt:
    """Make a ledger of what Mailchimp shows and the old one knows. Nothing is changed before `put` is called."""
    from sendonce.core.audit import merge
    from sendonce.core.audit import rebuild as rebuilt
    from sendonce.core.errors import LedgerDamaged

    mailer = mailchimp_of_account(job)
    listing = mailer.listing()
    told = rebuilt(listing.campaigns, job.settings.title, job.settings.job, mailer.now())

    def on_record(store: FileLedger | SharedLedger) -> tuple[Batch, ...] | None:
        try:
            return store.batches()
        except LedgerDamaged:
            return None

    def put() -> str:
        with held(job, "rebuild the ledger") as lease:
            store = job.ledger(lease)
            return store.rebuild(merge(on_record(store) or (), told))

    old = on_record(job.ledger())
    made = merge(old or (), told)
    lost = tuple(b for b in old or () if b.date not in {m.date for m in made})
    return Rebuilt(made, lost, old is not None, put)


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

    with held(job, "copy the ledger"), held(target, "copy the ledger") as lease:
        source = job.ledger().whole()
        store = target.ledger(lease)
        if not may_replace and store.batches():
            raise Refused(
                "There is a ledger of the job already. Say --yes to have it kept aside and replaced."
            )
        kept = store.replace(lambda _: source)
        there = store.whole()
        same = [(one.job, one.api, one.rows(), one.reset_rows(), one.pauses()) for one in (source, there)]
        if same[0] != same[1]:
            raise StateUnusable(
                "What was copied does not read back the same. The ledger that was copied is as it was: keep "
                "SENDONCE_STATE as it is."
            )
        return len(source.rows()), kept


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
