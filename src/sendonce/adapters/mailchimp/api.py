"""What Mailchimp's answers mean: the table of answers, row by row (see docs/protocol.md).

Reads are repeated, nothing else is. What is neither a clear yes nor a clear no is never taken for either.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import repeat
from typing import TYPE_CHECKING, Any

from mailchimp_marketing.api.campaigns_api import CampaignsApi
from mailchimp_marketing.api.lists_api import ListsApi
from mailchimp_marketing.api.ping_api import PingApi
from mailchimp_marketing.api.reports_api import ReportsApi
from mailchimp_marketing.api.root_api import RootApi

from sendonce.adapters.mailchimp.wire import Lost, NeverLeft, Reply, Wire
from sendonce.core.campaigns import (
    Accepted,
    Account,
    Answer,
    Campaign,
    Checklist,
    Content,
    Listing,
    No,
    NotSent,
    Spec,
    Unclear,
)
from sendonce.core.errors import CredentialsRejected, NoAnswer, Refused
from sendonce.core.recipients import PAGE_ROWS, STATUSES, Recipient, ReportPage, parsed_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sendonce.core.ports import Clock, Witness

ID = re.compile(r"[0-9a-f]{6,20}")
RECIPIENTS_NOT_READY = "recipients not ready"
READ_TRIES = 4
BACKOFF_S = 0.5
RETRY_AFTER_AT_MOST_S = 30
DATE_GRAIN = timedelta(seconds=2)
"""A Date header carries whole seconds, and is made before its answer is through: it may be so much behind."""
PAGE = 500
"""Mailchimp's support advises 500; 1000 runs into gateway timeouts (facts §5)."""
LISTED_FIELDS = [
    "total_items",
    *(
        f"campaigns.{name}"
        for name in (
            "id", "web_id", "type", "create_time", "status", "emails_sent", "send_time",
            "recipients.list_id", "recipients.recipient_count", "settings.title",
        )
    ),
]  # fmt: skip
TAG_AT_MOST = 500
"""Mailchimp takes so many members in one call that changes a tag."""
SEGMENTS_AT_MOST = 1000
CONTENT_PARTS = ("html", "plain_text")
STATUS_WORDS = frozenset(STATUSES)
OK, NO_CONTENT, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 200, 204, 401, 403, 404
REQUEST_TIMEOUT, TOO_MANY, BAD_REQUEST = 408, 429, 400
CLIENT_ERRORS = range(400, 500)


class Mailchimp:
    """Mailchimp, for one key and audience. Satisfies core.ports.Mailer."""

    def __init__(
        self, wire: Wire, clock: Clock, witness: Witness, *, list_id: str, timeout_s: float, key_from: str
    ) -> None:
        self._wire, self._clock, self._witness = wire, clock, witness
        self._list_id, self._timeout_s, self._key_from = list_id, timeout_s, key_from
        self._date: datetime | None = None
        self._date_at_s = 0.0
        self._campaigns = CampaignsApi(wire.client)
        self._lists = ListsApi(wire.client)
        self._ping = PingApi(wire.client)
        self._root = RootApi(wire.client)
        self._reports = ReportsApi(wire.client)

    # -------------------------------------------------------------------------------------------------- reads

    def now(self) -> datetime:
        """Tell Mailchimp's time. Raise NoAnswer if no answer of this run carried a Date header."""
        if self._date is None:
            raise NoAnswer(
                "Mailchimp's answers carry no Date header, without which no waiting time can be kept."
            )
        return self._date + timedelta(seconds=self._clock.monotonic() - self._date_at_s)

    def ping(self) -> None:
        """Check that the key is accepted. Raise CredentialsRejected, NoAnswer or Refused."""
        self._read(self._ping.get, "the API", ("health_status",))

    def account(self) -> Account:
        """Read which account the key is of, and what it may do. Raise CredentialsRejected, NoAnswer or Refused."""
        fields = ["account_id", "account_name", "role"]
        found = self._read(lambda: self._root.get_root(fields=fields), "the account", ("account_id",))
        return Account(*(_text(found.get(name)) for name in fields))

    def listing(self) -> Listing:
        """List all campaigns of the account (or audience), oldest first; NoAnswer if they are not all."""
        found = self._pages()
        if isinstance(found, str):  # campaigns came or went while we paged
            self._witness.note("listing incomplete", said=found)
            found = self._pages()
        if isinstance(found, str):
            raise NoAnswer(f"Mailchimp's list of campaigns is incomplete: {found}.")
        return found

    def _pages(self) -> Listing | str:
        """Put all pages into one listing, or say why they make none.

        Each page begins with the last campaign of the one before. Pages that share none have shifted, and
        then a campaign may be on neither although the number is right.
        """
        began_s = self._clock.monotonic()
        at: datetime | None = None
        found: dict[str, Campaign] = {}
        total = end = 0
        while at is None or end < total:
            start = max(0, end - 1)
            page, page_total = self._page(start)
            if at is None:
                # when we began to ask, by Mailchimp's clock: it was not made before that
                at = self.now() - timedelta(seconds=self._clock.monotonic() - began_s)
                total = page_total
            is_joined = not found or any(c.id in found for c in page)
            if page_total != total or not is_joined or start + len(page) <= end:
                break
            end = start + len(page)
            found.update({c.id: c for c in page})
        if len(found) == total:
            return Listing(at, tuple(found.values()))
        return f"{len(found)} of {total} were read, then it changed"

    def _page(self, offset: int) -> tuple[list[Campaign], int]:
        only_list = {"list_id": self._list_id} if self._list_id else {}
        page = self._read(
            lambda: self._campaigns.list(
                fields=LISTED_FIELDS,
                count=PAGE,
                offset=offset,
                # by send_time Mailchimp sorts wrongly (facts §11); oldest first, new ones do not shift pages
                sort_field="create_time",
                sort_dir="ASC",
                **only_list,
            ),
            "the list of campaigns",
            ("campaigns",),
        )
        rows, total = page["campaigns"], _count(page.get("total_items"))
        if not isinstance(rows, list) or total is None:
            raise NoAnswer("Mailchimp's list of campaigns is not readable.")
        return [_campaign(row) for row in rows], total

    def campaign(self, campaign_id: str, *, tries: int = READ_TRIES) -> Campaign | None:
        """Read a campaign by id, None on 404. A listing may lag; this is the read to trust (facts §11)."""
        _checked(campaign_id)
        found = self._read_or_none(
            lambda: self._campaigns.get(campaign_id, exclude_fields=["_links"]),
            f"campaign {campaign_id}",
            ("id",),
            tries=tries,
        )
        if found is None:
            return None
        campaign = _campaign(found)
        if campaign.id != campaign_id:
            raise NoAnswer(f"Mailchimp was asked for campaign {campaign_id} and answered with {campaign.id}.")
        return campaign

    def content(self, campaign_id: str) -> Content:
        """Read what the campaign says, as Mailchimp keeps it."""
        _checked(campaign_id)
        found = self._read(
            lambda: self._campaigns.get_content(campaign_id, fields=list(CONTENT_PARTS)),
            f"the content of campaign {campaign_id}",
            CONTENT_PARTS,
        )
        return Content(html=_text(found.get("html")), plain_text=_text(found.get("plain_text")))

    def checklist(self, campaign_id: str) -> Checklist:
        """Ask for Mailchimp's verdict; warnings do not count, `is_ready` does (facts §9)."""
        _checked(campaign_id)
        found = self._read(
            lambda: self._campaigns.get_send_checklist(campaign_id, fields=["is_ready", "items"]),
            f"the send checklist of campaign {campaign_id}",
            ("is_ready",),
        )
        items = found.get("items")
        errors = tuple(
            ": ".join(_text(item.get(k)) for k in ("heading", "details") if item.get(k))
            for item in (items if isinstance(items, list) else ())
            if isinstance(item, dict) and item.get("type") == "error"
        )
        return Checklist(found["is_ready"] is True, errors)

    def segment_type(self, list_id: str, segment_id: int) -> str:
        """Ask what kind of segment it is: "static" is a tag (facts §10)."""
        _checked(list_id, "audience")
        found = self._read(
            lambda: self._lists.get_segment(list_id, str(segment_id), fields=["type"]),
            f"segment {segment_id}",
            ("type",),
        )
        return _text(found.get("type"))

    def tag(self, list_id: str, name: str, addresses: Sequence[str]) -> int:
        """Find the tag of that name, or make it of these addresses, TAG_AT_MOST at the most; its number.

        Raises as `create`. Mailchimp leaves out addresses that are not in the audience.
        """
        _checked(list_id, "audience")
        fields = ["segments.id", "segments.name"]
        found = self._read(
            lambda: self._lists.list_segments(list_id, type="static", count=SEGMENTS_AT_MOST, fields=fields),
            f"the tags of audience {list_id}",
            ("segments",),
        )
        for segment in found["segments"]:
            if segment.get("name") == name and (known := _count(segment.get("id"))) is not None:
                return known
        body = {"name": name, "static_segment": list(addresses)}
        reply = self._write(
            lambda: self._lists.create_segment(list_id, body), f'make the tag "{name}"', ("id",)
        )
        number = _count(reply.json.get("id"))
        if number is None:
            raise NoAnswer(f'Mailchimp made the tag "{name}" and gave it no number.')
        return number

    def audience_size(self, list_id: str, segment_id: int | None = None) -> int | None:
        """Ask for the members of the audience or segment, as Mailchimp counts them."""
        _checked(list_id, "audience")
        if segment_id is not None:
            part = self._read(
                lambda: self._lists.get_segment(list_id, str(segment_id), fields=["member_count"]),
                f"segment {segment_id}",
            )
            return _count(part.get("member_count"))
        whole = self._read(
            lambda: self._lists.get_list(list_id, fields=["stats.member_count"]), f"audience {list_id}"
        )
        return _count(_object(whole.get("stats")).get("member_count"))

    def recipients(self, campaign_id: str, page: int, *, with_addresses: bool) -> ReportPage | None:
        """Read a page (from 0) of who got a campaign, None while there is no report (404)."""
        _checked(campaign_id)
        names = ("email_id", "status", *(("email_address",) if with_addresses else ()))
        what = f"page {page + 1} of the recipients of campaign {campaign_id}"
        found = self._read_or_none(
            lambda: self._reports.get_campaign_recipients(
                campaign_id,
                fields=["total_items", *(f"sent_to.{name}" for name in names)],
                count=PAGE_ROWS,
                offset=page * PAGE_ROWS,
            ),
            what,
            ("sent_to",),
        )
        if found is None:
            return None
        total = _count(found.get("total_items"))
        try:
            rows = _recipients(found["sent_to"], with_addresses=with_addresses)
        except (TypeError, KeyError, ValueError):  # nobody may be left out
            rows = None
        if rows is None or total is None:
            raise NoAnswer(f"Mailchimp's answer for {what} is not readable.")
        return ReportPage(total, rows)

    def recipient_status(self, campaign_id: str, email_id: bytes) -> str | None:
        """Read what became of the mail of a campaign to one person, None if it was not sent to them (404)."""
        _checked(campaign_id)
        found = self._read_or_none(
            lambda: self._reports.get_campaign_recipient(
                campaign_id, email_id.hex(), fields=["email_id", "status"]
            ),
            f"a recipient of campaign {campaign_id}",
            ("status",),
        )
        return None if found is None else _status(found.get("status"))

    def _read(self, call: Callable[[], object], what: str, keys: tuple[str, ...] = ()) -> Any:
        found = self._read_or_none(call, what, keys)
        if found is None:
            raise Refused(f"Mailchimp knows nothing of {what} (404).")
        return found

    def _read_or_none(
        self, call: Callable[[], object], what: str, keys: tuple[str, ...], *, tries: int = READ_TRIES
    ) -> Any:
        """Read a JSON object that has one of `keys`; None on a 404. All tries end within the timeout."""
        give_up_at_s = self._clock.monotonic() + self._timeout_s
        said = ""
        for nth in range(1, tries + 1):
            reply = self._wire.exchange(call, within_s=give_up_at_s - self._clock.monotonic())
            match reply:
                case NeverLeft(said, is_certificate):
                    if is_certificate:
                        raise CredentialsRejected(f"Mailchimp could not be asked for {what}: {said}.")
                case Lost(said):
                    pass
                case Reply():
                    self._keep_date(reply)
                    if _is_document(reply, keys):
                        return reply.json
                    if reply.status == NOT_FOUND and reply.problem is not None:
                        return None
                    self._raise_if_final(reply, what)
                    said = reply.said
            self._witness.note("read failed", what=what, tried=nth, said=said)
            pause_s = _pause_s(reply, nth)
            if nth == tries or self._clock.monotonic() + pause_s >= give_up_at_s:
                break
            self._clock.sleep(pause_s)
        raise NoAnswer(f"Mailchimp could not be asked for {what}: {said.rstrip('.')}.")

    def _raise_if_final(self, reply: Reply, what: str) -> None:
        """Raise for an answer that no retry will change."""
        if reply.status == UNAUTHORIZED:
            raise self._rejected(reply)
        if _is_refusal(reply):
            raise Refused(f"Mailchimp refused to show {what}: {reply.said}")

    # ------------------------------------------------------------------------------------------------- writes

    def create(self, spec: Spec, title: str) -> Campaign:
        """POST once. Raise NoAnswer if the draft may exist all the same: the next run looks first."""
        body = {"type": spec.type, **_settings(spec, title)}
        reply = self._write(lambda: self._campaigns.create(body), f'create campaign "{title}"', ("id",))
        return _campaign(reply.json)

    def write_settings(self, campaign_id: str, spec: Spec, title: str) -> None:
        """PATCH once."""
        _checked(campaign_id)
        body = _settings(spec, title)
        self._write(
            lambda: self._campaigns.update(campaign_id, body),
            f"write the settings of campaign {campaign_id}",
            ("id",),
        )

    def write_content(self, campaign_id: str, content: Content) -> None:
        """PUT once."""
        _checked(campaign_id)
        body = {part: text for part in CONTENT_PARTS if (text := getattr(content, part))}
        self._write(
            lambda: self._campaigns.set_content(campaign_id, body),
            f"write the content of campaign {campaign_id}",
            CONTENT_PARTS,
        )

    def send_test(self, campaign_id: str, address: str, *, is_plain: bool) -> None:
        """POST once: Mailchimp's own test mail of a campaign, to one address. Raises as `create`."""
        _checked(campaign_id)
        body = {"test_emails": [address], "send_type": "plaintext" if is_plain else "html"}
        self._write(
            lambda: self._campaigns.send_test_email(campaign_id, body),
            f"send a test mail of campaign {campaign_id}",
            (),
        )

    def _write(self, call: Callable[[], object], what: str, keys: tuple[str, ...]) -> Reply:
        """Make one request; the reply is a JSON object that has one of `keys`, without keys an empty 204."""
        reply = self._wire.exchange(call)
        match reply:
            case NeverLeft(said, is_certificate):
                if is_certificate:
                    raise CredentialsRejected(f"Could not {what}: {said}.")
                raise NoAnswer(f"Could not {what}: {said}.")
            case Lost(said):
                raise NoAnswer(f"It is not known whether Mailchimp did {what}: {said}.")
            case Reply():
                self._keep_date(reply)
                is_done = _is_document(reply, keys) if keys else _is_empty_204(reply)
                if is_done:
                    return reply
                if reply.status == UNAUTHORIZED:
                    raise self._rejected(reply)
                if _is_refusal(reply):
                    raise Refused(f"Mailchimp refused to {what}: {reply.said}")
                raise NoAnswer(f"It is not known whether Mailchimp did {what}: {reply.said.rstrip('.')}.")

    def send(self, campaign_id: str) -> Answer:
        """Make the one POST that mails. Accepted is an empty 204 and nothing else (client-traps A5)."""
        _checked(campaign_id)
        reply = self._wire.exchange(lambda: self._campaigns.send(campaign_id))
        match reply:
            case NeverLeft(said, is_certificate):
                return NotSent(No.CERTIFICATE if is_certificate else No.UNREACHABLE, f"{said}.")
            case Lost(said):
                return Unclear(f"{said}.")
            case Reply():
                self._keep_date(reply)
                return self._send_answer(reply)

    def _send_answer(self, reply: Reply) -> Answer:
        if _is_empty_204(reply):
            return Accepted()
        if reply.status == UNAUTHORIZED:
            return NotSent(No.CREDENTIALS, self._rejected(reply).message)
        if reply.status == TOO_MANY or (reply.status == FORBIDDEN and reply.problem is None):
            return NotSent(No.THROTTLED, f"{reply.said.rstrip('.')} (Mailchimp is throttling).")
        if _is_refusal(reply):
            return NotSent(_why_refused(reply), reply.said)
        return Unclear(f"{reply.said.rstrip('.')}.")

    # ------------------------------------------------------------------------------------------------ answers

    def _rejected(self, reply: Reply) -> CredentialsRejected:
        return CredentialsRejected(
            f"Mailchimp does not accept the API key from {self._key_from} (MAILCHIMP_API_KEY): {reply.said} "
            "A key may be disabled, or be more than a year old; make a new one in Mailchimp."
        )

    def _keep_date(self, reply: Reply) -> None:
        """Take the time from an answer of the API itself: a gateway's page has a clock of its own."""
        is_api = isinstance(reply.json, dict) or _is_empty_204(reply)
        if not is_api or "Date" not in reply.headers:
            return
        try:
            date = _in_utc(parsedate_to_datetime(reply.headers["Date"]))
        except (ValueError, OverflowError):
            return
        if self._date is not None and timedelta(0) <= self.now() - date < DATE_GRAIN:
            return  # the same clock, cut off to a whole second: time must not seem to go back
        self._date, self._date_at_s = date, self._clock.monotonic()


def _is_empty_204(reply: Reply) -> bool:
    return reply.status == NO_CONTENT and reply.is_empty


def _is_document(reply: Reply, keys: tuple[str, ...]) -> bool:
    """Whether it is an answer of the API itself: 200 with a JSON object that has one of `keys`, if any."""
    return (
        reply.status == OK
        and isinstance(reply.json, dict)
        and (not keys or any(k in reply.json for k in keys))
    )


def _is_refusal(reply: Reply) -> bool:
    """Whether it is a clear no: a 4xx with Mailchimp's error document. 408 and 429 are about time alone."""
    return (
        reply.status in CLIENT_ERRORS
        and reply.status not in {REQUEST_TIMEOUT, TOO_MANY}
        and reply.problem is not None
    )


def _why_refused(reply: Reply) -> No:
    """Tell the one refusal that waiting heals from the others; `said` may be cut short, the detail is not."""
    detail = _text((reply.problem or {}).get("detail")).lower()
    is_early = reply.status == BAD_REQUEST and RECIPIENTS_NOT_READY in detail
    return No.RECIPIENTS_NOT_READY if is_early else No.REFUSED


def _pause_s(reply: Reply | NeverLeft | Lost, nth: int) -> float:
    """Retry-After where given (capped), else twice as long each time."""
    if isinstance(reply, Reply):
        asked = reply.headers.get("Retry-After", "")
        if asked.isascii() and asked.isdigit():
            return float(min(int(asked[:6]), RETRY_AFTER_AT_MOST_S))
    return float(BACKOFF_S * 2 ** (nth - 1))


def _settings(spec: Spec, title: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "recipients": dict(spec.recipients),
        "settings": {**spec.settings, "title": title},
    }
    if spec.tracking:
        body["tracking"] = dict(spec.tracking)
    return body


def _campaign(found: Mapping[str, Any]) -> Campaign:
    """Make a campaign of its JSON. Raise NoAnswer if it is none: it must not be taken for "not there"."""
    if not isinstance(found, dict) or not all(isinstance(found.get(k), str) for k in ("id", "status")):
        raise NoAnswer("Mailchimp's answer holds a campaign that is not readable.")
    settings, recipients = _object(found.get("settings")), _object(found.get("recipients"))
    return Campaign(
        id=found["id"],
        title=_text(settings.get("title")),
        status=_text(found.get("status")),
        type=_text(found.get("type")),
        list_id=_text(recipients.get("list_id")),
        create_time=_time(found.get("create_time")),
        web_id=_count(found.get("web_id")),
        send_time=_time(found.get("send_time")),
        emails_sent=_count(found.get("emails_sent")),
        recipient_count=_count(recipients.get("recipient_count")),
        content_type=_text(found.get("content_type")),
        settings=settings,
        recipients=recipients,
        tracking=_object(found.get("tracking")),
    )


def _recipients(found: Any, *, with_addresses: bool) -> tuple[Recipient, ...]:
    """Make rows of their JSON, a million in a row. Raise TypeError, KeyError or ValueError if they are none."""
    addresses = [_text(row["email_address"]) for row in found] if with_addresses else repeat("")
    ids = parsed_ids([row["email_id"] for row in found])
    statuses = [row["status"] for row in found]
    if not STATUS_WORDS.issuperset(statuses):
        statuses = [_status(word) for word in statuses]
    return tuple(map(Recipient, ids, statuses, addresses))


def _status(value: Any) -> str:
    return value if value in STATUSES else STATUSES[-1]


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: object) -> datetime | None:
    """Read a time of the API; it is "" while a campaign is unsent (facts §6)."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return _in_utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _checked(text: str, what: str = "campaign") -> None:
    """Raise Refused for what is no id: the client would build another URL from it (client-traps E1)."""
    if not ID.fullmatch(text):
        raise Refused(f'"{text}" is no {what} id (6 to 20 characters of 0-9 and a-f).')
