"""Method and path to operation: what the API offers below /3.0."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sendonce.sandbox import operations
from sendonce.sandbox.messages import Reply, json_reply
from sendonce.sandbox.operations import Ask
from sendonce.sandbox.problems import Problem, key_invalid, not_found
from sendonce.sandbox.queries import pruned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sendonce.sandbox.account import Account
    from sendonce.sandbox.documents import Document
    from sendonce.sandbox.messages import Request

PREFIX = "/3.0"
_KEY = re.compile(r"[0-9A-Za-z]{20,64}-[a-z]{2,4}[0-9]{1,3}")


@dataclass(frozen=True)
class Route:
    """One operation. `name` is also a word for `on` in a rule for faults."""

    name: str
    method: str
    pattern: re.Pattern[str]
    operation: Callable[[Ask], Document | None]


def _route(name: str, method: str, path: str, operation: Callable[[Ask], Document | None]) -> Route:
    return Route(name, method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), operation)


_ONE = "/campaigns/{campaign}"
ROUTES = (
    _route("ping", "GET", "/ping", operations.ping),
    _route("root", "GET", "", operations.root),
    _route("listing", "GET", "/campaigns", operations.listing),
    _route("create", "POST", "/campaigns", operations.create),
    _route("campaign", "GET", _ONE, operations.campaign),
    _route("patch", "PATCH", _ONE, operations.patch),
    _route("delete", "DELETE", _ONE, operations.delete),
    _route("content", "GET", f"{_ONE}/content", operations.content),
    _route("put", "PUT", f"{_ONE}/content", operations.put_content),
    _route("checklist", "GET", f"{_ONE}/send-checklist", operations.checklist),
    _route("send", "POST", f"{_ONE}/actions/send", operations.send),
    _route("replicate", "POST", f"{_ONE}/actions/replicate", operations.replicate),
    _route("schedule", "POST", f"{_ONE}/actions/schedule", operations.schedule),
    _route("unschedule", "POST", f"{_ONE}/actions/unschedule", operations.unschedule),
    _route("pause", "POST", f"{_ONE}/actions/pause", operations.pause),
    _route("resume", "POST", f"{_ONE}/actions/resume", operations.resume),
    _route("cancel", "POST", f"{_ONE}/actions/cancel-send", operations.cancel),
    _route("test", "POST", f"{_ONE}/actions/test", operations.send_test),
    _route("report", "GET", "/reports/{campaign}", operations.report),
    _route("sent-to", "GET", "/reports/{campaign}/sent-to", operations.sent_to),
    _route("sent-to-one", "GET", "/reports/{campaign}/sent-to/{member}", operations.sent_to_one),
    _route("lists", "GET", "/lists", operations.lists),
    _route("list", "GET", "/lists/{list}", operations.list_by_id),
    _route("segments", "GET", "/lists/{list}/segments", operations.segments),
    _route("add-segment", "POST", "/lists/{list}/segments", operations.add_segment),
    _route("segment", "GET", "/lists/{list}/segments/{segment}", operations.segment),
    _route("folders", "GET", "/campaign-folders", operations.folders),
    _route("search", "GET", "/search-campaigns", operations.search),
)


def answer(account: Account, request: Request) -> Reply:
    """Carry out what a request asks for, as one step; the reply says how it went."""
    try:
        document = _carry_out(account, request)
    except Problem as problem:
        return problem.reply()
    return Reply(204) if document is None else json_reply(document)


def find(request: Request) -> tuple[Route, Mapping[str, str]]:
    """Find the route of a request, and the ids in its path. Raise a 404 or 405 problem if there is none."""
    path = request.path.removeprefix(PREFIX)
    if path == request.path:
        raise not_found()
    found = [(route, match) for route in ROUTES if (match := route.pattern.fullmatch(path.rstrip("/")))]
    for route, match in found:
        if route.method == request.method:
            return route, match.groupdict()
    if found:
        raise Problem(405, "Method Not Allowed", "The requested method and resource are not compatible.")
    raise not_found()


def _carry_out(account: Account, request: Request) -> Document | None:
    route, ids = find(request)
    _check_key(account, request.authorization)
    if request.is_broken:
        raise Problem(400, "JSON Parse Error", "We encountered an unspecified JSON parsing error.")
    with account.lock:
        document = route.operation(Ask(account, ids, request.query, request.body))
    return pruned(document, request.query) if document and request.method == "GET" else document


def _check_key(account: Account, authorization: str) -> None:
    """Raise a 401 problem unless it is Basic auth, any user, with a key that is accepted."""
    scheme, _, code = authorization.partition(" ")
    try:
        key = base64.b64decode(code, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        raise key_invalid() from None
    wanted = account.settings.api_key
    if scheme.lower() != "basic" or not (key == wanted if wanted else _KEY.fullmatch(key)):
        raise key_invalid()
