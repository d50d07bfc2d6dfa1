"""The tables of the protocol: what the record says, what Mailchimp shows, and so which step comes next.

`decide` is pure. It is asked before every step of a run, and its order is the order of the rules:

    recorded campaign gone, and nobody was sent it   forget it, look by title
    a campaign of the date past `save`               "Statuses": sent, scheduled or a human's matter
    recorded campaign gone, or lost its title        a human decides; never create another
    state `sending`, still `save`                    wait out SETTLE, then the same id again (paused: refuse)
    a reset forgot a send whose outcome is open      wait out SETTLE
    draft source                                     the draft named by the title key, else refuse
    created source                                   the earliest draft of either form, else create it
      others of the date still being mailed          later (only where their recipients shall be left out)
      not written in this run                        write settings and content
        or others of the date were mailed since      again, leaving out their recipients
      younger than LISTING, or not looked at since   wait, look again
      does not read back as written                  refuse
      another run's is about to be sent              later (only where nobody shall be sent two of a date)
    otherwise                                        send
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sendonce.core.dates import belongs
from sendonce.core.errors import InvariantBroken
from sendonce.core.guards import NO_GUARDS, Former, Guards, Mailed, Scope
from sendonce.core.model import Batch, Entry, Page, Source, State, settled, told_pause
from sendonce.core.parts import MAIN
from sendonce.core.reach import is_excluded, is_outside_tag, is_through

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from sendonce.core.campaigns import Campaign, Spec

SENDABLE_TYPES = frozenset({"regular", "plaintext"})
"""An `rss` campaign would start a schedule, `absplit` and `variate` mail parts (facts §2)."""

CLOCK_GRAIN_S = 1
"""create_time and Date carry whole seconds: a draft may be this much younger than it says."""


@dataclass(frozen=True)
class Rules:
    """What the settings say of one job and date. Waiting times in seconds; `today` is the date in `zone` now.

    `role` is the part of the date's record that the run is about, with `order`, who ordered it and why; `title_key` is
    that part's, `date_key` the day's own (the same for the day's campaign). `scope`: whose campaigns of the date a
    created campaign leaves out the recipients of; `tag`: a tag whose people it leaves out, 0 without one; `covered`:
    campaigns whose recipients are all in that tag. `skipped`: why the calendar says that the date is not mailed.

    `title_pattern` is what the keys were rendered from; only the guard `stale` needs it.
    """

    job: str
    date: str
    zone: tzinfo
    source: Source
    title_key: str
    list_id: str
    settle_s: float
    listing_s: float
    timeout_s: float
    today: str
    guards: Guards = NO_GUARDS
    role: str = MAIN
    order: str = ""
    date_key: str = ""
    scope: Scope = Scope.OFF
    skipped: str = ""
    tag: int = 0
    covered: frozenset[str] = frozenset()
    title_pattern: str = ""


@dataclass(frozen=True)
class Look:
    """What Mailchimp showed: the date's campaigns of a complete listing, and those read by id (None: 404).

    `is_stale`: something was written to a campaign since. `last_mailed`: for each audience, the campaign that it
    got last, those of the date aside. `reached`: other campaigns of the date that somebody was sent, by the scope of
    the rules; `lost`: ids of such that are gone from Mailchimp; `ahead`: drafts that another run is
    about to send. `former`: the campaign of this job that was
    mailed last for an earlier date, where a guard asks.
    """

    at: datetime
    listed: tuple[Campaign, ...]
    by_id: Mapping[str, Campaign | None] = field(default_factory=dict)
    is_stale: bool = False
    last_mailed: Mapping[str, Mailed] = field(default_factory=dict)
    former: Former | None = None
    reached: tuple[Campaign, ...] = ()
    lost: tuple[str, ...] = ()
    ahead: tuple[Campaign, ...] = ()

    def reached_in(self, list_id: str) -> tuple[Campaign, ...]:
        """Those of `reached` that went to this audience."""
        return tuple(c for c in self.reached if c.list_id == list_id)

    def campaigns(self) -> tuple[Campaign, ...]:
        """Each campaign once. One that either read shows past `save` is past it: reads may lag, never lead."""
        seen = {c.id: c for c in self.by_id.values() if c is not None}
        for listed in self.listed:
            known = seen.get(listed.id)
            if known is None or (known.is_draft and not listed.is_draft):
                seen[listed.id] = listed
        return tuple(seen.values())

    def without(self, campaign_id: str) -> Look:
        """The same look without a campaign that is gone: a listing may go on showing its draft for a while."""
        return replace(
            self,
            listed=tuple(c for c in self.listed if c.id != campaign_id or not c.is_draft),
            by_id={known: c for known, c in self.by_id.items() if known != campaign_id},
        )


@dataclass(frozen=True)
class Done:
    """What this run has done so far: created a draft, written which campaign as what, leaving out whose recipients."""

    created_id: str = ""
    built_id: str = ""
    spec: Spec | None = None
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RecordSent:
    """Mailchimp has mailed the date, or is mailing it. More than one: it was mailed twice."""

    campaigns: tuple[Campaign, ...]


@dataclass(frozen=True)
class Scheduled:
    """It will go out on its own at `campaign.send_time`."""

    campaign: Campaign
    is_on_date: bool


@dataclass(frozen=True)
class Refuse:
    """A human must look."""

    reason: str
    campaign: Campaign | None = None


@dataclass(frozen=True)
class GiveWay:
    """End this run; the next one looks afresh."""

    reason: str


@dataclass(frozen=True)
class Forget:
    """The recorded draft is gone and was never asked to be sent."""

    campaign_id: str


@dataclass(frozen=True)
class Intend:
    """Record that a campaign will be created, with a new nonce."""


@dataclass(frozen=True)
class Create:
    """Create the draft under the recorded nonce."""


@dataclass(frozen=True)
class Adopt:
    """This draft is the day's: record its id."""

    campaign: Campaign


@dataclass(frozen=True)
class Build:
    """Write settings and content anew, and read the content back."""

    campaign: Campaign


@dataclass(frozen=True)
class LookAgain:
    """Look once more, at a time (Mailchimp's) when every listing shows every earlier draft."""

    not_before: datetime


@dataclass(frozen=True)
class Settle:
    """A send was asked for, its outcome is open; not before `until` may the same id be sent again."""

    campaign: Campaign
    until: datetime


@dataclass(frozen=True)
class Send:
    """Send this campaign."""

    campaign: Campaign


End = RecordSent | Scheduled | Refuse
Step = End | GiveWay | Forget | Intend | Create | Adopt | Build | LookAgain | Settle | Send


def decide(page: Page, look: Look, now: datetime, rules: Rules, done: Done) -> Step:
    """The next step for the batch of `page`, given what Mailchimp shows at `now` (Mailchimp's time)."""
    batch = page.batch
    if (already := settled(page, rules.today)) is not None:
        raise InvariantBroken(f"asked what to do next for {batch.date}, which is {already.ending.value}")
    main = batch.main
    is_gone = main is not None and main.id in look.by_id and look.by_id[main.id] is None
    if main is not None and is_gone and not _may_be_mailed(main, now):
        return Forget(main.id)
    campaigns = look.campaigns()
    recorded = next((c for c in campaigns if main is not None and c.id == main.id), None)
    if main is not None and recorded is None and not is_gone:
        raise InvariantBroken(
            f"asked what to do next for {batch.date}, and its campaign {main.id} was not read"
        )
    past_save = tuple(c for c in campaigns if not c.is_draft)
    if past_save and (recorded in past_save or not _audiences_clash(look, rules)):
        return from_status(past_save, rules)
    if _audiences_clash(look, rules):
        return Refuse(
            f"Campaigns of this date are in more than one audience and SENDONCE_LIST_ID is not set: {_ids(look.listed)}."
        )
    if main is not None and is_gone:
        return Refuse(
            f"The recorded campaign {main.id} is gone from Mailchimp (404) although "
            f"{'its send was requested' if main.requested_at is not None else 'it was mailed, or due'}."
        )
    if main is not None and recorded is not None:
        if fault := _fault_of_recorded(main, recorded, rules):
            return Refuse(fault, recorded)
        if batch.state is State.SENDING:
            return _settle_or_send(main, recorded, page, look, now, rules)
    if open_send := _open_send_of_reset(page, look, now, rules):
        return open_send
    return _from_drafts(batch, recorded, look, rules, done)


def _may_be_mailed(entry: Entry, now: datetime) -> bool:
    """Whether somebody may have been sent it, as far as the record goes: by us, by hand, or by a schedule."""
    was_due = entry.scheduled_for is not None and entry.scheduled_for <= now
    return was_due or entry.requested_at is not None or entry.sent_at is not None


def from_status(past_save: tuple[Campaign, ...], rules: Rules) -> End:
    """What campaigns past `save` mean for the date: `sent` before `sending` before `schedule` before the rest."""
    rank = {"sent": 0, "sending": 1, "schedule": 2}
    ordered = sorted(past_save, key=lambda c: (rank.get(c.status, 3), c.id))
    mailed = tuple(c for c in ordered if c.is_mailed)
    if mailed:
        return RecordSent(mailed)
    first = ordered[0]
    if first.status == "schedule":
        at = first.send_time
        return Scheduled(first, at is not None and at.astimezone(rules.zone).date().isoformat() == rules.date)
    said = f'Campaign {first.id} is "{first.status}" in Mailchimp.'
    if first.status == "canceled":
        said += f" To send it to those alone who were not sent it: send-batch --date {rules.date} --remaining --reason TEXT."
    return Refuse(said, first)


def settled_at(entry: Entry, rules: Rules) -> datetime:
    """When a send that was asked for can no longer take effect: SETTLE after its run gave up waiting for it.

    A run that died left no `gave_up_at`: it could have waited for TIMEOUT at the most.
    """
    if entry.requested_at is None:
        raise InvariantBroken(f"campaign {entry.id} is in `sending` without requested_at")
    given_up = entry.gave_up_at or entry.requested_at + timedelta(seconds=rules.timeout_s)
    return given_up + timedelta(seconds=rules.settle_s)


def old_enough_at(create_time: datetime, rules: Rules) -> datetime:
    """From when on a look shows every draft that was created before this one."""
    return create_time + timedelta(seconds=rules.listing_s + CLOCK_GRAIN_S)


def differences(spec: Spec, campaign: Campaign) -> tuple[str, ...]:
    """The names of settings that a read by id shows otherwise than they were written."""
    pairs: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
        ("recipients", spec.recipients, campaign.recipients),
        ("settings", spec.settings, campaign.settings),
        ("tracking", spec.tracking, campaign.tracking),
    )
    found = [f"{part}.{path}" for part, wrote, reads in pairs for path in _unlike(wrote, reads)]
    if campaign.type != spec.type:
        found.append("type")
    return tuple(found)


def _from_drafts(batch: Batch, recorded: Campaign | None, look: Look, rules: Rules, done: Done) -> Step:
    if rules.source is Source.DRAFT:
        elected = recorded or _draft_by_name(look, rules)
        if isinstance(elected, Refuse):
            return elected
        if fault := _fault_of_draft(elected, rules):
            return Refuse(fault, elected)
        is_recorded = recorded is not None and batch.state is State.READY
        return Send(elected) if is_recorded else Adopt(elected)
    if obstacle := _unknown_reach(look, rules):
        return obstacle
    drafts = [c for c in look.campaigns() if c.is_draft and belongs(c.title, rules.title_key)]
    if not drafts:
        if done.created_id:
            return GiveWay("The draft that this run created is not in Mailchimp any more.")
        return Create() if batch.nonce else Intend()
    return _from_elected(recorded, drafts, look, rules, done)


def _from_elected(
    recorded: Campaign | None, drafts: list[Campaign], look: Look, rules: Rules, done: Done
) -> Step:
    undated = next((c for c in drafts if c.create_time is None), None)
    if undated is not None:
        return Refuse(f"Mailchimp gives no create_time for campaign {undated.id}.", undated)
    created_at, _, elected = min((c.create_time, c.id, c) for c in drafts if c.create_time is not None)
    if fault := _fault_of_draft(elected, rules):
        return Refuse(fault, elected)
    if recorded is None or recorded.id != elected.id:
        return Adopt(elected)
    if done.built_id != elected.id or done.spec is None:
        return Build(elected)
    if not {c.id for c in look.reached_in(elected.list_id)} <= done.left_out:
        return Build(elected)  # another campaign of the date was mailed since
    ripe_at = old_enough_at(created_at, rules)
    if look.is_stale or look.at < ripe_at:
        return LookAgain(ripe_at)
    if unlike := differences(done.spec, elected):
        return Refuse(
            f"Campaign {elected.id} does not read back as it was written ({', '.join(unlike)}).", elected
        )
    # two jobs of one audience agree on who goes first as two runs of one job do: by the time of creation
    ahead = [c for c in look.ahead if c.list_id == elected.list_id and c.create_time is not None]
    if first := next((c for c in ahead if (c.create_time, c.id) < (created_at, elected.id)), None):
        return GiveWay(
            f'"{first.title}" ({first.id}) was made earlier for the same audience and is about to be sent: this one '
            "waits for it, so that nobody is sent both."
        )
    return Send(elected)


def _settle_or_send(
    main: Entry, recorded: Campaign, page: Page, look: Look, now: datetime, rules: Rules
) -> Step:
    if fault := _fault_of_draft(recorded, rules):
        return Refuse(fault, recorded)
    until = settled_at(main, rules)
    why = rules.skipped
    if page.pause is not None and page.pause.holds_on(rules.today):
        why = told_pause(page.pause)
    if now < until:
        return (
            Settle(recorded, until)
            if not why
            else GiveWay(
                f"A send of campaign {recorded.id} was requested earlier and its outcome is not known yet; it is not "
                f"requested again: {why}"
            )
        )
    if why:
        return Refuse(
            f"The send of campaign {recorded.id} was requested and is not confirmed, and it is not requested again: {why}",
            recorded,
        )
    # it is not written to any more: who was sent another campaign meanwhile would be sent this one, too
    has_tag = bool(rules.tag) and is_outside_tag(recorded, rules.tag)
    if obstacle := _unknown_reach(look, rules if has_tag else replace(rules, covered=frozenset())):
        return obstacle
    if not_left_out := [c for c in look.reached_in(recorded.list_id) if not is_excluded(recorded, c)]:
        return Refuse(
            f"Campaign {recorded.id} does not leave out who was sent {_ids(tuple(not_left_out))} on this date.",
            recorded,
        )
    return Send(recorded)


def _unknown_reach(look: Look, rules: Rules) -> Step | None:
    """Why it cannot be said yet, or any more, who was sent another campaign of the date; None if it can."""
    if lost := sorted(set(look.lost) - rules.covered):
        return Refuse(
            f"{', '.join(lost)} of this date is gone from Mailchimp (404): who was sent it cannot be left out of another."
        )
    others = look.reached_in(rules.list_id) if rules.list_id else look.reached
    if at_work := tuple(c for c in others if c.status in {"sending", "canceling"}):
        return GiveWay(
            f"{_ids(at_work)} of this date is still being mailed: who was not sent it is known only afterwards."
        )
    if odd := next((c for c in others if not is_through(c)), None):
        return Refuse(
            f'Campaign {odd.id} of this date is "{odd.status}" in Mailchimp: whether who was sent it would be left out '
            "of another is not known."
        )
    return None


def _open_send_of_reset(page: Page, look: Look, now: datetime, rules: Rules) -> Settle | None:
    """A reset makes the ledger forget a send, not Mailchimp: it may still take effect until it is settled."""
    for forgotten in page.forgotten:
        main = forgotten.main
        shown = look.by_id.get(main.id) if main is not None else None
        if main is not None and shown is not None and forgotten.state is State.SENDING:
            until = settled_at(main, rules)
            if now < until:
                return Settle(shown, until)
    return None


def _draft_by_name(look: Look, rules: Rules) -> Campaign | Refuse:
    drafts = [c for c in look.listed if c.is_draft and c.title == rules.title_key]
    match drafts:
        case [only]:
            return only
        case []:
            return Refuse(
                f'There is no campaign named "{rules.title_key}" in Mailchimp. '
                "A finished campaign is released for the day by giving it exactly this name."
            )
        case _:
            return Refuse(f'Several drafts are named "{rules.title_key}": {_ids(tuple(drafts))}.')


def _fault_of_recorded(main: Entry, recorded: Campaign, rules: Rules) -> str:
    """Why the recorded draft may not be gone on with; empty if it may."""
    named = (
        rules.title_key == recorded.title
        if rules.source is Source.DRAFT
        else belongs(recorded.title, rules.title_key)
    )
    if not named:
        return (
            f'The recorded campaign {recorded.id} is named "{recorded.title}" now, '
            f'not "{main.title}" as recorded, and so is not the campaign of this date any more.'
        )
    if rules.source is not Source.DRAFT and recorded.title != main.title:
        return (
            f"Campaign {recorded.id} does not read back as it was written: "
            f'its title is "{recorded.title}", not "{main.title}".'
        )
    return ""


def _fault_of_draft(campaign: Campaign, rules: Rules) -> str:
    """Why a draft is none that sendonce sends; empty if it is."""
    if campaign.type not in SENDABLE_TYPES:
        return (
            f'Campaign {campaign.id} is of type "{campaign.type}"; sendonce sends only regular and plaintext.'
        )
    if rules.list_id and campaign.list_id != rules.list_id:
        return f'Campaign {campaign.id} is for audience "{campaign.list_id}", not for SENDONCE_LIST_ID "{rules.list_id}".'
    return ""


def _audiences_clash(look: Look, rules: Rules) -> bool:
    return not rules.list_id and len({c.list_id for c in look.listed}) > 1


def _unlike(wrote: Mapping[str, object], reads: Mapping[str, object], above: str = "") -> list[str]:
    """Paths of what was written and reads otherwise. What Mailchimp adds on its own does not count."""
    found = []
    for name, value in wrote.items():
        read = reads.get(name)
        if isinstance(value, dict) and isinstance(read, dict):
            found += _unlike(value, read, f"{above}{name}.")
        elif read != value:
            found.append(f"{above}{name}")
    return found


def _ids(campaigns: tuple[Campaign, ...]) -> str:
    return ", ".join(sorted(c.id for c in campaigns))
