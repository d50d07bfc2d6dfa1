"""Errors as the API tells them: problem documents."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from sendonce.sandbox.messages import PROBLEM_JSON, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPE = "https://mailchimp.com/developer/marketing/docs/errors/"


class Problem(Exception):
    """The request is refused, with a problem document."""

    def __init__(self, status: int, title: str, detail: str, fields: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(f"{status} {title}: {detail}")
        self.status = status
        self.title = title
        self.detail = detail
        self.fields = tuple(fields)

    def reply(self, *headers: tuple[str, str]) -> Reply:
        """Make an answer of the problem, with a fresh `instance` that is also the X-Request-Id."""
        instance = secrets.token_hex(16)
        document: dict[str, object] = {
            "type": TYPE,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
        }
        if self.fields:
            document["errors"] = [{"field": name, "message": message} for name, message in self.fields]
        body = json.dumps(document).encode()
        return Reply(self.status, body, PROBLEM_JSON, (("X-Request-Id", instance), *headers))


def bad_request(detail: str) -> Problem:
    """400, for what cannot be done in the state things are in."""
    return Problem(400, "Bad Request", detail)


def invalid(field: str, message: str) -> Problem:
    """400, for a request that says something wrong."""
    detail = (
        "The resource submitted could not be validated. For field-specific details, see the 'errors' array."
    )
    return Problem(400, "Invalid Resource", detail, [(field, message)])


def not_found() -> Problem:
    """404."""
    return Problem(404, "Resource Not Found", "The requested resource could not be found.")


def key_invalid() -> Problem:
    """401."""
    detail = "Your API key may be invalid, or you've attempted to access the wrong datacenter."
    return Problem(401, "API Key Invalid", detail)


def not_a_draft() -> Problem:
    """400, for the send of a campaign that was sent, is scheduled, was canceled …"""
    return bad_request("Cannot send a campaign that is not a draft: it is already sending or has been sent.")


def not_ready(reasons: Sequence[str] = ()) -> Problem:
    """400, for the send of a campaign that is not finished."""
    return bad_request(" ".join(["Your Campaign is not ready to send.", *reasons]))
