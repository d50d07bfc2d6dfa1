"""The `/sandbox/` side: put drafts in place, order faults, read what happened. JSON, no key.

GET    /sandbox/state             everything: campaigns, sends, settings, faults, audiences
GET    /sandbox/calls             every request that arrived; DELETE forgets them
GET    /sandbox/mailbox           what was delivered: by campaign, by title, in all
PUT    /sandbox/faults            replace the rules (a list; see faults.py)
PUT    /sandbox/settings          change some settings (see account.Settings)
POST   /sandbox/campaigns         put a finished draft in place: title, what shall differ; `many`: N others
PATCH  /sandbox/campaigns/{id}    change anything by hand; DELETE removes it
POST   /sandbox/audiences         put an audience in place: members (a number or addresses), name, id
POST   /sandbox/folders           put a campaign folder in place: name
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sendonce.sandbox import faults, mailbox
from sendonce.sandbox.messages import json_reply, time_text, time_value
from sendonce.sandbox.problems import Problem, bad_request, not_found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sendonce.sandbox.account import Account
    from sendonce.sandbox.campaigns import Campaign
    from sendonce.sandbox.faults import Rules
    from sendonce.sandbox.journal import Journal
    from sendonce.sandbox.messages import Reply, Request

PREFIX = "/sandbox/"
_SOME_TIME_S = 60.0
_BY_HAND = frozenset(
    {
        *("title", "subject", "html", "plain_text", "list_id", "segment_opts", "settings", "type", "web_id"),
        *("status", "create_time", "send_time", "emails_sent", "delivered", "fresh", "keep_deliveries"),
    }
)


class Control:
    """The control side of one sandbox."""

    def __init__(self, account: Account, rules: Rules, journal: Journal) -> None:
        self._account = account
        self._rules = rules
        self._journal = journal
        self._actions = {
            ("GET", "state"): self._state,
            ("GET", "calls"): self._calls,
            ("DELETE", "calls"): self._forget_calls,
            ("GET", "mailbox"): self._mailbox,
            ("PUT", "faults"): self._faults,
            ("PUT", "settings"): self._settings,
            ("POST", "campaigns"): self._add,
            ("PATCH", "campaigns"): self._edit,
            ("DELETE", "campaigns"): self._remove,
            ("POST", "audiences"): self._add_audience,
            ("POST", "folders"): self._add_folder,
        }

    def answer(self, request: Request) -> Reply:
        """Do what a control request asks; the reply is a 400 or 404 problem if it cannot be done."""
        target, _, campaign_id = request.path.removeprefix(PREFIX).partition("/")
        action = self._actions.get((request.method, target))
        try:
            if action is None:
                raise not_found()
            with self._account.lock:
                return json_reply(action(campaign_id, request.body))
        except Problem as problem:
            return problem.reply()
        except (ValueError, TypeError, KeyError) as error:
            return bad_request(f"{type(error).__name__}: {error}").reply()

    def _state(self, _id: str, _body: object) -> dict[str, object]:
        account = self._account
        return {
            "campaigns": [self._told(account.campaign(one)) for one in account.campaigns],
            "sends": {
                "arrived": account.sends_arrived.total(),
                "accepted": account.sends_accepted.total(),
                "arrived_by_campaign": dict(account.sends_arrived),
                "accepted_by_campaign": dict(account.sends_accepted),
            },
            "audiences": [
                {"id": one.id, "name": one.name, "members": one.count} for one in account.audiences.values()
            ],
            "calls": len(self._journal),
            "connections": self._journal.connections,
            "settings": vars(account.settings),
            "faults": self._rules.told(),
        }

    def _told(self, campaign: Campaign) -> dict[str, object]:
        """Put a campaign as it really is, not as reads show it, as JSON."""
        account = self._account
        return {
            "id": campaign.id,
            "web_id": campaign.web_id,
            "title": campaign.title,
            "type": campaign.type,
            "list_id": campaign.list_id,
            "status": campaign.status,
            "shown_status": account.shown_status(campaign),
            "create_time": time_text(campaign.created),
            "send_time": time_text(campaign.send_time),
            "emails_sent": account.emails_sent(campaign),
            "sends_arrived": account.sends_arrived[campaign.id],
            "sends_accepted": account.sends_accepted[campaign.id],
            **mailbox.summary(account, campaign.mailings),
        }

    def _calls(self, _id: str, _body: object) -> dict[str, object]:
        return {"calls": self._journal.told()}

    def _forget_calls(self, _id: str, _body: object) -> dict[str, object]:
        self._journal.clear()
        return {}

    def _mailbox(self, _id: str, _body: object) -> dict[str, object]:
        return mailbox.told(self._account)

    def _faults(self, _id: str, body: object) -> dict[str, object]:
        self._rules.replace([faults.rule(told) for told in _list(body)])
        return {"faults": self._rules.told()}

    def _settings(self, _id: str, body: object) -> dict[str, object]:
        self._account.set_settings(_object(body))
        return dict(vars(self._account.settings))

    def _add(self, _id: str, body: object) -> dict[str, object]:
        said = _object(body)
        if "many" in said:
            return {"ids": self._add_many(said)}
        check_names(said)
        campaign = self._account.add_finished(str(said["title"]), is_fresh=bool(said.get("fresh")))
        edit(self._account, campaign, said)
        return self._told(campaign)

    def _add_many(self, said: Mapping[str, object]) -> list[str]:
        title, status = str(said.get("title", "Other campaign")), str(said.get("status", "sent"))
        ids = []
        for number in range(1, (_whole(said, "many") or 0) + 1):
            campaign = self._account.add_finished(f"{title} {number:05d}")
            campaign.created -= number * _SOME_TIME_S
            campaign.status = status
            if status == "sent":
                campaign.send_time, campaign.emails_sent = campaign.created, 1
            ids.append(campaign.id)
        return ids

    def _edit(self, campaign_id: str, body: object) -> dict[str, object]:
        said = _object(body)
        check_names(said)
        campaign = self._account.campaign(campaign_id)
        edit(self._account, campaign, said)
        return self._told(campaign)

    def _remove(self, campaign_id: str, _body: object) -> dict[str, object]:
        self._account.remove(campaign_id)
        return {}

    def _add_audience(self, _id: str, body: object) -> dict[str, object]:
        said = _object(body)
        members, list_id = said.get("members", 0), said.get("id")
        if not isinstance(members, int | list):
            raise TypeError("members is a number or a list of addresses")
        name = str(said.get("name", "Another audience"))
        return {"id": self._account.add_audience(name, members, str(list_id) if list_id else None).id}

    def _add_folder(self, _id: str, body: object) -> dict[str, object]:
        folder_id = f"f01de{len(self._account.folders):05x}"
        self._account.folders[folder_id] = str(_object(body)["name"])
        return {"id": folder_id}


def check_names(said: Mapping[str, object]) -> None:
    """Raise ValueError for something that no campaign has."""
    unknown = set(said) - _BY_HAND
    if unknown:
        raise ValueError(
            f"a campaign has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(_BY_HAND))}"
        )


def edit(account: Account, campaign: Campaign, said: Mapping[str, object]) -> None:
    """Change a campaign by hand, whatever its status; first what it says, then what became of it."""
    campaign.settings |= _object(said.get("settings", {}))
    for name, setting in (("title", "title"), ("subject", "subject_line")):
        campaign.settings[setting] = str(said.get(name, campaign.settings[setting]))
    if "html" in said or "plain_text" in said:
        campaign.content = {name: str(said.get(name, "")) for name in ("html", "plain_text")}
    campaign.list_id = str(said.get("list_id", campaign.list_id))
    campaign.segment_opts = _object(said.get("segment_opts", campaign.segment_opts))
    campaign.type = str(said.get("type", campaign.type))
    campaign.web_id = _whole(said, "web_id") or campaign.web_id
    _edit_history(account, campaign, said)


def _edit_history(account: Account, campaign: Campaign, said: Mapping[str, object]) -> None:
    if "create_time" in said:
        campaign.created = time_value(str(said["create_time"])) or campaign.created
    if "status" in said:
        mailings = campaign.mailings
        account.set_status(campaign, str(said["status"]))
        if said.get("keep_deliveries"):
            campaign.mailings = mailings
    if "send_time" in said:
        campaign.send_time = time_value(str(said["send_time"] or ""))
    if "emails_sent" in said:
        campaign.emails_sent = _whole(said, "emails_sent")
    if "delivered" in said:
        account.set_delivered(campaign, _whole(said, "delivered") or 0)


def _whole(said: Mapping[str, object], name: str) -> int | None:
    value = said.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return value


def _object(body: object) -> dict[str, object]:
    if not isinstance(body, dict):
        raise TypeError("a JSON object is needed here")
    return body


def _list(body: object) -> list[dict[str, object]]:
    if not isinstance(body, list):
        raise TypeError("a JSON list is needed here")
    return [_object(one) for one in body]
