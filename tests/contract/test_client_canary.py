"""The bare client still has its worst traps. One of these failing is good news: a guard of ours may be superfluous.

They show the official client without our transport, over a real connection; the guards against them are tested in
test_client_traps.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import requests
from mailchimp_marketing.api.campaigns_api import CampaignsApi
from mailchimp_marketing.api_client import ApiClient, ApiClientError

from support.adapter import CAMPAIGN, CAMPAIGN_ID
from support.sandbox import API_KEY
from support.wire_server import JSON, WireServer, answer, drip, problem, raw, reset, says

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would take a proxy of the environment to reach even this machine (D9)."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def bare(url: str, **config: object) -> CampaignsApi:
    """Give the campaigns of the client as it comes, at `url`."""
    client = ApiClient({"api_key": API_KEY, "server": "us1", **config})
    client.host = url
    return CampaignsApi(client)


@pytest.mark.parametrize("status", [404, 500])
def test_the_client_returns_an_error_without_a_body_as_a_success(status: int) -> None:
    """A1."""
    with WireServer(answer(status, content_type=JSON)) as server:
        found = bare(server.url).send(CAMPAIGN_ID)
    assert isinstance(found, requests.Response)
    assert found.status_code == status


def test_the_client_returns_a_page_as_a_success() -> None:
    """A6."""
    with WireServer(answer(200, b"<html>log in</html>", "text/html")) as server:
        assert bare(server.url).send(CAMPAIGN_ID) == "<html>log in</html>"


def test_the_client_makes_of_a_redirected_send_a_read_elsewhere_and_calls_that_a_success() -> None:
    """A8."""
    with WireServer(answer(302, Location="/elsewhere"), says(200, CAMPAIGN)) as server:
        assert bare(server.url).send(CAMPAIGN_ID) == CAMPAIGN
        assert server.calls == [("POST", f"/3.0/campaigns/{CAMPAIGN_ID}/actions/send"), ("GET", "/elsewhere")]


def test_the_client_sends_again_where_a_redirect_says_so() -> None:
    """A8."""
    with WireServer(answer(307, Location="/elsewhere"), answer(204)) as server:
        bare(server.url).send(CAMPAIGN_ID)
        assert [method for method, _ in server.calls] == ["POST", "POST"]


def test_an_error_of_the_client_says_nothing_and_has_lost_its_headers() -> None:
    """B1, B3, B7."""
    with WireServer(problem(429, "Too Many Requests")) as server, pytest.raises(ApiClientError) as error:
        bare(server.url).get(CAMPAIGN_ID)
    assert str(error.value) == ""
    assert vars(error.value).keys() == {"text", "status_code"}
    assert json.loads(error.value.text)["title"] == "Too Many Requests"


def test_the_client_makes_no_difference_between_a_lost_answer_and_a_bug() -> None:
    """B4."""
    with WireServer(reset) as server:
        with pytest.raises(ApiClientError) as lost:
            bare(server.url).send(CAMPAIGN_ID)
        with pytest.raises(ApiClientError) as bug:
            bare(server.url).create({"type": object()})
    assert lost.value.status_code is None
    assert bug.value.status_code is None
    assert isinstance(bug.value.text, TypeError)


def test_the_client_waits_for_an_answer_that_drips_long_after_its_timeout() -> None:
    """C2: each byte comes in time, and so the whole does, too, though it takes twice as long."""
    with WireServer(drip(raw(204), 0.05)) as server:
        found = bare(server.url, timeout=1.5).send(CAMPAIGN_ID)
    assert found.status_code == 204


def test_the_client_puts_the_data_centre_in_place_of_every_server() -> None:
    """D1."""
    with WireServer(says(200, CAMPAIGN)) as server:
        bare(f"{server.url}/server").get(CAMPAIGN_ID)
        assert server.calls == [("GET", f"/3.0/us1/campaigns/{CAMPAIGN_ID}")]


def test_the_client_takes_the_credentials_of_the_netrc_for_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """D8."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    client = ApiClient({"access_token": "token", "server": "us1"})
    with WireServer(says(200, CAMPAIGN)) as server:
        client.host = server.url
        CampaignsApi(client).get(CAMPAIGN_ID)
        assert server.heard[0].headers["authorization"].startswith("Basic ")


def test_the_client_posts_to_another_address_for_an_odd_id() -> None:
    """E1."""
    with WireServer(answer(204)) as server:
        bare(server.url).send("..")
        assert server.calls == [("POST", "/3.0/actions/send")]
