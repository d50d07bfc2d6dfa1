"""Whom a created campaign must not reach: everybody who was sent another campaign of the same date.

Mailchimp keeps who was sent what, and takes "was not sent campaign X" as a condition of a campaign: Aim, `nosent`, the
value being the web_id as text (facts §10). That says it down to the person, and is true whatever the ledger knows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sendonce.core.dates import belongs
from sendonce.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sendonce.core.campaigns import Campaign, Spec

STATIC: Final = "static"
"""The type of a segment that is a list of people, which Mailchimp also calls a tag."""


def is_of_date(title: str, key: str) -> bool:
    """Whether a title is that of the day's campaign, or of one that was ordered beside it."""
    ordered = re.fullmatch(re.escape(key) + r"( \((?:remaining|again) [0-9]+\))(?: \[[0-9a-f]{8}\])?", title)
    return belongs(title, key) or ordered is not None


def has_reached(campaign: Campaign) -> bool:
    """Whether somebody may have been sent it. A canceled one was, up to where it was stopped."""
    return campaign.is_mailed or campaign.status in {"canceling", "canceled", "archived"}


def is_through(campaign: Campaign) -> bool:
    """Whether nobody will be sent it any more: only then is known who was not (facts §10)."""
    return campaign.status in {"sent", "canceled"}


def excluding(spec: Spec, campaigns: Iterable[Campaign], segment_type: str, tag: int = 0) -> Spec:
    """`spec` for those alone who were sent none of `campaigns`, and have not this tag (0: none).

    `segment_type` is that of its saved segment, "" without one. Raise Refused if it cannot be combined with that.
    """
    wanted = [_nosent(campaign) for campaign in campaigns]
    if tag:
        wanted.append(_in_tag(tag) | {"op": "static_not"})
    if not wanted:
        return spec
    conditions = _conditions(spec, segment_type)
    missing = [condition for condition in wanted if condition not in conditions]
    segment = {"match": "all", "conditions": [*conditions, *missing]}
    return replace(spec, recipients={**spec.recipients, "segment_opts": segment})


def is_excluded(campaign: Campaign, other: Campaign) -> bool:
    """Whether `campaign`, as a read by id shows it, leaves out everybody who was sent `other`."""
    segment = _segment(campaign.recipients)
    conditions = segment.get("conditions")
    if not isinstance(conditions, list) or (segment.get("match") != "all" and len(conditions) > 1):
        return False
    return any(
        isinstance(condition, dict)
        and (condition.get("condition_type"), condition.get("op")) == ("Aim", "nosent")
        and str(condition.get("value")) == str(other.web_id)
        for condition in conditions
    )


def is_outside_tag(campaign: Campaign, tag: int) -> bool:
    """Whether `campaign`, as a read by id shows it, leaves out the people of a tag."""
    conditions = _segment(campaign.recipients).get("conditions")
    return isinstance(conditions, list) and _in_tag(tag) | {"op": "static_not"} in conditions


def saved_segment(spec: Spec) -> int | None:
    """The number of the saved segment that a campaign shall go to, None without one."""
    saved = _segment(spec.recipients).get("saved_segment_id")
    return saved if isinstance(saved, int) and saved else None


def _conditions(spec: Spec, segment_type: str) -> Sequence[object]:
    """The conditions that a campaign has so far, all of which must hold."""
    if (saved := saved_segment(spec)) is not None:
        if segment_type != STATIC:
            raise Refused(
                f"The campaign is for the saved segment {saved}, which Mailchimp cannot combine with leaving out who was "
                "sent another campaign of this date. Use a tag instead of that segment."
            )
        return [_in_tag(saved)]
    segment = _segment(spec.recipients)
    found = segment.get("conditions")
    conditions = found if isinstance(found, list) else []
    if len(conditions) > 1 and segment.get("match") != "all":
        raise Refused(
            "The campaign is for people of whom any of several conditions holds, which Mailchimp cannot combine with "
            "leaving out who was sent another campaign of this date. Use a tag instead of these conditions."
        )
    return conditions


def _nosent(campaign: Campaign) -> dict[str, object]:
    if campaign.web_id is None:
        raise Refused(
            f"Mailchimp gives no web_id for campaign {campaign.id}: who was sent it cannot be left out."
        )
    return {"condition_type": "Aim", "field": "aim", "op": "nosent", "value": str(campaign.web_id)}


def _in_tag(segment_id: int) -> dict[str, object]:
    return {
        "condition_type": "StaticSegment",
        "field": "static_segment",
        "op": "static_is",
        "value": segment_id,
    }


def _segment(recipients: Mapping[str, object]) -> Mapping[str, object]:
    found = recipients.get("segment_opts")
    return found if isinstance(found, dict) else {}
