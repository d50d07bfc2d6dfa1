"""What each operation of the API does, and the document it answers with; None is an empty 204."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sendonce.sandbox import documents
from sendonce.sandbox.problems import invalid, not_found
from sendonce.sandbox.queries import campaign_filter, ordered, page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sendonce.sandbox.account import Account
    from sendonce.sandbox.campaigns import Campaign
    from sendonce.sandbox.documents import Document

_MAX_HITS = 30


@dataclass(frozen=True)
class Ask:
    """One request to the account: the ids of its path, its query, its body."""

    account: Account
    ids: Mapping[str, str]
    query: Mapping[str, str]
    body: object

    @property
    def campaign_id(self) -> str:
        """The campaign that the path names."""
        return self.ids["campaign"]


def ping(_: Ask) -> Document:
    """GET /ping."""
    return {"health_status": "Everything's Chimpy!"}


def root(ask: Ask) -> Document:
    """GET /."""
    return documents.account(ask.account)


# Campaigns


def listing(ask: Ask) -> Document:
    """GET /campaigns."""
    fits = campaign_filter(ask.account, ask.query)
    found = ordered((one for one in ask.account.listed() if fits(one)), ask.query)
    shown = [documents.campaign(ask.account, one) for one in page(found, ask.query)]
    return {"campaigns": shown, "total_items": len(found)}


def search(ask: Ask) -> Document:
    """GET /search-campaigns: title and subject, the first 30 hits."""
    text = ask.query.get("query", "").lower()
    if not text:
        raise invalid("query", "This value should not be blank.")
    hits = [
        one for one in ask.account.listed() if text in f"{one.title}\n{one.settings['subject_line']}".lower()
    ]
    results = [
        {"campaign": documents.campaign(ask.account, one), "snippet": one.title} for one in hits[:_MAX_HITS]
    ]
    return {"results": results, "total_items": len(hits)}


def create(ask: Ask) -> Document:
    """POST /campaigns."""
    return documents.campaign(ask.account, ask.account.create(ask.body))


def campaign(ask: Ask) -> Document:
    """GET /campaigns/{id}."""
    return documents.campaign(ask.account, ask.account.campaign(ask.campaign_id))


def patch(ask: Ask) -> Document:
    """PATCH /campaigns/{id}."""
    return documents.campaign(ask.account, ask.account.update(ask.campaign_id, ask.body))


def delete(ask: Ask) -> None:
    """DELETE /campaigns/{id}."""
    ask.account.delete(ask.campaign_id)


def content(ask: Ask) -> Document:
    """GET /campaigns/{id}/content."""
    return documents.content(ask.account.campaign(ask.campaign_id))


def put_content(ask: Ask) -> Document:
    """PUT /campaigns/{id}/content."""
    return documents.content(ask.account.put_content(ask.campaign_id, ask.body))


def checklist(ask: Ask) -> Document:
    """GET /campaigns/{id}/send-checklist."""
    return documents.checklist(ask.account, ask.account.campaign(ask.campaign_id))


def send(ask: Ask) -> None:
    """POST /campaigns/{id}/actions/send."""
    ask.account.send(ask.campaign_id)


def replicate(ask: Ask) -> Document:
    """POST /campaigns/{id}/actions/replicate."""
    document = documents.campaign(ask.account, ask.account.replicate(ask.campaign_id))
    del document["recipients"]["list_is_active"]  # as the API describes this one answer
    return document


def schedule(ask: Ask) -> None:
    """POST /campaigns/{id}/actions/schedule."""
    ask.account.schedule(ask.campaign_id, ask.body)


def unschedule(ask: Ask) -> None:
    """POST /campaigns/{id}/actions/unschedule."""
    ask.account.unschedule(ask.campaign_id)


def pause(ask: Ask) -> None:
    """POST /campaigns/{id}/actions/pause."""
    ask.account.pause(ask.campaign_id)


def resume(ask: Ask) -> None:
    """POST /campaigns/{id}/actions/resume."""
    ask.account.resume(ask.campaign_id)


def cancel(ask: Ask) -> None:
    """POST /campaigns/{id}/actions/cancel-send."""
    ask.account.cancel(ask.campaign_id)


def send_test(ask: Ask) -> None:
    """POST /campaigns/{id}/actions/test."""
    ask.account.send_test(ask.campaign_id, ask.body)


def folders(ask: Ask) -> Document:
    """GET /campaign-folders."""
    inside = [str(one.settings["folder_id"]) for one in ask.account.campaigns.values()]
    rows = [
        {"id": folder_id, "name": name, "count": inside.count(folder_id)}
        for folder_id, name in ask.account.folders.items()
    ]
    return {"folders": page(rows, ask.query), "total_items": len(rows)}


# Reports


def report(ask: Ask) -> Document:
    """GET /reports/{id}."""
    return documents.report(ask.account, _mailed(ask))


def sent_to(ask: Ask) -> Document:
    """GET /reports/{id}/sent-to."""
    it = _mailed(ask)
    # the usual case, and with 1,000,000 members the only cheap one: a mailing's members are in order
    members = it.mailings[0].members if len(it.mailings) == 1 else sorted(_all_members(it))
    rows: list[Document] = []
    if members:
        audience = ask.account.audience(it.mailings[0].list_id)
        rows = [documents.sent_to(it, audience, member) for member in page(members, ask.query)]
    return {"sent_to": rows, "campaign_id": it.id, "total_items": len(members)}


def _all_members(it: Campaign) -> set[int]:
    return {member for mailing in it.mailings for member in mailing.members}


def sent_to_one(ask: Ask) -> Document:
    """GET /reports/{id}/sent-to/{subscriber_hash}."""
    it = _mailed(ask)
    for mailing in it.mailings:
        audience = ask.account.audience(mailing.list_id)
        member = audience.member_by_hash(ask.ids["member"])
        if member is not None and member in mailing.members:
            return documents.sent_to(it, audience, member)
    raise not_found()


def _mailed(ask: Ask) -> Campaign:
    """Find the campaign of a report; one that reads show as a draft has none."""
    it = ask.account.campaign(ask.campaign_id)
    if ask.account.shown_status(it) not in {"sending", "sent", "canceled"}:
        raise not_found()
    return it


# Lists


def lists(ask: Ask) -> Document:
    """GET /lists."""
    found = list(ask.account.audiences.values())
    return {
        "lists": [documents.audience(ask.account, one) for one in page(found, ask.query)],
        "total_items": len(found),
        "constraints": {
            "may_create": False,
            "max_instances": len(found),
            "current_total_instances": len(found),
        },
    }


def list_by_id(ask: Ask) -> Document:
    """GET /lists/{id}."""
    return documents.audience(ask.account, ask.account.audience(ask.ids["list"]))


def segments(ask: Ask) -> Document:
    """GET /lists/{id}/segments."""
    audience = ask.account.audience(ask.ids["list"])
    kind = ask.query.get("type")
    found = [one for one in audience.segments.values() if kind in {None, one.type}]
    rows = [documents.segment(ask.account, audience, one) for one in page(found, ask.query)]
    return {"segments": rows, "list_id": audience.id, "total_items": len(found)}


def segment(ask: Ask) -> Document:
    """GET /lists/{id}/segments/{segment_id}."""
    audience = ask.account.audience(ask.ids["list"])
    return documents.segment(ask.account, audience, ask.account.segment(audience.id, ask.ids["segment"]))


def add_segment(ask: Ask) -> Document:
    """POST /lists/{id}/segments."""
    audience = ask.account.audience(ask.ids["list"])
    return documents.segment(ask.account, audience, ask.account.add_segment(audience.id, ask.body))
