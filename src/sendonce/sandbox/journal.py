"""Every request that arrived, in order. Requests to the control side are not in it."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sendonce.sandbox.messages import Request

_KEPT = 100_000
_KEPT_BODY_BYTES = 16 * 1024


@dataclass
class Call:
    """One request, without its key. `name` is the route's, "unknown" if there is none.

    `status` is None as long as, and if, nothing was answered; `fault` is the word it met. `has_effect` says
    that something was changed; `is_accepted` says the same of a send, and is None for everything else.
    """

    seq: int
    at: datetime
    name: str
    method: str
    path: str
    query: Mapping[str, str]
    body: object
    user_agent: str
    is_authorized: bool
    status: int | None = None
    fault: str | None = None
    has_effect: bool = False
    is_accepted: bool | None = None

    def told(self) -> dict[str, object]:
        """Put it as JSON."""
        return {
            "seq": self.seq,
            "time": self.at.isoformat(),
            "name": self.name,
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "body": self.body,
            "user_agent": self.user_agent,
            "authorization": self.is_authorized,
            "status": self.status,
            "fault": self.fault,
            "effect": self.has_effect,
            "accepted": self.is_accepted,
        }


class Journal:
    """The calls, the newest 100,000 of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[Call] = deque(maxlen=_KEPT)
        self._seq = 0
        self.connections = 0

    def count_connection(self) -> None:
        """Note that a connection was accepted."""
        with self._lock:
            self.connections += 1

    def begin(self, request: Request, name: str, at: datetime) -> Call:
        """Note that a request arrived; what becomes of it is filled in by the caller."""
        body = request.body
        if body is not None and len(json.dumps(body)) > _KEPT_BODY_BYTES:
            body = {"left out": "a body of more than 16 KiB"}
        with self._lock:
            self._seq += 1
            call = Call(
                seq=self._seq,
                at=at,
                name=name,
                method=request.method,
                path=request.path,
                query=request.query,
                body=body,
                user_agent=request.user_agent,
                is_authorized=bool(request.authorization),
                is_accepted=False if name == "send" else None,
            )
            self._calls.append(call)
        return call

    def clear(self) -> None:
        """Forget the calls; their numbers go on."""
        with self._lock:
            self._calls.clear()

    def told(self) -> list[dict[str, object]]:
        """Put all calls as JSON, oldest first."""
        with self._lock:
            calls = list(self._calls)
        return [call.told() for call in calls]

    def __len__(self) -> int:
        return len(self._calls)
