"""What was delivered: how many mails, to how many people, and to whom more than once."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sendonce.sandbox.account import Account
    from sendonce.sandbox.campaigns import Mailing

_NONCE = re.compile(r" \[[0-9a-f]{8}\]$")


def day_title(title: str) -> str:
    """Take off the mark, " [8 hex digits]", that sendonce puts on the titles of campaigns it creates."""
    return _NONCE.sub("", title)


def summary(account: Account, mailings: Sequence[Mailing]) -> dict[str, object]:
    """Count mails, people, people with more than one mail, and the most mails to one person."""
    if len(mailings) == 1:  # the usual case, and with 100,000 members the only cheap one
        count = len(mailings[0].members)
        return {"deliveries": count, "distinct": count, "more_than_once": 0, "most": min(count, 1)}
    got: Counter[str] = Counter()
    for mailing in mailings:
        audience = account.audiences[mailing.list_id]
        got.update(audience.address(member).lower() for member in mailing.members)
    return {
        "deliveries": got.total(),
        "distinct": len(got),
        "more_than_once": sum(1 for mails in got.values() if mails > 1),
        "most": max(got.values(), default=0),
    }


def told(account: Account) -> dict[str, object]:
    """Put the whole mailbox as JSON: by campaign id, by title (see `day_title`), and in all."""
    campaigns = [*account.campaigns.values(), *account.removed]
    by_title: dict[str, list[Mailing]] = defaultdict(list)
    for campaign in campaigns:
        by_title[day_title(campaign.title)] += campaign.mailings
    return {
        "campaigns": {
            campaign.id: {"title": campaign.title, **summary(account, campaign.mailings)}
            for campaign in campaigns
            if campaign.mailings
        },
        "titles": {title: summary(account, mailings) for title, mailings in by_title.items() if mailings},
        "total": summary(account, [one for mailings in by_title.values() for one in mailings]),
    }
