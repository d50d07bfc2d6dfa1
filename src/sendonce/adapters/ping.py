"""Pings of a monitoring service, by the protocol of healthchecks.io: it alarms when none comes."""

from __future__ import annotations

from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

TIMEOUT_S: Final = 5
TRIES: Final = 2


def ping(url: str, body: str) -> str:
    """POST `body` to a ping URL. Why it did not arrive, as a phrase without the URL; "" if it did. Never raises.

    Takes 10 s at the most: the URL is a secret of a kind, and a service that is away must not hold a run.
    """
    failed = ""
    for _ in range(TRIES):
        try:
            # the form of the URL was checked with the settings: http or https
            request = Request(url, body.encode(), {"Content-Type": "text/plain; charset=utf-8"})  # noqa: S310
            with urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - as above
                return ""
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            failed = f"HTTP {error.code}" if hasattr(error, "code") else type(reason).__name__
    return failed
