"""One run for one date, under the lease: look, decide, perform, until there is an outcome.

`perform` has no policy: each step is done as it says, and what it means is `decide`'s matter. The order of
effects is the promise: the intent, the campaign id and "about to send" are in the ledger before the call that
they are about; an answer is in the ledger before anything is said of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from sendonce.core.campaigns import (
    Accepted,
    Campaign,
    Checklist,
    No,
    NotSent,
    Unclear,
    is_same_text,
)
from sendonce.core.dates import belongs, created_title
from sendonce.core.decide import (
    CLOCK_GRAIN_S,
    Adopt,
    Build,
    Create,
    Done,
    End,
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
    Step,
    decide,
    from_status,
    settled_at,
)
from sendonce.core.errors import (
    CredentialsRejected,
    InvariantBroken,
    NoAnswer,
    NotRecorded,
    Refused,
    SendonceError,
    Stopped,
    Temporary,
    Unusable,
)
from sendonce.core.guards import NO_GUARDS, Guard, Scope
from sendonce.core.look import (
    HEALING,
    alarm_of_earlier,
    entry_of,
    guarded,
    look_at,
    mailed_earlier,
    other_account,
    watched,
    with_alarms,
)
from sendonce.core.model import Attempt, Batch, Ending, Entry, Outcome, Page, Source, State, many, settled
from sendonce.core.orders import Kind, PartOfLedger
from sendonce.core.reach import excluding, has_reached, saved_segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sendonce.core.campaigns import Spec
    from sendonce.core.decide import Rules
    from sendonce.core.ports import CampaignSource, Clock, Mailer, RunStore, Witness

RECIPIENTS_WAIT_S = 120
"""How long a run waits for Mailchimp to compute the audience of a new campaign; 5 to 60 s is usual (facts §3)."""
RECIPIENTS_POLL_S = 5
RECIPIENTS_PATIENCE_S = 30 * 60
"""A draft this old whose recipients are still not ready will not heal by itself."""
SETTLE_POLL_S = (0.5, 1, 2, 4, 8)
LOOK_PAUSE_S = 1


@dataclass(frozen=True)
class Ports:
    """The world, as one run gets it. `source` is None for drafts that a person makes."""

    store: RunStore
    mailer: Mailer
    source: CampaignSource | None
    clock: Clock
    witness: Witness
    new_nonce: Callable[[], str]


class Run:
    """One run. `go` is the whole of it; `last_words` is for the thread that ends a run at its deadline."""

    def __init__(self, rules: Rules, ports: Ports, attempt: Attempt) -> None:
        self._rules = rules
        self._store = PartOfLedger(ports.store, rules.role, rules.order)
        self._mailer, self._source = ports.mailer, ports.source
        self._clock, self._witness, self._new_nonce = ports.clock, ports.witness, ports.new_nonce
        self._attempt = attempt
        self._done = Done()
        self._alarms: list[str] = []
        self._earlier: list[Batch] = []
        self._posted: Entry | None = None
        self._is_ending = False
        self._page = Page(None, Batch(rules.date))
        self._before: Batch | None = None
        self._spec: Spec | None = None

    def go(self) -> Outcome:
        """Run to an outcome and have it recorded. The lease must be held.

        Raise Unusable (78) where no rerun helps, InvariantBroken for a bug; ClaimLost, NotRecorded and other
        Temporary faults (75) only where the outcome could not be recorded.
        """
        self._page = self._store.load(self._rules.date)
        self._before = self._page.batch
        if (already := settled(self._page, self._rules.today)) is not None:
            return self._after_earlier(already) if already.ending is Ending.PAUSED else already
        self._store.check_writable()
        try:
            return self._finish(*self._steps())
        except Refused as fault:
            return self._finish(*self._refused(fault.message))
        except NoAnswer as fault:
            sent = "" if self._posted else " Nothing was sent by this run."
            return self._finish(*self._temporary(f"{fault.message}{sent}"))
        except Stopped as stop:
            return self._finish(*self._stopped(f"This run was ended by {stop.signal_name}.", self._batch))
        except (Unusable, Temporary) as fault:
            if self._posted:
                raise NotRecorded(
                    f"The send of campaign {self._posted.id} was requested, and then: {fault.message} {self._what_next()}"
                ) from fault
            self._note_fault(fault)
            raise

    def _after_earlier(self, outcome: Outcome) -> Outcome:
        """What there is to say while nothing is sent, once earlier dates whose end is open were looked after."""
        if not self._page.open_earlier or other_account(self._rules, self._mailer):
            return outcome
        self._store.check_writable()
        self._read_earlier()
        self._record_earlier()
        return with_alarms(outcome, self._alarms)

    def _what_next(self) -> str:
        """What is to be done where it is not known what is on record."""
        if self._rules.role.startswith(Kind.AGAIN):
            # were it on record as sent, the same order would be one more mailing to all
            return f"Look at what is on record (ledger show {self._rules.date}) before you order it again."
        return "Run the same command again, that is safe: it asks Mailchimp first."

    def last_words(self, why: str) -> str:
        """Record what can be recorded of a run that is cut off now, and say it. Raises as the store does.

        Called from another thread while `go` is at work: the flag keeps `go` from a POST that these words would
        not know of, and the page is taken once, so that the compare-and-set holds between the two as well.
        """
        self._is_ending = True
        page = self._page
        if self._before is None:
            return ""
        outcome, batch = self._stopped(why, page.batch)
        if settled(page, self._rules.today) is None:
            try:
                self._store.save(page, self._with_attempt(batch, outcome.ending.value, outcome.message))
            except (Unusable, Temporary) as fault:
                raise NotRecorded(f"{outcome.message} This could not be recorded: {fault.message}") from fault
        return outcome.message

    # ------------------------------------------------------------------------------------ look, decide, perform

    def _steps(self) -> tuple[Outcome, Batch]:
        if objected := other_account(self._rules, self._mailer):
            return self._refused(objected.said)
        self._read_earlier()
        look = self._look()
        while True:
            step = decide(self._page, look, self._mailer.now(), self._rules, self._done)
            self._witness.note("step", step=type(step).__name__)
            after = self._perform(step, look)
            if not isinstance(after, Look):
                self._name_twins(after[1].main, look)
                return after
            look = after

    def _name_twins(self, main: Entry | None, look: Look) -> None:
        """Say which drafts stand beside the day's: those of another state folder, or of a ledger that was lost."""
        if main is None or self._source is None:
            return
        for twin in look.campaigns():
            if twin.is_draft and twin.id != main.id and belongs(twin.title, self._rules.title_key):
                self._witness.warn(
                    f'Another draft of {self._rules.date} exists: "{twin.title}" ({twin.id}); it is left alone.'
                )

    def _look(self) -> Look:
        look = look_at(self._page, self._mailer, self._rules)
        self._witness.note("looked", of_date=len(look.listed), by_id=len(look.by_id))
        return look

    def _perform(self, step: Step, look: Look) -> Look | tuple[Outcome, Batch]:
        match step:
            case RecordSent() | Scheduled() | Refuse():
                return self._ended_by(step)
            case GiveWay(reason):
                return self._temporary(reason)
            case Settle(campaign, until):
                return self._unsettled(campaign, until)
            case Forget(campaign_id):
                self._write(without(self._batch, campaign_id))
                return look.without(campaign_id)
            case Intend():
                self._write(self._batch._replace(state=State.PLANNED, nonce=self._new_nonce(), reason=""))
                return look
            case Create():
                return self._create(look)
            case Adopt(campaign):
                is_draft_source = self._rules.source is Source.DRAFT
                self._adopt(campaign, State.READY if is_draft_source else State.PLANNED)
                return look
            case Build(campaign):
                return self._build(campaign, look)
            case LookAgain(not_before):
                self._wait_until(not_before)
                if not look.is_stale:
                    self._clock.sleep(LOOK_PAUSE_S)  # the last look came out too early: never in a tight loop
                return self._look()
            case Send(campaign):
                return self._send(campaign, look)
            case _:
                assert_never(step)

    # ------------------------------------------------------------------------------------------- before the send

    def _read_earlier(self) -> None:
        """What became of earlier batches is recorded with the end of this run: no alarm is on record unheard."""
        for batch, campaign in mailed_earlier(self._page, self._mailer, self._witness):
            entry = self._mailed(batch, campaign)
            if batch.state is not State.SENT or entry != batch.main:
                ended = batch._replace(state=State.SENT, campaigns=_with(batch, entry), reason="")
                self._earlier.append(ended)
            if alarm := alarm_of_earlier(batch, campaign):
                self._alarms.append(alarm)

    def _create(self, look: Look) -> Look:
        title = created_title(self._rules.title_key, self._batch.nonce)
        spec = self._leaving_out(look)
        # claim and ledger once more: a frozen run must not add a draft to its successor's
        self._store.check(self._page)
        campaign = self._mailer.create(spec, title)
        self._witness.note("created", campaign=campaign.id, title=title)
        self._adopt(replace(campaign, title=title), State.PLANNED)
        if campaign.title != title:
            raise Refused(
                f'Campaign {campaign.id} was created as "{title}" and reads "{campaign.title}": '
                "it could not be found again by its name."
            )
        self._done = replace(self._done, created_id=campaign.id)
        return replace(look, by_id={**look.by_id, campaign.id: campaign})

    def _adopt(self, campaign: Campaign, state: State) -> None:
        # it is a draft: whatever it was scheduled for before
        entry = entry_of(campaign, self._batch)._replace(title=campaign.title, scheduled_for=None)
        self._write(self._batch._replace(state=state, campaigns=_led_by(entry, self._batch), reason=""))

    def _build(self, campaign: Campaign, look: Look) -> Look:
        """Settings and content from today's file or source; the read by id of the next look shows the settings."""
        spec = self._leaving_out(look)
        is_again = self._done.built_id == campaign.id
        try:
            # what this very run created has today's settings already
            if self._done.created_id != campaign.id or is_again:
                self._store.check(self._page)
                self._mailer.write_settings(campaign.id, spec, campaign.title)
            self._store.check(self._page)
            self._mailer.write_content(campaign.id, spec.content)
        except Refused:
            if (overtaken := self._look_if_overtaken()) is None:
                raise
            return overtaken
        reads = self._mailer.content(campaign.id)
        for part in ("html", "plain_text"):
            wrote = getattr(spec.content, part)
            if wrote and not is_same_text(wrote, getattr(reads, part)):
                raise Refused(
                    f"The {part} content of campaign {campaign.id} does not read back as it was written."
                )
        self._write(self._batch._replace(state=State.READY, reason=""))
        left_out = frozenset(c.id for c in look.reached_in(campaign.list_id))
        self._done = replace(self._done, built_id=campaign.id, spec=spec, left_out=left_out)
        return replace(look, is_stale=True)

    def _look_if_overtaken(self) -> Look | None:
        """A fresh look if it shows that the date is past `save`, None if not.

        A run on another state folder may be the faster one: then a "no" to ours is not the day's outcome.
        """
        look = self._look()
        return None if all(c.is_draft for c in look.campaigns()) else look

    def _wait_until(self, not_before: datetime) -> None:
        while (left_s := (not_before - self._mailer.now()).total_seconds()) > 0:
            self._witness.note(
                "waiting", seconds=round(left_s, 1), reason="every listing must show the draft"
            )
            self._clock.sleep(min(left_s, 5))

    def _until_ready(self, campaign: Campaign) -> Checklist:
        """Mailchimp's checklist, with patience for an audience that is still being computed."""
        give_up_at = self._clock.monotonic() + RECIPIENTS_WAIT_S
        while True:
            checklist = self._mailer.checklist(campaign.id)
            waits = not checklist.is_ready and checklist.waits_for_recipients
            if not waits or self._clock.monotonic() >= give_up_at:
                return checklist
            self._clock.sleep(RECIPIENTS_POLL_S)

    # --------------------------------------------------------------------------------------------------- the send

    def _objected(self, campaign: Campaign, look: Look) -> tuple[Outcome, Batch] | None:
        """The end of the run if a guard has something against this send."""
        entry = watched(self._rules, self._mailer, self._batch, campaign)
        if entry is not None and entry != entry_of(campaign, self._batch):
            self._write(self._batch._replace(campaigns=_with(self._batch, entry)))
        known = (campaign.list_id, campaign.recipient_count, self._spec)
        quiet_since = None if entry is None else entry.quiet_since
        objected = guarded(self._rules, self._mailer, look, *known, written=campaign, quiet_since=quiet_since)
        if objected is None:
            return None
        reason = f"Campaign {campaign.id} is not sent: {objected.said}"
        if objected.guard is Guard.QUIET:
            outcome, batch = self._temporary(reason)
            return outcome._replace(ending=Ending.WAITING), batch
        return self._temporary(reason) if objected.heals else self._refused(reason, campaign)

    def _send(self, campaign: Campaign, look: Look) -> Look | tuple[Outcome, Batch]:
        checklist = self._until_ready(campaign)
        if not checklist.is_ready:
            return self._look_if_overtaken() or self._not_ready(campaign, checklist)
        # only now Mailchimp has counted the recipients, and some minutes may have passed
        if self._rules.scope is not Scope.OFF:
            # in which others of the date may have been mailed, too: decide once more
            look = self._look()
            step = decide(self._page, look, self._mailer.now(), self._rules, self._done)
            if not isinstance(step, Send) or step.campaign.id != campaign.id:
                return look
            campaign = step.campaign
        elif self._rules.guards != NO_GUARDS:
            counted = self._mailer.campaign(campaign.id)
            if counted is None or not counted.is_draft:
                return self._look()
            campaign = counted
        if self._done.left_out and campaign.recipient_count == 0:
            return self._reaches_nobody(campaign)
        if self._rules.guards != NO_GUARDS and (objected := self._objected(campaign, look)):
            return objected
        main = entry_of(campaign, self._batch)
        entry = main._replace(
            requested_at=self._mailer.now(),
            gave_up_at=None,
            web_id=campaign.web_id or main.web_id,
            recipients=campaign.recipient_count if campaign.recipient_count is not None else main.recipients,
        )
        self._write(self._batch._replace(state=State.SENDING, campaigns=_with(self._batch, entry), reason=""))
        self._witness.note("sending", campaign=campaign.id)
        self._store.check(self._page)  # nothing comes between this and the POST: not even a line in the log
        self._posted = entry
        if self._is_ending:
            self._posted = None
            return self._temporary("This run is past its deadline. Nothing was sent by this run.")
        answer = self._mailer.send(campaign.id)
        self._witness.note("answered", answer=type(answer).__name__)
        match answer:
            case Accepted():
                return self._accepted(campaign, entry)
            case NotSent():
                return self._not_sent(campaign, answer)
            case Unclear(said):
                return self._unclear(campaign, entry, said)
            case _:
                assert_never(answer)

    def _reaches_nobody(self, campaign: Campaign) -> tuple[Outcome, Batch]:
        ids = ", ".join(sorted(self._done.left_out))
        return self._refused(
            f"Campaign {campaign.id} would reach nobody: all of its audience were sent {ids} already.",
            campaign,
        )

    def _accepted(self, campaign: Campaign, entry: Entry) -> tuple[Outcome, Batch]:
        entry = entry._replace(by="sendonce", sent_at=self._mailer.now())
        self._write(self._batch._replace(state=State.SENT, campaigns=_with(self._batch, entry)))
        try:
            seen = self._mailer.campaign(campaign.id, tries=1)
        except SendonceError:
            seen = None  # takes nothing back: Mailchimp said yes
        if seen is not None and seen.is_mailed:
            entry = self._mailed(self._batch, seen)
        return self._said_sent(Ending.SENT, "Sent", entry, self._batch)

    def _not_sent(self, campaign: Campaign, answer: NotSent) -> tuple[Outcome, Batch]:
        """A clear no, unless a read shows that somebody else's yes came first."""
        try:
            seen = self._mailer.campaign(campaign.id)
        except SendonceError as fault:
            return self._temporary(
                f"The send of campaign {campaign.id} was answered with no ({answer.said}), and the campaign could not "
                f"be read afterwards ({fault.message}) The next run reads it before anything else."
            )
        if seen is None:
            return self._refused(f"Campaign {campaign.id} is gone from Mailchimp (404). {answer.said}")
        if not seen.is_draft:
            return self._ended_by(from_status((seen,), self._rules))
        ready = self._batch._replace(state=State.READY)
        match answer.why:
            case No.UNREACHABLE | No.THROTTLED:
                return self._temporary(
                    f"The send of campaign {campaign.id} is not confirmed, and Mailchimp shows it as not sent: "
                    f"{answer.said}",
                    ready,
                )
            case No.CERTIFICATE | No.CREDENTIALS:
                self._posted = None
                self._write(ready)
                raise CredentialsRejected(f"Campaign {campaign.id} was not sent: {answer.said}")
            case No.RECIPIENTS_NOT_READY:
                return self._no_recipients_yet(seen, answer.said, ready)
            case No.REFUSED:
                return self._refused(f"Mailchimp refused to send campaign {campaign.id}: {answer.said}", seen)
            case _:
                assert_never(answer.why)

    def _unclear(self, campaign: Campaign, entry: Entry, said: str) -> tuple[Outcome, Batch]:
        """Neither yes nor no: read the campaign until it tells, for as long as the send may take effect."""
        self._give_up(entry)
        # by the record and by Mailchimp's clock, as the next run will count it
        until = settled_at(entry_of(campaign, self._batch), self._rules) + timedelta(seconds=CLOCK_GRAIN_S)
        pauses_s = iter(SETTLE_POLL_S)
        pause_s = next(pauses_s)
        while True:
            try:
                seen = self._mailer.campaign(campaign.id, tries=1)
            except SendonceError as fault:
                said_last = fault.message
            else:
                said_last = "Mailchimp still shows it as not sent." if seen else "It cannot be found (404)."
                if seen is not None and not seen.is_draft:
                    return self._ended_by(from_status((seen,), self._rules))
            left_s = (until - self._mailer.now()).total_seconds()
            if left_s <= 0:
                return self._temporary(
                    f"The send of campaign {campaign.id} was requested and is not confirmed: {said} {said_last} "
                    "Its outcome is not known yet; the next run reads it again before anything else."
                )
            self._clock.sleep(min(pause_s, left_s))
            pause_s = next(pauses_s, pause_s)

    def _give_up(self, entry: Entry) -> None:
        entry = entry._replace(gave_up_at=self._mailer.now())
        self._posted = entry
        self._write(self._batch._replace(campaigns=_with(self._batch, entry)))

    # ---------------------------------------------------------------------- outcomes, each with the batch to record

    def _ended_by(self, end: End) -> tuple[Outcome, Batch]:
        match end:
            case RecordSent(campaigns):
                return self._found_sent(campaigns)
            case Scheduled(campaign, is_on_date):
                return self._scheduled(campaign, is_on_date=is_on_date)
            case Refuse(reason, campaign):
                return self._refused(reason, campaign)
            case _:
                assert_never(end)

    def _found_sent(self, campaigns: tuple[Campaign, ...]) -> tuple[Outcome, Batch]:
        batch = self._batch
        main_id = batch.main.id if batch.main else ""
        ordered = sorted(campaigns, key=lambda c: c.id != main_id)
        mailed = [self._mailed(batch, c) for c in ordered]
        first, *former = _led_by(mailed[0], batch)
        twins = tuple(e._replace(role="twin") for e in mailed[1:])
        left = tuple(e for e in former if all(e.id != twin.id for twin in twins))
        batch = batch._replace(state=State.SENT, reason="", campaigns=(first, *twins, *left))
        if twins:
            ids = ", ".join(e.id for e in mailed)
            self._alarms.append(
                f"More than one campaign of {self._rules.date} was mailed: {ids}. Look at them."
            )
        by = "sent" if first.by == "sendonce" else "sent by hand"
        return self._said_sent(Ending.FOUND_SENT, f"Mailchimp shows it as {by}", first, batch)

    def _said_sent(self, ending: Ending, how: str, entry: Entry, batch: Batch) -> tuple[Outcome, Batch]:
        count = "" if entry.emails_sent is None else f", {many(entry.emails_sent, 'email')}"
        if entry.emails_sent == 0:
            self._alarms.append(
                f"Campaign {entry.id} was mailed to nobody (0 emails sent). It is recorded as sent and will not be sent "
                "again: look at its audience in Mailchimp."
            )
        text = f'{how}: "{entry.title}" ({entry.id}) for {self._rules.date}{count}.'
        return self._outcome(ending, text, entry), batch._replace(campaigns=_with(batch, entry))

    def _scheduled(self, campaign: Campaign, *, is_on_date: bool) -> tuple[Outcome, Batch]:
        batch = self._batch
        main = batch.main
        entry = entry_of(campaign, batch)._replace(scheduled_for=campaign.send_time)
        if main is not None and main.id != entry.id and batch.state is State.SENDING:
            entry = main  # the id stands from `sending` on; the finding goes into the attempt
        state = State.PLANNED if batch.state in {State.NONE, State.REFUSED} else batch.state
        at = "an unknown time" if campaign.send_time is None else local_time(campaign.send_time, self._rules)
        ending = Ending.SCHEDULED if is_on_date else Ending.SCHEDULED_ELSEWHEN
        sent = (
            "Whether this run's own send took effect is not known."
            if self._posted
            else "This run sent nothing."
        )
        text = f'"{campaign.title}" ({campaign.id}) is scheduled in Mailchimp for {at}. {sent}'
        if not is_on_date:
            text += f" That is not {self._rules.date}: mend the schedule in Mailchimp."
        return self._outcome(ending, text, entry), batch._replace(
            state=state, campaigns=_led_by(entry, batch)
        )

    def _refused(self, reason: str, campaign: Campaign | None = None) -> tuple[Outcome, Batch]:
        """Exit 1. Only an answer to this run's own POST takes a batch out of `sending`."""
        batch = self._batch
        is_answered = self._posted is not None and campaign is not None and campaign.is_draft
        if batch.state is not State.SENDING and campaign is not None and has_reached(campaign):
            # some were sent it: whatever it is called later, it stays the one that the date is about
            entry = entry_of(campaign, batch)
            sent_at = entry.sent_at or campaign.send_time or self._mailer.now()
            entry = entry._replace(title=campaign.title, sent_at=sent_at)
            batch = batch._replace(campaigns=_led_by(entry, batch))
        if batch.state is not State.SENDING or is_answered:
            batch = batch._replace(state=State.REFUSED, reason=reason)
            text = f"{reason} Nothing was sent by this run. Put that right: the next run tries again."
        elif self._posted:
            text = (
                f"{reason} Whether it was sent for {self._rules.date} is not known: look at it in Mailchimp."
            )
        else:
            text = (
                f"{reason} An earlier run asked for its send, whether it left is not known; this run sent nothing. "
                "Look at it in Mailchimp."
            )
        return self._outcome(Ending.REFUSED, text, batch.main), batch

    def _temporary(self, reason: str, batch: Batch | None = None) -> tuple[Outcome, Batch]:
        batch = batch or self._batch
        return self._outcome(Ending.TEMPORARY, f"{reason} Run again, that is safe.", batch.main), batch

    def _stopped(self, why: str, batch: Batch) -> tuple[Outcome, Batch]:
        """A signal or the deadline. A POST on its way is unclear from now on."""
        if batch.state is State.SENT:
            why += " The campaign was sent and is recorded."
            if self._rules.role.startswith(Kind.AGAIN):
                # what everybody else may do at a 75 would be the next order here
                why += " Do not order it again: that would be one more mailing to all."
                return self._outcome(Ending.TEMPORARY, why, batch.main), batch
        elif self._posted is not None:
            given_up = self._posted._replace(gave_up_at=self._posted.gave_up_at or self._mailer.now())
            batch = batch._replace(campaigns=_with(batch, given_up))
            why += f" The outcome of the send of campaign {self._posted.id} is not known yet."
        elif batch.state is State.SENDING and batch.main is not None:
            why += (
                f" Nothing was sent by this run. A send of campaign {batch.main.id} is on record as requested: "
                "the next run asks Mailchimp what became of it."
            )
        else:
            why += " Nothing was sent by this run."
        return self._temporary(why, batch)

    def _unsettled(self, campaign: Campaign, until: datetime) -> tuple[Outcome, Batch]:
        return self._temporary(
            f"A send of campaign {campaign.id} was requested earlier and its outcome is not known yet; Mailchimp shows it "
            f"as not sent. If it still does after {local_time(until, self._rules)}, the next run sends this same campaign."
        )

    def _not_ready(self, campaign: Campaign, checklist: Checklist) -> tuple[Outcome, Batch]:
        said = "; ".join(checklist.errors) or "no reason given"
        if checklist.waits_for_recipients:
            return self._no_recipients_yet(campaign, said, self._batch)
        if self._done.left_out and campaign.recipient_count == 0:
            return self._reaches_nobody(campaign)
        return self._refused(
            f"Mailchimp's send checklist does not call campaign {campaign.id} ready: {said}", campaign
        )

    def _no_recipients_yet(self, campaign: Campaign, said: str, batch: Batch) -> tuple[Outcome, Batch]:
        reason = f"Campaign {campaign.id} was not sent, Mailchimp is not done with its recipients: {said}"
        if not is_out_of_patience(campaign, self._mailer.now()):
            return self._temporary(reason, batch)
        return self._outcome(
            Ending.REFUSED, f"{reason} It should be long ago: look at its audience.", batch.main
        ), batch

    def _outcome(self, ending: Ending, text: str, entry: Entry | None) -> Outcome:
        if entry is None:
            return Outcome(ending, self._rules.date, text)
        return Outcome(
            ending,
            self._rules.date,
            text,
            campaign_id=entry.id,
            title=entry.title,
            emails_sent=entry.emails_sent,
            recipients=entry.recipients,
        )

    # ------------------------------------------------------------------------------------------------- the record

    def _finish(self, outcome: Outcome, batch: Batch) -> Outcome:
        """Record, then speak."""
        outcome = with_alarms(outcome, self._alarms)
        is_hushed = self._is_hushed(outcome)
        try:
            self._record_end(batch, outcome)
            if outcome.ending not in HEALING:
                self._record_earlier()
        except (Unusable, Temporary) as fault:
            if self._batch.state is State.SENT:
                return outcome._replace(
                    notes=(f"The end of this run could not be recorded. {fault.message}",)
                )
            if self._posted:
                raise NotRecorded(f"{outcome.message} This could not be recorded: {fault.message}") from fault
            raise
        return outcome._replace(is_hushed=is_hushed)

    def _record_end(self, batch: Batch, outcome: Outcome) -> None:
        ended = self._with_attempt(batch, outcome.ending.value, outcome.message)
        try:
            self._save(ended)
        except Stopped:
            self._save(ended)  # the run is over anyway; a second signal does not come through

    def _record_earlier(self) -> None:
        try:
            for earlier in self._earlier:
                self._save(earlier)
        except Stopped:
            return  # the run is over, and its outcome on record; what was not saved stays open and is read again

    def _is_hushed(self, outcome: Outcome) -> bool:
        """What cron need not mail: a refusal that was said before; a first 75, which the next run may heal; a wait."""
        earlier = self._before.attempts if self._before is not None else ()
        match outcome.ending:
            case Ending.TEMPORARY:
                return all(a.outcome != Ending.TEMPORARY for a in earlier)
            case Ending.WAITING:
                return True  # it was asked for, and says until when
            case Ending.REFUSED | Ending.SCHEDULED_ELSEWHEN:
                spoken = [a for a in earlier if a.outcome == outcome.ending]
                return bool(spoken) and _without_instance(spoken[-1].detail) == _without_instance(
                    outcome.message
                )
            case _:
                return False

    def _note_fault(self, fault: SendonceError) -> None:
        """A run that ends with 78 leaves a trace if it can; if it cannot, that is the lesser fault."""
        if isinstance(fault, Temporary):
            return  # the claim is lost: nothing may be written any more
        try:
            self._save(self._with_attempt(self._batch, "unusable", fault.message))
        except (Unusable, Temporary) as second:
            self._witness.note("not recorded", reason=second.message)

    def _with_attempt(self, batch: Batch, outcome: str, detail: str) -> Batch:
        # what the attempt says from its start on (a guard was passed, by whom) stays
        detail = " ".join(filter(None, (detail, self._attempt.detail)))
        ended = self._attempt._replace(ended_at=self._clock.now(), outcome=outcome, detail=detail)
        return batch._replace(attempts=(*self._earlier_attempts(batch), ended))

    def _earlier_attempts(self, batch: Batch) -> tuple[Attempt, ...]:
        return tuple(a for a in batch.attempts if a.run != self._attempt.run)

    def _write(self, batch: Batch) -> None:
        started = (*self._earlier_attempts(batch), self._attempt)
        self._save(batch._replace(attempts=started))
        self._witness.note("recorded", state=batch.state.value)

    def _save(self, batch: Batch) -> None:
        try:
            self._page = self._store.save(self._page, batch)
        except Stopped:
            # the store puts a signal off until a write is done: what the ledger says now may be ours
            self._page = self._store.load(self._rules.date)
            raise

    def _mailed(self, batch: Batch, campaign: Campaign) -> Entry:
        """The entry of a campaign that Mailchimp has mailed or is mailing."""
        entry = entry_of(campaign, batch, *reversed(self._page.forgotten))
        count = campaign.emails_sent if campaign.status == "sent" else None
        return entry._replace(
            title=campaign.title,
            web_id=campaign.web_id or entry.web_id,
            by=_sender(entry),
            sent_at=entry.sent_at or campaign.send_time or self._mailer.now(),
            emails_sent=entry.emails_sent if count is None else count,
        )

    @property
    def _batch(self) -> Batch:
        """The date's record as the ledger has it."""
        return self._page.batch

    def _leaving_out(self, look: Look) -> Spec:
        """Today's settings and content, for those alone who were sent no other campaign of the date."""
        spec = self._todays_spec()
        list_id = str(spec.recipients.get("list_id", ""))
        reached, saved = look.reached_in(list_id), saved_segment(spec)
        tag = self._rules.tag
        kind = self._mailer.segment_type(list_id, saved) if (reached or tag) and saved is not None else ""
        return excluding(spec, reached, kind, tag)

    def _todays_spec(self) -> Spec:
        """Read once: a file that changes in mid-run must not give a campaign of two halves."""
        if self._source is None:
            raise InvariantBroken("a draft source creates nothing")
        if self._spec is None:
            self._spec = self._source.spec()
        return self._spec


def _sender(entry: Entry) -> str:
    """Who sent it, as far as the ledger knows: a rebuilt one does not, and must not guess."""
    if entry.requested_at is not None:
        return "sendonce"
    return entry.by if entry.by == "unknown" else "by hand"


def _without_instance(text: str) -> str:
    """A refusal without the number that Mailchimp gives each of its answers: the same one, said again."""
    return re.sub(r" \(instance [^)]*\)", "", text)


def is_out_of_patience(campaign: Campaign, now: datetime) -> bool:
    """Whether recipients that are not ready will not become so by waiting."""
    made = campaign.create_time
    return made is not None and now - made >= timedelta(seconds=RECIPIENTS_PATIENCE_S)


def _led_by(entry: Entry, batch: Batch) -> tuple[Entry, ...]:
    """This entry as the batch's main one; of its others those stay that were asked to be sent."""
    others = (e for e in batch.campaigns if e.id != entry.id and e.requested_at is not None)
    return (entry._replace(role="main"), *(e._replace(role="former") for e in others))


def _with(batch: Batch, entry: Entry) -> tuple[Entry, ...]:
    """The campaigns of the batch with this one's entry put in place."""
    return tuple(entry if e.id == entry.id else e for e in batch.campaigns)


def without(batch: Batch, campaign_id: str) -> Batch:
    """The batch as if it had never heard of the campaign."""
    return batch._replace(campaigns=tuple(e for e in batch.campaigns if e.id != campaign_id))


def local_time(time: datetime, rules: Rules) -> str:
    """A time as the people of the job read it."""
    return time.astimezone(rules.zone).strftime("%Y-%m-%d %H:%M:%S %Z")
