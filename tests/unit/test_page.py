"""The ledger as a web page: well-formed, on its own, and nothing from outside is markup."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from sendonce import page, views
from sendonce.core.model import Attempt, Batch, Entry, Reset, State
from support.past import NASTY, at, daily, sent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TODAY = date(2026, 1, 20)
ABOUT = page.About("daily", "Europe/Berlin", datetime(2026, 1, 20, 9, 30, tzinfo=UTC))
VOID = {"meta"}
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "p", "span", "ul", "ol", "li", "b",
    "i", "a", "details", "summary", "div", "section", "table", "caption", "thead", "tbody", "tr", "th", "td", "time",
    "bdi", "footer",
}  # fmt: skip


@dataclass
class Read(HTMLParser):
    """A page as a browser's parser takes it, and strictly."""

    open: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    style: str = ""
    text: str = ""
    cells: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        self.attributes |= set(known)
        self.ids += [known["id"] or ""] if "id" in known else []
        self.links += [known["href"] or ""] if "href" in known else []
        if tag not in VOID:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")
        if known.get("class") == "title":
            self.titles.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            self.style += data
            return
        self.text += data
        if "td" in self.open:
            self.cells[-1] += data
        if self.open[-1:] == ["bdi"] and self.titles and "p" in self.open:
            self.titles[-1] += data


def read(batches: Iterable[Batch], resets: Sequence[Reset] = (), years: frozenset[int] = frozenset()) -> Read:
    text = page.render(views.history(batches, TODAY), resets, ABOUT, years)
    assert text.isascii()
    assert text.startswith("<!DOCTYPE html>\n")
    found = Read()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def test_a_page_needs_nothing_but_itself_and_runs_nothing() -> None:
    found = read([sent("2026-01-02", title=NASTY), *daily("2026-01-03", 5)])
    assert set(found.tags) <= ALLOWED
    assert {link[0] for link in found.links} == {"#"}
    assert not {
        name for name in found.attributes if name.startswith("on") or name in {"src", "style", "srcset"}
    }
    assert re.findall(r"url\(|@import|expression|http", found.style) == []
    assert found.tags.count("style") == 1


def brightness(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(brightness, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def test_every_text_can_be_read_in_light_and_dark() -> None:
    schemes = re.findall(r":root \{(.*?)\}", read([]).style, re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", scheme))
        colours = {
            name: c if len(c) == 7 else "#" + "".join(d * 2 for d in c[1:]) for name, c in colours.items()
        }
        on_paper = [
            contrast(colours[ink], colours[paper]) for ink in ("text", "soft") for paper in ("page", "card")
        ]
        marks = ("sent", "nobody", "refused", "unclear", "skipped", "scheduled", "begun")
        on_marks = [contrast("#ffffff", colours[mark]) for mark in marks]
        assert min(on_paper + on_marks) >= 4.5, (on_paper, dict(zip(marks, on_marks, strict=True)))


def test_each_link_leads_to_a_day_and_no_day_stands_twice() -> None:
    found = read([*daily("2025-12-28", 9), sent("2026-01-19")])
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links} == set(found.ids)


def test_markup_and_control_characters_in_titles_reasons_and_resets_are_shown_as_text() -> None:
    refused = Batch("2026-01-03", State.REFUSED, reason=NASTY)
    reset = Reset("2026-01-03", at("2026-01-03"), by=NASTY, reason=NASTY, was={"state": NASTY})
    found = read([sent("2026-01-02", title=NASTY), refused], [reset])
    shown = '</bdi><script>alert("1")</script> & \\u202e\\x1b[31m über ✓'
    assert found.text.count(shown) == 5
    assert "script" not in found.tags
    assert found.titles == [shown]


def test_every_batch_is_on_the_page_with_its_campaign_numbers_and_tries() -> None:
    main = Entry(
        "1a2b3c4d5e", "Digest", by="by hand", sent_at=at("2026-01-02"), emails_sent=4812, recipients=4813
    )
    twin = Entry("abcdef0123", "Digest, again", role="twin", sent_at=at("2026-01-05"))
    tries = tuple(Attempt(f"{n}", "web1", n, started_at=at("2026-01-02")) for n in range(20))
    found = read(
        [Batch("2026-01-02", State.SENT, campaigns=(main, twin), attempts=tries), sent("2026-01-03")]
    )
    assert (
        "campaign 1a2b3c4d5e · sent 08:00 +01:00 (by hand) · 4813 recipients before the send · 4812 emails"
        in found.text
    )
    assert "4812 emails · 20 tries or more" in found.text
    assert "campaign abcdef0123 (twin) · sent 2026-01-05 08:00 +01:00" in found.text
    assert "13 recipients before the send · 12 emails · 1 try" in found.text
    assert {"d2026-01-02", "d2026-01-03"} <= set(found.ids)


def test_who_reset_what_and_why() -> None:
    reset = Reset(
        "2026-01-03", at("2026-01-04"), by="root@web1", reason="deleted by mistake", was={"state": "refused"}
    )
    bare = Reset("2026-01-03", at("2026-01-05"), by="ed@web1", reason="", was={})
    found = read([sent("2026-01-02")], [reset, bare])
    assert (
        "Reset 2026-01-04 08:00:00+01:00: root@web1 forgot the record (refused): deleted by mistake"
        in found.text
    )
    assert "Reset 2026-01-05 08:00:00+01:00: ed@web1 forgot the record: no reason given" in found.text


def test_a_refusal_says_why_and_an_unclear_send_what_the_last_try_saw() -> None:
    seen = Attempt(
        "0a", "web1", 1, started_at=at("2026-01-04"), outcome="temporary", detail="No answer came."
    )
    entry = Entry("1a2b3c4d5e", "Digest", requested_at=at("2026-01-04"), scheduled_for=at("2026-01-05"))
    refused = Batch(
        "2026-01-03", State.REFUSED, reason="No campaign.", attempts=(seen._replace(detail="No campaign."),)
    )
    longer = refused._replace(
        date="2026-01-02",
        reason="Two drafts.",
        attempts=(seen._replace(detail="Two drafts. Nothing was sent."),),
    )
    found = read([longer, refused, Batch("2026-01-04", State.SENDING, campaigns=(entry,), attempts=(seen,))])
    assert found.text.count("No campaign.") == 1
    assert (found.text.count("Two drafts."), "Two drafts. Nothing was sent." in found.text) == (1, True)
    assert "requested 08:00 +01:00 · scheduled for 2026-01-05 08:00 +01:00 · 1 try" in found.text
    assert "last try: No answer came." in found.text


def test_days_that_are_missing_one_after_the_other_are_one_line() -> None:
    found = read([sent("2026-01-01"), sent("2026-01-05"), sent("2026-01-07"), sent("2026-01-19")])
    assert "until Sun 2026-01-04: 3 days without a record" in found.text
    assert "until Sun 2026-01-18: 11 days without a record" in found.text
    assert "without a record" in found.text.split("Tue 2026-01-06")[1].split("Mon 2026-01-05")[0]
    assert "d2026-01-03" not in found.ids
    assert found.links.count("#d2026-01-02") == 3


def test_a_holiday_is_in_the_list_with_its_name() -> None:
    known = views.history([sent("2026-01-01"), sent("2026-01-05")], TODAY)
    text = page.render(known._replace(holidays={"2026-01-03": "<Dreikönig>"}), (), ABOUT, frozenset())
    found = Read()
    found.feed(text)
    assert "Sat 2026-01-03- skipped<Dreikönig>" in found.text
    assert {"d2026-01-02", "d2026-01-03", "d2026-01-04"} <= set(found.ids)


def test_each_day_of_the_calendar_has_number_sign_and_word() -> None:
    found = read(
        [
            sent("2026-01-02"),
            Batch("2026-01-03", State.SKIPPED, reason="holiday"),
            sent("2026-01-04", emails=0),
        ]
    )
    days = [cell for cell in found.cells if cell]
    assert len(days) == 365
    assert days[:5] == ["1no record", "2✓sent", "3-skipped", "4∅sent to nobody", "5!missing"]
    assert days[18:21] == ["19!missing", "20.not yet", "21.not yet"]


def test_the_first_lines_say_what_today_is() -> None:
    refused = Batch("2026-01-20", State.REFUSED, reason="No campaign.")
    assert "Today, 2026-01-20: ✗ refused – No campaign." in read([refused]).text
    assert "Today, 2026-01-20: . not yet" in read([sent("2026-01-19")]).text
    assert "As of 2026-01-20 10:30:00+01:00 (Europe/Berlin)" in read([]).text
    assert "Nothing on record." in read([]).text


def test_years_without_a_record_are_only_named() -> None:
    found = read(
        [sent("0001-01-01"), sent("2019-12-31"), sent("2021-01-01"), sent("2026-01-19"), sent("9999-12-31")]
    )
    assert found.tags.count("details") == 5
    for gap in ("2–2018", "2020", "2022–2025", "2027–9998"):
        assert f"\n{gap}: nothing on record." in found.text


def test_the_latest_year_is_open_and_years_can_be_chosen() -> None:
    batches = [sent("2024-05-05"), sent("2025-05-05"), sent("2026-01-05")]
    text = page.render(views.history(batches, TODAY), (), ABOUT, frozenset())
    assert re.findall(r"<details( open)?><summary><b>(\d+)</b>", text) == [
        (" open", "2026"), ("", "2025"), ("", "2024"),
    ]  # fmt: skip
    found = read(batches, years=frozenset({2024}))
    assert ("d2024-05-05" in found.ids, "d2025-05-05" in found.ids) == (True, False)
    assert "1 batch on record." in found.text


def test_a_hundred_years_are_a_page_too() -> None:
    batches = daily("1926-02-01", 36_500)
    assert batches[-1].date == "2026-01-06"
    text = page.render(views.history(batches, TODAY), (), ABOUT, frozenset())
    assert text.count('<li id="d') == 36_500 + 1  # the days since are one line
    assert text.count("<details") == 101
    assert len(text) < 30_000_000
