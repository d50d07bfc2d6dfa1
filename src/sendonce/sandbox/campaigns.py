"""One campaign as it really is, whatever the API shows of it at the moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TYPES = ("regular", "plaintext", "absplit", "rss", "variate")
LISTED_STATUSES = ("save", "paused", "schedule", "sending", "sent")

# What a new campaign has unless the request says otherwise. A given value must be of the same type.
SETTINGS: Mapping[str, object] = {
    "subject_line": "",
    "preview_text": "",
    "title": "",
    "from_name": "",
    "reply_to": "",
    "to_name": "",
    "folder_id": "",
    "use_conversation": False,
    "authenticate": True,
    "auto_footer": False,
    "inline_css": False,
    "auto_tweet": False,
    "fb_comments": True,
    "template_id": 0,
    "timewarp": False,
    "drag_and_drop": False,
}
TRACKING: Mapping[str, object] = {
    "opens": True,
    "html_clicks": True,
    "text_clicks": False,
    "goal_tracking": False,
    "ecomm360": False,
    "google_analytics": "",
    "clicktale": "",
}
READ_ONLY = frozenset({"timewarp", "drag_and_drop"})


@dataclass(frozen=True)
class Mailing:
    """One delivery of a campaign to the members of an audience."""

    list_id: str
    members: Sequence[int]


@dataclass
class Campaign:
    """A campaign. Times are seconds since 1970, but `born_s` and `accepted_s` are monotonic seconds.

    `born_s` is None for a campaign that was put in place through the control side: no listing lags behind
    it and its recipients are ready. `accepted_s` is None unless a send is what brought it into its status.
    """

    id: str
    web_id: int
    type: str
    created: float
    born_s: float | None = None
    status: str = "save"
    settings: dict[str, object] = field(default_factory=lambda: dict(SETTINGS))
    tracking: dict[str, object] = field(default_factory=lambda: dict(TRACKING))
    list_id: str = ""
    segment_opts: dict[str, object] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)  # rss_opts, variate_settings, social_card
    content: dict[str, str] = field(default_factory=dict)
    content_type: str = "template"
    send_time: float | None = None
    due: float | None = None
    accepted_s: float | None = None
    emails_sent: int | None = None  # set by hand
    mailings: list[Mailing] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The name people give it."""
        return str(self.settings["title"])

    @property
    def has_content(self) -> bool:
        """Whether there is anything to mail."""
        return bool(self.content.get("html") or self.content.get("plain_text"))

    @property
    def deliveries(self) -> int:
        """How many mails of it went out."""
        return sum(len(mailing.members) for mailing in self.mailings)
