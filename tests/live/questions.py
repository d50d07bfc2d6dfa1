"""Questions that only a real account can answer, and what the protocol assumes until one does.

They mail at most five people a few times. Each returns the answer in words; nothing here decides anything.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    from collections.abc import Callable

MEMBERS_AT_MOST = 5
PATIENCE_S = 600
POLL_S = 1.0


@dataclass
class Account:
    """A real account (or the sandbox), with a spare audience. What it makes it removes again."""

    base_url: str
    key: str
    list_id: str
    poll_s: float = POLL_S
    made: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One request; status and JSON (None if there is none)."""
        answer = requests.request(
            method,
            f"{self.base_url}{path}",
            json=body,
            auth=("user", self.key),
            timeout=130,
            allow_redirects=False,
        )
        try:
            return answer.status_code, answer.json()
        except ValueError:
            return answer.status_code, None

    def members(self) -> int:
        """How many people the audience has."""
        _, found = self.ask("GET", f"/lists/{self.list_id}?fields=stats.member_count")
        return int(found["stats"]["member_count"])

    def draft(self, title: str) -> dict[str, Any]:
        """A campaign that is ready to be sent."""
        settings = {
            "title": title, "subject_line": title, "from_name": "sendonce live test", "reply_to": self._reply_to(),
        }  # fmt: skip
        body = {"type": "regular", "recipients": {"list_id": self.list_id}, "settings": settings}
        _, made = self.ask("POST", "/campaigns", body)
        self.made.append(made["id"])
        self.ask("PUT", f"/campaigns/{made['id']}/content", {"html": f"<p>{title} *|UNSUB|*</p>"})
        self.wait(lambda: bool(self.ask("GET", f"/campaigns/{made['id']}/send-checklist")[1]["is_ready"]))
        return dict(made)

    def _reply_to(self) -> str:
        _, found = self.ask("GET", f"/lists/{self.list_id}?fields=campaign_defaults.from_email")
        return str((found.get("campaign_defaults") or {}).get("from_email") or "ed@example.com")

    def send(self, campaign_id: str) -> tuple[int, Any]:
        """POST send."""
        return self.ask("POST", f"/campaigns/{campaign_id}/actions/send")

    def status(self, campaign_id: str) -> str:
        """The campaign's status now."""
        return str(self.ask("GET", f"/campaigns/{campaign_id}?fields=status")[1]["status"])

    def wait(self, condition: Callable[[], bool]) -> float:
        """How long it took until something was so, in seconds; PATIENCE_S if it did not come about."""
        began = time.monotonic()
        while not condition() and time.monotonic() - began < PATIENCE_S:
            time.sleep(self.poll_s)
        return time.monotonic() - began

    def tidy(self) -> None:
        """Remove the drafts that were made here; what was sent stays."""
        for campaign_id in self.made:
            if self.ask("GET", f"/campaigns/{campaign_id}")[1].get("status") == "save":
                self.ask("DELETE", f"/campaigns/{campaign_id}")


def told(answer: tuple[int, Any]) -> str:
    """An answer in words."""
    status, found = answer
    if not isinstance(found, dict):
        return str(status)
    return f"{status} {found.get('title', '')}: {found.get('detail', '')}".strip(": ")


def second_send(account: Account) -> str:
    """What does a second send of one campaign answer? Assumed: a refusal, nothing mailed."""
    made = account.draft("sendonce live: second send")
    first = told(account.send(made["id"]))
    at_once = told(account.send(made["id"]))
    account.wait(lambda: account.status(made["id"]) == "sent")
    return f"first {first}; at once after it {at_once}; once sent {told(account.send(made['id']))}"


def two_sends_at_once(account: Account) -> str:
    """What do two sends at the same moment answer? Assumed: at most one is accepted, or both are and it mails once."""
    made = account.draft("sendonce live: two at once")
    with ThreadPoolExecutor(2) as pool:
        answers = [told(a) for a in pool.map(account.send, [made["id"]] * 2)]
    account.wait(lambda: account.status(made["id"]) == "sent")
    _, found = account.ask("GET", f"/campaigns/{made['id']}?fields=emails_sent")
    return (
        f"{answers[0]} and {answers[1]}; emails_sent {found['emails_sent']} for {account.members()} members"
    )


def listing_lag(account: Account) -> str:
    """How long does a new campaign stay out of the list? Assumed: less than SENDONCE_LISTING_SECONDS (30)."""
    waits = []
    for n in range(5):
        made = account.draft(f"sendonce live: listing {n}")

        def is_listed(campaign_id: str = made["id"]) -> bool:
            path = "/campaigns?count=50&sort_field=create_time&sort_dir=DESC&fields=campaigns.id"
            return campaign_id in {c["id"] for c in account.ask("GET", path)[1]["campaigns"]}

        waits.append(account.wait(is_listed))
    return f"{max(waits):.1f} s at the most, in {len(waits)} tries"


def status_lag(account: Account) -> str:
    """How long does the status lag after a 204? Assumed: less than SENDONCE_SETTLE_SECONDS (180)."""
    made = account.draft("sendonce live: status lag")
    account.send(made["id"])
    left_save = account.wait(lambda: account.status(made["id"]) != "save")
    return f"left save after {left_save:.1f} s; now {account.status(made['id'])}"


def web_id_grows(account: Account) -> str:
    """Does web_id grow with each campaign? Not leaned on: the order is that of create_time."""
    numbers = [account.draft(f"sendonce live: web_id {n}")["web_id"] for n in range(3)]
    return f"{'yes' if numbers == sorted(numbers) else 'no'}: {numbers}"


def same_segment_twice(account: Account) -> str:
    """Is a second static segment of the same name refused, even under 20 parallel creates? Not leaned on."""
    body = {"name": f"sendonce live {time.time_ns()}", "static_segment": []}
    with ThreadPoolExecutor(20) as pool:
        path = f"/lists/{account.list_id}/segments"
        answers = list(pool.map(lambda _: account.ask("POST", path, body), range(20)))
    made = sum(status == 200 for status, _ in answers)
    refused = sorted({told(a) for a in answers if a[0] != 200})
    return f"{made} of 20 were made; refusals: {'; '.join(refused) or 'none'}"


def title_of_a_copy(account: Account) -> str:
    """What is a replicated campaign titled? The reason why sendonce creates its copies itself."""
    made = account.draft("sendonce live: original")
    _, copy = account.ask("POST", f"/campaigns/{made['id']}/actions/replicate")
    account.made.append(copy["id"])
    return f'"{copy["settings"]["title"]}"'


def paused_and_canceled(account: Account) -> str:
    """What do a scheduled, a paused and a canceled campaign answer to a send? Assumed: nobody sends them."""
    made = account.draft("sendonce live: canceled")
    account.send(made["id"])
    cancel = told(account.ask("POST", f"/campaigns/{made['id']}/actions/cancel-send"))
    return f"cancel-send {cancel}; status {account.status(made['id'])}; a send then {told(account.send(made['id']))}"


QUESTIONS: tuple[Callable[[Account], str], ...] = (
    second_send, two_sends_at_once, listing_lag, status_lag, web_id_grows, same_segment_twice, title_of_a_copy,
    paused_and_canceled,
)  # fmt: skip
