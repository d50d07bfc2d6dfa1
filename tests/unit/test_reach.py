"""Whom a campaign leaves out: the conditions that are written, and those that are read back."""

from __future__ import annotations

from typing import Any

import pytest

from sendonce.core.campaigns import Campaign, Content, Spec
from sendonce.core.errors import Refused
from sendonce.core.reach import (
    excluding,
    has_reached,
    is_excluded,
    is_of_date,
    is_through,
    saved_segment,
)

KEY = "Digest 2026-11-30"
NOSENT_1 = {"condition_type": "Aim", "field": "aim", "op": "nosent", "value": "4711"}
NOSENT_2 = {"condition_type": "Aim", "field": "aim", "op": "nosent", "value": "4712"}
IN_TAG = {"condition_type": "StaticSegment", "field": "static_segment", "op": "static_is", "value": 7}
READERS = {"condition_type": "EmailAddress", "field": "EMAIL", "op": "contains", "value": "@example.com"}
WRITERS = {"condition_type": "EmailAddress", "field": "EMAIL", "op": "contains", "value": "@example.org"}


def campaign(status: str = "sent", web_id: int | None = 4711, segment: object = None) -> Campaign:
    recipients = {"list_id": "list1"} | ({} if segment is None else {"segment_opts": segment})
    return Campaign("aaaaaa", KEY, status, "regular", "list1", None, web_id=web_id, recipients=recipients)


def spec(segment: object = None) -> Spec:
    recipients: dict[str, object] = {"list_id": "list1"}
    if segment is not None:
        recipients["segment_opts"] = segment
    return Spec("regular", recipients, {}, {}, Content("<p>Hello</p>"))


@pytest.mark.parametrize(
    ("title", "counts"),
    [
        (KEY, True),
        (f"{KEY} [0000000a]", True),
        (f"{KEY} (remaining 1)", True),
        (f"{KEY} (remaining 12) [0000000a]", True),
        (f"{KEY} (again 1) [0000000a]", True),
        (f"{KEY} (again) [0000000a]", False),
        (f"{KEY} (again 1) [0000000a] ", False),
        (f"{KEY} (again 1) [000000]", False),
        (f"{KEY} (copy 01)", False),
        ("Digest 2026-11-3", False),
        ("Digest 2026-12-01 (again 1)", False),
    ],
)
def test_a_title_of_the_date_is_the_days_own_or_one_of_an_order(title: str, counts: bool) -> None:
    assert is_of_date(title, KEY) is counts


@pytest.mark.parametrize(
    ("status", "reached", "through"),
    [
        ("save", False, False),
        ("schedule", False, False),
        ("paused", False, False),
        ("sending", True, False),
        ("canceling", True, False),
        ("sent", True, True),
        ("canceled", True, True),
        ("archived", True, False),
    ],
)
def test_who_may_have_been_sent_it_and_who_will_not_be_any_more_is_told_by_the_status(
    status: str, reached: bool, through: bool
) -> None:
    assert (has_reached(campaign(status)), is_through(campaign(status))) == (reached, through)


def test_without_another_campaign_nobody_is_left_out() -> None:
    plain = spec({"saved_segment_id": 7})
    assert excluding(plain, [], "saved") is plain


@pytest.mark.parametrize(
    ("segment", "kind", "conditions"),
    [
        pytest.param(None, "", [NOSENT_1, NOSENT_2], id="all"),
        pytest.param({}, "", [NOSENT_1, NOSENT_2], id="empty"),
        pytest.param({"saved_segment_id": 7}, "static", [IN_TAG, NOSENT_1, NOSENT_2], id="tag"),
        pytest.param(
            {"match": "any", "conditions": [READERS]}, "", [READERS, NOSENT_1, NOSENT_2], id="one condition"
        ),
        pytest.param(
            {"match": "all", "conditions": [READERS, NOSENT_2]},
            "",
            [READERS, NOSENT_2, NOSENT_1],
            id="left out before",
        ),
        pytest.param({"match": "all", "conditions": "?"}, "", [NOSENT_1, NOSENT_2], id="no list"),
    ],
)
def test_those_who_were_sent_others_are_left_out_beside_what_else_must_hold(
    segment: object, kind: str, conditions: list[object]
) -> None:
    made = excluding(spec(segment), [campaign(), campaign(web_id=4712)], kind)
    assert made.recipients == {"list_id": "list1", "segment_opts": {"match": "all", "conditions": conditions}}
    assert made.content == Content("<p>Hello</p>")


@pytest.mark.parametrize(
    ("segment", "kind", "said"),
    [
        pytest.param({"saved_segment_id": 7}, "saved", "the saved segment 7", id="saved"),
        pytest.param({"saved_segment_id": 7}, "", "the saved segment 7", id="of no known kind"),
        pytest.param({"match": "any", "conditions": [READERS, WRITERS]}, "", "any of several", id="any"),
        pytest.param({"conditions": [READERS, WRITERS]}, "", "any of several", id="not said"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_the_way_out(segment: object, kind: str, said: str) -> None:
    with pytest.raises(Refused, match=rf"{said}.*Use a tag instead"):
        excluding(spec(segment), [campaign()], kind)


def test_a_campaign_without_a_web_id_cannot_be_left_out() -> None:
    with pytest.raises(Refused, match="no web_id for campaign aaaaaa"):
        excluding(spec(), [campaign(web_id=None)], "")


@pytest.mark.parametrize(
    ("segment", "leaves_out"),
    [
        (None, False),
        ("?", False),
        ({"match": "all"}, False),
        ({"match": "all", "conditions": [NOSENT_1]}, True),
        ({"match": "all", "conditions": [READERS, NOSENT_1]}, True),
        ({"conditions": [NOSENT_1 | {"value": 4711}]}, True),
        ({"match": "any", "conditions": [READERS, NOSENT_1]}, False),
        ({"match": "all", "conditions": [NOSENT_2]}, False),
        ({"match": "all", "conditions": [NOSENT_1 | {"op": "sent"}]}, False),
        ({"match": "all", "conditions": [NOSENT_1 | {"condition_type": "Goal"}]}, False),
        ({"match": "all", "conditions": ["?"]}, False),
    ],
)
def test_a_campaign_leaves_out_another_only_where_all_of_it_says_so(
    segment: object, leaves_out: bool
) -> None:
    assert is_excluded(campaign("save", 4799, segment), campaign()) is leaves_out


@pytest.mark.parametrize(
    ("segment", "number"),
    [(None, None), ({}, None), ({"saved_segment_id": 0}, None), ({"saved_segment_id": "7"}, None),
     ({"saved_segment_id": 7}, 7)],
)  # fmt: skip
def test_the_number_of_a_saved_segment(segment: Any, number: int | None) -> None:
    assert saved_segment(spec(segment)) == number


def test_who_is_in_a_tag_can_be_left_out() -> None:
    made = excluding(spec(None), (), "", tag=7)
    assert made.recipients["segment_opts"] == {"match": "all", "conditions": [IN_TAG | {"op": "static_not"}]}
