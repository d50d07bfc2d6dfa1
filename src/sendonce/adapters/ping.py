"""Pings of a monitoring service, by the protocol of healthchecks.io: it alarms when none comes."""

from __future__ import annotations

from http.client import HTTPException
from threading import Thread
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

TIMEOUT_S: Final = 5
TRIES: Final = 2


def ping(url: str, body: str) -> str:
    """POST `body` to a ping URL. Why it did not arrive, as a phrase without the URL; "" if it did. Never raises.

    Takes 10 s at the most: the URL is a secret of a kind, and a service that is away must not hold a run. A thread, as
    the time limit of a socket is one for each byte that drips in, and none for a name that is looked up.
    """
    said: list[str] = []
    pinging = Thread(target=lambda: said.append(_tried(url, body)), daemon=True, name="ping")
    pinging.start()
    pinging.join(TIMEOUT_S * TRIES)
    return said[0] if said else f"no answer within {TIMEOUT_S * TRIES} s"


def _tried(url: str, body: str) -> str:
    failed = ""
    for _ in range(TRIES):
        try:
            # the form of the URL was checked with the settings: http or https
            request = Request(url, body.encode(), {"Content-Type": "text/plain; charset=utf-8"})  # noqa: S310
            with urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - as above
                return ""
        except (URLError, OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            failed = f"HTTP {error.code}" if hasattr(error, "code") else type(reason).__name__
    return failed
