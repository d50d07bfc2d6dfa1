"""The table of answers: what each answer of Mailchimp, or of what stands in its place, means to each call.

The expected results are written down by hand, row by row. A column: a read is tried again or it ends; a write
(create, settings, content) is made once; a send is taken, not sent, or unclear.
"""

from __future__ import annotations

import gc
import json
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from sendonce.core.campaigns import Accepted, Content, No, NotSent, Unclear
from sendonce.core.errors import CredentialsRejected, NoAnswer, Refused
from support.adapter import CAMPAIGN, CAMPAIGN_ID, SPEC, Notes, PatientClock, StoppedClock, mailchimp
from support.wire_server import (
    JSON,
    PROBLEM_JSON,
    WireServer,
    answer,
    exactly,
    hang_up,
    problem,
    raw,
    reset,
    says,
    stall,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sendonce.adapters.mailchimp.api import Mailchimp
    from sendonce.core.errors import SendonceError
    from support.wire_server import Peer

ALL_TRIES = 4
HTML_PAGE = b"<!DOCTYPE html><html><body>Request Blocked</body></html>"
HTML = "text/html; charset=utf-8"
WHOLE = raw(200, json.dumps(CAMPAIGN).encode(), Content_Type=JSON)
UNCLEAR = None
"""Neither taken nor not sent."""


@dataclass(frozen=True)
class Row:
    """One answer. `requests` is how often a read asks when it gets nothing else."""

    name: str
    act: Callable[[Peer], None]
    read: type[SendonceError]
    requests: int
    write: type[SendonceError]
    send: No | None


def temporary(name: str, act: Callable[[Peer], None], send: No | None = UNCLEAR) -> Row:
    """Build a row that a later run may heal: a read is tried again, a write is not."""
    return Row(name, act, NoAnswer, ALL_TRIES, NoAnswer, send)


def refusal(name: str, act: Callable[[Peer], None], send: No = No.REFUSED) -> Row:
    """Build a row that is a clear no."""
    return Row(name, act, Refused, 1, Refused, send)


def not_ready(*reasons: str) -> Callable[[Peer], None]:
    """Answer as Mailchimp does for a campaign that it does not send yet."""
    detail = " ".join(["Your Campaign is not ready to send.", *reasons])
    return problem(400, "Bad Request", detail)


KEY_INVALID = problem(401, "API Key Invalid", "Your API key may be invalid, or disabled.")
LONG = "x" * 400
ROWS = [
    # The key.
    Row("401", KEY_INVALID, CredentialsRejected, 1, CredentialsRejected, No.CREDENTIALS),
    Row(
        "401 HTML", answer(401, HTML_PAGE, HTML), CredentialsRejected, 1, CredentialsRejected, No.CREDENTIALS
    ),
    Row("401 empty", answer(401), CredentialsRejected, 1, CredentialsRejected, No.CREDENTIALS),
    # Throttled: the send did not happen.
    temporary("429", problem(429, "Too Many Requests"), No.THROTTLED),
    temporary("429 empty", answer(429), No.THROTTLED),
    temporary("429 HTML", answer(429, HTML_PAGE, HTML), No.THROTTLED),
    temporary("403 bare", answer(403), No.THROTTLED),
    temporary("403 HTML", answer(403, HTML_PAGE, HTML), No.THROTTLED),
    temporary("403 empty JSON", answer(403, b"", JSON), No.THROTTLED),
    temporary("403 of no problem", says(403, {"message": "Forbidden"}), No.THROTTLED),
    # Clear refusals.
    refusal("403", problem(403, "Forbidden")),
    refusal("400", problem(400, "Bad Request")),
    refusal("400 not ready", not_ready()),
    refusal("400 recipients", not_ready("recipients not ready"), No.RECIPIENTS_NOT_READY),
    refusal("400 Recipients", not_ready("Recipients not ready."), No.RECIPIENTS_NOT_READY),
    refusal("400 recipients late", not_ready(LONG, "recipients not ready"), No.RECIPIENTS_NOT_READY),
    refusal("422 recipients", problem(422, "Unprocessable", "recipients not ready")),
    refusal("405", problem(405, "Method Not Allowed")),
    refusal("414", problem(414, "Resource Nesting Too Deep")),
    refusal("422", problem(422, "Invalid Method Override")),
    refusal("426", problem(426, "Upgrade Required")),
    refusal("400 as plain JSON", says(400, {"title": "Bad Request"})),
    refusal("400 detail alone", says(400, {"detail": "No."}, PROBLEM_JSON)),
    # Neither yes nor no.
    temporary("400 HTML", answer(400, HTML_PAGE, HTML)),
    temporary("400 empty", answer(400, b"", JSON)),
    temporary("400 cut", answer(400, b'{"title": "Bad Re', PROBLEM_JSON)),
    temporary("404 HTML", answer(404, HTML_PAGE, HTML)),
    temporary("404 empty", answer(404)),
    temporary("408", problem(408, "Request Timeout")),
    temporary("408 empty", answer(408)),
    temporary("407", answer(407, HTML_PAGE, HTML)),
    temporary("500", problem(500, "Internal Server Error")),
    temporary("500 empty", answer(500, b"", JSON)),
    temporary("500 no type", answer(500, b"oops")),
    temporary("502 HTML", answer(502, HTML_PAGE, HTML)),
    temporary("503 HTML", answer(503, HTML_PAGE, HTML)),
    temporary("504", problem(504, "Gateway Timeout")),
    temporary("599", answer(599)),
    temporary("300", answer(300)),
    temporary("301", answer(301, Location="/3.0/elsewhere")),
    temporary("302", answer(302, b"Moved", "text/plain", Location="http://127.0.0.1:9/")),
    temporary("303", answer(303, Location="/")),
    temporary("304", answer(304, Content_Length=None)),
    temporary("307", answer(307, Location="/3.0/elsewhere")),
    temporary("308", answer(308, Location="/3.0/elsewhere")),
    temporary("200 HTML", answer(200, HTML_PAGE, HTML)),
    temporary("200 empty", answer(200)),
    temporary("200 empty JSON", answer(200, b"", JSON)),
    temporary("200 {}", says(200, {})),
    temporary("200 []", says(200, [])),
    temporary("200 null", says(200, None)),
    temporary("200 problem", says(200, {"title": "Error", "status": 500, "detail": "No."})),
    temporary("200 garbage", answer(200, bytes(range(256)), JSON)),
    temporary("200 cut JSON", answer(200, b'{"id": "1a2b3c4d5e", "sta', JSON)),
    temporary("200 NaN", answer(200, json.dumps(CAMPAIGN).replace("4711", "NaN").encode(), JSON)),
    temporary("200 UTF-16", answer(200, json.dumps(CAMPAIGN).encode("utf-16"), JSON)),
    temporary("200 two documents", answer(200, json.dumps(CAMPAIGN).encode() * 2, JSON)),
    temporary("201", says(201, CAMPAIGN)),
    temporary("202", says(202, CAMPAIGN)),
    temporary("203", says(203, CAMPAIGN)),
    temporary("206", says(206, CAMPAIGN)),
    temporary("204 with a length", exactly(raw(204, b"{}", Content_Length="2"))),
    temporary("204 in chunks", exactly(raw(204, b"2\r\n{}\r\n0\r\n\r\n", Transfer_Encoding="chunked"))),
    # No whole answer.
    temporary("reset", reset),
    temporary("closed", hang_up),
    temporary("reset in the body", exactly(WHOLE[:-7])),
    temporary("cut in the header", exactly(WHOLE[:40])),
    temporary("not HTTP", exactly(b"\x15\x03\x01\x00\x02\x02\x46 this is not HTTP\r\n\r\n")),
    temporary("SSH", exactly(b"SSH-2.0-OpenSSH_9.2\r\n")),
]
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)

WRITES: dict[str, Callable[[Mailchimp], object]] = {
    "create": lambda m: m.create(SPEC, "Digest"),
    "settings": lambda m: m.write_settings(CAMPAIGN_ID, SPEC, "Digest"),
    "content": lambda m: m.write_content(CAMPAIGN_ID, SPEC.content),
}
READS: dict[str, Callable[[Mailchimp], object]] = {
    "ping": lambda m: m.ping(),
    "listing": lambda m: m.listing(),
    "campaign": lambda m: m.campaign(CAMPAIGN_ID),
    "content": lambda m: m.content(CAMPAIGN_ID),
    "checklist": lambda m: m.checklist(CAMPAIGN_ID),
}


@each_row
def test_what_an_answer_means_to_a_read(row: Row) -> None:
    """The first column."""
    with WireServer(row.act) as server:
        with pytest.raises(row.read):
            mailchimp(server.url).campaign(CAMPAIGN_ID)
        assert len(server.heard) == row.requests


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    "row",
    [r for r in ROWS if r.name in {"401", "429", "403 bare", "403", "502 HTML", "200 {}", "reset"}],
    ids=lambda row: row.name,
)
def test_every_read_takes_it_the_same_way(row: Row, read: Callable[[Mailchimp], object]) -> None:
    """The first column, for the other reads."""
    with WireServer(row.act) as server:
        with pytest.raises(row.read):
            read(mailchimp(server.url))
        assert len(server.heard) == row.requests


@each_row
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_an_answer_means_to_a_write(row: Row, write: Callable[[Mailchimp], object]) -> None:
    """The second column: one request, whatever comes."""
    with WireServer(row.act) as server:
        with pytest.raises(row.write):
            write(mailchimp(server.url))
        assert len(server.heard) == 1


@each_row
def test_what_an_answer_means_to_a_send(row: Row) -> None:
    """The third column: one request, whatever comes, and never an exception."""
    with WireServer(row.act) as server:
        found = mailchimp(server.url).send(CAMPAIGN_ID)
        assert len(server.heard) == 1
    if row.send is UNCLEAR:
        assert isinstance(found, Unclear)
    else:
        assert isinstance(found, NotSent)
        assert found.why is row.send


def test_json_that_nests_too_deep_is_no_answer() -> None:
    """Python's own parser fails at it with an error of another kind."""
    with WireServer(answer(200, b"[" * 100_000, JSON)) as server:
        api = mailchimp(server.url)
        gc.disable()  # what it would call at the bottom of the recursion has no room left
        try:
            assert isinstance(api.send(CAMPAIGN_ID), Unclear)
            with pytest.raises(NoAnswer):
                api.campaign(CAMPAIGN_ID)
        finally:
            gc.enable()


def test_no_answer_at_all_within_the_time_leaves_a_send_unclear() -> None:
    """Nor is a read or a write anything but unanswered."""
    with WireServer(stall) as server:
        api = mailchimp(server.url, timeout_s=0.6)
        assert api.send(CAMPAIGN_ID) == Unclear("no answer within 0.6 s.")
        for write in WRITES.values():
            with pytest.raises(NoAnswer, match="It is not known whether Mailchimp did"):
                write(api)
        with pytest.raises(NoAnswer):
            api.campaign(CAMPAIGN_ID)


def test_a_connection_that_was_refused_is_not_sent_and_tried_again_by_a_read() -> None:
    """The row of DNS, refused and connect timeout; each of them in test_client_traps.py."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/3.0"
    clock, notes = PatientClock(), Notes()
    api = mailchimp(url, clock=clock, notes=notes)
    with pytest.raises(NoAnswer, match="refused"):
        api.campaign(CAMPAIGN_ID)
    assert len(notes.told) == ALL_TRIES
    found = api.send(CAMPAIGN_ID)
    assert isinstance(found, NotSent)
    assert found.why is No.UNREACHABLE
    assert len(clock.slept) == ALL_TRIES - 1


@pytest.mark.parametrize("name", ["campaign", "content", "checklist", "listing", "ping"])
def test_what_mailchimp_does_not_know_is_none_for_a_campaign_and_a_refusal_for_the_rest(name: str) -> None:
    """A 404 with Mailchimp's own error document, and no other, says that there is none."""
    act = problem(404, "Resource Not Found", "The requested resource could not be found.")
    with WireServer(act) as server:
        if name == "campaign":
            assert READS[name](mailchimp(server.url)) is None
        else:
            with pytest.raises(Refused, match="404"):
                READS[name](mailchimp(server.url))
        assert len(server.heard) == 1


def test_a_campaign_that_is_gone_is_not_sent_and_cannot_be_written() -> None:
    """404 with Mailchimp's error document is a clear no to a write and to a send."""
    with WireServer(problem(404, "Resource Not Found")) as server:
        api = mailchimp(server.url)
        found = api.send(CAMPAIGN_ID)
        assert isinstance(found, NotSent)
        assert found.why is No.REFUSED
        with pytest.raises(Refused, match="404"):
            api.write_content(CAMPAIGN_ID, SPEC.content)


def test_a_yes_is_a_yes() -> None:
    """The good answers, so that nothing above fails for another reason."""
    content = {"html": "<p>Hello</p>", "plain_text": "Hello"}
    acts = [
        says(200, {"health_status": "Everything's Chimpy!"}),
        says(200, {"campaigns": [CAMPAIGN], "total_items": 1}),
        says(200, CAMPAIGN),
        says(200, content),
        says(200, {"is_ready": False, "items": [{"type": "error", "heading": "List", "details": "none"}]}),
        says(200, CAMPAIGN),
        says(200, CAMPAIGN),
        says(200, content),
        answer(204),
        answer(204, Content_Length="0"),
    ]
    with WireServer(*acts) as server:
        api = mailchimp(server.url)
        api.ping()
        assert [c.id for c in api.listing().campaigns] == [CAMPAIGN_ID]
        found = api.campaign(CAMPAIGN_ID)
        assert found is not None
        assert (found.status, found.title, found.recipient_count) == ("save", "Digest 2026-01-05", 5)
        assert api.content(CAMPAIGN_ID) == Content(html="<p>Hello</p>", plain_text="Hello")
        assert api.checklist(CAMPAIGN_ID).errors == ("List: none",)
        for write in WRITES.values():
            write(api)
        assert api.send(CAMPAIGN_ID) == Accepted()
        assert api.send(CAMPAIGN_ID) == Accepted()
        assert len(server.heard) == len(acts)


@pytest.mark.parametrize(
    "body",
    [b"\xef\xbb\xbf" + json.dumps(CAMPAIGN).encode(), b"\r\n " + json.dumps(CAMPAIGN).encode() + b"\n"],
)
@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "APPLICATION/JSON", "application/hal+json;x=y"]
)
def test_a_good_answer_in_odd_dress_is_good(body: bytes, content_type: str | None) -> None:
    """A byte order mark, white space, another Content-Type or none."""
    with WireServer(answer(200, body, content_type)) as server:
        found = mailchimp(server.url).campaign(CAMPAIGN_ID)
        mailchimp(server.url).create(SPEC, "Digest")
    assert found is not None
    assert found.web_id == 4711


# -------------------------------------------------------------------------------------- how a read is tried again


def test_a_read_that_fails_waits_longer_each_time() -> None:
    """0.5, 1 and 2 s, then it gives up."""
    clock = PatientClock()
    with WireServer(problem(500)) as server, pytest.raises(NoAnswer):
        mailchimp(server.url, clock=clock).campaign(CAMPAIGN_ID)
    assert clock.slept == [0.5, 1, 2]


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_a_read_takes_the_first_good_answer(bad: int) -> None:
    """Four tries in all."""
    clock = PatientClock()
    with WireServer(*[reset] * bad, says(200, CAMPAIGN)) as server:
        assert mailchimp(server.url, clock=clock).campaign(CAMPAIGN_ID) is not None
        assert len(server.heard) == bad + 1
    assert clock.slept == [0.5, 1, 2][:bad]


def test_a_read_may_be_told_to_ask_once() -> None:
    """As a run does that reads again by itself."""
    clock = PatientClock()
    with WireServer(problem(500)) as server:
        with pytest.raises(NoAnswer):
            mailchimp(server.url, clock=clock).campaign(CAMPAIGN_ID, tries=1)
        assert len(server.heard) == 1
    assert clock.slept == []


@pytest.mark.parametrize(
    ("told", "waited_s"),
    [("7", 7), ("0", 0), ("30", 30), ("31", 30), ("99999999999999999999", 30), ("1.5", 0.5), ("-1", 0.5),
     ("soon", 0.5), ("", 0.5), ("٣", 0.5), ("Mon, 05 Jan 2026 08:00:09 GMT", 0.5)],
)  # fmt: skip
@pytest.mark.parametrize("status", [429, 503, 403])
def test_retry_after_is_heeded_up_to_half_a_minute(status: int, told: str, waited_s: float) -> None:
    """What is no number of seconds counts as not said."""
    clock = PatientClock()
    acts = [answer(status, Retry_After=told.encode().decode("latin-1")), says(200, CAMPAIGN)]
    with WireServer(*acts) as server:
        mailchimp(server.url, clock=clock, timeout_s=130).campaign(CAMPAIGN_ID)
    assert clock.slept == [waited_s]


def test_all_tries_of_a_read_end_within_the_timeout() -> None:
    """Mailchimp asks for 30 s each time: in 70 s that is twice, and a third wait would end after the timeout."""
    clock = PatientClock()
    with WireServer(answer(429, Retry_After="30")) as server:
        with pytest.raises(NoAnswer, match="HTTP 429"):
            mailchimp(server.url, clock=clock, timeout_s=70).campaign(CAMPAIGN_ID)
        assert len(server.heard) == 3
    assert clock.slept == [30, 30]


def test_a_read_that_has_used_up_its_time_is_not_tried_again() -> None:
    """The first try may take it all."""
    clock = PatientClock()
    with WireServer(stall) as server:
        with pytest.raises(NoAnswer, match=r"no answer within 0\.6 s"):
            mailchimp(server.url, clock=clock, timeout_s=0.6).campaign(CAMPAIGN_ID)
        assert len(server.heard) == 1
    assert clock.slept == []


# ------------------------------------------------------------------------------------------------ Mailchimp's time


def at(text: str) -> datetime:
    """A time on 5 January 2026, UTC."""
    return datetime.fromisoformat(f"2026-01-05T{text}+00:00")


def test_time_is_the_last_date_and_the_seconds_since() -> None:
    """This machine's own clock has no say in it."""
    clock = StoppedClock()
    with WireServer(says(200, CAMPAIGN, Date="Mon, 05 Jan 2026 08:00:00 GMT")) as server:
        api = mailchimp(server.url, clock=clock)
        api.campaign(CAMPAIGN_ID)
        assert api.now() == at("08:00:00")
        clock.sleep(100)
        assert api.now() == at("08:01:40")


@pytest.mark.parametrize(
    "date", [None, "", "yesterday", "Mon, 99 Jan 2026 08:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -1400"]
)
def test_without_a_date_there_is_no_time(date: str | None) -> None:
    """No waiting time can be kept then, so there is no answer rather than a guess."""
    with WireServer(says(200, CAMPAIGN, Date=date)) as server:
        api = mailchimp(server.url)
        assert api.campaign(CAMPAIGN_ID) is not None
        with pytest.raises(NoAnswer, match="no Date header"):
            api.now()
        with pytest.raises(NoAnswer):
            api.listing()


def test_the_date_of_a_gateways_page_tells_no_time() -> None:
    """It has a clock of its own."""
    with WireServer(answer(502, HTML_PAGE, HTML)) as server:
        api = mailchimp(server.url)
        api.send(CAMPAIGN_ID)
        with pytest.raises(NoAnswer, match="no Date header"):
            api.now()


@pytest.mark.parametrize("act", [problem(400), problem(500), answer(204)], ids=["400", "500", "204"])
def test_the_date_of_every_answer_of_the_api_tells_the_time(act: Callable[[Peer], None]) -> None:
    """An error document, or the empty answer to a send."""
    with WireServer(act) as server:
        api = mailchimp(server.url, clock=StoppedClock())
        api.send(CAMPAIGN_ID)
        assert api.now() == at("08:00:00")


def test_time_does_not_go_back_for_a_date_that_is_only_cut_off() -> None:
    """A Date has whole seconds: the next one may seem to be up to a second earlier."""
    dates = ["Mon, 05 Jan 2026 08:00:00 GMT", "Mon, 05 Jan 2026 08:00:01 GMT"]
    clock = StoppedClock()
    with WireServer(*[says(200, CAMPAIGN, Date=date) for date in dates]) as server:
        api = mailchimp(server.url, clock=clock)
        api.campaign(CAMPAIGN_ID)
        clock.sleep(1.9)
        api.campaign(CAMPAIGN_ID)
        assert api.now() == at("08:00:01.900000")


def test_time_goes_back_when_mailchimps_clock_does() -> None:
    """The last Date counts."""
    dates = ["Mon, 05 Jan 2026 09:00:00 GMT", "Mon, 05 Jan 2026 08:00:00 GMT"]
    with WireServer(*[says(200, CAMPAIGN, Date=date) for date in dates]) as server:
        api = mailchimp(server.url, clock=StoppedClock())
        api.campaign(CAMPAIGN_ID)
        api.campaign(CAMPAIGN_ID)
        assert api.now() == at("08:00:00")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("2026-01-05T08:00:00+00:00", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("2026-01-05T09:00:00+01:00", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("2026-01-05T08:00:00Z", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("2026-01-05 08:00:00", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("", None),
        (None, None),
        (1767600000, None),
        ("soon", None),
        ("9999-12-31T23:59:59-14:00", None),
    ],
)
def test_times_of_a_campaign_are_read_as_utc_or_not_at_all(told: object, expected: datetime | None) -> None:
    """An unsent campaign has "" for its send_time."""
    with WireServer(says(200, CAMPAIGN | {"send_time": told, "create_time": told})) as server:
        found = mailchimp(server.url).campaign(CAMPAIGN_ID)
    assert found is not None
    assert (found.send_time, found.create_time) == (expected, expected)
    assert found.send_time is None or found.send_time.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "odd",
    [
        {"id": 5}, {"id": None}, {"status": None}, {"status": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_campaign_that_cannot_be_read_is_no_answer(odd: dict[str, object]) -> None:
    """It must be taken neither for another one nor for none."""
    with WireServer(says(200, CAMPAIGN | odd)) as server, pytest.raises(NoAnswer, match="not readable"):
        mailchimp(server.url).campaign(CAMPAIGN_ID)


@pytest.mark.parametrize(
    "status", ["save", "paused", "schedule", "sending", "sent", "canceling", "canceled", "archived", "weird"]
)
def test_the_status_is_kept_word_for_word(status: str) -> None:
    """One that nobody knows must not become one that is known."""
    with WireServer(says(200, CAMPAIGN | {"status": status})) as server:
        found = mailchimp(server.url).campaign(CAMPAIGN_ID)
    assert found is not None
    assert found.status == status


@pytest.mark.parametrize("part", ["settings", "recipients", "tracking"])
@pytest.mark.parametrize("value", [None, [], "text", 1])
def test_a_part_of_a_campaign_that_is_no_object_is_an_empty_one(part: str, value: object) -> None:
    """Nothing crashes on it, and what is missing does not match what was written."""
    with WireServer(says(200, CAMPAIGN | {part: value})) as server:
        found = mailchimp(server.url).campaign(CAMPAIGN_ID)
    assert found is not None
    assert getattr(found, part) == {}


@pytest.mark.parametrize("value", [True, "12", 1.5, None, [1]])
def test_a_count_that_is_no_whole_number_is_unknown(value: object) -> None:
    """Not 1 for true, and not a crash."""
    with WireServer(says(200, CAMPAIGN | {"emails_sent": value, "web_id": value})) as server:
        found = mailchimp(server.url).campaign(CAMPAIGN_ID)
    assert found is not None
    assert (found.emails_sent, found.web_id) == (None, None)


@pytest.mark.parametrize(
    ("document", "is_ready"),
    [({"is_ready": True}, True), ({"is_ready": "true"}, False), ({"is_ready": 1}, False), ({"is_ready": None}, False),
     ({"is_ready": True, "items": [{"type": "error", "heading": "x"}]}, True), ({"is_ready": False, "items": 5}, False)],
)  # fmt: skip
def test_ready_is_what_mailchimp_calls_ready_and_nothing_else(
    document: dict[str, object], is_ready: bool
) -> None:
    """A word that only looks like true is none."""
    with WireServer(says(200, document)) as server:
        assert mailchimp(server.url).checklist(CAMPAIGN_ID).is_ready is is_ready
