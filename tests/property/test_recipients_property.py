"""Reports as they may come: whatever was lost, repeated or moved between two pages is found out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sendonce.core.recipients import (
    PAGE_ROWS,
    Recipient,
    ReportPage,
    buried,
    fault_of,
    pages_of,
    tombstone_of,
)

SALT = bytes(32)


def paged(people: list[int], total: int) -> list[ReportPage]:
    rows = [Recipient(n.to_bytes(16), "sent") for n in people]
    return [ReportPage(total, tuple(rows[n * PAGE_ROWS : (n + 1) * PAGE_ROWS])) for n in pages_of(total)]


@given(st.integers(0, 1600))
def test_a_report_that_stands_still_is_read_whole(total: int) -> None:
    pages = paged(list(range(total)), total)
    assert [fault_of(page, n, total) for n, page in enumerate(pages)] == [""] * len(pages)
    assert sum(len(page.rows) for page in pages) == total


@given(st.integers(1, 1600), st.data())
def test_a_report_that_lost_somebody_never_passes_for_whole(total: int, data: st.DataObject) -> None:
    """Whether it says so or not, and wherever the gap is."""
    gone = data.draw(st.integers(0, total - 1))
    says = data.draw(st.sampled_from([total, total - 1]))
    pages = paged([n for n in range(total) if n != gone], says)
    faults = [fault_of(page, n, total) for n, page in enumerate(pages)]
    assert any(faults) or len(pages) < len(pages_of(total))


@given(st.integers(2, 1600), st.data())
def test_a_report_that_repeats_somebody_has_too_few_people(total: int, data: st.DataObject) -> None:
    """Within a page that shows at once; across pages only when all are counted, as the record does."""
    at = data.draw(st.integers(1, total - 1))
    people = list(range(total))
    people[at] = people[data.draw(st.integers(0, at - 1))]
    pages = paged(people, total)
    is_noticed = any(fault_of(page, n, total) for n, page in enumerate(pages))
    distinct = {row.email_id for page in pages for row in page.rows}
    assert is_noticed or len(distinct) < total


@given(st.sets(st.integers(0, 50)), st.sets(st.integers(0, 50)))
def test_nobody_who_was_forgotten_is_named_and_the_number_stays(
    people: set[int], forgotten: set[int]
) -> None:
    rows = [Recipient(n.to_bytes(16), "sent", f"{n}@example.com") for n in sorted(people)]
    gone = {n.to_bytes(16) for n in forgotten}
    kept = buried(rows, {tombstone_of(one, SALT) for one in gone}, SALT)
    assert len({row.email_id for row in kept}) == len(rows)
    assert {row.email_id for row in kept} & gone == set()
    assert {row.address for row in kept if row.address} == {f"{n}@example.com" for n in people - forgotten}
