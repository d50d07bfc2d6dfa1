"""The Mailchimp adapter as the command builds it, with a clock whose sleep takes no time, and certificates."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from sendonce.adapters.mailchimp.api import Mailchimp
from sendonce.adapters.mailchimp.wire import Wire
from sendonce.core.campaigns import Content, Spec
from support.sandbox import API_KEY, LIST_ID

if TYPE_CHECKING:
    from pathlib import Path

USER_AGENT = "sendonce/0.0.0-test"
CAMPAIGN_ID = "1a2b3c4d5e"
CAMPAIGN: dict[str, Any] = {
    "id": CAMPAIGN_ID,
    "web_id": 4711,
    "type": "regular",
    "create_time": "2026-01-05T07:00:00+00:00",
    "status": "save",
    "emails_sent": 0,
    "send_time": "",
    "settings": {"title": "Digest 2026-01-05"},
    "recipients": {"list_id": LIST_ID, "recipient_count": 5},
}
SPEC = Spec(
    type="regular",
    recipients={"list_id": LIST_ID},
    settings={"subject_line": "News", "from_name": "Ed", "reply_to": "ed@example.com"},
    tracking={"opens": True},
    content=Content(html="<p>Hello</p>"),
)


class PatientClock:
    """A clock port: time passes as it does, and a sleep is over at once but counts. `slept` has the seconds."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        """Tell the wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds, those slept included."""
        return time.monotonic() + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        """Let so many seconds have passed."""
        self.slept.append(seconds)


class StoppedClock(PatientClock):
    """One on which nothing but sleeping takes time."""

    def monotonic(self) -> float:
        """Seconds slept."""
        return sum(self.slept)


class Notes:
    """A witness port that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, event: str, **facts: object) -> None:
        """Keep an event."""
        self.told.append(f"{event} {facts}")

    def warn(self, message: str) -> None:
        """Keep a warning."""
        self.told.append(message)


def mailchimp(
    url: str,
    *,
    clock: PatientClock | None = None,
    notes: Notes | None = None,
    timeout_s: float = 20,
    list_id: str = "",
    key: str = API_KEY,
) -> Mailchimp:
    """Mailchimp at `url`."""
    wire = Wire(url, key, timeout_s=timeout_s, user_agent=USER_AGENT)
    return Mailchimp(
        wire,
        clock or PatientClock(),
        notes or Notes(),
        list_id=list_id,
        timeout_s=timeout_s,
        key_from="the test",
    )


def self_signed(folder: Path, *names: str) -> tuple[ssl.SSLContext, Path]:
    """Make a certificate of its own for these host names: what a server needs of it, and the file to trust."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is needed to make a certificate")
    key, certificate = folder / "server.key", folder / "server.pem"
    alternatives = ",".join(f"DNS:{name}" for name in names)
    subprocess.run(
        [openssl, "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2",
         "-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={alternatives}",
         "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
