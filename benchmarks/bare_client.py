"""What sending a draft cannot cost less than: the client imported, and the calls of a run over one kept connection.

    python benchmarks/bare_client.py BASE_URL KEY

Nothing is checked here, nothing recorded: this is a measure, no way to send.
"""

from __future__ import annotations

import sys

import mailchimp_marketing  # noqa: F401 - its import is part of the measure
import requests

TITLE = "daily 2026-01-05"
FIELDS = (
    "total_items,campaigns.id,campaigns.web_id,campaigns.type,campaigns.create_time,campaigns.status,"
    "campaigns.emails_sent,campaigns.send_time,campaigns.recipients.list_id,campaigns.recipients.recipient_count,"
    "campaigns.settings.title"
)


def main(base_url: str, key: str) -> None:
    """The calls in their order: listing, checklist, send, and a look at what became of it."""
    with requests.Session() as session:
        session.auth = ("user", key)
        params = {
            "fields": FIELDS,
            "count": "500",
            "offset": "0",
            "sort_field": "create_time",
            "sort_dir": "ASC",
        }
        found = session.get(f"{base_url}/campaigns", params=params, timeout=30).json()["campaigns"]
        drafts = [one["id"] for one in found if one["settings"]["title"] == TITLE and one["status"] == "save"]
        campaign = f"{base_url}/campaigns/{drafts[0]}"
        session.get(f"{campaign}/send-checklist", params={"fields": "is_ready,items"}, timeout=30).json()
        session.post(f"{campaign}/actions/send", timeout=30).raise_for_status()
        session.get(campaign, params={"exclude_fields": "_links"}, timeout=30).json()


if __name__ == "__main__":
    main(*sys.argv[1:])
