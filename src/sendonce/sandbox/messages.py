"""A request, a reply, and how Mailchimp writes times."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = "application/json; charset=utf-8"
PROBLEM_JSON = "application/problem+json; charset=utf-8"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """What a client asked. `body` is the parsed JSON, None for no body, `null`, or what `is_broken`."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    is_broken: bool = False
    authorization: str = ""
    user_agent: str = ""


@dataclass(frozen=True)
class Reply:
    """What a client is answered. `content_type` None leaves the header out."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def json_reply(document: object, status: int = 200) -> Reply:
    """Make a reply of a JSON document."""
    return Reply(status, json.dumps(document).encode(), JSON)


def time_text(epoch_s: float | None) -> str:
    """Write seconds since 1970 as Mailchimp does, "" for none: 2026-11-30T08:00:04+00:00."""
    if epoch_s is None:
        return ""
    return datetime.fromtimestamp(int(epoch_s), UTC).isoformat()


def time_value(text: str) -> float | None:
    """Read what `time_text` writes; a time without an offset is UTC. Raise ValueError if it is no time."""
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
