"""Mailchimp's side of the protocol as frozen values: a campaign as it shows it, and what it says to a send."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True)
class Campaign:
    """A campaign as Mailchimp shows it. `status` stays text: a word nobody knows must not become another.

    `settings`, `recipients` and `tracking` are the objects of a read by id, empty in a listing.
    """

    id: str
    title: str
    status: str
    type: str
    list_id: str
    create_time: datetime | None
    web_id: int | None = None
    send_time: datetime | None = None
    emails_sent: int | None = None
    recipient_count: int | None = None
    content_type: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    recipients: Mapping[str, object] = field(default_factory=dict)
    tracking: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_draft(self) -> bool:
        """Only `save` is a draft; every other status is past it."""
        return self.status == "save"

    @property
    def is_mailed(self) -> bool:
        """Mailchimp has begun to mail it, or has finished."""
        return self.status in {"sending", "sent"}


@dataclass(frozen=True)
class Account:
    """The account that a key belongs to. `role` is that of the user who made the key, as Mailchimp calls it."""

    id: str
    name: str
    role: str


@dataclass(frozen=True)
class Listing:
    """Every campaign of the account or audience, complete.

    `at` is a time, by Mailchimp's clock, before which the listing was certainly not made.
    """

    at: datetime
    campaigns: tuple[Campaign, ...]


@dataclass(frozen=True)
class Checklist:
    """Mailchimp's own verdict on whether a campaign can be sent, with what it holds against it."""

    is_ready: bool
    errors: tuple[str, ...] = ()

    @property
    def waits_for_recipients(self) -> bool:
        """The audience of a new campaign is still being computed: not a fault, a race (facts §3)."""
        return bool(self.errors) and all("recipients not ready" in e.lower() for e in self.errors)


@dataclass(frozen=True)
class Content:
    """A campaign's content. An empty text means that part is not set by us."""

    html: str = ""
    plain_text: str = ""


@dataclass(frozen=True)
class Spec:
    """What a created campaign shall be, without its title: settings as the API names them.

    `made_at`: when the content was written (this machine's clock, UTC), where that is known.
    """

    type: str
    recipients: Mapping[str, object]
    settings: Mapping[str, object]
    tracking: Mapping[str, object]
    content: Content
    made_at: datetime | None = None


class No(Enum):
    """Why a send did certainly not happen."""

    UNREACHABLE = "unreachable"
    CERTIFICATE = "certificate"
    CREDENTIALS = "credentials"
    THROTTLED = "throttled"
    RECIPIENTS_NOT_READY = "recipients not ready"
    REFUSED = "refused"


@dataclass(frozen=True)
class Accepted:
    """Mailchimp took the send: an empty 204, and nothing else."""


@dataclass(frozen=True)
class NotSent:
    """Mailchimp, or the network before it, said no. `said` is for people."""

    why: No
    said: str


@dataclass(frozen=True)
class Unclear:
    """Neither yes nor no: it may have been sent. `said` is for people."""

    said: str


Answer = Accepted | NotSent | Unclear


def is_same_text(one: str, other: str) -> bool:
    """Whether two texts say the same. Line ends and outer white space are the transport's, not the author's."""
    return one.replace("\r\n", "\n").strip() == other.replace("\r\n", "\n").strip()


COUNTERS = frozenset({"recipient_count", "list_name", "list_is_active"})
"""Of the recipients: what changes with the audience, and not because somebody works on the draft."""


def fingerprint(campaign: Campaign, content: Content) -> str:
    """A hash of what people make of a draft: type, settings, recipients and tracking of a read by id, and content."""
    recipients = {name: value for name, value in campaign.recipients.items() if name not in COUNTERS}
    # the sentence about a segment ends with how many it is for; of one that the API does not show it is all there is
    if isinstance(text := recipients.get("segment_text"), str):
        recipients["segment_text"] = re.sub(r"[\d.,]+", "", text)
    parts = (
        campaign.type, campaign.settings, recipients, campaign.tracking, content.html, content.plain_text,
    )  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
