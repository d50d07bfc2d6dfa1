"""Where the day's campaign comes from when no person makes it: an HTML file, or another campaign."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sendonce.core.campaigns import Content, Spec
from sendonce.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sendonce.core.campaigns import Campaign
    from sendonce.core.ports import Mailer

COPIED_SETTINGS = (
    "subject_line", "preview_text", "from_name", "reply_to", "use_conversation", "to_name", "folder_id",
    "authenticate", "auto_footer", "inline_css", "auto_tweet", "fb_comments",
)  # fmt: skip
COPIED_TRACKING = (
    "opens", "html_clicks", "text_clicks", "goal_tracking", "ecomm360", "google_analytics", "clicktale",
)  # fmt: skip
MAX_HTML_BYTES = 20_000_000


class HtmlFile:
    """`html`: settings from the configuration, content from the day's file."""

    def __init__(
        self, path: str, *, list_id: str, segment_id: int | None, settings: Mapping[str, object]
    ) -> None:
        self._path = path
        self._list_id, self._segment_id, self._settings = list_id, segment_id, settings

    def spec(self) -> Spec:
        """Make a campaign of today's file. Raise Refused if it is missing, empty, no file or no UTF-8."""
        recipients: dict[str, object] = {"list_id": self._list_id}
        if self._segment_id is not None:
            recipients["segment_opts"] = {"saved_segment_id": self._segment_id}
        html, made_at = self._html()
        return Spec("regular", recipients, self._settings, {}, Content(html=html), made_at)

    def _html(self) -> tuple[str, datetime]:
        try:
            data, mtime_s = self._bytes()
        except OSError as fault:
            raise Refused(f"The HTML file {self._path} cannot be read ({fault.strerror}).") from fault
        if len(data) > MAX_HTML_BYTES:
            raise Refused(f"The HTML file {self._path} is larger than {MAX_HTML_BYTES} bytes.")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as fault:
            raise Refused(f"The HTML file {self._path} is not UTF-8 (byte {fault.start}).") from fault
        if not text.strip():
            raise Refused(f"The HTML file {self._path} is empty.")
        if "\0" in text:
            raise Refused(f"The HTML file {self._path} holds NUL bytes.")
        return text, datetime.fromtimestamp(mtime_s, UTC)

    def _bytes(self) -> tuple[bytes, float]:
        with open(self._path, "rb", opener=_not_blocking) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Refused(f"The HTML file {self._path} is not a regular file.")
            return file.read(MAX_HTML_BYTES + 1), found.st_mtime


def _not_blocking(path: str, flags: int) -> int:
    """Open a file; a FIFO in its place must not hang the run."""
    return os.open(path, flags | os.O_NONBLOCK)


class Copy:
    """`replicate`: a copy of another campaign, made by hand.

    Mailchimp's own replicate action is not used: its copy has no name that could be found again after a lost
    answer (it is titled "... (copy 01)", facts §9).
    """

    def __init__(
        self,
        mailer: Mailer,
        campaign_id: str,
        *,
        list_id: str,
        subject: str,
        named: str = "SENDONCE_REPLICATE_FROM",
    ) -> None:
        self._mailer, self._id, self._named = mailer, campaign_id, named
        self._list_id, self._subject = list_id, subject

    def spec(self) -> Spec:
        """Read the source campaign as it is now. Raise Refused if it is gone or holds what cannot be copied."""
        source = self._mailer.campaign(self._id)
        if source is None:
            raise Refused(f"The campaign to copy, {self._id} ({self._named}), is not in Mailchimp.")
        content = self._mailer.content(self._id)
        if faults := "; ".join(self._faults(source, content)):
            raise Refused(f"Campaign {self._id} ({self._named}) cannot be copied: {faults}.")
        settings = {k: source.settings[k] for k in COPIED_SETTINGS if _is_set(source.settings.get(k))}
        if self._subject:
            settings["subject_line"] = self._subject
        tracking = {k: source.tracking[k] for k in COPIED_TRACKING if _is_set(source.tracking.get(k))}
        is_plain = source.type == "plaintext"
        # the plain-text part of an HTML campaign is Mailchimp's to make: it holds links of its own
        written = Content(plain_text=content.plain_text) if is_plain else Content(html=content.html)
        recipients: dict[str, object] = {"list_id": source.list_id}
        if segment := _segment(source):
            recipients["segment_opts"] = segment
        return Spec(source.type, recipients, settings, tracking, written)

    def _faults(self, source: Campaign, content: Content) -> Iterator[str]:
        """Say what of the source would be lost in a copy."""
        if source.type not in {"regular", "plaintext"}:
            yield f'its type is "{source.type}", only regular and plaintext can be'
        if not source.list_id:
            yield "it has no audience"
        if self._list_id and source.list_id != self._list_id:
            yield f'its audience is "{source.list_id}", SENDONCE_LIST_ID is "{self._list_id}"'
        if _segment_opts(source).get("prebuilt_segment_id"):
            yield "it is for a prebuilt segment, which the API cannot set; use a saved segment or a tag"
        elif source.recipients.get("segment_text") and not _segment(source):
            # without this the copy would go to the whole audience
            yield "it is for a segment that the API does not show; use a saved segment or a tag"
        if source.settings.get("timewarp"):
            yield "it uses Timewarp, which belongs to a schedule"
        if source.settings.get("auto_fb_post"):
            yield "it posts to Facebook pages, which would be lost"
        wanted = content.plain_text if source.type == "plaintext" else content.html
        if not wanted.strip():
            yield "it has no content that the API shows"


def _segment(source: Campaign) -> dict[str, object]:
    """Make the `segment_opts` of a copy; empty for the whole audience.

    A saved segment already holds its conditions: giving both is refused by the API.
    """
    segment = _segment_opts(source)
    if segment.get("saved_segment_id"):
        return {"saved_segment_id": segment["saved_segment_id"]}
    if segment.get("conditions"):
        return {"match": segment.get("match", "all"), "conditions": segment["conditions"]}
    return {}


def _segment_opts(source: Campaign) -> Mapping[str, object]:
    found = source.recipients.get("segment_opts")
    return found if isinstance(found, dict) else {}


def _is_set(value: object) -> bool:
    return value is not None and value != ""
