"""The ledger over all records that can be, all damage, and all ways of running through its states."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sendonce.core.errors import InvariantBroken, LedgerDamaged, StateUnusable
from sendonce.core.ledger import Ledger, empty, parse
from sendonce.core.model import Attempt, Batch, Entry, Reset, State

DAY = "2026-11-30"

# A machine that is busy is no fault of the ledger.
unhurried = settings(deadline=None)

# Two halves of a surrogate pair that meet by chance are read back as the one character that they make.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.none() | st.integers(0, 10**12)
whole_times = st.integers(0, 253_000_000_000).map(lambda second: datetime.fromtimestamp(second, UTC))
fine_times = st.builds(
    lambda whole, part: whole.replace(microsecond=part), whole_times, st.integers(0, 999_999)
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
unknown = st.dictionaries(texts.map("x_{}".format), json_values, max_size=3)


def entries(times: st.SearchStrategy[datetime]) -> st.SearchStrategy[Entry]:
    return st.builds(
        Entry,
        id=st.sampled_from(["c1", "c2", "c3", "c4"]),
        title=texts,
        role=st.sampled_from(["main", "former", "twin"]),
        web_id=counts,
        by=st.sampled_from(["sendonce", "by hand"]),
        requested_at=st.none() | times,
        gave_up_at=st.none() | times,
        sent_at=st.none() | times,
        emails_sent=counts,
        scheduled_for=st.none() | times,
        recipients=counts,
        draft_hash=st.text("0123456789abcdef", max_size=64),
        quiet_since=st.none() | times,
    )


attempts = st.builds(
    Attempt,
    run=st.uuids().map(str),
    host=texts,
    pid=st.integers(1, 2**31 - 1),
    started_at=whole_times,
    ended_at=st.none() | whole_times,
    outcome=texts,
    detail=texts,
)


def one_main(campaigns: list[Entry]) -> tuple[Entry, ...]:
    return tuple(
        entry._replace(role="main" if number == 0 else "former") for number, entry in enumerate(campaigns)
    )


def batches(times: st.SearchStrategy[datetime] = whole_times) -> st.SearchStrategy[Batch]:
    return st.builds(
        Batch,
        date=st.just(DAY),
        state=st.sampled_from(State),
        nonce=st.text("0123456789abcdef", max_size=8),
        campaigns=st.lists(entries(times), max_size=4, unique_by=lambda entry: entry.id).map(one_main),
        attempts=st.lists(attempts, max_size=5).map(tuple),
        reason=texts,
    )


def recorded(batch: Batch) -> Ledger:
    """A ledger with `batch`, however it came about."""
    return empty("digest", "x").rebuilt([batch])


def possible(batch: Batch) -> bool:
    main = batch.main
    if batch.state is State.SENDING:
        return main is not None and main.requested_at is not None
    return batch.state is not State.SENT or main is not None


@unhurried
@given(batches().filter(possible))
def test_what_is_written_is_read_again(batch: Batch) -> None:
    written = recorded(batch).dump()

    assert parse(written).batch(DAY) == batch
    assert parse(written).dump() == written


@unhurried
@given(batches(fine_times).filter(possible))
def test_no_time_from_which_a_wait_is_counted_comes_back_earlier(batch: Batch) -> None:
    read = parse(recorded(batch).dump()).batch(DAY)

    for before, after in zip(batch.campaigns, read.campaigns, strict=True):
        for name in ("requested_at", "gave_up_at", "sent_at", "scheduled_for"):
            was, is_now = getattr(before, name), getattr(after, name)
            assert (was is None) == (is_now is None)
            if was is not None:
                assert timedelta(0) <= is_now - was < timedelta(seconds=1)
                assert is_now.microsecond == 0


@unhurried
@given(batches().filter(possible), batches().filter(possible), st.lists(unknown, min_size=4, max_size=4))
def test_unknown_fields_survive_whatever_is_written_over_them(
    old: Batch, new: Batch, extra: list[dict[str, Any]]
) -> None:
    document = json.loads(recorded(old).dump())
    raw = document["batches"][DAY]
    document |= extra[0]
    raw |= extra[1]
    for campaign in raw["campaigns"]:
        campaign.update(extra[2])
    for attempt in raw["attempts"]:
        attempt.update(extra[3])
    ledger = parse(json.dumps(document).encode())
    new = new._replace(attempts=old.attempts + new.attempts)
    try:
        after = json.loads(ledger.with_batch(new).dump())
    except InvariantBroken:
        return

    assert extra[0].items() <= after.items()
    assert extra[1].items() <= after["batches"][DAY].items()
    known = {entry.id for entry in old.campaigns}
    for campaign in after["batches"][DAY]["campaigns"]:
        assert campaign["id"] not in known or extra[2].items() <= campaign.items()
    for attempt in after["batches"][DAY]["attempts"][: len(old.attempts)]:
        assert extra[3].items() <= attempt.items()


@unhurried
@given(st.lists(batches(), min_size=1, max_size=12))
def test_no_run_through_the_states_forgets_a_request_or_leaves_an_end(steps: list[Batch]) -> None:
    ledger = empty("digest", "x")
    for step in steps:
        before = ledger.batch(DAY)
        try:
            ledger = parse(ledger.with_batch(step).dump())
        except InvariantBroken:
            assert ledger.batch(DAY) == before
            continue
        after = ledger.batch(DAY)
        requested = {entry.id for entry in before.campaigns if entry.requested_at}
        assert requested <= {entry.id for entry in after.campaigns if entry.requested_at}
        assert before.state not in {State.SENT, State.SKIPPED} or after.state is before.state
        assert before.state is not State.SENDING or after.state is not State.SKIPPED
        assert after.state is not State.SENDING or before.state in {State.READY, State.SENDING}
        assert possible(after)


@unhurried
@given(batches().filter(possible), whole_times, texts)
def test_a_reset_forgets_nothing(batch: Batch, at: datetime, reason: str) -> None:
    before = recorded(batch)

    after = parse(before.with_reset(Reset(DAY, at, "root@web1", reason, {})).dump())

    assert after.batch(DAY) == Batch(DAY)
    assert after.forgotten(DAY) == (batch,)
    [reset] = after.resets()
    assert reset.was == before.document["batches"][DAY]
    assert (reset.at, reset.reason) == (at, reason)


GOOD = (
    recorded(
        Batch(
            DAY,
            State.SENT,
            nonce="5e0e96f7",
            campaigns=(Entry("c1", "café", web_id=4711, requested_at=datetime(2026, 11, 30, 8, tzinfo=UTC)),),
            attempts=(Attempt("r1", "web1", 812, datetime(2026, 11, 30, 8, tzinfo=UTC), outcome="sent"),),
        )
    )
    .with_reset(Reset("2026-11-28", datetime(2026, 11, 30, 8, tzinfo=UTC), "root@web1", "oops", {}))
    .dump()
)


@unhurried
@given(st.integers(0, len(GOOD.rstrip()) - 1))
def test_a_ledger_cut_at_any_byte_is_damaged(length: int) -> None:
    with pytest.raises(LedgerDamaged, match="byte"):
        parse(GOOD[:length])


@unhurried
@given(
    st.integers(0, len(GOOD)),
    st.integers(0, 30),
    st.binary(max_size=30) | st.sampled_from([b'"', b"}", b"null", b"1e999", b"{"]),
)
def test_whatever_happens_to_a_ledger_it_is_read_or_refused_and_never_a_crash(
    at: int, gone: int, put: bytes
) -> None:
    try:
        ledger = parse(GOOD[:at] + put + GOOD[at + gone :])
        ledger.batches()
        ledger.resets()
        ledger.open_before("2026-12-01")
        ledger.forgotten(DAY)
        again = ledger.dump()
    except (LedgerDamaged, StateUnusable):
        return

    assert parse(again).batches() == ledger.batches()
