"""The JSON shapes the API answers with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sendonce.sandbox.audience import subscriber_hash
from sendonce.sandbox.messages import time_text

if TYPE_CHECKING:
    from sendonce.sandbox.account import Account
    from sendonce.sandbox.audience import Audience, Segment
    from sendonce.sandbox.campaigns import Campaign

Document = dict[str, Any]


def account(one: Account) -> Document:
    """GET /."""
    opened = time_text(one.opened)
    contact = dict.fromkeys(("addr1", "addr2", "city", "state", "zip", "country"), "")
    return {
        "account_id": "5a4db0c5",
        "login_id": "1000001",
        "account_name": "Sandbox",
        "email": "sandbox@example.com",
        "first_name": "Sand",
        "last_name": "Box",
        "username": "sandbox",
        "avatar_url": "",
        "role": one.settings.role,
        "member_since": opened,
        "pricing_plan_type": "monthly",
        "first_payment": opened,
        "account_timezone": "UTC",
        "account_industry": "",
        "contact": {"company": "Sandbox"} | contact,
        "pro_enabled": False,
        "last_login": opened,
        "total_subscribers": sum(audience.count for audience in one.audiences.values()),
        "industry_stats": {"open_rate": 0.0, "bounce_rate": 0.0, "click_rate": 0.0},
    }


def campaign(one: Account, it: Campaign) -> Document:
    """Put a campaign as reads show it, which may lag behind what it is.

    An unsent campaign has `send_time` "" where the API's own description wants a date-time.
    """
    status = one.shown_status(it)
    is_past = status not in {"save", "schedule", "paused"}
    document: Document = {
        "id": it.id,
        "web_id": it.web_id,
        "parent_campaign_id": "",
        "type": it.type,
        "create_time": time_text(it.created),
        "archive_url": f"http://sandbox.invalid/{it.id}",
        "long_archive_url": f"http://sandbox.invalid/archive/{it.id}",
        "status": status,
        "emails_sent": one.emails_sent(it),
        "send_time": "" if one.is_hidden(it) else time_text(it.send_time),
        "content_type": it.content_type,
        "needs_block_refresh": False,
        "resendable": status == "sent",
        "recipients": _recipients(one, it),
        "settings": dict(it.settings),
        "tracking": dict(it.tracking),
        "delivery_status": {"enabled": False},
        **it.options,
    }
    if is_past:
        document["report_summary"] = {
            "opens": 0,
            "unique_opens": 0,
            "open_rate": 0.0,
            "clicks": 0,
            "subscriber_clicks": 0,
            "click_rate": 0.0,
            "ecommerce": {"total_orders": 0, "total_spent": 0.0, "total_revenue": 0.0},
        }
    return document


def _recipients(one: Account, it: Campaign) -> Document:
    audience = one.audiences.get(it.list_id)
    if it.mailings and not one.is_hidden(it):
        count = it.deliveries
    else:
        count = 0 if one.waits_for_recipients(it) else len(one.recipients(it))
    document: Document = {
        "list_id": it.list_id,
        "list_is_active": audience is not None,
        "list_name": audience.name if audience else "",
        "segment_text": "",
        "recipient_count": count,
    }
    if it.segment_opts:
        document["segment_opts"] = it.segment_opts
    return document


def content(it: Campaign) -> Document:
    """Put the content of a campaign, byte for byte as it was set."""
    html = it.content.get("html", "")
    return {"plain_text": it.content.get("plain_text", ""), "html": html, "archive_html": html}


def checklist(one: Account, it: Campaign) -> Document:
    """Put the send checklist: one item for each thing that is looked at."""
    faults = one.faults_of(it)
    if it.status != "save":
        faults["Status"] = f"the campaign is not a draft, its status is {it.status}"
    headings = ("List", "Subject", "From name", "Reply-to", "Content", "Recipients", "Status")
    items = [
        {
            "type": "error" if heading in faults else "success",
            "id": 501 + place,
            "heading": heading,
            "details": faults.get(heading, "This is as it should be."),
        }
        for place, heading in enumerate(headings)
    ]
    return {"is_ready": not faults, "items": items}


def report(one: Account, it: Campaign) -> Document:
    """GET /reports/{id}."""
    audience = one.audiences.get(it.list_id)
    return {
        "id": it.id,
        "campaign_title": it.title,
        "type": it.type,
        "list_id": it.list_id,
        "list_is_active": audience is not None,
        "list_name": audience.name if audience else "",
        "subject_line": it.settings["subject_line"],
        "preview_text": it.settings["preview_text"],
        "emails_sent": one.emails_sent(it),
        "abuse_reports": 0,
        "unsubscribed": 0,
        "send_time": time_text(it.send_time),
        "bounces": {"hard_bounces": 0, "soft_bounces": 0, "syntax_errors": 0},
        "forwards": {"forwards_count": 0, "forwards_opens": 0},
        "opens": {"opens_total": 0, "unique_opens": 0, "open_rate": 0.0, "last_open": ""},
        "clicks": {
            "clicks_total": 0,
            "unique_clicks": 0,
            "unique_subscriber_clicks": 0,
            "click_rate": 0.0,
            "last_click": "",
        },
        "timeseries": [],
        "delivery_status": {"enabled": False},
    }


def sent_to(it: Campaign, audience: Audience, member: int) -> Document:
    """Put one recipient of a campaign."""
    address = audience.address(member)
    return {
        "email_id": subscriber_hash(address),
        "email_address": address,
        "merge_fields": {},
        "vip": False,
        "status": "sent",
        "open_count": 0,
        "last_open": "",
        "gmt_offset": 0,
        "campaign_id": it.id,
        "list_id": audience.id,
        "list_is_active": True,
    }


def audience(one: Account, it: Audience) -> Document:
    """Put a list."""
    of_it = [campaign for campaign in one.campaigns.values() if campaign.list_id == it.id]
    sent = [campaign.send_time for campaign in of_it if campaign.send_time and campaign.mailings]
    no_contact = dict.fromkeys(("address1", "address2", "city", "state", "zip", "country", "phone"), "")
    return {
        "id": it.id,
        "web_id": it.web_id,
        "name": it.name,
        "contact": {"company": "Sandbox"} | no_contact,
        "permission_reminder": "You are in a sandbox.",
        "use_archive_bar": False,
        "campaign_defaults": {
            "from_name": "Sandbox",
            "from_email": "sandbox@example.com",
            "subject": "",
            "language": "en",
        },
        "notify_on_subscribe": "",
        "notify_on_unsubscribe": "",
        "date_created": time_text(it.created),
        "list_rating": 0,
        "email_type_option": False,
        "double_optin": False,
        "has_welcome": False,
        "marketing_permissions": False,
        "visibility": "prv",
        "modules": [],
        "stats": {
            "member_count": it.count,
            "total_contacts": it.count,
            "unsubscribe_count": 0,
            "cleaned_count": 0,
            "campaign_count": len(of_it),
            "campaign_last_sent": time_text(max(sent, default=None)),
        },
    }


def segment(one: Account, it: Audience, part: Segment) -> Document:
    """Put a segment of a list."""
    document: Document = {
        "id": part.id,
        "name": part.name,
        "member_count": len(one.segment_members(it, part)),
        "type": part.type,
        "created_at": time_text(part.created),
        "updated_at": time_text(part.created),
        "list_id": it.id,
    }
    if part.options:
        document["options"] = part.options
    return document
