"""The traps of the mailchimp-marketing client, one by one, over a real connection: our adapter steps round them.

Their ids: A errors that look like success, B errors as exceptions, C time, D address and credentials,
E requests as sent. `test_client_canary.py` shows that the bare client still has the worst of them.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import socket
import threading
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from mailchimp_marketing.api.campaigns_api import CampaignsApi

from sendonce.adapters.mailchimp.wire import Wire
from sendonce.adapters.signals import stop_on_signals
from sendonce.core.campaigns import Accepted, Campaign, Content, No, NotSent, Spec, Unclear
from sendonce.core.errors import (
    CredentialsRejected,
    InvariantBroken,
    NoAnswer,
    Refused,
    SendonceError,
    SettingsWrong,
    Stopped,
)
from sendonce.settings import load
from support.adapter import (
    CAMPAIGN,
    CAMPAIGN_ID,
    SPEC,
    USER_AGENT,
    Notes,
    StoppedClock,
    mailchimp,
    self_signed,
)
from support.sandbox import API_KEY, LIST_ID
from support.wire_server import (
    JSON,
    PROBLEM_JSON,
    Peer,
    WireServer,
    answer,
    drip,
    exactly,
    hang_up,
    problem,
    raw,
    reset,
    says,
    stall,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from sendonce.adapters.mailchimp.api import Mailchimp
    from sendonce.settings import Settings
    from support.runs import Desk

HTML_PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"
NOT_JSON = {"text": b"oops", "object": b"{}", "list": b"[]", "null": b"null", "cut": b'{"id": "1a2b'}
PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

READS: dict[str, Callable[[Mailchimp], object]] = {
    "ping": lambda m: m.ping(),
    "listing": lambda m: m.listing(),
    "campaign": lambda m: m.campaign(CAMPAIGN_ID),
    "content": lambda m: m.content(CAMPAIGN_ID),
    "checklist": lambda m: m.checklist(CAMPAIGN_ID),
    "audience": lambda m: m.audience_size(LIST_ID),
    "segment": lambda m: m.audience_size(LIST_ID, 12),
}
WRITES: dict[str, Callable[[Mailchimp], object]] = {
    "create": lambda m: m.create(SPEC, "Digest"),
    "settings": lambda m: m.write_settings(CAMPAIGN_ID, SPEC, "Digest"),
    "content": lambda m: m.write_content(CAMPAIGN_ID, SPEC.content),
}
each_read = pytest.mark.parametrize("read", READS.values(), ids=READS)
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no CA bundle but those that a test sets."""
    for name in PROXY_NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """A server's certificate for localhost and nonexistent.invalid, signed by itself."""
    return self_signed(tmp_path_factory.mktemp("tls"), "localhost", "nonexistent.invalid")


def keys_heard(server: WireServer) -> set[str]:
    """User and key of every request, as Basic authentication carries them."""
    found = set()
    for heard in server.heard:
        scheme, _, code = heard.headers.get("authorization", "").partition(" ")
        found.add(f"{scheme} {base64.b64decode(code).decode()}")
    return found


# ------------------------------------------------------------------------------ A. errors that look like success


@each_read
@pytest.mark.parametrize("status", [404, 500, 503])
def test_an_error_without_a_body_is_no_answer_to_a_read(
    read: Callable[[Mailchimp], object], status: int
) -> None:
    """A1: the client returns it as if it were a success; an empty 404 is not "there is no such campaign"."""
    with (
        WireServer(answer(status, content_type=JSON)) as server,
        pytest.raises(NoAnswer, match=f"HTTP {status}"),
    ):
        read(mailchimp(server.url))


@pytest.mark.parametrize("status", [404, 500, 503])
def test_an_error_without_a_body_leaves_a_send_unclear(status: int) -> None:
    """A1."""
    with WireServer(answer(status, content_type=JSON)) as server:
        assert isinstance(mailchimp(server.url).send(CAMPAIGN_ID), Unclear)


def test_an_error_without_a_content_type_is_an_error() -> None:
    """A2: the client's own TypeError on the missing header is swallowed, and the error returned."""
    with WireServer(answer(502, HTML_PAGE)) as server:
        api = mailchimp(server.url)
        with pytest.raises(NoAnswer, match="HTTP 502 with content type not given"):
            api.campaign(CAMPAIGN_ID)
        assert isinstance(api.send(CAMPAIGN_ID), Unclear)


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("status", [500, 504])
def test_an_error_that_is_only_called_json_is_an_error(status: int, body: bytes) -> None:
    """A3."""
    with WireServer(answer(status, body, "application/json")) as server:
        api = mailchimp(server.url)
        with pytest.raises(NoAnswer, match=f"HTTP {status}"):
            api.campaign(CAMPAIGN_ID)
        assert isinstance(api.send(CAMPAIGN_ID), Unclear)


@each_read
@pytest.mark.parametrize("body", [b"[]", b"null", b"[{}]", b'"text"', b"1"])
def test_a_good_status_without_the_object_asked_for_is_no_answer(
    read: Callable[[Mailchimp], object], body: bytes
) -> None:
    """A4: the client gives a Response, a list or a number where an object was asked for."""
    with WireServer(answer(200, body, JSON)) as server, pytest.raises(NoAnswer):
        read(mailchimp(server.url))


@pytest.mark.parametrize("name", ["ping", "listing", "campaign", "content", "checklist"])
def test_an_empty_object_does_not_pass_for_the_one_asked_for(name: str) -> None:
    """A4."""
    with WireServer(says(200, {})) as server, pytest.raises(NoAnswer):
        READS[name](mailchimp(server.url))


def test_json_behind_a_byte_order_mark_is_read() -> None:
    """A4: the client cannot parse it and gives a Response instead."""
    body = b"\xef\xbb\xbf" + json.dumps(CAMPAIGN).encode()
    with WireServer(answer(200, body, JSON)) as server:
        found = mailchimp(server.url).campaign(CAMPAIGN_ID)
    assert found is not None
    assert found.title == "Digest 2026-01-05"


def test_only_an_empty_204_means_that_the_send_was_taken() -> None:
    """A5: with the client it works by accident: the missing Content-Type raises inside."""
    with WireServer(answer(204)) as server:
        assert mailchimp(server.url).send(CAMPAIGN_ID) == Accepted()
        assert server.calls == [("POST", f"/3.0/campaigns/{CAMPAIGN_ID}/actions/send")]


@pytest.mark.parametrize("content_type", [JSON, "text/html", None])
@pytest.mark.parametrize("status", [200, 201, 202, 205, 206])
def test_no_other_good_status_means_that_the_send_was_taken(status: int, content_type: str | None) -> None:
    """A5, A6."""
    with WireServer(answer(status, b'{"status": "ok"}' if status != 205 else b"", content_type)) as server:
        assert isinstance(mailchimp(server.url).send(CAMPAIGN_ID), Unclear)


def test_a_page_in_place_of_an_answer_is_no_answer() -> None:
    """A6: of a captive portal's or a proxy's page the client makes a str, and calls that a success."""
    with WireServer(answer(200, HTML_PAGE, "text/html")) as server:
        api = mailchimp(server.url)
        with pytest.raises(
            NoAnswer, match="content type text/html, which is not an answer of the Mailchimp API"
        ):
            api.campaign(CAMPAIGN_ID)
        with pytest.raises(NoAnswer):
            api.create(SPEC, "Digest")
        assert isinstance(api.send(CAMPAIGN_ID), Unclear)


def test_a_redirect_without_a_location_is_no_success() -> None:
    """A7: for requests everything below 400 is ok."""
    with WireServer(answer(302, b"Moved", "text/plain")) as server:
        api = mailchimp(server.url)
        with pytest.raises(NoAnswer, match="HTTP 302"):
            api.campaign(CAMPAIGN_ID)
        assert isinstance(api.send(CAMPAIGN_ID), Unclear)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_never_followed(status: int) -> None:
    """A8: a 302 makes a GET elsewhere of a send and gives its 200; a 307 sends again. D10: nor does the key go there."""
    with WireServer(says(200, CAMPAIGN)) as elsewhere:
        with WireServer(answer(status, b"", None, Location=f"{elsewhere.url}/campaigns")) as server:
            api = mailchimp(server.url)
            assert isinstance(api.send(CAMPAIGN_ID), Unclear)
            with pytest.raises(NoAnswer, match=f"HTTP {status}"):
                api.create(SPEC, "Digest")
            with pytest.raises(NoAnswer, match=f"HTTP {status}"):
                api.campaign(CAMPAIGN_ID, tries=1)
            assert server.calls == [
                ("POST", f"/3.0/campaigns/{CAMPAIGN_ID}/actions/send"),
                ("POST", "/3.0/campaigns"),
                ("GET", f"/3.0/campaigns/{CAMPAIGN_ID}"),
            ]
        assert elsewhere.connections == 0


def test_a_redirect_to_where_it_came_from_is_not_followed_either() -> None:
    """A8, D10: on the same host and port even the key would go along."""
    with WireServer(answer(307, Location="/3.0/elsewhere"), says(200, CAMPAIGN)) as server:
        assert isinstance(mailchimp(server.url).send(CAMPAIGN_ID), Unclear)
        assert len(server.heard) == 1


@pytest.mark.parametrize("location", ["http://[::1", "http://x:port/", "//", "\x00", "http://é.example/"])
def test_a_redirect_to_nowhere_is_an_odd_answer_like_any_other(location: str) -> None:
    """A8: requests parses the Location although it is told not to follow it, and may fail at it."""
    with WireServer(answer(302, Location=location)) as server:
        said = mailchimp(server.url).send(CAMPAIGN_ID)
    assert said == Unclear("HTTP 302 with an empty body, which is not an answer of the Mailchimp API.")


# -------------------------------------------------------------------------------------- B. errors as exceptions


@pytest.mark.parametrize(
    "content_type", [PROBLEM_JSON, "application/json", "Application/JSON", "text/plain", None]
)
def test_an_error_document_is_understood_whatever_its_content_type(content_type: str | None) -> None:
    """B1, B2: the client gives a str for one, a dict for the other, and a Response where there is no type."""
    document = {
        "type": "https://mailchimp.com/developer/marketing/docs/errors/",
        "title": "Invalid Resource",
        "status": 400,
        "detail": "The resource submitted could not be validated.",
        "instance": "0b7cd4d4",
        "errors": [{"field": "recipients.list_id", "message": "This value should not be blank."}],
    }
    with WireServer(answer(400, json.dumps(document).encode(), content_type)) as server:
        api = mailchimp(server.url)
        expected = (
            "HTTP 400: Invalid Resource. The resource submitted could not be validated. "
            "recipients.list_id: This value should not be blank. (instance 0b7cd4d4)"
        )
        assert api.send(CAMPAIGN_ID) == NotSent(No.REFUSED, expected)
        with pytest.raises(Refused) as refused:
            api.create(SPEC, "Digest")
    assert expected in str(refused.value)


@pytest.mark.parametrize("content_type", ["application/hal+json", "Application/JSON", "text/html", "", None])
def test_a_good_answer_is_understood_whatever_its_content_type(content_type: str | None) -> None:
    """B2: the client compares the header literally."""
    with WireServer(says(200, CAMPAIGN, content_type or "")) as server:
        found = mailchimp(server.url).campaign(CAMPAIGN_ID)
    assert found is not None
    assert found.web_id == 4711


@each_read
def test_an_error_says_what_happened(read: Callable[[Mailchimp], object]) -> None:
    """B3: `str()` of the client's error is empty."""
    act = problem(403, "Forbidden", "Your role may not do this.")
    with WireServer(act) as server, pytest.raises(Refused, match=r"HTTP 403: Forbidden\. Your role may not"):
        read(mailchimp(server.url))


def test_an_attempt_that_fails_is_noted_with_what_was_said() -> None:
    """B3."""
    notes = Notes()
    with (
        WireServer(problem(500, "Internal Server Error", "Try again later.")) as server,
        pytest.raises(NoAnswer),
    ):
        mailchimp(server.url, notes=notes).campaign(CAMPAIGN_ID)
    assert len(notes.told) == 4
    assert all("Internal Server Error. Try again later." in told for told in notes.told)


def test_a_body_that_cannot_be_json_is_a_bug_and_not_a_network_fault() -> None:
    """B4, B8: the client wraps a TypeError of json like a lost connection, with the same missing status."""
    odd = Spec("regular", {"list_id": LIST_ID}, {"subject_line": object()}, {}, Content("<p>"))
    with WireServer(says(200, CAMPAIGN)) as server:
        with pytest.raises(InvariantBroken, match="could not be built: TypeError"):
            mailchimp(server.url).create(odd, "Digest")
        assert server.connections == 0


def free_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def never_left(api: Mailchimp, said: str) -> None:
    """Check that nothing can have arrived: not sent, and every other call says the same and may be tried again."""
    assert api.send(CAMPAIGN_ID) == NotSent(No.UNREACHABLE, f"{said}.")
    with pytest.raises(NoAnswer, match=re.escape(said)):
        api.campaign(CAMPAIGN_ID, tries=1)
    with pytest.raises(NoAnswer, match=re.escape(f'Could not create campaign "Digest": {said}')):
        api.create(SPEC, "Digest")


def test_a_refused_connection_means_that_nothing_left() -> None:
    """B5."""
    never_left(
        mailchimp(f"http://127.0.0.1:{free_port()}/3.0"),
        "the connection was refused or the network is unreachable",
    )


def test_a_host_that_does_not_exist_means_that_nothing_left() -> None:
    """B5."""
    never_left(mailchimp("https://nonexistent.invalid/3.0"), "the host name could not be resolved")


def test_a_connection_that_does_not_come_about_means_that_nothing_left() -> None:
    """B5: it is the request that may have arrived, not the attempt to connect."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        waiting = fill_backlog(deaf)
        try:
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}/3.0"
            never_left(mailchimp(url, timeout_s=0.3), "no connection within the time allowed")
        finally:
            for sock in waiting:
                sock.close()


def fill_backlog(deaf: socket.socket) -> list[socket.socket]:
    """Connect to a listener that accepts nothing, until it lets nobody in any more."""
    waiting: list[socket.socket] = []
    while len(waiting) < 50:
        waiting.append(socket.socket())
        waiting[-1].settimeout(0.2)
        try:
            waiting[-1].connect(deaf.getsockname())
        except TimeoutError:
            return waiting
    raise AssertionError("the listener takes any number of connections")


CUT_BODY = raw(200, json.dumps(CAMPAIGN).encode())[:-5]
TOO_LATE: dict[str, Callable[[Peer], None]] = {
    "reset": reset,
    "closed": hang_up,
    "stalled": stall,
    "half a status": exactly(b"HTTP/1.1 20"),
    "cut body": exactly(CUT_BODY),
    "not HTTP": exactly(b"\x15\x03\x01\x00\x02\x02\x46 nonsense\r\n\r\n"),
    "two lengths": exactly(raw(200, b"{}", Content_Length="2, 5")),
    "bad chunk": exactly(raw(200, b"zz\r\n{}", Content_Length=None, Transfer_Encoding="chunked")),
    "not gzip": exactly(raw(200, b"{}", Content_Encoding="gzip")),
    "endless header": exactly(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"),
}


@pytest.mark.parametrize("act", TOO_LATE.values(), ids=TOO_LATE)
def test_a_fault_after_the_request_leaves_everything_open(act: Callable[[Peer], None]) -> None:
    """B5: it may have arrived, whatever exception comes of it."""
    with WireServer(act) as server:
        api = mailchimp(server.url, timeout_s=1)
        assert isinstance(api.send(CAMPAIGN_ID), Unclear)
        with pytest.raises(NoAnswer, match='It is not known whether Mailchimp did create campaign "Digest"'):
            api.create(SPEC, "Digest")
        with pytest.raises(NoAnswer, match=f"could not be asked for campaign {CAMPAIGN_ID}"):
            api.campaign(CAMPAIGN_ID, tries=1)
        assert len(server.heard) == 3


def test_a_wrong_argument_is_loud_and_sends_nothing() -> None:
    """B6: the client checks some arguments itself, with plain exceptions."""
    with WireServer(answer(204)) as server:
        wire = Wire(server.url, API_KEY, timeout_s=5, user_agent=USER_AGENT)
        campaigns = CampaignsApi(wire.client)
        with pytest.raises(ValueError, match="must be a value less than or equal to `1000`"):
            wire.exchange(lambda: campaigns.list(count=1001))
        with pytest.raises(TypeError, match="unexpected keyword argument 'titel'"):
            wire.exchange(lambda: campaigns.list(titel="x"))
        assert server.connections == 0


def test_the_headers_of_an_error_are_kept() -> None:
    """B7: the client drops them: Retry-After is heeded, and the Date of an error tells the time, too."""
    clock = StoppedClock()
    acts = (
        says(429, {"title": "Too Many Requests"}, PROBLEM_JSON, Retry_After="7"),
        says(200, CAMPAIGN, Date=None),
    )
    with WireServer(*acts) as server:
        api = mailchimp(server.url, clock=clock)
        api.campaign(CAMPAIGN_ID)
        assert api.now() == datetime(2026, 1, 5, 8, 0, 7, tzinfo=UTC)
    assert clock.slept == [7]


@pytest.mark.parametrize(
    "call",
    [*READS.values(), *WRITES.values(), lambda m: m.send(CAMPAIGN_ID)],
    ids=[*READS, *(f"write {w}" for w in WRITES), "send"],
)
def test_a_signal_passes_through_a_call_in_flight(call: Callable[[Mailchimp], object]) -> None:
    """B9: no `except` on the way may make a network fault of it, and none may answer in its place."""
    main = threading.main_thread().ident
    assert main is not None

    def end_the_run(peer: Peer) -> None:
        # again and again: one that arrives just before the thread goes to sleep does not keep it awake
        while not peer.stopping.wait(0.1):
            signal.pthread_kill(main, signal.SIGTERM)

    with pytest.raises(Stopped) as stop, stop_on_signals(), WireServer(end_the_run) as server:
        call(mailchimp(server.url))
    assert stop.value.signal_name == "SIGTERM"
    assert len(server.heard) == 1


# ------------------------------------------------------------------------------------------------------ C. time


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    """Settings from an environment that has all that is needed, but for what the test changes."""

    def read(**changes: str) -> Settings:
        needed = {
            "MAILCHIMP_API_KEY": API_KEY,
            "SENDONCE_TIMEZONE": "Etc/UTC",
            "SENDONCE_STATE": str(tmp_path),
        }
        return load(None, None, needed | changes, tmp_path)

    return read


def test_mailchimp_has_the_last_word_on_a_slow_call(settings: Callable[..., Settings]) -> None:
    """C1: the client's 120 s are Mailchimp's own limit: it would give up as the verdict comes."""
    assert settings().timeout_s > 120


WHOLE = raw(200, json.dumps(CAMPAIGN).encode(), Content_Type=JSON)
HEAD = WHOLE.index(b"\r\n\r\n") + 4


def then_drip(now: bytes, later: bytes) -> Callable[[Peer], None]:
    """Say the first part at once, the rest byte by byte."""

    def act(peer: Peer) -> None:
        peer.say(now)
        peer.drip(later, 0.1)

    return act


DRIPS = {
    "header": drip(WHOLE),
    "body": then_drip(WHOLE[:HEAD], WHOLE[HEAD:]),
    "no headers' end": drip(raw(204)),
}


@pytest.mark.parametrize("act", DRIPS.values(), ids=DRIPS)
def test_an_answer_that_drips_is_over_when_the_time_is(act: Callable[[Peer], None]) -> None:
    """C2: the client's timeout is per read. Each byte comes in time here, and the whole would take 6 to 40 s."""
    with WireServer(act) as server:
        api = mailchimp(server.url, timeout_s=1)
        assert api.send(CAMPAIGN_ID) == Unclear("no answer within 1 s.")
        with pytest.raises(NoAnswer, match="no answer within 1 s"):
            api.campaign(CAMPAIGN_ID)
        with pytest.raises(NoAnswer, match="no answer within 1 s"):
            api.create(SPEC, "Digest")
        assert len(server.heard) == 3, "a read that has used up the time is not tried again"


def test_a_handshake_that_drips_is_over_when_the_time_is() -> None:
    """C2: each byte of the TLS record comes in time; the request has not left."""

    def drip_a_record(peer: Peer) -> None:
        peer.drip(b"\x16\x03\x03\x40\x00" + bytes(300), 0.1)
        peer.hang_up()

    with WireServer(answer(204), on_connect=drip_a_record) as server:
        said = mailchimp(server.https_url, timeout_s=0.7).send(CAMPAIGN_ID)
        assert isinstance(said, NotSent)
        assert said.why is No.UNREACHABLE
        assert server.heard == []


@pytest.mark.parametrize("value", ["0", "none", "inf", "nan", "-1", "1e9", "601"])
def test_waiting_for_ever_cannot_be_set(settings: Callable[..., Settings], value: str) -> None:
    """C3: `timeout=None` of the client never ends."""
    with pytest.raises(SettingsWrong, match="SENDONCE_TIMEOUT_SECONDS"):
        settings(SENDONCE_TIMEOUT_SECONDS=value)


def test_the_time_limit_outlasts_many_calls() -> None:
    """C4, C5: `_request_timeout` is ignored by the client, and set_config() resets limit and token."""
    acts = [*[says(200, CAMPAIGN)] * 5, stall]
    with WireServer(*acts) as server:
        api = mailchimp(server.url, timeout_s=1.5)
        for _ in range(5):
            api.campaign(CAMPAIGN_ID)
        assert api.send(CAMPAIGN_ID) == Unclear("no answer within 1.5 s.")
        assert keys_heard(server) == {f"Basic user:{API_KEY}"}


@each_read
def test_a_read_is_tried_again(read: Callable[[Mailchimp], object]) -> None:
    """C6: the client never tries twice."""
    acts = [reset, problem(500), hang_up, problem(403, "Forbidden")]
    with WireServer(*acts) as server:
        with pytest.raises(Refused):
            read(mailchimp(server.url))
        assert len(server.heard) == 4


UNCLEAR_TO_A_WRITE = {
    "reset": reset,
    "closed": hang_up,
    "500": problem(500),
    "429": problem(429),
    "bare 403": answer(403),
    "empty object": says(200, {}),
}


@each_write
@pytest.mark.parametrize("act", UNCLEAR_TO_A_WRITE.values(), ids=UNCLEAR_TO_A_WRITE)
def test_a_write_is_never_tried_again(
    write: Callable[[Mailchimp], object], act: Callable[[Peer], None]
) -> None:
    """C6: nor may anything below try it again, as requests and urllib3 can."""
    with WireServer(act) as server:
        with pytest.raises(NoAnswer):
            write(mailchimp(server.url))
        assert len(server.heard) == 1


@pytest.mark.parametrize("act", UNCLEAR_TO_A_WRITE.values(), ids=UNCLEAR_TO_A_WRITE)
def test_a_send_is_never_tried_again(act: Callable[[Peer], None]) -> None:
    """C6."""
    with WireServer(act) as server:
        mailchimp(server.url).send(CAMPAIGN_ID)
        assert len(server.heard) == 1


def test_each_request_has_a_connection_of_its_own() -> None:
    """F: on a kept one that the server drops at that moment a send could only end unclear."""
    with WireServer(says(200, CAMPAIGN), says(200, CAMPAIGN), answer(204)) as server:
        api = mailchimp(server.url)
        api.campaign(CAMPAIGN_ID)
        api.create(SPEC, "Digest")
        assert api.send(CAMPAIGN_ID) == Accepted()
        assert server.connections == 3


def test_what_an_odd_answer_leaves_behind_is_not_the_answer_to_the_next_request() -> None:
    """F: the rest of a 204 that has a body stays on its connection, and would be read first on a kept one."""
    rest = raw(204)
    with WireServer(exactly_kept_open(raw(204, b"{}" + rest, Content_Length="2")), says(200, {})) as server:
        api = mailchimp(server.url)
        with pytest.raises(NoAnswer):
            api.campaign(CAMPAIGN_ID, tries=1)
        assert isinstance(api.send(CAMPAIGN_ID), Unclear)


def exactly_kept_open(data: bytes) -> Callable[[Peer], None]:
    """Say these bytes and leave the connection as it is."""
    return lambda peer: peer.say(data)


# --------------------------------------------------------------------------------- D. address and credentials


def test_the_word_server_in_the_address_stays_as_it_is() -> None:
    """D1: the client puts the data centre in place of every "server", in the path, too."""
    with WireServer(says(200, CAMPAIGN)) as server:
        api = mailchimp(server.url.replace("/3.0", "/server/3.0"))
        api.campaign(CAMPAIGN_ID)
        assert server.calls == [("GET", f"/server/3.0/campaigns/{CAMPAIGN_ID}")]


def test_requests_go_to_the_base_url_and_nowhere_else() -> None:
    """D2: the client has no setting for it."""
    with WireServer(says(200, CAMPAIGN)) as server:
        mailchimp(server.url).campaign(CAMPAIGN_ID)
        assert server.heard[0].headers["host"] == f"127.0.0.1:{server.port}"
        assert server.heard[0].path == f"/3.0/campaigns/{CAMPAIGN_ID}"


NO_KEYS = {
    "no data centre": "0123456789abcdef0123456789abcdef",
    "two hyphens": "0123456789abcdef-0123456789abcdef-us1",
    "a host behind the hyphen": "0123456789abcdef0123456789abcdef-us1.evil.example/x",
    "a newline": "0123456789abcdef0123456789abcdef-us1\n",
    "a space": "0123456789abcdef0123456789abcdef-us1 ",
    "no key": "-us1",
    "None": "None",
    "empty": "",
}


@pytest.mark.parametrize("key", NO_KEYS.values(), ids=NO_KEYS)
def test_a_key_that_would_name_another_host_is_refused(settings: Callable[..., Settings], key: str) -> None:
    """D3, D4, D5: what follows the hyphen becomes the host that the key is sent to; no key at all, "server"."""
    with pytest.raises(SettingsWrong, match="MAILCHIMP_API_KEY"):
        settings(MAILCHIMP_API_KEY=key)


def test_a_server_prefix_that_is_not_the_keys_is_refused(settings: Callable[..., Settings]) -> None:
    """D6: the client takes the prefix without a word."""
    assert settings(MAILCHIMP_SERVER_PREFIX="us1").base_url == "https://us1.api.mailchimp.com/3.0"
    with pytest.raises(SettingsWrong, match="MAILCHIMP_SERVER_PREFIX"):
        settings(MAILCHIMP_SERVER_PREFIX="us9")


def test_the_key_is_the_only_credential_on_the_wire(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D7, D8: no token, and neither ~/.netrc nor $NETRC takes the key's place."""
    login = "machine 127.0.0.1 login other password other\ndefault login other password other\n"
    for name in (".netrc", "named"):
        (tmp_path / name).write_text(login)
        (tmp_path / name).chmod(0o600)
    for netrc in (None, str(tmp_path / "named")):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("NETRC", raising=False)
        if netrc is not None:
            monkeypatch.setenv("NETRC", netrc)
        with WireServer(says(200, CAMPAIGN), says(200, CAMPAIGN), answer(204)) as server:
            api = mailchimp(server.url)
            api.campaign(CAMPAIGN_ID)
            api.create(SPEC, "Digest")
            api.send(CAMPAIGN_ID)
            assert keys_heard(server) == {f"Basic user:{API_KEY}"}


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"])
def test_no_proxy_comes_between_us_and_this_machine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """D9: on plain http it would see the key."""
    with WireServer(says(200, CAMPAIGN)) as proxy, WireServer(says(200, CAMPAIGN)) as server:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        mailchimp(server.url).campaign(CAMPAIGN_ID)
        assert len(server.heard) == 1
        assert proxy.connections == 0


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("form", ["http://127.0.0.1:{}", "127.0.0.1:{}", "http://me:secret@127.0.0.1:{}/"])
def test_https_goes_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    """D9: one that refuses means that nothing left; the key is not for its eyes."""
    with WireServer(answer(502, HTML_PAGE)) as proxy:
        monkeypatch.setenv(name, form.format(proxy.port))
        said = "the proxy could not be used (Tunnel connection failed: 502 Told)"
        never_left(mailchimp("https://nonexistent.invalid/3.0"), said)
        assert {one.method for one in proxy.heard} == {"CONNECT"}
        assert {one.target for one in proxy.heard} == {"nonexistent.invalid:443"}
        assert not any("authorization" in one.headers for one in proxy.heard)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({"HTTP_PROXY": "{}"}, "that one is for http"),
        ({"HTTPS_PROXY": "{}", "NO_PROXY": "nonexistent.invalid"}, "no_proxy"),
    ],
)
def test_https_does_not_go_through_a_proxy_that_is_not_for_it(
    monkeypatch: pytest.MonkeyPatch, names: Mapping[str, str], why: str
) -> None:
    """D9."""
    with WireServer(answer(502)) as proxy:
        for name, value in names.items():
            monkeypatch.setenv(name, value.format(f"http://127.0.0.1:{proxy.port}"))
        never_left(mailchimp("https://nonexistent.invalid/3.0"), "the host name could not be resolved")
        assert proxy.connections == 0, why


def test_behind_a_proxy_the_request_goes_inside_the_tunnel(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[ssl.SSLContext, Path]
) -> None:
    """D9: the certificate is checked for the host behind the proxy, and a lost answer is unclear there, too."""
    context, bundle = certificate
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    acts = [says(200, CAMPAIGN), answer(204), reset]
    with WireServer(*acts, tls=context, on_connect=open_tunnel) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        api = mailchimp("https://nonexistent.invalid/3.0")
        assert isinstance(api.campaign(CAMPAIGN_ID), Campaign)
        assert api.send(CAMPAIGN_ID) == Accepted()
        assert isinstance(api.send(CAMPAIGN_ID), Unclear)
        assert keys_heard(proxy) == {f"Basic user:{API_KEY}"}


def open_tunnel(peer: Peer) -> None:
    """Do what a proxy does with a CONNECT."""
    peer.hear_until(b"\r\n\r\n")
    peer.say(b"HTTP/1.1 200 OK\r\n\r\n")


@pytest.mark.parametrize(
    "proxy", ["socks5://127.0.0.1:1080", "http://", "ftp://x:21", "http://x:99999", "http://:80"]
)
def test_a_proxy_that_cannot_be_used_is_a_fault_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """D9: no rerun cures it, so it must not be called a lost connection or a bug."""
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(SettingsWrong, match="HTTPS_PROXY"):
        mailchimp("https://nonexistent.invalid/3.0")
    mailchimp("http://127.0.0.1:1/3.0")  # not its business


def test_a_run_behind_such_a_proxy_ends_before_it_begins(desk: Desk) -> None:
    """D9: 78, which a person must mend; the password in the proxy's address is not shown."""
    desk.write_env(MAILCHIMP_API_URL=None)
    ended = desk.send(environ={"HTTPS_PROXY": "socks5://me:secret@127.0.0.1:1080"})
    assert ended.code == 78
    assert "HTTPS_PROXY" in ended.err
    assert "secret" not in ended.all


def test_the_ca_bundle_of_the_environment_is_honoured(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[ssl.SSLContext, Path]
) -> None:
    """D9: a company's own authority is named there."""
    context, bundle = certificate
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        with (
            monkeypatch.context() as patch,
            WireServer(says(200, CAMPAIGN), answer(204), tls=context) as server,
        ):
            patch.setenv(name, str(bundle))
            api = mailchimp(server.https_url)
            assert isinstance(api.campaign(CAMPAIGN_ID), Campaign)
            assert api.send(CAMPAIGN_ID) == Accepted()


@pytest.mark.parametrize("content", [None, "no certificate\n"])
def test_a_ca_bundle_that_cannot_be_used_is_a_fault_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    """D9: requests fails at it with a plain OSError, in the middle of a call."""
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_text(content)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with pytest.raises(SettingsWrong, match="REQUESTS_CA_BUNDLE"):
        mailchimp("https://nonexistent.invalid/3.0")
    mailchimp("http://127.0.0.1:1/3.0")  # not its business


def certificate_is_rejected(url: str, server: WireServer) -> None:
    """Check that no call gets through, that none is tried again, and that none ends in "try again"."""
    api = mailchimp(url)
    with pytest.raises(CredentialsRejected, match="TLS certificate is not valid"):
        api.campaign(CAMPAIGN_ID)
    with pytest.raises(CredentialsRejected, match="TLS certificate is not valid"):
        api.create(SPEC, "Digest")
    assert api.send(CAMPAIGN_ID) == NotSent(No.CERTIFICATE, "the server's TLS certificate is not valid.")
    assert server.heard == []
    assert server.connections == 3


def test_a_certificate_that_nobody_vouches_for_ends_it(certificate: tuple[ssl.SSLContext, Path]) -> None:
    """B5: whoever holds it may be anybody, so nothing is said to it; and waiting does not help."""
    with WireServer(answer(204), tls=certificate[0]) as server:
        certificate_is_rejected(server.https_url, server)


def test_a_certificate_for_another_host_ends_it(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[ssl.SSLContext, Path]
) -> None:
    """B5."""
    context, bundle = certificate
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with WireServer(answer(204), tls=context) as server:
        certificate_is_rejected(f"https://127.0.0.1:{server.port}/3.0", server)


def after_hello(act: Callable[[Peer], None]) -> Callable[[Peer], None]:
    """Do it when the handshake has begun."""

    def begin(peer: Peer) -> None:
        peer.hear_until(b"\x16")
        act(peer)

    return begin


NO_HANDSHAKE = {
    "reset": after_hello(reset),
    "closed": after_hello(hang_up),
    "plain http": after_hello(exactly(raw(400, HTML_PAGE))),
}


@pytest.mark.parametrize("act", NO_HANDSHAKE.values(), ids=NO_HANDSHAKE)
def test_a_handshake_that_fails_means_that_nothing_left(act: Callable[[Peer], None]) -> None:
    """B5: the request goes out after the handshake; what went wrong here may heal."""
    with WireServer(answer(204), on_connect=act) as server:
        api = mailchimp(server.https_url)
        said = api.send(CAMPAIGN_ID)
        assert isinstance(said, NotSent)
        assert said.why is No.UNREACHABLE
        with pytest.raises(NoAnswer):
            api.create(SPEC, "Digest")
        assert server.heard == []


def garble(peer: Peer) -> None:
    """Break into the encrypted connection."""
    peer.say_beneath_tls(b"\x17\x03\x03\x00\x20" + bytes(32))
    peer.stall()


@pytest.mark.parametrize("act", [garble, reset, hang_up], ids=["garbled", "reset", "closed"])
def test_a_secure_connection_that_breaks_in_the_middle_leaves_a_send_unclear(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[ssl.SSLContext, Path], act: Callable[[Peer], None]
) -> None:
    """B5: an SSL error is not always one of the handshake."""
    context, bundle = certificate
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with WireServer(act, tls=context) as server:
        assert isinstance(mailchimp(server.https_url, timeout_s=5).send(CAMPAIGN_ID), Unclear)
        assert len(server.heard) == 1


def test_a_secure_answer_that_drips_is_over_when_the_time_is(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[ssl.SSLContext, Path]
) -> None:
    """C2."""
    context, bundle = certificate
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with WireServer(drip(raw(204)), tls=context) as server:
        assert mailchimp(server.https_url, timeout_s=1).send(CAMPAIGN_ID) == Unclear("no answer within 1 s.")


def test_nothing_that_prints_an_object_or_a_fault_prints_the_key() -> None:
    """D11: `vars()` of the client shows it; ours does not, nor do the tracebacks of what goes wrong."""
    odd = Spec("regular", {}, {"subject_line": object()}, {}, Content())
    wire = Wire("http://127.0.0.1:1/3.0", API_KEY, timeout_s=5, user_agent=USER_AGENT)
    texts = [repr(wire), repr(wire.client), shown(wire, depth=6)]
    with WireServer(problem(401, "API Key Invalid")) as server:
        calls: list[Callable[[], object]] = [
            lambda: mailchimp(server.url).campaign(CAMPAIGN_ID),
            lambda: mailchimp(server.url).create(odd, "Digest"),
            lambda: mailchimp(f"http://127.0.0.1:{free_port()}/3.0").create(SPEC, "Digest"),
        ]
        for call in calls:
            with pytest.raises(SendonceError) as error:
                call()
            texts.append(str(error.value))
            texts += traceback.TracebackException.from_exception(error.value, capture_locals=True).format()
    secret = API_KEY.partition("-")[0]
    for text in texts:
        assert secret not in text


def shown(value: object, depth: int) -> str:
    """What a dump of an object and of all that hangs on it would show."""
    text = repr(value)
    if depth and hasattr(value, "__dict__"):
        text += "".join(f"{name}={shown(part, depth - 1)}" for name, part in vars(value).items())
    return text


# ------------------------------------------------------------------------------------------- E. requests as sent

BAD_IDS = [
    "",
    "..",
    ".",
    "a/b",
    "1a2b3c4d5e/../x",
    "1A2B3C4D5E",
    "1a2b3c4d5e\n",
    "1a2b3c4d5e?x=1",
    "x" * 10,
    "%2e",
]
BY_ID: dict[str, Callable[[Mailchimp, str], object]] = {
    "campaign": lambda m, i: m.campaign(i),
    "content": lambda m, i: m.content(i),
    "checklist": lambda m, i: m.checklist(i),
    "audience": lambda m, i: m.audience_size(i),
    "settings": lambda m, i: m.write_settings(i, SPEC, "Digest"),
    "write content": lambda m, i: m.write_content(i, SPEC.content),
    "send": lambda m, i: m.send(i),
}


@pytest.mark.parametrize("call", BY_ID.values(), ids=BY_ID)
@pytest.mark.parametrize("bad_id", BAD_IDS)
def test_what_is_no_id_makes_no_request(call: Callable[[Mailchimp, str], object], bad_id: str) -> None:
    """E1: of an empty id or of ".." the client makes another address, and POSTs there."""
    with WireServer(answer(204)) as server:
        with pytest.raises(Refused, match=r"is no (campaign|audience) id"):
            call(mailchimp(server.url), bad_id)
        assert server.connections == 0


def test_a_campaign_that_was_not_asked_for_is_no_answer() -> None:
    """E1: whatever mixed them up, its status is not that of the other."""
    other = says(200, CAMPAIGN | {"id": "ffffffffff", "status": "sent"})
    with WireServer(other) as server, pytest.raises(NoAnswer, match="ffffffffff"):
        mailchimp(server.url).campaign(CAMPAIGN_ID)


LISTED = (
    "total_items,campaigns.id,campaigns.web_id,campaigns.type,campaigns.create_time,campaigns.status,"
    "campaigns.emails_sent,campaigns.send_time,campaigns.recipients.list_id,"
    "campaigns.recipients.recipient_count,campaigns.settings.title"
)


def test_queries_say_what_they_mean() -> None:
    """E2, E3, E4: the client splits a text into letters, passes any status on, and writes True for true."""
    document = {"campaigns": [CAMPAIGN], "total_items": 1}
    with WireServer(says(200, document), says(200, {"is_ready": True})) as server:
        api = mailchimp(server.url, list_id=LIST_ID)
        api.listing()
        api.checklist(CAMPAIGN_ID)
        listing, checklist = (one.query for one in server.heard)
    assert listing == {
        "fields": [LISTED],
        "count": ["500"],
        "offset": ["0"],
        "list_id": [LIST_ID],
        "sort_field": ["create_time"],
        "sort_dir": ["ASC"],
    }
    assert checklist == {"fields": ["is_ready,items"]}


def test_a_send_carries_no_body_but_null() -> None:
    """E5: the client writes the JSON text null; Mailchimp takes that as no body."""
    with WireServer(answer(204)) as server:
        mailchimp(server.url).send(CAMPAIGN_ID)
        assert server.heard[0].body == b"null"
        assert server.heard[0].query == {}


def test_bodies_are_what_the_api_describes() -> None:
    """E6, E7: the client sends any body unchecked, and fails at a date."""
    html = {"html": "<p>Hello</p>", "plain_text": ""}
    with WireServer(says(200, CAMPAIGN), says(200, CAMPAIGN), says(200, html)) as server:
        api = mailchimp(server.url)
        api.create(SPEC, "Digest 2026-01-05 [5e0e96f7]")
        api.write_settings(CAMPAIGN_ID, SPEC, "Digest 2026-01-05 [5e0e96f7]")
        api.write_content(CAMPAIGN_ID, SPEC.content)
        create, settings, content = (one.json for one in server.heard)
    written = {
        "recipients": {"list_id": LIST_ID},
        "settings": {
            "title": "Digest 2026-01-05 [5e0e96f7]",
            "subject_line": "News",
            "from_name": "Ed",
            "reply_to": "ed@example.com",
        },
        "tracking": {"opens": True},
    }
    assert create == {"type": "regular"} | written
    assert settings == written
    assert content == {"html": "<p>Hello</p>"}


def test_requests_name_sendonce_and_ask_for_json() -> None:
    """E8: the client's own User-Agent is Swagger-Codegen, and overwrites a caller's."""
    with WireServer(says(200, CAMPAIGN), answer(204)) as server:
        api = mailchimp(server.url)
        api.campaign(CAMPAIGN_ID)
        api.send(CAMPAIGN_ID)
        for heard in server.heard:
            assert heard.headers["user-agent"] == USER_AGENT
            assert heard.headers["accept"] == "application/json"
            assert heard.headers["content-type"] == "application/json"


def test_no_cookie_is_given_back() -> None:
    """E8: the client keeps none; a gateway's must not tie one call to another."""
    with WireServer(says(200, CAMPAIGN, Set_Cookie="bm=1; Path=/")) as server:
        api = mailchimp(server.url)
        api.campaign(CAMPAIGN_ID)
        api.campaign(CAMPAIGN_ID)
        assert not any("cookie" in one.headers for one in server.heard)


def test_every_script_goes_there_and_back() -> None:
    """E9."""
    title = "Привет ✉️ «Größe» 日本"
    shown_title = CAMPAIGN | {"settings": {"title": title}}
    with WireServer(answer(200, json.dumps(shown_title, ensure_ascii=False).encode(), JSON)) as server:
        created = mailchimp(server.url).create(SPEC, title)
        assert created.title == title
        assert server.heard[0].json["settings"]["title"] == title
        assert server.heard[0].body.isascii()


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_json_with_words_that_json_does_not_have_is_no_answer(word: str) -> None:
    """E10: Python reads them."""
    body = json.dumps(CAMPAIGN).replace("4711", word).encode()
    with WireServer(answer(200, body, JSON)) as server, pytest.raises(NoAnswer):
        mailchimp(server.url).campaign(CAMPAIGN_ID)


def test_nothing_but_a_create_and_a_send_is_ever_posted() -> None:
    """E11: neither replicate nor create-resend, which cannot be repeated, nor anything that deletes."""
    campaign, content = says(200, CAMPAIGN), says(200, {"html": "<p>"})
    with WireServer(campaign, campaign, content, answer(204)) as server:
        api = mailchimp(server.url)
        for write in WRITES.values():
            write(api)
        api.send(CAMPAIGN_ID)
        assert server.calls == [
            ("POST", "/3.0/campaigns"),
            ("PATCH", f"/3.0/campaigns/{CAMPAIGN_ID}"),
            ("PUT", f"/3.0/campaigns/{CAMPAIGN_ID}/content"),
            ("POST", f"/3.0/campaigns/{CAMPAIGN_ID}/actions/send"),
        ]


def test_a_listing_goes_on_to_its_last_page() -> None:
    """E12: one call gives one page, of 10 unless told otherwise. More of this in test_listing.py."""
    campaigns = [CAMPAIGN | {"id": f"{number:010x}"} for number in range(501)]
    pages = [
        says(200, {"campaigns": campaigns[:500], "total_items": 501}),
        says(200, {"campaigns": campaigns[499:], "total_items": 501}),
    ]
    with WireServer(*pages) as server:
        listing = mailchimp(server.url).listing()
        assert [one.query["offset"] for one in server.heard] == [["0"], ["499"]]
    assert [c.id for c in listing.campaigns] == [c["id"] for c in campaigns]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Each call has a thread that watches its time: none of them may outlive it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive(), f"{thread} goes on"
