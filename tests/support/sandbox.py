"""The sandbox in a process of its own, and a handle on its control side."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

API_KEY = "0123456789abcdef0123456789abcdef-us1"
LIST_ID = "5a4db0c5a1"


class Sandbox:
    """A running sandbox. `url` goes into MAILCHIMP_API_URL; options are those of `python -m sendonce.sandbox`.

    Sandbox(audience=1000, listing_lag=2.0) is `--audience 1000 --listing-lag 2.0`.
    """

    def __init__(self, **options: object) -> None:
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sendonce.sandbox", "--until-eof", *arguments],
            stdin=subprocess.PIPE,  # held open: the sandbox ends with this process, however that ends
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url.startswith("http://127.0.0.1:"), "the sandbox did not start"
        self.port = int(urlsplit(self.url).port or 0)
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process. May be called again."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    # Before and between runs

    def add_draft(self, title: str, **fields: object) -> str:
        """Put a finished draft in place; its id. Fields: list_id, subject, html, create_time, status, fresh …"""
        return str(self._control("POST", "campaigns", {"title": title, **fields})["id"])

    def add_campaigns(self, count: int, **fields: object) -> list[str]:
        """Put so many other campaigns in place (`sent` unless status=… says otherwise); their ids."""
        return list(self._control("POST", "campaigns", {"many": count, **fields})["ids"])

    def add_audience(self, members: int | list[str], name: str = "Another audience", **fields: object) -> str:
        """Put an audience in place; its id."""
        return str(self._control("POST", "audiences", {"members": members, "name": name, **fields})["id"])

    def edit(self, campaign_id: str, **fields: object) -> dict[str, Any]:
        """Change a campaign by hand: status, title, type, send_time, emails_sent, delivered …"""
        return self._control("PATCH", f"campaigns/{campaign_id}", fields)

    def delete(self, campaign_id: str) -> None:
        """Remove a campaign, whatever its status."""
        self._control("DELETE", f"campaigns/{campaign_id}")

    def faults(self, *rules: dict[str, object] | str) -> None:
        """Put these rules in force instead of the earlier ones; none at all ends every fault.

        A rule is {"on": "send", "word": "503empty", "nth": 1} or the text "post=503empty nth=1". A text may
        hold several: "post=accept-hang get=503empty after=send times=2"; nth, times and after narrow the one
        before them.
        """
        told: list[dict[str, object]] = []
        for rule in rules:
            told += [rule] if isinstance(rule, dict) else _rules(rule)
        self._control("PUT", "faults", told)

    def settings(self, **changes: object) -> dict[str, Any]:
        """Change settings: listing_lag_s, status_lag_s, sending_s, recipients_ready_s, clock_offset_s, api_key, role."""
        return self._control("PUT", "settings", changes)

    # After a run

    def state(self) -> dict[str, Any]:
        """Everything."""
        return self._control("GET", "state")

    def campaign(self, campaign_id: str) -> dict[str, Any]:
        """One campaign as it really is."""
        return next(one for one in self.state()["campaigns"] if one["id"] == campaign_id)

    def calls(self, name: str | None = None) -> list[dict[str, Any]]:
        """Read the requests that arrived, in order; those of one name ("send", "listing", …) if one is given."""
        calls: list[dict[str, Any]] = self._control("GET", "calls")["calls"]
        return [call for call in calls if name in {None, call["name"]}]

    def clear_calls(self) -> None:
        """Forget the calls (not Q and P)."""
        self._control("DELETE", "calls")

    def mailbox(self) -> dict[str, Any]:
        """Read what was delivered: by campaign id, by title and in all."""
        return self._control("GET", "mailbox")

    def sends(self, campaign_id: str | None = None) -> int:
        """Q: send requests that arrived, in all or for one campaign."""
        return self._count("arrived", campaign_id)

    def accepted(self, campaign_id: str | None = None) -> int:
        """P: send requests that were accepted, in all or for one campaign."""
        return self._count("accepted", campaign_id)

    def deliveries(self, title_or_id: str) -> int:
        """Mails delivered for a campaign id, or for a title with or without a nonce."""
        mailbox = self.mailbox()
        found = mailbox["campaigns"].get(title_or_id) or mailbox["titles"].get(title_or_id)
        return int(found["deliveries"]) if found else 0

    def _count(self, which: str, campaign_id: str | None) -> int:
        sends = self.state()["sends"]
        return int(sends[which] if campaign_id is None else sends[f"{which}_by_campaign"].get(campaign_id, 0))

    def _control(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/sandbox/{path}", text)
            answer = connection.getresponse()
            document: dict[str, Any] = json.loads(answer.read())
        finally:
            connection.close()
        assert answer.status == 200, f"{method} /sandbox/{path}: {document.get('detail', document)}"
        return document


def _rules(text: str) -> list[dict[str, object]]:
    rules: list[dict[str, object]] = []
    for pair in text.split():
        name, _, value = pair.partition("=")
        if name in {"nth", "times"}:
            rules[-1][name] = int(value)
        elif name == "after":
            rules[-1][name] = value
        else:
            rules.append({"on": name, "word": value})
    return rules
