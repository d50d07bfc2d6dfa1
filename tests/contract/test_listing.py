"""A listing is complete, or it is no listing; and it costs few calls and little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sendonce.core.errors import NoAnswer
from support.adapter import CAMPAIGN, StoppedClock, mailchimp
from support.sandbox import LIST_ID, Sandbox
from support.wire_server import Peer, WireServer, problem, reset, says

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHERS = 3000
PAGE = 500
MEMORY_AT_MOST_KIB = 60 * 1024


@pytest.fixture(scope="module")
def crowded() -> Iterator[Sandbox]:
    """A sandbox with 3,000 campaigns of every status, and two of the day's."""
    with Sandbox(audience=5) as sandbox:
        sandbox.add_campaigns(OTHERS - 500)
        sandbox.add_campaigns(500, status="canceled", title="Canceled")
        sandbox.add_draft("Digest 2026-01-05", list_id=LIST_ID)
        other = sandbox.add_audience(3)
        sandbox.add_draft("Digest 2026-01-05", list_id=other)
        yield sandbox


def test_a_listing_of_3000_campaigns_takes_7_calls(crowded: Sandbox) -> None:
    """500 to a page."""
    crowded.clear_calls()
    listing = mailchimp(crowded.url).listing()
    assert len(listing.campaigns) == OTHERS + 2
    assert len({c.id for c in listing.campaigns}) == OTHERS + 2
    assert sum(c.title == "Digest 2026-01-05" for c in listing.campaigns) == 2
    assert len(crowded.calls("listing")) == len(crowded.calls()) == 7


def test_a_listing_holds_campaigns_of_every_status(crowded: Sandbox) -> None:
    """A filter by status would hide those that were canceled, which must not be mailed again."""
    listing = mailchimp(crowded.url).listing()
    assert {c.status for c in listing.campaigns} == {"save", "sent", "canceled"}
    assert "status" not in crowded.calls("listing")[-1]["query"]


def test_a_listing_asks_for_nothing_that_is_not_needed(crowded: Sandbox) -> None:
    """The whole document of a campaign is some twenty times as long."""
    crowded.clear_calls()
    mailchimp(crowded.url).listing()
    for call in crowded.calls("listing"):
        assert call["query"]["fields"].split(",") == [
            "total_items",
            "campaigns.id",
            "campaigns.web_id",
            "campaigns.type",
            "campaigns.create_time",
            "campaigns.status",
            "campaigns.emails_sent",
            "campaigns.send_time",
            "campaigns.recipients.list_id",
            "campaigns.recipients.recipient_count",
            "campaigns.settings.title",
        ]
        assert call["query"]["count"] == "500"


def test_a_listing_shows_what_the_day_is_decided_by(crowded: Sandbox) -> None:
    """Title, audience, status, type and time of creation of each."""
    found = [c for c in mailchimp(crowded.url).listing().campaigns if c.title == "Digest 2026-01-05"]
    assert {c.list_id for c in found} > {LIST_ID}
    for campaign in found:
        assert campaign.is_draft
        assert campaign.type == "regular"
        assert campaign.create_time is not None
        assert campaign.web_id is not None


def test_a_listing_of_one_audience_holds_no_other(crowded: Sandbox) -> None:
    """With SENDONCE_LIST_ID set, the other audience's campaign of the same name is not seen."""
    listing = mailchimp(crowded.url, list_id=LIST_ID).listing()
    assert len(listing.campaigns) == OTHERS + 1
    assert {c.list_id for c in listing.campaigns} == {LIST_ID}


def test_an_account_without_campaigns_is_listed_in_one_call() -> None:
    """Nothing is a complete listing, too."""
    with Sandbox() as sandbox:
        assert mailchimp(sandbox.url).listing().campaigns == ()
        assert len(sandbox.calls()) == 1


# not ru_maxrss: a child takes that over from the process that started it, which is the larger one
MEASURED = """
import sys
from pathlib import Path
from support.adapter import mailchimp
listing = mailchimp(sys.argv[1]).listing()
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(len(listing.campaigns), status["VmHWM"].split()[0])
"""


def peak_kib(url: str) -> tuple[int, int]:
    """List in a process of its own: how many campaigns, and its greatest size in KiB."""
    folder = __file__.rpartition("/contract/")[0]
    child = subprocess.run(
        [sys.executable, "-c", MEASURED, url],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([folder, *sys.path])},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    count, size = child.stdout.split()
    return int(count), int(size)


def test_3000_campaigns_add_little_memory(crowded: Sandbox) -> None:
    """Measured against the same process with an empty account."""
    if not Path("/proc/self/status").exists():
        pytest.skip("only Linux tells the greatest size of a process alone")
    with Sandbox() as empty:
        nobody, least_kib = peak_kib(empty.url)
    count, kib = peak_kib(crowded.url)
    assert (nobody, count) == (0, OTHERS + 2)
    assert kib - least_kib < MEMORY_AT_MOST_KIB


# ---------------------------------------------------------------------------------------- accounts that do not hold still


class Shifting:
    """An account whose campaigns change from call to call: `states` are its campaigns' numbers, one per call.

    The last state holds from then on. `total` is what it says of their number, the real one unless given.
    """

    def __init__(
        self, *states: list[int], total: Callable[[int], int] | None = None, most: int = PAGE
    ) -> None:
        self._states, self._total, self._most = list(states), total, most
        self.server = WireServer(self._answer)

    def _answer(self, peer: Peer) -> None:
        state = self._states[0] if len(self._states) == 1 else self._states.pop(0)
        query = self.server.heard[-1].query
        offset, count = int(query["offset"][0]), min(self._most, int(query["count"][0]))
        rows = [campaign(number) for number in state[offset : offset + count]]
        total = len(state) if self._total is None else self._total(len(self.server.heard))
        says(200, {"campaigns": rows, "total_items": total})(peer)

    def listed(self) -> list[str]:
        """List it; the titles."""
        with self.server:
            return [c.title for c in mailchimp(self.server.url).listing().campaigns]


def campaign(number: int) -> dict[str, Any]:
    """One of many."""
    return CAMPAIGN | {"id": f"{number:010x}", "settings": {"title": f"No. {number}"}}


def titles(numbers: list[int]) -> list[str]:
    """What a listing of these shows."""
    return [f"No. {number}" for number in numbers]


MANY = list(range(1, 1201))


def test_an_account_that_holds_still_is_listed_as_it_is() -> None:
    """So that the rest fails for its own reason; 1,200 on three pages."""
    account = Shifting(MANY)
    assert account.listed() == titles(MANY)
    assert len(account.server.heard) == 3


def test_a_server_that_gives_shorter_pages_than_asked_for_is_listed_all_the_same() -> None:
    """No campaign is skipped because a page was expected to be longer."""
    assert Shifting(MANY, most=100).listed() == titles(MANY)


def test_a_number_that_is_never_reached_makes_no_listing() -> None:
    """A campaign that is not shown may be the day's."""
    account = Shifting(MANY, total=lambda _: 1201)
    with pytest.raises(NoAnswer, match="incomplete: 1200 of 1201"):
        account.listed()


def test_a_number_that_changes_from_page_to_page_makes_no_listing() -> None:
    """The one that came meanwhile is on no page, though the first page's number is reached."""
    account = Shifting(MANY, total=lambda calls: 1200 if calls == 1 else 1201)
    with pytest.raises(NoAnswer, match="incomplete"):
        account.listed()


def test_a_number_that_is_too_small_makes_no_listing() -> None:
    """It contradicts the page it stands on."""
    with pytest.raises(NoAnswer, match="incomplete"):
        Shifting(MANY, total=lambda _: 400).listed()


def test_empty_pages_make_no_listing() -> None:
    """As a filter gone wrong gives them."""
    with pytest.raises(NoAnswer, match="incomplete: 0 of 5"):
        Shifting([], total=lambda _: 5).listed()


def test_an_account_that_shrinks_with_every_call_makes_no_listing() -> None:
    """Deleting one moves all later ones up, over the edge of a page."""
    shrinking = [MANY[number:] for number in range(20)]
    with pytest.raises(NoAnswer, match="incomplete"):
        Shifting(*shrinking).listed()


def test_an_account_that_grows_with_every_call_makes_no_listing() -> None:
    """Its end is never in sight."""
    growing = [list(range(1, 1201 + number)) for number in range(20)]
    with pytest.raises(NoAnswer, match="incomplete"):
        Shifting(*growing).listed()


def test_one_that_comes_for_one_that_goes_does_not_hide_a_third() -> None:
    """The number is right all the while, and the 501st campaign was on neither page."""
    before, after = list(range(1, 1001)), [*range(1, 3), *range(4, 1002)]
    one_pass = [before, after]
    with pytest.raises(NoAnswer, match="incomplete"):
        Shifting(*one_pass * 2, after).listed()


def test_a_listing_that_changed_is_read_once_more() -> None:
    """A person who makes a campaign just then does not cost the day."""
    after = [*MANY, 1201]
    account = Shifting(MANY, MANY, after)
    assert account.listed() == titles(after)


def test_campaigns_that_come_twice_make_no_listing() -> None:
    """Their number adds up, and others are missing for them."""
    doubled = [*range(1, 501), *range(301, 501), *range(701, 1001)]
    with pytest.raises(NoAnswer, match="incomplete: 800 of 1000"):
        Shifting(doubled).listed()


def test_a_server_that_ignores_the_offset_makes_no_listing() -> None:
    """It would give its first page for ever."""
    rows = [campaign(number) for number in range(1, 501)]
    with WireServer(says(200, {"campaigns": rows, "total_items": 1200})) as server:
        with pytest.raises(NoAnswer, match="incomplete: 500 of 1200"):
            mailchimp(server.url).listing()
        assert len(server.heard) <= 8


@pytest.mark.parametrize(
    "document",
    [
        {"campaigns": None, "total_items": 0},
        {"campaigns": {}, "total_items": 0},
        {"campaigns": [None], "total_items": 1},
        {"campaigns": [{"id": "1a2b3c4d5e"}], "total_items": 1},
        {"campaigns": [{"status": "save"}], "total_items": 1},
        {"campaigns": [], "total_items": None},
        {"campaigns": [], "total_items": "0"},
        {"campaigns": [], "total_items": True},
        {"campaigns": []},
    ],
    ids=json.dumps,
)
def test_a_page_that_cannot_be_read_makes_no_listing(document: dict[str, object]) -> None:
    """A row that is left out may be the day's campaign."""
    with WireServer(says(200, document)) as server, pytest.raises(NoAnswer, match="not readable"):
        mailchimp(server.url).listing()


def test_a_page_that_fails_for_good_makes_no_listing() -> None:
    """What was read before it is not taken for all."""
    rows = [campaign(number) for number in range(1, 501)]
    acts = [says(200, {"campaigns": rows, "total_items": 501}), problem(500)]
    with WireServer(*acts) as server, pytest.raises(NoAnswer, match="HTTP 500"):
        mailchimp(server.url).listing()


def test_a_page_that_fails_once_is_read_again() -> None:
    """And the listing is whole."""
    rows = [campaign(number) for number in range(1, 501)]
    last = [rows[-1], campaign(501)]
    acts = [
        says(200, {"campaigns": rows, "total_items": 501}),
        reset,
        says(200, {"campaigns": last, "total_items": 501}),
    ]
    with WireServer(*acts) as server:
        assert len(mailchimp(server.url).listing().campaigns) == 501


# ----------------------------------------------------------------------------------------- when a listing was made


def test_a_listing_was_not_made_before_its_time_however_slowly_it_came() -> None:
    """It is the time when we began to ask: the first answer's Date less what its read took, retries included."""
    clock = StoppedClock()
    empty = {"campaigns": [], "total_items": 0}
    acts = [problem(500), problem(500), says(200, empty, Date="Mon, 05 Jan 2026 08:00:30 GMT")]
    with WireServer(*acts) as server:
        listing = mailchimp(server.url, clock=clock).listing()
    assert sum(clock.slept) == 1.5
    assert listing.at.isoformat() == "2026-01-05T08:00:28.500000+00:00"


def test_a_listing_after_another_answer_was_not_made_before_that_one() -> None:
    """The Date of the answer before it and the seconds since say more than a Date that is cut off."""
    clock = StoppedClock()
    empty = {"campaigns": [], "total_items": 0}
    acts = [
        says(200, {"health_status": "fine"}, Date="Mon, 05 Jan 2026 08:00:00 GMT"),
        says(200, empty, Date="Mon, 05 Jan 2026 08:00:10 GMT"),
    ]
    with WireServer(*acts) as server:
        api = mailchimp(server.url, clock=clock)
        api.ping()
        clock.sleep(10.9)
        assert api.listing().at.isoformat() == "2026-01-05T08:00:10.900000+00:00"


def test_the_first_page_says_when_a_listing_was_made() -> None:
    """A campaign made while the later pages are read may be missing on the first."""
    rows = [campaign(number) for number in range(1, 501)]
    acts = [
        says(200, {"campaigns": rows, "total_items": 501}, Date="Mon, 05 Jan 2026 08:00:00 GMT"),
        says(
            200,
            {"campaigns": [rows[-1], campaign(501)], "total_items": 501},
            Date="Mon, 05 Jan 2026 08:09:00 GMT",
        ),
    ]
    with WireServer(*acts) as server:
        listing = mailchimp(server.url, clock=StoppedClock()).listing()
    assert listing.at.isoformat() == "2026-01-05T08:00:00+00:00"
