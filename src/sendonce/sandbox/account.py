"""Everything the account holds, and every operation on it. Knows nothing of HTTP.

Nothing here takes the lock: whoever calls holds `account.lock` for a whole operation.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING

from sendonce.sandbox import drafts
from sendonce.sandbox.audience import Audience, Segment, recipients, segment_members
from sendonce.sandbox.campaigns import Campaign, Mailing
from sendonce.sandbox.messages import time_value
from sendonce.sandbox.problems import bad_request, invalid, not_a_draft, not_found, not_ready

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

DEFAULT_LIST_ID = "5a4db0c5a1"
RECIPIENTS_NOT_READY = "recipients not ready"
_QUARTER_HOUR_S = 15 * 60
_COPY = re.compile(r" \(copy \d\d\)$")


@dataclass(frozen=True)
class Settings:
    """How the stand-in behaves; every value may change while it runs. Times in seconds.

    listing_lag_s       a created campaign is missing from listing and search for so long
    status_lag_s        after an accepted send the campaign still reads as before for so long
    sending_s           how long an accepted send stays in `sending`
    recipients_ready_s  how long a created campaign says "recipients not ready"
    clock_offset_s      how far Mailchimp's clock is ahead of this machine's
    api_key             the only key accepted; "" accepts every key of the right form
    role                what the user whose key it is may do: owner, admin, manager, author or viewer
    """

    listing_lag_s: float = 0.0
    status_lag_s: float = 0.0
    sending_s: float = 0.5
    recipients_ready_s: float = 0.0
    clock_offset_s: float = 0.0
    api_key: str = ""
    role: str = "owner"


@dataclass(frozen=True)
class Setup:
    """What is there at the start: one audience of `members` people, and finished drafts with these titles."""

    members: int = 100
    drafts: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)


class Account:
    """The account: audiences, campaigns and what was mailed."""

    def __init__(self, setup: Setup) -> None:
        self.lock = threading.RLock()
        self.settings = setup.settings
        self.audiences: dict[str, Audience] = {}
        self.campaigns: dict[str, Campaign] = {}
        self.removed: list[Campaign] = []  # by hand: what they mailed stays mailed
        self.folders: dict[str, str] = {}
        self.sends_arrived: Counter[str] = Counter()
        self.sends_accepted: Counter[str] = Counter()
        self.opened = self.now()
        self._next_segment_id = 1001
        self.add_audience("Sandbox audience", setup.members, list_id=DEFAULT_LIST_ID)
        for title in setup.drafts:
            self.add_finished(title)

    def now(self) -> float:
        """Mailchimp's time, in seconds since 1970."""
        return time.time() + self.settings.clock_offset_s

    # Looking

    def campaign(self, campaign_id: str) -> Campaign:
        """Look a campaign up. Raise a 404 problem if there is none."""
        found = self.campaigns.get(campaign_id)
        if found is None:
            raise not_found()
        self._let_time_pass(found)
        return found

    def audience(self, list_id: str) -> Audience:
        """Look an audience up. Raise a 404 problem if there is none."""
        if list_id not in self.audiences:
            raise not_found()
        return self.audiences[list_id]

    def segment(self, list_id: str, segment_id: str) -> Segment:
        """Look a segment up. Raise a 404 problem if there is none."""
        segments = self.audience(list_id).segments
        if not segment_id.isdecimal() or int(segment_id) not in segments:
            raise not_found()
        return segments[int(segment_id)]

    def listed(self) -> Iterator[Campaign]:
        """Go through the campaigns that listing and search show by now."""
        born_before_s = time.monotonic() - self.settings.listing_lag_s
        for campaign in self.campaigns.values():
            if campaign.born_s is None or campaign.born_s <= born_before_s:
                self._let_time_pass(campaign)
                yield campaign

    def is_hidden(self, campaign: Campaign) -> bool:
        """Whether a send was accepted that reads do not show yet."""
        accepted_s = campaign.accepted_s
        return accepted_s is not None and time.monotonic() - accepted_s < self.settings.status_lag_s

    def shown_status(self, campaign: Campaign) -> str:
        """Tell the status that reads show."""
        return "save" if self.is_hidden(campaign) else campaign.status

    def emails_sent(self, campaign: Campaign) -> int:
        """Tell what reads show as emails_sent: 0 until a campaign is through."""
        if campaign.emails_sent is not None:
            return campaign.emails_sent
        is_through = self.shown_status(campaign) in {"sent", "canceled"}
        return campaign.deliveries if is_through else 0

    def recipients(self, campaign: Campaign) -> Sequence[int]:
        """Find the members a campaign would go to now."""
        if campaign.list_id not in self.audiences:
            return ()
        return recipients(self.audiences[campaign.list_id], campaign.segment_opts, self.sent_to)

    def waits_for_recipients(self, campaign: Campaign) -> bool:
        """Whether the audience of a new campaign is still being computed."""
        born_s = campaign.born_s
        return born_s is not None and time.monotonic() - born_s < self.settings.recipients_ready_s

    def sent_to(self, list_id: str, web_id: str) -> Collection[int]:
        """Find the members of an audience who got the campaign with this web_id, or "any"."""
        return {
            member
            for campaign in self.campaigns.values()
            if web_id in {"any", str(campaign.web_id)}
            for mailing in campaign.mailings
            if mailing.list_id == list_id
            for member in mailing.members
        }

    def segment_members(self, audience: Audience, segment: Segment) -> Sequence[int]:
        """Find the members of a segment."""
        return segment_members(audience, segment, self.sent_to)

    def faults_of(self, campaign: Campaign) -> dict[str, str]:
        """Tell what keeps a campaign from being sent: heading of the checklist item, and what is wrong."""
        checks = {
            "List": (not campaign.list_id, "no audience has been chosen"),
            "Subject": (not campaign.settings["subject_line"], "the subject line is missing"),
            "From name": (not campaign.settings["from_name"], "the from name is missing"),
            "Reply-to": (not campaign.settings["reply_to"], "the reply-to address is missing"),
            "Content": (not campaign.has_content and campaign.type != "rss", "the content is empty"),
        }
        faults = {heading: text for heading, (is_wrong, text) in checks.items() if is_wrong}
        if campaign.list_id and self.waits_for_recipients(campaign):
            faults["Recipients"] = RECIPIENTS_NOT_READY
        elif campaign.list_id and not self.recipients(campaign):
            faults["Recipients"] = "the audience or segment is empty"
        return faults

    # Drafts

    def create(self, body: object) -> Campaign:
        """Create a draft from the body of a request. Raise a 400 problem if it says something wrong."""
        said = drafts.body_object(body)
        campaign = self._new(drafts.campaign_type(said), born_s=time.monotonic())
        drafts.write(campaign, said)
        self._write_recipients(campaign, said)
        self.campaigns[campaign.id] = campaign
        return campaign

    def update(self, campaign_id: str, body: object) -> Campaign:
        """Change a draft. Raise a 400 problem for anything past `save`."""
        campaign = self._draft(campaign_id)
        said = drafts.body_object(body)
        changed = deepcopy(campaign)
        drafts.write(changed, said)
        self._write_recipients(changed, said)
        self.campaigns[campaign.id] = changed
        return changed

    def put_content(self, campaign_id: str, body: object) -> Campaign:
        """Set the content of a draft. Raise a 400 problem for anything past `save`."""
        campaign = self._draft(campaign_id)
        campaign.content_type, campaign.content = drafts.content(campaign, drafts.body_object(body))
        return campaign

    def delete(self, campaign_id: str) -> None:
        """Delete a draft. Raise a 400 problem for anything past `save`."""
        del self.campaigns[self._draft(campaign_id).id]

    def replicate(self, campaign_id: str) -> Campaign:
        """Copy a draft or a sent campaign as "… (copy 01)"; everything but the title stays as it is."""
        source = self.campaign(campaign_id)
        if source.status not in {"save", "sent"}:
            raise bad_request("Only a saved or sent campaign can be replicated.")
        copy = self._new(source.type, born_s=time.monotonic())
        copy.settings = source.settings | {"title": self._copy_title(source.title)}
        copy.tracking, copy.options = dict(source.tracking), deepcopy(source.options)
        copy.list_id, copy.segment_opts = source.list_id, deepcopy(source.segment_opts)
        copy.content, copy.content_type = dict(source.content), source.content_type
        self.campaigns[copy.id] = copy
        return copy

    # Sending

    def count_send(self, campaign_id: str) -> None:
        """Note that a send request arrived, whatever becomes of it."""
        self.sends_arrived[campaign_id] += 1

    def send(self, campaign_id: str) -> None:
        """Send a campaign now. Raise a 400 problem if it is not a finished draft."""
        campaign = self.campaign(campaign_id)
        if campaign.status != "save":
            raise not_a_draft()
        faults = self.faults_of(campaign)
        if faults:
            raise not_ready(tuple(faults.values()))
        self._mail(campaign)
        self.sends_accepted[campaign.id] += 1

    def schedule(self, campaign_id: str, body: object) -> None:
        """Have a campaign go out on its own. Raise a 400 problem if it cannot."""
        campaign = self.campaign(campaign_id)
        said = drafts.body_object(body)
        try:
            due = time_value(str(said.get("schedule_time", "")))
        except ValueError:
            raise invalid("schedule_time", "Schema describes date-time") from None
        if due is None:
            raise invalid("schedule_time", "This value should not be blank.")
        is_possible = campaign.status == "save" and due > self.now() and due % _QUARTER_HOUR_S == 0
        if not is_possible or self.faults_of(campaign):
            raise bad_request("This campaign cannot be scheduled: .")
        campaign.status, campaign.due, campaign.send_time = "schedule", due, due

    def unschedule(self, campaign_id: str) -> None:
        """Take a scheduled campaign back to a draft."""
        campaign = self._in_status(campaign_id, "schedule")
        campaign.status, campaign.due, campaign.send_time = "save", None, None

    def pause(self, campaign_id: str) -> None:
        """Pause an RSS campaign."""
        self._rss(campaign_id, "sending").status = "paused"

    def resume(self, campaign_id: str) -> None:
        """Resume an RSS campaign."""
        self._rss(campaign_id, "paused").status = "sending"

    def cancel(self, campaign_id: str) -> None:
        """Stop a send half way: as much of the audience has it as time in `sending` had passed."""
        campaign = self._in_status(campaign_id, "sending")
        if campaign.accepted_s is not None and campaign.mailings:
            passed_s = time.monotonic() - campaign.accepted_s
            done = int(campaign.deliveries * min(1.0, passed_s / self.settings.sending_s))
            self.set_delivered(campaign, done)
        campaign.status = "canceled"

    def send_test(self, campaign_id: str, body: object) -> None:
        """Pretend to send a test mail. Raise a 400 problem if the request is incomplete."""
        self.campaign(campaign_id)
        said = drafts.body_object(body)
        if not isinstance(said.get("test_emails"), list) or not said["test_emails"]:
            raise invalid("test_emails", "This value should not be blank.")
        if said.get("send_type") not in {"html", "plaintext"}:
            raise invalid("send_type", "Value must be one of: html, plaintext")

    # Audiences

    def add_segment(self, list_id: str, body: object) -> Segment:
        """Add a segment: `static_segment` lists addresses (unknown ones are left out), else `options`."""
        audience = self.audience(list_id)
        said = drafts.body_object(body)
        name, addresses, options = said.get("name"), said.get("static_segment"), said.get("options")
        if not isinstance(name, str) or not name:
            raise invalid("name", "This value should not be blank.")
        if addresses is not None and not isinstance(addresses, list):
            raise invalid("static_segment", "Schema describes array")
        if options is not None and not isinstance(options, dict):
            raise invalid("options", "Schema describes object")
        members = None
        if options is None:
            found = (audience.member(str(address)) for address in addresses or ())
            members = tuple(sorted({member for member in found if member is not None}))
        segment = Segment(
            id=self._next_segment_id,
            name=name,
            created=self.now(),
            members=members,
            options=drafts.segment_opts(options or {}, "options"),
        )
        self._next_segment_id += 1
        audience.segments[segment.id] = segment
        return segment

    # By hand, from the control side

    def add_audience(self, name: str, members: int | Sequence[str], list_id: str | None = None) -> Audience:
        """Add or replace an audience of so many members, or of these addresses."""
        addresses = None if isinstance(members, int) else tuple(members)
        audience = Audience(
            id=list_id or self._new_id(),
            name=name,
            count=members if isinstance(members, int) else len(members),
            web_id=self._new_web_id(),
            created=self.now(),
            addresses=addresses,
        )
        self.audiences[audience.id] = audience
        return audience

    def add_finished(self, title: str, *, is_fresh: bool = False) -> Campaign:
        """Put a draft in place that could be sent as it is.

        It is an old one, that every listing shows; a fresh one is as if the API had just created it.
        """
        campaign = self._new("regular", born_s=time.monotonic() if is_fresh else None)
        campaign.settings |= {
            "title": title,
            "subject_line": title,
            "from_name": "Sandbox",
            "reply_to": "sandbox@example.com",
        }
        campaign.list_id = next(iter(self.audiences))
        campaign.content = {"html": f"<p>{title}</p>", "plain_text": title}
        campaign.content_type = "html"
        self.campaigns[campaign.id] = campaign
        return campaign

    def remove(self, campaign_id: str) -> None:
        """Remove a campaign, whatever its status; its deliveries stay in the mailbox."""
        self.removed.append(self.campaign(campaign_id))
        del self.campaigns[campaign_id]

    def set_status(self, campaign: Campaign, status: str) -> None:
        """Put a campaign into a status, where it stays: no time passes for it any more.

        `sending` and `sent` mean that somebody sent it in Mailchimp, so it was delivered, if it was not yet.
        Back to `save` means that the provider dropped the send: what it had mailed is forgotten.
        """
        campaign.status, campaign.accepted_s, campaign.due = status, None, None
        if status in {"sending", "sent"} and not campaign.mailings:
            campaign.mailings = [Mailing(campaign.list_id, self.recipients(campaign))]
            campaign.send_time = campaign.send_time or self.now()
        if status == "save":
            campaign.mailings, campaign.send_time = [], None

    def set_delivered(self, campaign: Campaign, count: int) -> None:
        """Have only the first `count` recipients got a campaign."""
        members = campaign.mailings[0].members if campaign.mailings else self.recipients(campaign)
        campaign.mailings = [Mailing(campaign.list_id, members[:count])]

    def set_settings(self, changes: Mapping[str, object]) -> None:
        """Change some of the settings. Raise ValueError for an unknown name or a value of a wrong type."""
        known = vars(self.settings)
        for name, value in changes.items():
            if name not in known:
                raise ValueError(f"unknown setting {name!r}; known: {', '.join(known)}")
            if not _fits(name, value):
                raise ValueError(f"setting {name} cannot be {value!r}")
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]  # checked above

    # Within

    def _new(self, kind: str, born_s: float | None) -> Campaign:
        return Campaign(self._new_id(), self._new_web_id(), kind, created=self.now(), born_s=born_s)

    def _new_id(self) -> str:
        return secrets.token_hex(5)

    def _new_web_id(self) -> int:
        """Make an integer without order: nobody has said that web ids grow."""
        return secrets.randbelow(900_000_000) + 100_000_000

    def _copy_title(self, title: str) -> str:
        taken = {campaign.title for campaign in self.campaigns.values()}
        base = _COPY.sub("", title)
        numbers = (f"{base} (copy {number:02d})" for number in range(1, len(taken) + 2))
        return next(name for name in numbers if name not in taken)

    def _draft(self, campaign_id: str) -> Campaign:
        campaign = self.campaign(campaign_id)
        if campaign.status != "save":
            raise bad_request(f"The campaign cannot be changed: its status is {campaign.status}.")
        return campaign

    def _in_status(self, campaign_id: str, status: str) -> Campaign:
        campaign = self.campaign(campaign_id)
        if campaign.status != status:
            raise bad_request(f"This cannot be done to a campaign whose status is {campaign.status}.")
        return campaign

    def _rss(self, campaign_id: str, status: str) -> Campaign:
        campaign = self._in_status(campaign_id, status)
        if campaign.type != "rss":
            raise bad_request("Only RSS campaigns can be paused and resumed.")
        return campaign

    def _write_recipients(self, campaign: Campaign, body: Mapping[str, object]) -> None:
        said = drafts.recipients(body)
        if said is None:
            return
        list_id, segment_opts = said
        if list_id not in self.audiences:
            raise invalid("recipients.list_id", "The requested list could not be found.")
        saved_id = segment_opts.get("saved_segment_id")
        if saved_id and saved_id not in self.audiences[list_id].segments:
            raise invalid("recipients.segment_opts.saved_segment_id", "The segment could not be found.")
        campaign.list_id, campaign.segment_opts = list_id, segment_opts

    def _mail(self, campaign: Campaign) -> None:
        campaign.status, campaign.due = "sending", None
        campaign.send_time, campaign.accepted_s = self.now(), time.monotonic()
        if campaign.type == "rss":
            campaign.accepted_s = None  # it has only started its schedule, and stays so
        else:
            campaign.mailings.append(Mailing(campaign.list_id, self.recipients(campaign)))

    def _let_time_pass(self, campaign: Campaign) -> None:
        """Bring a campaign to where time has brought it."""
        if campaign.due is not None and campaign.status == "schedule" and campaign.due <= self.now():
            self._mail(campaign)
        if campaign.status != "sending" or campaign.accepted_s is None:
            return
        if time.monotonic() - campaign.accepted_s >= self.settings.sending_s:
            campaign.status = "sent"


def _fits(setting: str, value: object) -> bool:
    if setting in {"api_key", "role"}:
        return isinstance(value, str)
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        return False
    return value >= 0 or setting == "clock_offset_s"
