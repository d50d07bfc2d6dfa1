"""The sandbox does what tests and people rely on: sends once, lags, fails on the wire as ordered, remembers."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from support.sandbox import API_KEY, LIST_ID, Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from email.message import Message

A_LONG_TIME_S = 3600
AUTHORIZATION = "Basic " + base64.b64encode(f"user:{API_KEY}".encode()).decode()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Message
    text: bytes

    @property
    def body(self) -> Any:
        """The JSON of it."""
        return json.loads(self.text)


class Client:
    """A bare HTTP client: it follows nothing, retries nothing, and hides nothing."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        timeout_s: float = 30,
        authorization: str = AUTHORIZATION,
    ) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.sandbox.port, timeout=timeout_s)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/3.0{path}", text, {"Authorization": authorization})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def send(self, campaign_id: str, *, timeout_s: float = 30) -> Answer:
        """POST the send."""
        return self.ask("POST", f"/campaigns/{campaign_id}/actions/send", timeout_s=timeout_s)

    def status(self, campaign_id: str) -> str:
        """Tell the status that a read by id shows."""
        return str(self.ask("GET", f"/campaigns/{campaign_id}").body["status"])

    def titles(self, query: str = "count=1000") -> list[str]:
        """Read the titles of a listing."""
        campaigns = self.ask("GET", f"/campaigns?{query}").body["campaigns"]
        return [campaign["settings"]["title"] for campaign in campaigns]

    def create(self, title: str = "Made", **settings: object) -> str:
        """Create a draft, finished but for its content; its id."""
        body = {
            "type": "regular",
            "recipients": {"list_id": LIST_ID},
            "settings": {
                "title": title,
                "subject_line": "News",
                "from_name": "Us",
                "reply_to": "us@example.com",
                **settings,
            },
        }
        return str(self.ask("POST", "/campaigns", body).body["id"])


def until(condition: Callable[[], bool], limit_s: float = 20) -> None:
    """Wait until a condition holds; fail if it does not come to."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(audience=100, sending=0) as sandbox:
        yield sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Client:
    return Client(sandbox)


# Sending


def test_a_send_mails_every_member_once_and_a_second_send_is_refused(
    sandbox: Sandbox, client: Client
) -> None:
    campaign = sandbox.add_draft("Digest 2026-01-05")

    first, second = client.send(campaign), client.send(campaign)

    assert (first.status, first.text) == (204, b"")
    assert "Content-Type" not in first.headers
    assert (second.status, second.body["title"]) == (400, "Bad Request")
    assert (sandbox.sends(), sandbox.accepted()) == (2, 1)
    assert (sandbox.sends(campaign), sandbox.accepted(campaign)) == (2, 1)
    assert sandbox.mailbox()["total"] == {"deliveries": 100, "distinct": 100, "more_than_once": 0, "most": 1}


def test_of_sends_at_the_same_moment_one_is_accepted(sandbox: Sandbox, client: Client) -> None:
    # Finding the recipients of a condition among so many takes long enough for the sends to overlap.
    condition = {"condition_type": "Aim", "field": "aim", "op": "nosent", "value": "any"}
    campaign = sandbox.add_draft(
        "Digest",
        list_id=sandbox.add_audience(50_000),
        segment_opts={"match": "all", "conditions": [condition]},
    )

    with ThreadPoolExecutor(10) as pool:
        statuses = list(pool.map(lambda _: client.send(campaign).status, range(10)))

    assert sorted(statuses) == [204] + [400] * 9
    assert (sandbox.sends(), sandbox.accepted(), sandbox.deliveries(campaign)) == (10, 1, 50_000)


@pytest.mark.parametrize("body", ["", "null", "{}"])
def test_a_send_takes_any_of_the_bodies_that_clients_use(body: str, sandbox: Sandbox) -> None:
    campaign = sandbox.add_draft("Digest")
    connection = http.client.HTTPConnection("127.0.0.1", sandbox.port, timeout=30)

    connection.request(
        "POST", f"/3.0/campaigns/{campaign}/actions/send", body, {"Authorization": AUTHORIZATION}
    )
    status = connection.getresponse().status
    connection.close()

    assert status == 204


def test_a_campaign_goes_from_save_over_sending_to_sent(sandbox: Sandbox, client: Client) -> None:
    sandbox.settings(sending_s=A_LONG_TIME_S)
    campaign = sandbox.add_draft("Digest")
    before = client.ask("GET", f"/campaigns/{campaign}").body

    client.send(campaign)
    during = client.ask("GET", f"/campaigns/{campaign}").body
    sandbox.settings(sending_s=0)
    after = client.ask("GET", f"/campaigns/{campaign}").body

    assert [one["status"] for one in (before, during, after)] == ["save", "sending", "sent"]
    assert [one["emails_sent"] for one in (before, during, after)] == [0, 0, 100]
    assert before["send_time"] == ""
    assert after["send_time"] == during["send_time"] != ""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"html": ""}, "the content is empty"),
        ({"subject": ""}, "the subject line is missing"),
        ({"settings": {"from_name": ""}}, "the from name is missing"),
        ({"settings": {"reply_to": ""}}, "the reply-to address is missing"),
        ({"list_id": ""}, "no audience has been chosen"),
    ],
    ids=["content", "subject", "from_name", "reply_to", "list_id"],
)
def test_an_unfinished_campaign_is_not_sent_and_its_checklist_says_why(
    fields: dict[str, object], reason: str, sandbox: Sandbox, client: Client
) -> None:
    campaign = sandbox.add_draft("Digest", **fields)

    answer = client.send(campaign)
    checklist = client.ask("GET", f"/campaigns/{campaign}/send-checklist").body

    assert answer.status == 400
    assert answer.body["detail"] == f"Your Campaign is not ready to send. {reason}"
    assert checklist["is_ready"] is False
    assert [one["details"] for one in checklist["items"] if one["type"] == "error"] == [reason]
    assert sandbox.deliveries(campaign) == 0


def test_an_empty_audience_is_not_mailed(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest", list_id=sandbox.add_audience(0))

    assert client.send(campaign).body["detail"].startswith("Your Campaign is not ready to send.")
    assert client.ask("GET", f"/campaigns/{campaign}/send-checklist").body["is_ready"] is False


def test_recipients_of_a_new_campaign_are_not_ready_for_as_long_as_the_setting_says(
    sandbox: Sandbox, client: Client
) -> None:
    sandbox.settings(recipients_ready_s=A_LONG_TIME_S)
    campaign = client.create()
    client.ask("PUT", f"/campaigns/{campaign}/content", {"html": "<p>Hi</p>"})

    early = client.send(campaign)
    items = client.ask("GET", f"/campaigns/{campaign}/send-checklist").body["items"]
    sandbox.settings(recipients_ready_s=0)

    assert early.body["detail"] == "Your Campaign is not ready to send. recipients not ready"
    assert [one["details"] for one in items if one["type"] == "error"] == ["recipients not ready"]
    assert client.send(campaign).status == 204


def test_a_draft_put_in_place_by_hand_is_ready_at_once_unless_it_is_fresh(
    sandbox: Sandbox, client: Client
) -> None:
    sandbox.settings(recipients_ready_s=A_LONG_TIME_S, listing_lag_s=A_LONG_TIME_S)
    old, fresh = sandbox.add_draft("Old"), sandbox.add_draft("Fresh", fresh=True)

    assert client.titles() == ["Old"]
    assert (client.send(old).status, client.send(fresh).status) == (204, 400)


def test_the_content_reads_back_as_it_was_written(client: Client) -> None:
    campaign = client.create()
    html = "<p>Grüße ✓\r\n*|UNSUB|*</p>"

    client.ask("PUT", f"/campaigns/{campaign}/content", {"html": html})
    client.ask("PUT", f"/campaigns/{campaign}/content", {"plain_text": "Grüße"})
    content = client.ask("GET", f"/campaigns/{campaign}/content").body

    assert (content["html"], content["plain_text"]) == (html, "Grüße")


def test_a_changed_draft_keeps_what_the_change_does_not_name(client: Client) -> None:
    campaign = client.create("Digest", preview_text="Today", auto_footer=True)

    client.ask("PATCH", f"/campaigns/{campaign}", {"settings": {"subject_line": "Other news"}})
    settings = client.ask("GET", f"/campaigns/{campaign}").body["settings"]

    assert (settings["subject_line"], settings["title"]) == ("Other news", "Digest")
    assert (settings["preview_text"], settings["auto_footer"]) == ("Today", True)


def test_a_refused_change_changes_nothing(client: Client) -> None:
    campaign = client.create("Digest")
    change = {"settings": {"title": "Other"}, "recipients": {"list_id": "0123456789"}}

    assert client.ask("PATCH", f"/campaigns/{campaign}", change).status == 400
    assert client.titles() == ["Digest"]


def test_copies_are_numbered_and_otherwise_the_same(sandbox: Sandbox, client: Client) -> None:
    source = sandbox.add_draft("Digest", subject="News", html="<p>Hi</p>")

    copies = [client.ask("POST", f"/campaigns/{source}/actions/replicate").body for _ in range(2)]

    assert [one["settings"]["title"] for one in copies] == ["Digest (copy 01)", "Digest (copy 02)"]
    assert {one["settings"]["subject_line"] for one in copies} == {"News"}
    assert {one["status"] for one in copies} == {"save"}
    assert client.ask("GET", f"/campaigns/{copies[0]['id']}/content").body["html"] == "<p>Hi</p>"


def test_a_scheduled_campaign_goes_out_on_its_own_when_its_time_has_come(
    sandbox: Sandbox, client: Client
) -> None:
    campaign = sandbox.add_draft("Digest")
    path = f"/campaigns/{campaign}/actions/schedule"

    assert client.ask("POST", path, {"schedule_time": "2098-06-01T10:15:00+00:00"}).status == 204
    waiting = client.ask("GET", f"/campaigns/{campaign}").body
    sandbox.settings(clock_offset_s=80 * 366 * 86400)
    mailed = client.ask("GET", f"/campaigns/{campaign}").body

    assert (waiting["status"], waiting["send_time"]) == ("schedule", "2098-06-01T10:15:00+00:00")
    assert (mailed["status"], sandbox.deliveries(campaign)) == ("sent", 100)
    assert (sandbox.sends(), sandbox.accepted()) == (0, 0)


def test_an_unscheduled_campaign_is_a_draft_again(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    client.ask(
        "POST", f"/campaigns/{campaign}/actions/schedule", {"schedule_time": "2098-06-01T10:15:00+00:00"}
    )

    assert client.ask("POST", f"/campaigns/{campaign}/actions/unschedule").status == 204
    assert client.send(campaign).status == 204


def test_a_canceled_send_has_reached_only_some(sandbox: Sandbox, client: Client) -> None:
    sandbox.settings(sending_s=A_LONG_TIME_S)
    campaign = sandbox.add_draft("Digest")
    client.send(campaign)

    assert client.ask("POST", f"/campaigns/{campaign}/actions/cancel-send").status == 204
    assert client.status(campaign) == "canceled"
    assert sandbox.deliveries(campaign) < 100


# Time


def test_a_new_campaign_is_missing_from_listing_and_search_while_they_lag(
    sandbox: Sandbox, client: Client
) -> None:
    sandbox.settings(listing_lag_s=A_LONG_TIME_S)
    campaign = client.create("Digest")
    early = client.titles(), client.ask("GET", "/search-campaigns?query=digest").body["total_items"]
    sandbox.settings(listing_lag_s=0)
    later = client.titles(), client.ask("GET", "/search-campaigns?query=digest").body["total_items"]

    assert (early, later) == (([], 0), (["Digest"], 1))
    assert client.status(campaign) == "save"


def test_reads_go_on_showing_a_draft_while_the_status_lags_but_it_is_not_sent_again(
    sandbox: Sandbox, client: Client
) -> None:
    sandbox.settings(status_lag_s=A_LONG_TIME_S)
    campaign = sandbox.add_draft("Digest")
    client.send(campaign)

    lagging = client.ask("GET", f"/campaigns/{campaign}").body
    assert (lagging["status"], lagging["send_time"], lagging["emails_sent"]) == ("save", "", 0)
    assert client.titles("status=save") == ["Digest"]
    assert client.ask("GET", f"/reports/{campaign}").status == 404
    assert client.send(campaign).status == 400
    assert (sandbox.campaign(campaign)["status"], sandbox.campaign(campaign)["shown_status"]) == (
        "sent",
        "save",
    )

    sandbox.settings(status_lag_s=0)
    assert client.status(campaign) == "sent"


def test_its_clock_can_be_another_than_ours(sandbox: Sandbox, client: Client) -> None:
    sandbox.settings(clock_offset_s=-20 * 366 * 86400)
    year = int(client.ask("GET", "/ping").headers["Date"].split()[3])
    campaign = client.ask("GET", f"/campaigns/{client.create()}").body

    assert year < time.gmtime().tm_year - 18
    assert campaign["create_time"].startswith(str(year))


# By hand


def test_a_status_set_by_hand_stays(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")

    for status in ("sending", "paused", "canceling", "canceled", "archived", "odd", "schedule"):
        sandbox.edit(campaign, status=status, send_time="2026-01-05T08:00:00+00:00")
        assert client.status(campaign) == status
        assert client.send(campaign).status == 400


def test_a_campaign_sent_by_hand_has_reached_everybody_without_a_request_of_ours(
    sandbox: Sandbox, client: Client
) -> None:
    campaign = sandbox.add_draft("Digest")
    sandbox.edit(campaign, status="sent")

    assert client.ask("GET", f"/campaigns/{campaign}").body["emails_sent"] == 100
    assert (sandbox.deliveries(campaign), sandbox.sends(), sandbox.accepted()) == (100, 0, 0)


def test_a_send_that_the_provider_dropped_may_be_sent_again(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    client.send(campaign)
    sandbox.edit(campaign, status="save")

    assert (client.status(campaign), sandbox.deliveries(campaign)) == ("save", 0)
    assert client.send(campaign).status == 204
    assert (sandbox.accepted(campaign), sandbox.deliveries(campaign)) == (2, 100)


def test_whoever_gets_a_mail_twice_is_seen_in_the_mailbox(sandbox: Sandbox, client: Client) -> None:
    one, two = sandbox.add_draft("Digest"), sandbox.add_draft("Digest [0123abcd]")
    client.send(one)
    client.send(two)
    sandbox.delete(two)

    twice = {"deliveries": 200, "distinct": 100, "more_than_once": 100, "most": 2}
    assert sandbox.mailbox()["titles"] == {"Digest": twice}
    assert sandbox.mailbox()["total"] == twice
    assert (sandbox.deliveries(one), sandbox.deliveries(two), sandbox.deliveries("Digest")) == (100, 100, 200)


def test_a_mail_to_nobody_can_be_staged(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest", status="sent", delivered=0)

    read = client.ask("GET", f"/campaigns/{campaign}").body
    assert (read["status"], read["emails_sent"]) == ("sent", 0)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "campaigns", {"title": "Digest", "titel": "Digest"}),
        ("POST", "campaigns", {}),
        ("PATCH", "campaigns/0123456789", {"title": "Digest"}),
        ("PUT", "settings", {"listing_lag": 1}),
        ("PUT", "settings", {"listing_lag_s": -1}),
        ("PUT", "settings", {"listing_lag_s": "1"}),
        ("PUT", "faults", [{"on": "send", "word": "500odd"}]),
        ("PUT", "faults", [{"on": "sned", "word": "500"}]),
        ("PUT", "faults", [{"on": "send", "word": "500", "nht": 1}]),
        ("PUT", "faults", [{"on": "send", "word": "500", "nth": 0}]),
        ("PUT", "faults", [{"on": "send", "word": "500", "after": "create"}]),
        ("PUT", "faults", [{"on": "connect", "word": "500"}]),
        ("PUT", "faults", {"on": "send"}),
        ("GET", "sate", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_slip_of_the_pen_on_the_control_side_is_refused(
    method: str, path: str, body: object, sandbox: Sandbox
) -> None:
    with pytest.raises(AssertionError, match=f"{method} /sandbox/{path}"):
        sandbox._control(method, path, body)


# Listings


def test_a_listing_comes_in_pages_newest_first(sandbox: Sandbox, client: Client) -> None:
    for number in range(1, 26):
        sandbox.add_draft(f"{number}", create_time=f"2026-01-{number:02d}T08:00:00+00:00")

    first = client.ask("GET", "/campaigns").body
    assert (len(first["campaigns"]), first["total_items"]) == (10, 25)
    assert client.titles("count=3") == ["25", "24", "23"]
    assert client.titles("count=3&offset=23") == ["2", "1"]
    assert client.titles("count=2&sort_field=create_time&sort_dir=ASC") == ["1", "2"]
    assert len(client.titles("count=1000")) == 25
    assert client.ask("GET", "/campaigns?count=1001").status == 400


def test_a_listing_is_narrowed_by_each_filter(sandbox: Sandbox, client: Client) -> None:
    other_list = sandbox.add_audience(3)
    sandbox.add_draft("early", create_time="2026-01-01T08:00:00+00:00")
    sandbox.add_draft("late", create_time="2026-02-01T08:00:00+00:00", type="plaintext", list_id=other_list)
    sandbox.add_draft(
        "mailed",
        create_time="2026-01-15T08:00:00+00:00",
        status="sent",
        send_time="2026-01-20T08:00:00+00:00",
        settings={"folder_id": "f01de00000"},
    )

    assert client.titles("status=sent") == ["mailed"]
    assert client.titles("type=plaintext") == ["late"]
    assert client.titles(f"list_id={other_list}") == ["late"]
    assert client.titles("folder_id=f01de00000") == ["mailed"]
    assert client.titles("since_create_time=2026-01-10T00:00:00%2B00:00") == ["late", "mailed"]
    assert client.titles("before_create_time=2026-01-10T00:00:00%2B00:00") == ["early"]
    assert client.titles("since_send_time=2026-01-10T00:00:00%2B00:00") == ["mailed"]
    assert client.titles("before_send_time=2026-01-10T00:00:00%2B00:00") == []


def test_only_the_fields_asked_for_are_told(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")

    asked = client.ask("GET", "/campaigns?fields=campaigns.id,campaigns.settings.title,total_items").body
    without = client.ask("GET", f"/campaigns/{campaign}?exclude_fields=settings.title,recipients").body

    assert asked == {"campaigns": [{"id": campaign, "settings": {"title": "Digest"}}], "total_items": 1}
    assert "recipients" not in without
    assert "title" not in without["settings"]
    assert without["settings"]["subject_line"] == "Digest"


def test_thousands_of_campaigns_can_be_paged_through(sandbox: Sandbox, client: Client) -> None:
    sandbox.add_campaigns(2500)

    seen = [
        campaign["id"]
        for offset in (0, 1000, 2000)
        for campaign in client.ask("GET", f"/campaigns?count=1000&offset={offset}&fields=campaigns.id").body[
            "campaigns"
        ]
    ]

    assert len(seen) == len(set(seen)) == 2500


# Audiences


def test_the_recipients_of_a_sent_campaign_come_in_pages(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    client.send(campaign)

    page = client.ask("GET", f"/reports/{campaign}/sent-to?count=40&offset=80").body
    addresses = [row["email_address"] for row in page["sent_to"]]

    assert page["total_items"] == 100
    assert addresses == [f"member{number:04d}@example.com" for number in range(81, 101)]
    assert client.ask("GET", f"/reports/{campaign}/sent-to/{page['sent_to'][0]['email_id']}").status == 200
    assert client.ask("GET", f"/reports/{campaign}/sent-to?count=1001").status == 400


def test_a_static_segment_gets_what_is_sent_to_it(sandbox: Sandbox, client: Client) -> None:
    people = ["member0003@example.com", "MEMBER0001@example.com", "nobody@example.com"]
    segment = client.ask("POST", f"/lists/{LIST_ID}/segments", {"name": "Two", "static_segment": people}).body
    opts = {"saved_segment_id": segment["id"]}
    campaign = sandbox.add_draft("Digest", segment_opts=opts)
    read = client.ask("GET", f"/campaigns/{campaign}").body["recipients"]
    client.send(campaign)

    assert (segment["member_count"], segment["type"]) == (2, "static")
    assert (read["segment_opts"], read["recipient_count"]) == (opts, 2)
    rows = client.ask("GET", f"/reports/{campaign}/sent-to").body["sent_to"]
    assert [row["email_address"] for row in rows] == ["member0001@example.com", "member0003@example.com"]


def test_nosent_leaves_out_whoever_got_the_other_campaign(sandbox: Sandbox, client: Client) -> None:
    first = sandbox.add_draft("Digest", status="canceled", delivered=30)
    condition = {
        "condition_type": "Aim",
        "field": "aim",
        "op": "nosent",
        "value": str(sandbox.campaign(first)["web_id"]),
    }
    opts = {"match": "all", "conditions": [condition]}
    rest = client.create()
    client.ask("PATCH", f"/campaigns/{rest}", {"recipients": {"list_id": LIST_ID, "segment_opts": opts}})
    client.ask("PUT", f"/campaigns/{rest}/content", {"html": "<p>Hi</p>"})

    assert client.ask("GET", f"/campaigns/{rest}").body["recipients"]["segment_opts"] == opts
    assert client.send(rest).status == 204
    assert sandbox.deliveries(rest) == 70
    assert sandbox.mailbox()["total"] == {"deliveries": 100, "distinct": 100, "more_than_once": 0, "most": 1}


@pytest.mark.parametrize(
    ("match", "op", "expected"),
    [("all", "static_is", 2), ("all", "static_not", 68), ("any", "static_is", 98), ("any", "static_not", 72)],
)
def test_conditions_are_combined(
    match: str, op: str, expected: int, sandbox: Sandbox, client: Client
) -> None:
    # Members 1 to 30 got a mail, so nosent is 31 to 100; the segment is 3 to 32.
    first = sandbox.add_draft("Digest", status="canceled", delivered=30)
    people = [f"member{number:04d}@example.com" for number in range(3, 33)]
    segment = client.ask(
        "POST", f"/lists/{LIST_ID}/segments", {"name": "Thirty", "static_segment": people}
    ).body
    aim = {"condition_type": "Aim", "field": "aim", "op": "nosent"}
    static = {"condition_type": "StaticSegment", "field": "static_segment", "op": op, "value": segment["id"]}
    conditions = [{**aim, "value": str(sandbox.campaign(first)["web_id"])}, static]

    opts = {"match": match, "conditions": conditions}
    campaign = sandbox.add_draft("Rest", segment_opts=opts)

    count = client.ask("GET", f"/campaigns/{campaign}").body["recipients"]["recipient_count"]
    assert count == expected


def test_conditions_of_other_kinds_are_kept_and_narrow_nothing(sandbox: Sandbox, client: Client) -> None:
    condition = {"condition_type": "EmailAddress", "field": "EMAIL", "op": "contains", "value": "0001"}
    opts = {"match": "all", "conditions": [condition]}
    recipients = client.ask("GET", f"/campaigns/{sandbox.add_draft('Digest', segment_opts=opts)}").body[
        "recipients"
    ]

    assert (recipients["segment_opts"], recipients["recipient_count"]) == (opts, 100)


def test_an_audience_may_be_very_large_or_given_by_address(sandbox: Sandbox, client: Client) -> None:
    large = sandbox.add_audience(100_000, "Large")
    small = sandbox.add_audience(["Ann@example.com", "bob@example.com"], "Small")
    campaigns = [sandbox.add_draft("Large", list_id=large), sandbox.add_draft("Small", list_id=small)]

    for campaign in campaigns:
        client.send(campaign)

    assert [sandbox.deliveries(campaign) for campaign in campaigns] == [100_000, 2]
    last = client.ask("GET", f"/reports/{campaigns[0]}/sent-to?offset=99999").body["sent_to"]
    assert [row["email_address"] for row in last] == ["member100000@example.com"]
    assert client.ask("GET", f"/lists/{small}").body["stats"]["member_count"] == 2


# Keys


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer " + API_KEY,
        "Basic %%%",
        "Basic " + base64.b64encode(b"user:short-us1").decode(),
        "Basic " + base64.b64encode(b"user:0123456789abcdef0123456789abcdef").decode(),
    ],
    ids=["none", "bearer", "no base64", "short", "no data centre"],
)
def test_only_a_key_of_the_right_form_is_let_in(authorization: str, client: Client) -> None:
    answer = client.ask("GET", "/ping", authorization=authorization)

    assert (answer.status, answer.body["title"]) == (401, "API Key Invalid")


def test_one_key_can_be_demanded(sandbox: Sandbox, client: Client) -> None:
    sandbox.settings(api_key="f" * 32 + "-us7")
    campaign = sandbox.add_draft("Digest")

    assert client.send(campaign).status == 401
    assert (sandbox.sends(), sandbox.accepted()) == (1, 0)
    right = "Basic " + base64.b64encode(b"anyone:" + b"f" * 32 + b"-us7").decode()
    assert client.ask("GET", "/ping", authorization=right).status == 200


# Faults, canned answers

JSON, PROBLEM, HTML = "application/json", "application/problem+json", "text/html"
CANNED = [
    ("503empty", 503, JSON, b""),
    ("502noct", 502, None, b"<!DOCTYPE html>"),
    ("500emptyjson", 500, JSON, b"{}"),
    ("500badjson", 500, JSON, b'{"type": "https://mailchimp.com/'),
    ("403bare", 403, None, b""),
    ("502html", 502, HTML, b"<!DOCTYPE html>"),
    ("200html", 200, HTML, b"<!DOCTYPE html>"),
    ("302html", 302, HTML, b"<!DOCTYPE html>"),
    ("400notready", 400, PROBLEM, b"Your Campaign is not ready to send."),
    ("400recipients", 400, PROBLEM, b"Your Campaign is not ready to send. recipients not ready"),
    ("400sending", 400, PROBLEM, b"Cannot send a campaign that is not a draft"),
    ("400", 400, PROBLEM, b"Bad Request"),
    ("401", 401, PROBLEM, b"API Key Invalid"),
    ("403json", 403, PROBLEM, b"Forbidden"),
    ("404", 404, PROBLEM, b"Resource Not Found"),
    ("408", 408, PROBLEM, b"Request Timeout"),
    ("429", 429, PROBLEM, b"Too Many Requests"),
    ("500json", 500, PROBLEM, b"Internal Server Error"),
    ("504json", 504, PROBLEM, b"Gateway Timeout"),
    ("503html", 503, HTML, b"<!DOCTYPE html>"),
    ("504empty", 504, JSON, b""),
    ("500noct", 500, None, b"<!DOCTYPE html>"),
    ("200emptyjson", 200, JSON, b"{}"),
    ("202empty", 202, JSON, b""),
    ("200json", 200, JSON, b"{"),
    ("204", 204, None, b""),
]


@pytest.mark.parametrize(("word", "status", "content_type", "text"), CANNED)
def test_a_canned_answer_comes_in_place_of_the_effect(
    word: str, status: int, content_type: str | None, text: bytes, client: Client
) -> None:
    sandbox = client.sandbox
    campaign = sandbox.add_draft("Digest")
    sandbox.faults(f"post={word} get={word}")

    for answer in (client.send(campaign), client.ask("GET", f"/campaigns/{campaign}")):
        assert answer.status == status
        assert (answer.headers["Content-Type"] or "").partition(";")[0] == (content_type or "")
        assert (text in answer.text) if text else (answer.text == b"")
        assert answer.headers["Date"]

    sandbox.faults()
    assert client.status(campaign) == "save"
    assert (sandbox.sends(), sandbox.accepted()) == (1, 0)
    assert [(call["status"], call["fault"], call["effect"]) for call in sandbox.calls()][:2] == [
        (status, word, False)
    ] * 2


def test_the_problem_document_of_not_ready_says_exactly_that(sandbox: Sandbox, client: Client) -> None:
    sandbox.faults("post=400notready")

    answer = client.send(sandbox.add_draft("Digest")).body

    assert (answer["title"], answer["detail"]) == ("Bad Request", "Your Campaign is not ready to send.")


@pytest.mark.parametrize("word", ["accept-504html", "accept-503empty", "accept-200html", "accept-429"])
def test_a_gateway_may_fail_after_the_send_took_effect(word: str, sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    sandbox.faults(f"post={word}")

    assert client.send(campaign).status == int(word.removeprefix("accept-")[:3])
    assert (sandbox.accepted(), client.status(campaign)) == (1, "sent")


def test_a_redirect_leads_to_an_html_page(sandbox: Sandbox, client: Client) -> None:
    sandbox.faults("get=302html times=1")
    location = client.ask("GET", "/ping").headers["Location"]

    connection = http.client.HTTPConnection("127.0.0.1", sandbox.port, timeout=30)
    connection.request("GET", location)
    page = connection.getresponse()
    connection.close()

    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")


def test_a_throttle_may_say_when_to_come_back(sandbox: Sandbox, client: Client) -> None:
    sandbox.faults("get=429:7 nth=1", "get=429 nth=2")

    assert [client.ask("GET", "/ping").headers["Retry-After"] for _ in range(2)] == ["7", None]


# Faults on the wire

BEFORE = {"reset-before": ConnectionResetError, "close-before": http.client.RemoteDisconnected}
AFTER = {
    "reset-after": ConnectionResetError,
    "accept-reset": ConnectionResetError,
    "close-after": http.client.RemoteDisconnected,
    "cutjson": http.client.IncompleteRead,
    "garbage": http.client.BadStatusLine,
}


@pytest.mark.parametrize("word", [*BEFORE, *AFTER])
def test_a_connection_breaks_as_the_word_says(word: str, sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    sandbox.faults(f"post={word}")

    with pytest.raises((BEFORE | AFTER)[word]) as broken:
        client.send(campaign)

    assert type(broken.value) is (BEFORE | AFTER)[word]
    assert (sandbox.sends(), sandbox.accepted()) == (1, int(word in AFTER))
    assert client.status(campaign) == ("sent" if word in AFTER else "save")


@pytest.mark.parametrize(
    ("word", "accepted"),
    [
        ("stall-before", 0),
        ("stall-after", 1),
        ("accept-hang", 1),
        (f"slow:{A_LONG_TIME_S}", 0),
        (f"accept-slow:{A_LONG_TIME_S}", 1),
        (f"late:{A_LONG_TIME_S}", 0),
    ],
)
def test_no_answer_comes_within_the_timeout(
    word: str, accepted: int, sandbox: Sandbox, client: Client
) -> None:
    campaign = sandbox.add_draft("Digest")
    sandbox.faults(f"post={word}")

    with pytest.raises(TimeoutError):
        client.send(campaign, timeout_s=0.3)

    assert (sandbox.sends(), sandbox.accepted()) == (1, accepted)
    (call,) = sandbox.calls("send")
    assert (call["fault"], call["effect"], call["accepted"]) == (word, bool(accepted), bool(accepted))


@pytest.mark.parametrize("word", ["slow:0.1", "accept-slow:0.1", "drip:0.001", "nodate"])
def test_a_good_answer_comes_in_an_odd_way(word: str, sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    sandbox.faults(f"post={word} get={word}")

    read = client.ask("GET", "/ping")

    assert (read.status, read.body) == (200, {"health_status": "Everything's Chimpy!"})
    assert (read.headers["Date"] is None) == (word == "nodate")
    assert client.send(campaign).status == 204
    assert sandbox.accepted() == 1


def test_a_late_send_takes_effect_though_the_client_has_gone(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    sandbox.faults("post=late:0.5")

    with pytest.raises(TimeoutError):
        client.send(campaign, timeout_s=0.1)
    sandbox.faults()

    until(lambda: sandbox.accepted() == 1)
    assert client.status(campaign) == "sent"


def test_of_a_late_send_and_a_second_one_only_the_first_to_take_effect_is_accepted(
    sandbox: Sandbox, client: Client
) -> None:
    campaign = sandbox.add_draft("Digest")
    sandbox.faults("post=late:0.5 times=1")

    with pytest.raises(TimeoutError):
        client.send(campaign, timeout_s=0.1)

    assert client.send(campaign).status in {204, 400}
    until(lambda: sandbox.accepted() == 1)
    assert (sandbox.sends(), sandbox.deliveries(campaign)) == (2, 100)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted under /proc")  # noqa: PTH112
def test_a_held_connection_is_let_go_when_its_client_leaves(sandbox: Sandbox, client: Client) -> None:
    def threads() -> int:
        return len(os.listdir(f"/proc/{sandbox.pid}/task"))  # noqa: PTH208

    before = threads()
    sandbox.faults("get=stall-before")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            client.ask("GET", "/ping", timeout_s=0.05)

    until(lambda: threads() <= before)


def test_the_sandbox_ends_though_connections_are_held(sandbox: Sandbox) -> None:
    sandbox.faults("get=stall-before connect=slow:3600 nth=2")
    held = [socket.create_connection(("127.0.0.1", sandbox.port), timeout=30) for _ in range(2)]
    for one in held:
        one.sendall(b"GET /3.0/ping HTTP/1.1\r\nHost: sandbox\r\n\r\n")
    until(lambda: len(sandbox.calls("ping")) == 1)

    sandbox.close()

    for one in held:
        with one, suppress(ConnectionResetError):  # what it had not read yet makes it a reset
            assert one.recv(1) == b""


def test_half_a_request_is_no_request(sandbox: Sandbox) -> None:
    campaign = sandbox.add_draft("Digest")
    head = f"POST /3.0/campaigns/{campaign}/actions/send HTTP/1.1\r\nHost: s\r\nContent-Length: 4\r\n\r\n"
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=30) as connection:
        connection.sendall(head.encode() + b"nu")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""

    assert (sandbox.sends(), sandbox.calls()) == (0, [])


# Faults of a connection


@pytest.mark.parametrize("word", ["refuse", "reset-before"])
def test_a_connection_may_be_reset_at_once_while_the_control_side_stays_open(
    word: str, sandbox: Sandbox, client: Client
) -> None:
    sandbox.faults(f"connect={word}")

    with pytest.raises(ConnectionResetError):
        client.ask("GET", "/ping")

    assert sandbox.calls() == []
    sandbox.faults()
    assert client.ask("GET", "/ping").status == 200


def test_a_connection_may_hang_or_come_late(sandbox: Sandbox, client: Client) -> None:
    sandbox.faults("connect=stall-before nth=1 connect=slow:0.1 nth=2")

    with pytest.raises(TimeoutError):
        client.ask("GET", "/ping", timeout_s=0.3)

    assert client.ask("GET", "/ping").status == 200
    assert sandbox.state()["faults"][1]["hit"] == 1


# Faults, when they strike


def test_a_rule_strikes_only_the_nth_request_or_so_many_times(sandbox: Sandbox, client: Client) -> None:
    sandbox.faults({"on": "get", "word": "503empty", "nth": 2}, {"on": "any", "word": "500json", "times": 1})

    statuses = [client.ask("GET", "/ping").status for _ in range(4)]

    assert statuses == [500, 503, 200, 200]


def test_a_rule_after_the_send_waits_for_a_send_that_comes_later(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    sandbox.faults("post=accept-reset get=503empty after=send")

    assert client.status(campaign) == "save"
    with pytest.raises(ConnectionResetError):
        client.send(campaign)
    assert client.ask("GET", f"/campaigns/{campaign}").status == 503
    sandbox.faults()
    assert client.status(campaign) == "sent"


@pytest.mark.parametrize("on", ["create", "patch", "put", "checklist", "listing", "send", "read", "campaign"])
def test_a_rule_strikes_what_it_is_on_and_nothing_else(on: str, sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    requests: dict[str, tuple[str, str, object]] = {
        "create": ("POST", "/campaigns", {"type": "regular"}),
        "patch": ("PATCH", f"/campaigns/{campaign}", {"settings": {"title": "Digest"}}),
        "put": ("PUT", f"/campaigns/{campaign}/content", {"html": "<p>Hi</p>"}),
        "checklist": ("GET", f"/campaigns/{campaign}/send-checklist", None),
        "listing": ("GET", "/campaigns", None),
        "campaign": ("GET", f"/campaigns/{campaign}", None),
        "send": ("POST", f"/campaigns/{campaign}/actions/send", None),
    }
    sandbox.faults({"on": on, "word": "503empty"})

    struck = {name for name, request in requests.items() if client.ask(*request).status == 503}

    assert struck == ({"checklist", "listing", "campaign"} if on == "read" else {on})


def test_a_create_may_take_effect_without_an_answer(sandbox: Sandbox, client: Client) -> None:
    sandbox.faults("create=reset-after")

    with pytest.raises(ConnectionResetError):
        client.create("Orphan")

    assert client.titles() == ["Orphan"]


# What is remembered


def test_every_request_is_remembered_in_order_and_without_its_key(sandbox: Sandbox, client: Client) -> None:
    campaign = sandbox.add_draft("Digest")
    client.titles("count=5")
    client.ask("PUT", f"/campaigns/{campaign}/content", {"html": "<p>Hi</p>"})
    client.send(campaign)
    client.ask("GET", "/nowhere")

    calls = sandbox.calls()
    assert [(call["seq"], call["name"]) for call in calls] == [
        (1, "listing"),
        (2, "put"),
        (3, "send"),
        (4, "unknown"),
    ]
    assert (calls[0]["method"], calls[0]["path"], calls[0]["query"]) == (
        "GET",
        "/3.0/campaigns",
        {"count": "5"},
    )
    assert (calls[1]["body"], calls[1]["effect"]) == ({"html": "<p>Hi</p>"}, True)
    assert (calls[2]["status"], calls[2]["accepted"], calls[2]["effect"]) == (204, True, True)
    assert [call["status"] for call in calls] == [200, 200, 204, 404]
    assert all(call["authorization"] is True for call in calls)
    assert API_KEY not in json.dumps(calls)

    sandbox.clear_calls()
    assert (sandbox.calls(), sandbox.sends()) == ([], 1)


@pytest.mark.parametrize(
    "request_line", ["CONNECT us1.api.mailchimp.com:443 HTTP/1.1", "GET http://example.com/ HTTP/1.1"]
)
def test_whoever_takes_it_for_a_proxy_is_refused_and_remembered(request_line: str, sandbox: Sandbox) -> None:
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=30) as connection:
        connection.sendall(f"{request_line}\r\nHost: example.com\r\n\r\n".encode())
        answer = connection.makefile("rb").read()

    (call,) = sandbox.calls()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert (call["method"], call["path"]) == tuple(request_line.split()[:2])
    assert call["status"] == 502


def test_one_connection_may_carry_many_requests(sandbox: Sandbox) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", sandbox.port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/3.0/ping", headers={"Authorization": AUTHORIZATION})
        assert connection.getresponse().read()
    connection.close()

    assert len(sandbox.calls("ping")) == 3
    assert sandbox.state()["connections"] < 6  # 3 pings on 1; each look at the control side is 1


# The process


def test_drafts_can_be_there_from_the_start() -> None:
    with Sandbox(draft="Digest 2026-01-05") as sandbox:
        assert Client(sandbox).titles() == ["Digest 2026-01-05"]


def test_a_port_that_is_taken_is_told_without_a_traceback(sandbox: Sandbox) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "sendonce.sandbox", f"--port={sandbox.port}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (78, "")
    assert f"port {sandbox.port}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_sandbox_ends_with_whoever_started_it() -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "sendonce.sandbox", "--until-eof"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert started.stdout is not None
    assert started.stdout.readline().startswith(b"http://127.0.0.1:")

    _, errors = started.communicate(timeout=60)

    assert (started.returncode, errors) == (0, b"")
