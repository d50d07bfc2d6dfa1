"""A date's record in parts: none sees, changes or loses another."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sendonce.core.model import Attempt, Batch, Entry, State
from sendonce.core.parts import MAIN, beside, folded, part, roles

DAY = "2026-11-30"
ASKED = datetime(2026, 11, 30, 8, 0, 4, tzinfo=UTC)
TRY = Attempt("run1", "web1", 812, ASKED)

OWN = Entry("aaaaaa", "Digest 2026-11-30", requested_at=ASKED)
FORMER = Entry("aaaaa1", "Digest 2026-11-30 [00000001]", role="former", requested_at=ASKED)
TWIN = Entry("aaaaa2", "Digest 2026-11-30 [00000002]", role="twin", sent_at=ASKED)
FIRST = Entry(
    "bbbbbb",
    "Digest 2026-11-30 (remaining 1) [00000003]",
    role="remaining 1",
    state=State.SENT,
    nonce="00000003",
    order="root@web1: canceled",
    sent_at=ASKED,
)
FIRST_FORMER = Entry("bbbbb1", "x", role="remaining 1 former", requested_at=ASKED)
FIRST_TWIN = Entry("bbbbb2", "x", role="remaining 1 twin", sent_at=ASKED)
ELEVENTH = Entry("cccccc", "x", role="remaining 11", state=State.READY, nonce="00000004")
AGAIN = Entry("", "", role="again 1", state=State.REFUSED, nonce="00000005", reason="No.", order="me: link")
WHOLE = Batch(
    DAY,
    State.SENT,
    "00000000",
    (OWN, FORMER, TWIN, FIRST, FIRST_FORMER, FIRST_TWIN, ELEVENTH, AGAIN),
    (TRY,),
)


def test_the_days_own_part_is_its_campaign_with_those_given_up_and_mailed_beside_it() -> None:
    assert part(WHOLE, MAIN) == Batch(DAY, State.SENT, "00000000", (OWN, FORMER, TWIN), (TRY,))


def test_a_date_without_orders_is_its_own_part() -> None:
    whole = WHOLE._replace(campaigns=(OWN, FORMER, TWIN))
    assert part(whole, MAIN) is whole
    assert folded(whole, MAIN, whole._replace(reason="x")) == whole._replace(reason="x")


def test_an_order_is_seen_as_a_batch_whose_own_campaign_it_is() -> None:
    assert part(WHOLE, "remaining 1") == Batch(
        DAY,
        State.SENT,
        "00000003",
        (
            FIRST._replace(role="main", state=State.NONE, nonce="", order=""),
            FIRST_FORMER._replace(role="former"),
            FIRST_TWIN._replace(role="twin"),
        ),
        (TRY,),
    )


def test_an_order_without_a_campaign_yet_has_a_state_and_no_campaign() -> None:
    assert part(WHOLE, "again 1") == Batch(DAY, State.REFUSED, "00000005", (), (TRY,), "No.")


def test_an_order_that_is_not_on_record_is_an_empty_batch() -> None:
    assert part(WHOLE, "again 2") == Batch(DAY, State.NONE, "", (), (TRY,))


@pytest.mark.parametrize("role", [MAIN, "remaining 1", "remaining 11", "again 1"])
def test_what_is_taken_out_and_put_back_unchanged_changes_nothing(role: str) -> None:
    again = folded(WHOLE, role, part(WHOLE, role), "somebody else")
    assert sorted(again.campaigns) == sorted(WHOLE.campaigns)
    assert again._replace(campaigns=()) == WHOLE._replace(campaigns=())


@pytest.mark.parametrize("role", [MAIN, "remaining 1", "remaining 11", "again 1", "again 2"])
def test_a_change_of_one_part_leaves_every_other_as_it_was(role: str) -> None:
    roles_of = {MAIN: {"main", "former", "twin"}}.get(role, {role, f"{role} former", f"{role} twin"})
    moved = part(WHOLE, role)._replace(
        state=State.SENT,
        campaigns=(
            Entry("dddddd", "x"),
            Entry("dddddf", "x", role="former"),
            Entry("dddddt", "x", role="twin"),
        ),
    )
    changed = folded(WHOLE, role, moved)
    others = [e for e in WHOLE.campaigns if e.role not in roles_of]
    assert [e for e in changed.campaigns if e.role not in roles_of] == others
    assert {e.role for e in changed.campaigns if e.id.startswith("ddddd")} == roles_of
    assert part(changed, role) == moved


def test_who_ordered_it_and_why_is_put_down_once_and_stays() -> None:
    planned = Batch(DAY, State.PLANNED, "00000006", (), (TRY,))
    whole = folded(WHOLE, "again 2", planned, "me: wrong link")
    assert whole.campaigns[-1] == Entry(
        "", "", role="again 2", state=State.PLANNED, nonce="00000006", order="me: wrong link"
    )
    ready = planned._replace(state=State.READY, campaigns=(Entry("eeeeee", "x"),), reason="why")
    assert folded(whole, "again 2", ready, "another: reason").campaigns[-1] == Entry(
        "eeeeee",
        "x",
        role="again 2",
        state=State.READY,
        nonce="00000006",
        reason="why",
        order="me: wrong link",
    )


def test_an_order_that_came_to_nothing_yet_leaves_its_attempts_alone() -> None:
    assert folded(WHOLE, "again 2", Batch(DAY, attempts=()), "me") == WHOLE._replace(attempts=())


def test_beside_a_part_stand_the_campaigns_of_all_others_that_exist() -> None:
    assert beside(WHOLE, MAIN) == (FIRST, FIRST_FORMER, FIRST_TWIN, ELEVENTH)
    assert beside(WHOLE, "remaining 1") == (OWN, FORMER, TWIN, ELEVENTH)
    assert beside(WHOLE, "again 1") == (OWN, FORMER, TWIN, FIRST, FIRST_FORMER, FIRST_TWIN, ELEVENTH)


def test_what_was_ordered_is_named_in_the_order_of_the_record() -> None:
    assert roles(WHOLE) == ("remaining 1", "remaining 11", "again 1")
