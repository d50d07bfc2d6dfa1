"""The sandbox keeps to Mailchimp's own description of its API: every operation, over real HTTP.

`mailchimp-openapi.json` is that description, cut down to the operations the sandbox offers. Two things
differ from it here:
- An unsent campaign's `send_time` is "" on the wire although the description wants a date-time (seen in
  recorded answers of the real API). So "" passes as a date-time.
- The description does not forbid names it does not mention. Here it does, so that nothing is made up.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import jsonschema  # type: ignore[import-untyped]  # it ships without types
import pytest

from sendonce.sandbox.messages import Request
from sendonce.sandbox.routes import ROUTES, find
from support.sandbox import API_KEY, LIST_ID, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT: dict[str, Any] = json.loads(Path(__file__).with_name("mailchimp-openapi.json").read_text("utf-8"))
OPERATIONS = sorted(
    (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
)
SUBSCRIBER_HASH = hashlib.md5(b"member0001@example.com").hexdigest()

_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time", raises=ValueError)  # type: ignore[untyped-decorator]  # as above
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or value == "" or datetime.fromisoformat(value).tzinfo is not None


def _closed(schema: Any) -> Any:
    """Make the same schema, in which no object has names that are not mentioned."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


_COMPONENTS = _closed(DOCUMENT["components"])
# Mailchimp adds this to a problem document when fields are wrong.
_COMPONENTS["schemas"]["ProblemDetail"]["properties"]["errors"] = {
    "type": "array",
    "items": {"type": "object", "required": ["field", "message"]},
}


def check(value: object, schema: dict[str, Any]) -> None:
    """Raise jsonschema.ValidationError unless the value fits the schema."""
    jsonschema.Draft202012Validator(
        {**_closed(schema), "components": _COMPONENTS}, format_checker=_FORMATS
    ).validate(value)


@dataclass(frozen=True)
class Answer:
    """What came back; `body` is None for an empty one."""

    status: int
    content_type: str | None
    date: str | None
    body: Any


class Api:
    """Requests by operation; each is held against the description, both ways."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def call(
        self,
        method: str,
        path: str,
        ids: dict[str, object],
        query: dict[str, object] | None = None,
        body: object = None,
        *,
        key: str = API_KEY,
    ) -> Answer:
        """One exchange, its answer checked. The request may be wrong on purpose: see `check_request`."""
        operation = DOCUMENT["paths"][path][method.lower()]
        answer = self._exchange(method, path.format(**ids), query, body, key=key)
        assert answer.date is not None
        if str(answer.status) in operation["responses"]:
            self._check_good(operation["responses"][str(answer.status)], answer)
        else:
            assert answer.status >= 400
            assert answer.content_type == "application/problem+json; charset=utf-8"
            check(answer.body, {"$ref": "#/components/schemas/ProblemDetail"})
            assert answer.body["status"] == answer.status
        return answer

    def _exchange(
        self, method: str, path: str, query: dict[str, object] | None, body: object, *, key: str
    ) -> Answer:
        credentials = base64.b64encode(f"user:{key}".encode()).decode()
        connection = http.client.HTTPConnection("127.0.0.1", self.sandbox.port, timeout=30)
        try:
            connection.request(
                method,
                f"/3.0{path}" + (f"?{urlencode(query)}" if query else ""),
                json.dumps(body),
                {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            text = answer.read()
            headers = answer.headers
            body = json.loads(text) if text else None
            return Answer(answer.status, headers["Content-Type"], headers["Date"], body)
        finally:
            connection.close()

    def _check_good(self, response: dict[str, Any], answer: Answer) -> None:
        if "content" not in response:
            assert answer.body is None
            return
        assert answer.content_type == "application/json; charset=utf-8"
        check(answer.body, response["content"]["application/json"]["schema"])


def check_request(method: str, path: str, query: dict[str, object], body: object) -> None:
    """Raise unless query and body are what the description allows."""
    operation = DOCUMENT["paths"][path][method.lower()]
    parameters = {}
    for parameter in operation.get("parameters", []):
        if "$ref" in parameter:
            parameter = DOCUMENT["components"]["parameters"][parameter["$ref"].rpartition("/")[2]]  # noqa: PLW2901
        parameters[parameter["name"]] = parameter
    for name, value in query.items():
        assert parameters[name]["in"] == "query"
        schema = parameters[name]["schema"]
        check(str(value).split(",") if schema.get("type") == "array" else value, schema)
    if "requestBody" in operation:
        check(body, operation["requestBody"]["content"]["application/json"]["schema"])
    else:
        assert body is None


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(audience=12, sending=0) as sandbox:
        yield sandbox


@pytest.fixture
def api(sandbox: Sandbox) -> Api:
    return Api(sandbox)


SETTINGS = {"subject_line": "News", "from_name": "Us", "reply_to": "us@example.com", "title": "Made"}
NOSENT = {"condition_type": "Aim", "field": "aim", "op": "nosent", "value": "4711"}
IN_SEGMENT = {"condition_type": "StaticSegment", "field": "static_segment", "op": "static_is", "value": 1001}
CREATE = {
    "type": "regular",
    "recipients": {"list_id": LIST_ID, "segment_opts": {"match": "all", "conditions": [NOSENT, IN_SEGMENT]}},
    "settings": {**SETTINGS, "preview_text": "Today", "to_name": "*|FNAME|*", "auto_footer": True},
    "tracking": {"opens": True, "html_clicks": False, "google_analytics": "news"},
    "social_card": {"title": "News", "description": "of today"},
}
CAMPAIGN = {
    "id",
    "web_id",
    "type",
    "create_time",
    "status",
    "emails_sent",
    "send_time",
    "recipients",
    "settings",
}


@dataclass(frozen=True)
class Exchange:
    """One exchange, with a campaign of this status and type: what is asked, and names the answer must have."""

    method: str
    path: str
    status: int = 200
    before: str = "save"
    type: str = "regular"
    query: tuple[tuple[str, object], ...] = ()
    body: object = None
    shows: frozenset[str] = frozenset()


ONE = "/campaigns/{campaign_id}"
EVERY_FILTER = (
    ("list_id", LIST_ID),
    ("type", "regular"),
    ("status", "save"),
    ("since_create_time", "2020-01-01T00:00:00+00:00"),
    ("before_create_time", "2099-01-01T00:00:00+00:00"),
    ("sort_field", "create_time"),
    ("sort_dir", "ASC"),
    ("count", 1000),
    ("offset", 0),
)
EXCHANGES = [
    Exchange("GET", "/ping", shows=frozenset({"health_status"})),
    Exchange("GET", "/", shows=frozenset({"account_id", "account_name", "total_subscribers"})),
    Exchange("GET", "/campaigns", shows=frozenset({"campaigns", "total_items"})),
    Exchange("GET", "/campaigns", query=EVERY_FILTER, shows=frozenset({"campaigns", "total_items"})),
    Exchange("GET", "/campaigns", query=(("fields", "campaigns.id,total_items"),)),
    Exchange("GET", "/campaigns", query=(("exclude_fields", "campaigns.settings,campaigns.recipients"),)),
    Exchange("POST", "/campaigns", body=CREATE, shows=frozenset(CAMPAIGN)),
    Exchange("POST", "/campaigns", body={"type": "plaintext"}, shows=frozenset(CAMPAIGN)),
    Exchange("GET", ONE, shows=frozenset(CAMPAIGN)),
    Exchange("GET", ONE, before="sending", shows=frozenset(CAMPAIGN)),
    Exchange("GET", ONE, before="sent", shows=frozenset({*CAMPAIGN, "report_summary"})),
    Exchange("PATCH", ONE, body={"settings": SETTINGS}, shows=frozenset(CAMPAIGN)),
    Exchange("DELETE", ONE, status=204),
    Exchange("GET", f"{ONE}/content", shows=frozenset({"html", "plain_text"})),
    Exchange("PUT", f"{ONE}/content", body={"html": "<p>Hi</p>"}, shows=frozenset({"html", "plain_text"})),
    Exchange("PUT", f"{ONE}/content", body={"template": {"id": 7, "sections": {"main": "Hi"}}}),
    Exchange("GET", f"{ONE}/send-checklist", shows=frozenset({"is_ready", "items"})),
    Exchange("POST", f"{ONE}/actions/send", status=204),
    Exchange("POST", f"{ONE}/actions/replicate", shows=frozenset(CAMPAIGN)),
    Exchange("POST", f"{ONE}/actions/replicate", before="sent", shows=frozenset(CAMPAIGN)),
    Exchange(
        "POST", f"{ONE}/actions/schedule", status=204, body={"schedule_time": "2099-01-01T10:15:00+00:00"}
    ),
    Exchange("POST", f"{ONE}/actions/unschedule", status=204, before="schedule"),
    Exchange("POST", f"{ONE}/actions/pause", status=204, before="sending", type="rss"),
    Exchange("POST", f"{ONE}/actions/resume", status=204, before="paused", type="rss"),
    Exchange("POST", f"{ONE}/actions/cancel-send", status=204, before="sending"),
    Exchange(
        "POST",
        f"{ONE}/actions/test",
        status=204,
        body={"test_emails": ["me@example.com"], "send_type": "html"},
    ),
    Exchange(
        "GET",
        "/reports/{campaign_id}",
        before="sent",
        shows=frozenset({"id", "emails_sent", "campaign_title"}),
    ),
    Exchange(
        "GET", "/reports/{campaign_id}/sent-to", before="sent", shows=frozenset({"sent_to", "total_items"})
    ),
    Exchange(
        "GET",
        "/reports/{campaign_id}/sent-to/{subscriber_hash}",
        before="sent",
        shows=frozenset({"email_id", "email_address", "status"}),
    ),
    Exchange("GET", "/lists", shows=frozenset({"lists", "total_items"})),
    Exchange("GET", "/lists/{list_id}", shows=frozenset({"id", "name", "stats"})),
    Exchange("GET", "/lists/{list_id}/segments", shows=frozenset({"segments", "total_items"})),
    Exchange(
        "POST",
        "/lists/{list_id}/segments",
        body={"name": "Two", "static_segment": ["member0001@example.com", "member0002@example.com"]},
        shows=frozenset({"id", "name", "member_count", "type"}),
    ),
    Exchange(
        "POST",
        "/lists/{list_id}/segments",
        body={"name": "Not yet", "options": {"match": "all", "conditions": [NOSENT]}},
        shows=frozenset({"id", "options"}),
    ),
    Exchange("GET", "/lists/{list_id}/segments/{segment_id}", shows=frozenset({"id", "member_count"})),
    Exchange("GET", "/campaign-folders", shows=frozenset({"folders", "total_items"})),
    Exchange(
        "GET", "/search-campaigns", query=(("query", "Digest"),), shows=frozenset({"results", "total_items"})
    ),
]


def _ids(api: Api, before: str = "save", kind: str = "regular") -> dict[str, object]:
    """Ids for any path: a campaign of this status and type, the audience, a segment of it."""
    segment = api.call("POST", "/lists/{list_id}/segments", {"list_id": LIST_ID}, body={"name": "A part"})
    return {
        "campaign_id": api.sandbox.add_draft("Digest", status=before, type=kind),
        "list_id": LIST_ID,
        "segment_id": segment.body["id"],
        "subscriber_hash": SUBSCRIBER_HASH,
    }


@pytest.mark.parametrize(
    "exchange", EXCHANGES, ids=[f"{n} {e.method} {e.path}" for n, e in enumerate(EXCHANGES)]
)
def test_a_good_exchange_fits_the_description_both_ways(exchange: Exchange, api: Api) -> None:
    query = dict(exchange.query)
    check_request(exchange.method, exchange.path, query, exchange.body)

    ids = _ids(api, exchange.before, exchange.type)
    answer = api.call(exchange.method, exchange.path, ids, query, exchange.body)

    assert answer.status == exchange.status
    assert exchange.shows <= set(answer.body or ())


def test_every_operation_of_the_description_is_exercised() -> None:
    assert {(one.method, one.path) for one in EXCHANGES} == set(OPERATIONS)


def test_the_sandbox_offers_what_is_described_and_no_more() -> None:
    offered = [
        find(Request(method, "/3.0" + path.replace("{", "").replace("}", "")))[0]
        for method, path in OPERATIONS
    ]

    assert len(set(offered)) == len(OPERATIONS)
    assert set(offered) == set(ROUTES)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_refuses_a_wrong_key_with_a_problem_document(
    method: str, path: str, api: Api
) -> None:
    answer = api.call(method, path, _ids(api), key="not-a-key")

    assert (answer.status, answer.body["title"]) == (401, "API Key Invalid")


@pytest.mark.parametrize(("method", "path"), [one for one in OPERATIONS if "{" in one[1]])
def test_every_operation_on_something_unknown_answers_404_with_a_problem_document(
    method: str, path: str, api: Api
) -> None:
    unknown = {
        "campaign_id": "0123456789",
        "list_id": "0123456789",
        "segment_id": "9",
        "subscriber_hash": "0",
    }
    bodies = {one.path: one.body for one in EXCHANGES if one.method == method and one.body is not None}

    answer = api.call(method, path, dict(unknown), body=bodies.get(path))

    assert (answer.status, answer.body["title"]) == (404, "Resource Not Found")
    assert answer.body["detail"] == "The requested resource could not be found."


BAD_EXCHANGES = [
    Exchange("GET", "/campaigns", query=(("count", 1001),)),
    Exchange("GET", "/campaigns", query=(("count", "ten"),)),
    Exchange("GET", "/campaigns", query=(("offset", -1),)),
    Exchange("GET", "/campaigns", query=(("status", "archived"),)),
    Exchange("GET", "/campaigns", query=(("since_create_time", "yesterday"),)),
    Exchange("GET", "/campaigns", query=(("sort_field", "title"),)),
    Exchange("GET", "/search-campaigns"),
    Exchange("POST", "/campaigns"),
    Exchange("POST", "/campaigns", body={"type": "letter"}),
    Exchange("POST", "/campaigns", body={"type": "regular", "recipients": {"list_id": "0123456789"}}),
    Exchange("POST", "/campaigns", body={"type": "regular", "settings": {"title": 7}}),
    Exchange("PATCH", ONE, before="sent", body={"settings": SETTINGS}),
    Exchange("PUT", f"{ONE}/content", body={}),
    Exchange("PUT", f"{ONE}/content", before="sending", body={"html": "<p>Hi</p>"}),
    Exchange("DELETE", ONE, before="sent"),
    Exchange("POST", f"{ONE}/actions/send", before="sending"),
    Exchange("POST", f"{ONE}/actions/send", before="sent"),
    Exchange("POST", f"{ONE}/actions/send", before="schedule"),
    Exchange("POST", f"{ONE}/actions/send", before="canceled"),
    Exchange("POST", f"{ONE}/actions/replicate", before="sending"),
    Exchange("POST", f"{ONE}/actions/schedule", body={"schedule_time": "2099-01-01T10:10:00+00:00"}),
    Exchange("POST", f"{ONE}/actions/schedule", body={"schedule_time": "2020-01-01T10:15:00+00:00"}),
    Exchange("POST", f"{ONE}/actions/unschedule"),
    Exchange("POST", f"{ONE}/actions/pause", before="sending"),
    Exchange("POST", f"{ONE}/actions/resume", before="paused"),
    Exchange("POST", f"{ONE}/actions/cancel-send", before="sent"),
    Exchange("POST", f"{ONE}/actions/test", body={"test_emails": []}),
    Exchange("POST", "/lists/{list_id}/segments", body={}),
]


@pytest.mark.parametrize(
    "exchange", BAD_EXCHANGES, ids=[f"{n} {e.method} {e.path}" for n, e in enumerate(BAD_EXCHANGES)]
)
def test_a_bad_request_is_answered_400_with_a_problem_document(exchange: Exchange, api: Api) -> None:
    ids = _ids(api, exchange.before)
    answer = api.call(exchange.method, exchange.path, ids, dict(exchange.query), exchange.body)

    assert answer.status == 400
    assert answer.body["title"] in {"Bad Request", "Invalid Resource"}


def test_a_value_that_does_not_fit_the_description_is_noticed() -> None:
    for value in ({"made_up": 1}, {"send_time": "soon"}, {"status": "gone"}, {"web_id": "7"}):
        with pytest.raises(jsonschema.ValidationError):
            check(value, {"$ref": "#/components/schemas/Campaign"})
