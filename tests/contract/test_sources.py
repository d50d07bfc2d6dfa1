"""Where the day's campaign comes from when no person makes it: an HTML file, or a copy of another campaign."""

from __future__ import annotations

import http.client
import json
import os
from base64 import b64encode
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from sendonce.adapters.sources import MAX_HTML_BYTES, Copy, HtmlFile
from sendonce.core.campaigns import Campaign, Content, Spec
from sendonce.core.decide import differences
from sendonce.core.errors import NoAnswer, Refused
from support.adapter import CAMPAIGN_ID, mailchimp
from support.runs import DAY, Desk
from support.sandbox import API_KEY, LIST_ID, Sandbox
from support.wire_server import WireServer, problem, says

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SETTINGS = {"subject_line": "News", "from_name": "Ed", "reply_to": "ed@example.com"}


# ------------------------------------------------------------------------------------------------------ HTML file


def html_spec(path: Path, segment_id: int | None = None) -> Spec:
    """What the file makes."""
    return HtmlFile(str(path), list_id=LIST_ID, segment_id=segment_id, settings=SETTINGS).spec()


def test_a_file_becomes_a_campaign_for_the_audience(tmp_path: Path) -> None:
    """Settings from the configuration, content from the file, nothing else."""
    path = tmp_path / "day.html"
    path.write_text("<p>Größe ✉️</p>\r\n", encoding="utf-8", newline="")
    os.utime(path, (1_767_592_800, 1_767_592_800))  # 2026-01-05 06:00 UTC
    assert html_spec(path) == Spec(
        type="regular",
        recipients={"list_id": LIST_ID},
        settings=SETTINGS,
        tracking={},
        content=Content(html="<p>Größe ✉️</p>\r\n", plain_text=""),
        made_at=datetime(2026, 1, 5, 6, 0, tzinfo=UTC),
    )


def test_a_segment_is_named_by_its_number(tmp_path: Path) -> None:
    """A saved one, which holds its own conditions."""
    path = tmp_path / "day.html"
    path.write_text("<p>")
    assert html_spec(path, 12345).recipients == {
        "list_id": LIST_ID,
        "segment_opts": {"saved_segment_id": 12345},
    }


def test_a_byte_order_mark_is_no_part_of_the_mail(tmp_path: Path) -> None:
    """Some editors put one there."""
    path = tmp_path / "day.html"
    path.write_bytes(b"\xef\xbb\xbf<p>Hello</p>")
    assert html_spec(path).content.html == "<p>Hello</p>"


def test_a_file_of_the_greatest_size_is_taken_whole(tmp_path: Path) -> None:
    """Nothing is cut off."""
    path = tmp_path / "day.html"
    path.write_bytes(b"x" * MAX_HTML_BYTES)
    assert len(html_spec(path).content.html) == 20_000_000


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """`today.html` may point to the day's."""
    (tmp_path / "real.html").write_text("<p>Hello</p>")
    (tmp_path / "day.html").symlink_to("real.html")
    assert html_spec(tmp_path / "day.html").content.html == "<p>Hello</p>"


NO_TEXTS = {
    "empty": (b"", "is empty"),
    "white space": (b" \t\r\n\n", "is empty"),
    "wide white space": ("\u00a0\u2003\n".encode(), "is empty"),
    "byte order mark alone": (b"\xef\xbb\xbf", "is empty"),
    "Latin-1": ("<p>Größe</p>".encode("latin-1"), r"is not UTF-8 \(byte 5\)"),
    "UTF-16": ("<p>Hello</p>".encode("utf-16"), r"is not UTF-8 \(byte 0\)"),
    "cut in a character": ("<p>Größe".encode()[:6], "is not UTF-8"),
    "a surrogate": (b"<p>\xed\xa0\x80</p>", "is not UTF-8"),
    "a NUL": (b"<p>\x00</p>", "holds NUL bytes"),
    "a lost disk block": (b"<p>Hello</p>" + bytes(4096), "holds NUL bytes"),
    "nothing but NULs": (bytes(4096), "holds NUL bytes"),
    "too large": (b"x" * 20_000_001, "is larger than 20000000 bytes"),
}


@pytest.mark.parametrize(("data", "said"), NO_TEXTS.values(), ids=NO_TEXTS)
def test_a_file_that_holds_no_mail_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    """With its path and what is wrong: a person must mend it."""
    path = tmp_path / "day.html"
    path.write_bytes(data)
    with pytest.raises(Refused, match=f"The HTML file {path} {said}"):
        html_spec(path)


def make_link_to_nowhere(path: Path) -> None:
    """As after a clean-up."""
    path.symlink_to("gone.html")


def make_link_to_itself(path: Path) -> None:
    """As after a slip of the hand."""
    path.symlink_to(path.name)


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, r"cannot be read \(No such file or directory\)"),
    "a folder": (lambda path: path.mkdir(), r"cannot be read \(Is a directory\)"),
    "a FIFO": (os.mkfifo, "is not a regular file"),
    "a link to nowhere": (make_link_to_nowhere, r"cannot be read \(No such file or directory\)"),
    "a link to itself": (make_link_to_itself, r"cannot be read \(Too many levels of symbolic links\)"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
}


@pytest.mark.parametrize(("make", "said"), NO_FILES.values(), ids=NO_FILES)
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], object], said: str) -> None:
    """At once: a FIFO without a writer does not hold the run, a device does not fill the memory."""
    path = tmp_path / "day.html"
    make(path)
    with pytest.raises(Refused, match=f"The HTML file {path} {said}"):
        html_spec(path)


def test_a_path_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    """Below a file there is nothing, and a name has its greatest length."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "day.html", tmp_path / ("x" * 300)):
        with pytest.raises(Refused, match="cannot be read"):
            html_spec(path)


def test_a_run_without_its_file_creates_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    """Exit 1, and no half-made campaign is left behind."""
    desk = Desk(tmp_path / "desk", sandbox, "html")
    (desk.folder / "day.html").unlink()
    ended = desk.send()
    assert ended.code == 1
    assert f"The HTML file {desk.folder}/day.html cannot be read" in ended.all
    assert sandbox.state()["campaigns"] == []


# ----------------------------------------------------------------------------------------------------------- copy

SOURCE: dict[str, Any] = {
    "id": CAMPAIGN_ID,
    "web_id": 4711,
    "parent_campaign_id": "ffffffffff",
    "type": "regular",
    "create_time": "2025-12-01T08:00:00+00:00",
    "archive_url": "http://eepurl.com/x",
    "status": "sent",
    "emails_sent": 4812,
    "send_time": "2025-12-01T09:00:00+00:00",
    "content_type": "template",
    "recipients": {
        "list_id": LIST_ID,
        "list_is_active": True,
        "list_name": "Readers",
        "segment_text": "",
        "recipient_count": 4812,
    },
    "settings": {
        "subject_line": "The news",
        "preview_text": "What happened",
        "title": "Template of the daily digest",
        "from_name": "The Daily",
        "reply_to": "news@example.com",
        "use_conversation": False,
        "to_name": "*|FNAME|*",
        "folder_id": "7d8ae415d2",
        "authenticate": True,
        "auto_footer": False,
        "inline_css": True,
        "auto_tweet": False,
        "auto_fb_post": [],
        "fb_comments": True,
        "timewarp": False,
        "template_id": 10091262,
        "drag_and_drop": True,
    },
    "tracking": {
        "opens": True,
        "html_clicks": True,
        "text_clicks": False,
        "goal_tracking": False,
        "ecomm360": True,
        "google_analytics": "daily_digest",
        "clicktale": "",
    },
    "social_card": {"image_url": "", "description": "", "title": ""},
    "report_summary": {"opens": 1},
    "delivery_status": {"enabled": False},
}
CONTENT = {"html": "<p>Hello *|UNSUB|*</p>", "plain_text": "Hello", "archive_html": "<p>Hello</p>"}


def source(**parts: Mapping[str, object] | str) -> dict[str, Any]:
    """The source campaign, with parts of it changed."""
    changed = dict(SOURCE)
    for name, part in parts.items():
        changed[name] = part if isinstance(part, str) else {**SOURCE[name], **part}
    return changed


def copied(
    campaign: dict[str, Any], content: dict[str, str] | None = None, *, list_id: str = "", subject: str = ""
) -> Spec:
    """What a copy of that campaign shall be, as it is read over a real connection."""
    with WireServer(says(200, campaign), says(200, CONTENT if content is None else content)) as server:
        return Copy(mailchimp(server.url), CAMPAIGN_ID, list_id=list_id, subject=subject).spec()


def test_a_copy_has_audience_settings_tracking_and_content_of_its_source_and_nothing_else() -> None:
    """Neither its title, its template (the content is in the HTML), its times nor its counts."""
    assert copied(SOURCE) == Spec(
        type="regular",
        recipients={"list_id": LIST_ID},
        settings={
            "subject_line": "The news",
            "preview_text": "What happened",
            "from_name": "The Daily",
            "reply_to": "news@example.com",
            "use_conversation": False,
            "to_name": "*|FNAME|*",
            "folder_id": "7d8ae415d2",
            "authenticate": True,
            "auto_footer": False,
            "inline_css": True,
            "auto_tweet": False,
            "fb_comments": True,
        },
        tracking={
            "opens": True,
            "html_clicks": True,
            "text_clicks": False,
            "goal_tracking": False,
            "ecomm360": True,
            "google_analytics": "daily_digest",
        },
        # the plain-text part is made anew by Mailchimp: the source's holds links of its own
        content=Content(html="<p>Hello *|UNSUB|*</p>", plain_text=""),
    )


def test_the_subject_of_the_settings_takes_the_place_of_the_sources() -> None:
    """A pattern with the date in it, rendered."""
    assert copied(SOURCE, subject="News of 5 January").settings["subject_line"] == "News of 5 January"


def test_the_copy_of_a_plain_text_campaign_has_its_text() -> None:
    """And no HTML, of which it has none."""
    spec = copied(source(type="plaintext"), {"html": "", "plain_text": "Hello"})
    assert spec.type == "plaintext"
    assert spec.content == Content(plain_text="Hello")


CONDITIONS = [
    {"condition_type": "Interests", "field": "interests-1", "op": "interestcontains", "value": ["a"]}
]
SEGMENTS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "saved": (
        {"saved_segment_id": 12, "match": "any", "conditions": CONDITIONS},
        {"saved_segment_id": 12},
    ),
    "saved, its conditions not shown": ({"saved_segment_id": 12, "match": "all"}, {"saved_segment_id": 12}),
    "conditions": (
        {"match": "any", "conditions": CONDITIONS},
        {"match": "any", "conditions": CONDITIONS},
    ),
    "conditions, saved as none": (
        {"saved_segment_id": 0, "match": "all", "conditions": CONDITIONS},
        {"match": "all", "conditions": CONDITIONS},
    ),
}


@pytest.mark.parametrize(("shown", "wanted"), SEGMENTS.values(), ids=SEGMENTS)
def test_a_copy_goes_to_the_segment_of_its_source(
    shown: dict[str, object], wanted: dict[str, object]
) -> None:
    """By its number if it is saved, which then holds the conditions; else by them."""
    recipients = {"segment_opts": shown, "segment_text": "<p>Contacts that match …</p>"}
    assert copied(source(recipients=recipients)).recipients == {"list_id": LIST_ID, "segment_opts": wanted}


@pytest.mark.parametrize("shown", [{}, {"match": "any", "conditions": []}, None])
def test_a_copy_goes_to_the_whole_audience_if_its_source_did(shown: dict[str, object] | None) -> None:
    """No segment, shown in one way or another."""
    assert copied(source(recipients={"segment_opts": shown})).recipients == {"list_id": LIST_ID}


CANNOT: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "rss": (source(type="rss"), CONTENT, 'its type is "rss"'),
    "variate": (source(type="variate"), CONTENT, 'its type is "variate"'),
    "absplit": (source(type="absplit"), CONTENT, 'its type is "absplit"'),
    "of a type nobody knows": (source(type="hologram"), CONTENT, 'its type is "hologram"'),
    "without an audience": (source(recipients={"list_id": ""}), CONTENT, "it has no audience"),
    "prebuilt segment": (
        source(recipients={"segment_opts": {"prebuilt_segment_id": "subscribers-female"}}),
        CONTENT,
        "it is for a prebuilt segment",
    ),
    "prebuilt segment with conditions": (
        source(recipients={"segment_opts": {"prebuilt_segment_id": "x", "conditions": CONDITIONS}}),
        CONTENT,
        "it is for a prebuilt segment",
    ),
    "advanced segment": (
        source(recipients={"segment_opts": {"match": "all"}, "segment_text": "<li>custom advanced segment</li>"}),
        CONTENT,
        "it is for a segment that the API does not show",
    ),
    "segment in words alone": (
        source(recipients={"segment_text": "<p>Contacts that match …</p>"}),
        CONTENT,
        "it is for a segment that the API does not show",
    ),
    "timewarp": (source(settings={"timewarp": True}), CONTENT, "it uses Timewarp"),
    "Facebook": (source(settings={"auto_fb_post": ["123"]}), CONTENT, "it posts to Facebook pages"),
    "no HTML": (SOURCE, {"html": "", "plain_text": "Hello"}, "it has no content that the API shows"),
    "white space": (SOURCE, {"html": " \n", "plain_text": "Hello"}, "it has no content that the API shows"),
    "no text": (
        source(type="plaintext"),
        {"html": "<p>Hello</p>", "plain_text": ""},
        "it has no content that the API shows",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("campaign", "content", "said"), CANNOT.values(), ids=CANNOT)
def test_what_would_be_lost_in_a_copy_is_refused(
    campaign: dict[str, Any], content: dict[str, str], said: str
) -> None:
    """With the campaign, the setting that names it, and what cannot be copied."""
    beginning = rf"Campaign {CAMPAIGN_ID} \(SENDONCE_REPLICATE_FROM\) cannot be copied: {said}"
    with pytest.raises(Refused, match=beginning):
        copied(campaign, content)


def test_everything_that_cannot_be_copied_is_said_at_once() -> None:
    """A person mends it in one go."""
    with pytest.raises(Refused, match=r'its type is "rss".*; it uses Timewarp'):
        copied(source(type="rss", settings={"timewarp": True}))


def test_a_source_for_another_audience_than_the_settings_is_refused() -> None:
    """SENDONCE_LIST_ID is a guard: readers of one newsletter do not get another."""
    with pytest.raises(Refused, match=f'its audience is "{LIST_ID}", SENDONCE_LIST_ID is "ffffffffff"'):
        copied(SOURCE, list_id="ffffffffff")
    assert copied(SOURCE, list_id=LIST_ID).recipients == {"list_id": LIST_ID}


def test_a_source_that_is_gone_is_refused() -> None:
    """With the setting that names it."""
    said = r"1a2b3c4d5e \(SENDONCE_REPLICATE_FROM\), is not in Mailchimp"
    with WireServer(problem(404, "Resource Not Found")) as server, pytest.raises(Refused, match=said):
        Copy(mailchimp(server.url), CAMPAIGN_ID, list_id="", subject="").spec()


def test_a_source_whose_content_cannot_be_read_is_no_refusal() -> None:
    """It may be there at the next run: an object without content is no answer, not an empty mail."""
    with WireServer(says(200, SOURCE), says(200, {})) as server, pytest.raises(NoAnswer):
        Copy(mailchimp(server.url), CAMPAIGN_ID, list_id="", subject="").spec()


@pytest.mark.parametrize("segment", ["whole audience", "saved", "conditions"])
def test_a_run_mails_a_copy_to_those_and_only_those_its_source_is_for(
    sandbox: Sandbox, tmp_path: Path, segment: str
) -> None:
    """Through the whole command: what is in Mailchimp afterwards reads as the source does, but for the title."""
    desk = Desk(tmp_path / "desk", sandbox, "replicate", SENDONCE_LISTING_SECONDS="0")
    template = desk.values["SENDONCE_REPLICATE_FROM"]
    conditions = [{"condition_type": "EmailAddress", "field": "EMAIL", "op": "contains", "value": "0001"}]
    opts: dict[str, dict[str, object]] = {
        "whole audience": {},
        "saved": {"saved_segment_id": saved_segment(sandbox)},
        "conditions": {"match": "all", "conditions": conditions},
    }
    sandbox.edit(
        template, segment_opts=opts[segment], html="<p>Copied</p>", settings={"preview_text": "Look"}
    )
    ended = desk.send()
    assert ended.code == 0, ended.all
    api = mailchimp(sandbox.url)
    copy_id = desk.record(DAY)["campaigns"][0]["id"]
    was, made = api.campaign(template), api.campaign(copy_id)
    assert was is not None
    assert made is not None
    assert made.is_mailed
    assert made.recipients == {**was.recipients, "recipient_count": made.recipient_count}
    assert made.tracking == was.tracking
    assert made.settings == {
        **was.settings,
        "title": made.title,
        "subject_line": "News of 2026-01-05",
    }
    assert api.content(copy_id).html == "<p>Copied</p>"
    assert was.is_draft


def saved_segment(sandbox: Sandbox) -> int:
    """Put a saved segment of two people in place; its number."""
    body = {"name": "Two", "static_segment": ["member0001@example.com", "member0002@example.com"]}
    key = b64encode(f"user:{API_KEY}".encode()).decode()
    with closing(http.client.HTTPConnection("127.0.0.1", sandbox.port, timeout=30)) as connection:
        path = f"/3.0/lists/{LIST_ID}/segments"
        connection.request("POST", path, json.dumps(body), {"Authorization": f"Basic {key}"})
        return int(json.loads(connection.getresponse().read())["id"])


# -------------------------------------------------------------------------------------- what is read back afterwards

WRITTEN = Spec(
    type="regular",
    recipients={"list_id": LIST_ID, "segment_opts": {"match": "all", "conditions": CONDITIONS}},
    settings={"subject_line": "News", "from_name": "Ed", "auto_footer": False},
    tracking={"opens": True},
    content=Content(html="<p>"),
)
READS = Campaign(
    id=CAMPAIGN_ID,
    title="Digest [5e0e96f7]",
    status="save",
    type="regular",
    list_id=LIST_ID,
    create_time=None,
    settings={
        "title": "Digest [5e0e96f7]",
        "subject_line": "News",
        "from_name": "Ed",
        "auto_footer": False,
        "to_name": "",
    },
    recipients={
        "list_id": LIST_ID,
        "list_name": "Readers",
        "recipient_count": 5,
        "segment_opts": {"match": "all", "conditions": CONDITIONS, "saved_segment_id": 0},
    },
    tracking={"opens": True, "html_clicks": True},
)


def test_a_campaign_that_reads_as_it_was_written_has_no_differences() -> None:
    """What Mailchimp adds of its own does not count."""
    assert differences(WRITTEN, READS) == ()


OTHERWISE: dict[str, tuple[Campaign, tuple[str, ...]]] = {
    "subject": (replace(READS, settings={**READS.settings, "subject_line": "Old news"}), ("settings.subject_line",)),
    "subject gone": (
        replace(READS, settings={k: v for k, v in READS.settings.items() if k != "subject_line"}),
        ("settings.subject_line",),
    ),
    "a switch": (replace(READS, settings={**READS.settings, "auto_footer": True}), ("settings.auto_footer",)),
    "audience": (replace(READS, recipients={**READS.recipients, "list_id": "ffffffffff"}), ("recipients.list_id",)),
    "segment gone": (replace(READS, recipients={"list_id": LIST_ID}), ("recipients.segment_opts",)),
    "segment emptied": (
        replace(READS, recipients={"list_id": LIST_ID, "segment_opts": {"match": "all", "conditions": []}}),
        ("recipients.segment_opts.conditions",),
    ),
    "segment loosened": (
        replace(
            READS, recipients={"list_id": LIST_ID, "segment_opts": {"match": "any", "conditions": CONDITIONS}}
        ),
        ("recipients.segment_opts.match",),
    ),
    "tracking": (replace(READS, tracking={"opens": False}), ("tracking.opens",)),
    "type": (replace(READS, type="plaintext"), ("type",)),
    "all of it": (
        replace(READS, type="rss", settings={}, recipients={}, tracking={}),
        ("recipients.list_id", "recipients.segment_opts", "settings.subject_line", "settings.from_name",
         "settings.auto_footer", "tracking.opens", "type"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reads", "expected"), OTHERWISE.values(), ids=OTHERWISE)
def test_what_reads_otherwise_than_it_was_written_is_named(
    reads: Campaign, expected: tuple[str, ...]
) -> None:
    """A run refuses on any of these."""
    assert differences(WRITTEN, reads) == expected
