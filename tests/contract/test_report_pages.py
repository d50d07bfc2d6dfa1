"""Pages of a report as they come over the wire: what is asked for, what is read, and what is no page."""

from __future__ import annotations

import json
import ssl
from hashlib import md5
from typing import TYPE_CHECKING, Any

import pytest

from sendonce.adapters.mailchimp.api import Mailchimp
from sendonce.adapters.mailchimp.wire import Wire
from sendonce.core.errors import CredentialsRejected, NoAnswer, Refused
from sendonce.core.recipients import Recipient, ReportPage
from support.adapter import CAMPAIGN_ID, USER_AGENT, Notes, PatientClock, mailchimp, self_signed
from support.sandbox import API_KEY, LIST_ID, Sandbox
from support.wire_server import WireServer, problem, says

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANN = md5(b"ann@example.com", usedforsecurity=False)
ROW: dict[str, Any] = {"email_id": ANN.hexdigest(), "status": "sent", "email_address": "ann@example.com"}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(audience=1203, sending=0) as running:
        yield running


def keeping(url: str) -> Mailchimp:
    """As a sync has it: over a connection that is kept."""
    wire = Wire(url, API_KEY, timeout_s=20, user_agent=USER_AGENT, keeps_connection=True)
    return Mailchimp(wire, PatientClock(), Notes(), list_id="", timeout_s=20, key_from="the test")


def test_a_page_holds_five_hundred_and_asks_for_nothing_that_is_not_needed(sandbox: Sandbox) -> None:
    campaign = sandbox.add_draft("x", list_id=LIST_ID, status="sent")
    sandbox.clear_calls()
    mailer = keeping(sandbox.url)
    pages = [mailer.recipients(campaign, number, with_addresses=False) for number in range(3)]
    assert [(page.total, len(page.rows)) for page in pages if page] == [(1203, 500), (1203, 500), (1203, 203)]
    assert all(row.address == "" for page in pages if page for row in page.rows)
    assert [call["query"] for call in sandbox.calls("sent-to")] == [
        {"fields": "total_items,sent_to.email_id,sent_to.status", "count": "500", "offset": offset}
        for offset in ("0", "500", "1000")
    ]


def test_addresses_are_asked_for_only_where_they_are_kept(sandbox: Sandbox) -> None:
    campaign = sandbox.add_draft("x", list_id=LIST_ID, status="sent")
    sandbox.clear_calls()
    page = mailchimp(sandbox.url).recipients(campaign, 2, with_addresses=True)
    assert page is not None
    assert page.rows[-1].address == "member1203@example.com"
    [call] = sandbox.calls("sent-to")
    assert call["query"]["fields"] == "total_items,sent_to.email_id,sent_to.status,sent_to.email_address"


def test_pages_come_over_one_connection_that_is_kept(sandbox: Sandbox) -> None:
    campaign = sandbox.add_draft("x", list_id=LIST_ID, status="sent")
    before = sandbox.state()["connections"]
    mailer = keeping(sandbox.url)
    for number in (0, 1, 2, 0):
        mailer.recipients(campaign, number, with_addresses=False)
    assert sandbox.state()["connections"] - before == 1 + 1  # the second is this question


def test_after_an_answer_that_is_none_the_connection_is_another(sandbox: Sandbox) -> None:
    campaign = sandbox.add_draft("x", list_id=LIST_ID, status="sent")
    before = sandbox.state()["connections"]
    sandbox.faults("sent-to=503 nth=2")
    mailer = keeping(sandbox.url)
    for number in (0, 1):
        page = mailer.recipients(campaign, number, with_addresses=False)
        assert page is not None
        assert len(page.rows) == 500
    assert sandbox.state()["connections"] - before == 2 + 2  # the others are the order and this question
    sandbox.faults()


def test_one_person_is_asked_for_by_the_hash_of_their_address(sandbox: Sandbox) -> None:
    campaign = sandbox.add_draft("x", list_id=LIST_ID, status="sent")
    mailer = mailchimp(sandbox.url)
    assert mailer.recipient_status(campaign, md5(b"member0007@example.com").digest()) == "sent"
    assert mailer.recipient_status(campaign, ANN.digest()) is None
    assert sandbox.calls("sent-to-one")[-1]["path"].endswith(f"/sent-to/{ANN.hexdigest()}")


def test_a_report_that_is_not_there_is_none(sandbox: Sandbox) -> None:
    draft = sandbox.add_draft("x", list_id=LIST_ID)
    assert mailchimp(sandbox.url).recipients(draft, 0, with_addresses=False) is None


@pytest.mark.parametrize("status", ["sent", "hard", "soft"])
def test_a_row_is_read_as_it_stands(status: str) -> None:
    page = {"sent_to": [ROW | {"status": status}], "total_items": 1}
    with WireServer(says(200, page)) as server:
        found = mailchimp(server.url).recipients(CAMPAIGN_ID, 0, with_addresses=True)
    assert found == ReportPage(1, (Recipient(ANN.digest(), status, "ann@example.com"),))


def test_a_status_that_nobody_knows_is_no_other_status() -> None:
    with WireServer(says(200, {"sent_to": [ROW | {"status": "vanished"}, ROW], "total_items": 2})) as server:
        found = mailchimp(server.url).recipients(CAMPAIGN_ID, 0, with_addresses=False)
    assert found is not None
    assert [row.status for row in found.rows] == ["other", "sent"]


@pytest.mark.parametrize(
    "page",
    [
        {"sent_to": 7, "total_items": 1},
        {"sent_to": None, "total_items": 1},
        {"sent_to": [7], "total_items": 1},
        {"sent_to": [{}], "total_items": 1},
        {"sent_to": [ROW, {"email_id": ANN.hexdigest()}], "total_items": 2},
        {"sent_to": [ROW | {"email_id": "abc"}], "total_items": 1},
        {"sent_to": [ROW | {"email_id": ANN.hexdigest()[:-2]}], "total_items": 1},
        {"sent_to": [ROW | {"email_id": None}], "total_items": 1},
        {"sent_to": [ROW]},
        {"sent_to": [ROW], "total_items": "1"},
        {"sent_to": [ROW], "total_items": True},
        {"sent_to": [ROW | {"status": []}], "total_items": 1},
    ],
    ids=json.dumps,
)
def test_what_is_no_page_leaves_nobody_out_unseen(page: dict[str, Any]) -> None:
    with WireServer(says(200, page)) as server, pytest.raises(NoAnswer, match="is not readable"):
        mailchimp(server.url).recipients(CAMPAIGN_ID, 0, with_addresses=False)


def test_a_key_that_is_not_accepted_and_a_refusal_are_said_as_everywhere() -> None:
    with WireServer(problem(401, "API Key Invalid")) as server, pytest.raises(CredentialsRejected):
        keeping(server.url).recipients(CAMPAIGN_ID, 0, with_addresses=False)
    with WireServer(problem(403, "Forbidden")) as server, pytest.raises(Refused):
        keeping(server.url).recipients(CAMPAIGN_ID, 0, with_addresses=False)
    with pytest.raises(Refused, match="is no campaign id"):
        keeping("http://127.0.0.1:1/3.0").recipients("..", 0, with_addresses=False)


def test_a_server_that_hangs_up_between_two_pages_is_asked_again() -> None:
    page = says(200, {"sent_to": [ROW], "total_items": 1})

    def and_hang_up(peer: Any) -> None:
        page(peer)
        peer.hang_up()

    with WireServer(and_hang_up, page) as server:
        mailer = keeping(server.url)
        for _ in range(2):
            found = mailer.recipients(CAMPAIGN_ID, 0, with_addresses=False)
            assert found is not None
            assert len(found.rows) == 1
        assert server.connections == 2


def test_an_encrypted_connection_is_kept_too_and_cut_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, certificate = self_signed(tmp_path, "localhost")
    assert isinstance(context, ssl.SSLContext)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    body = {"sent_to": [ROW], "total_items": 1}
    page = says(200, body)
    with WireServer(
        page, page, lambda peer: peer.drip(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000, 0.05), tls=context
    ) as server:
        wire = Wire(server.https_url, API_KEY, timeout_s=1, user_agent=USER_AGENT, keeps_connection=True)
        mailer = Mailchimp(wire, PatientClock(), Notes(), list_id="", timeout_s=1, key_from="the test")
        for _ in range(2):
            assert mailer.recipients(CAMPAIGN_ID, 0, with_addresses=False) is not None
        assert server.connections == 1
        with pytest.raises(NoAnswer, match="could not be asked for"):
            mailer.recipients(CAMPAIGN_ID, 0, with_addresses=False)
