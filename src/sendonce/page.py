"""The ledger as one web page that needs nothing else: no script, no other file, nothing from elsewhere.

It is text in ASCII (all other characters as references), so that it reads the same however it is served or mailed.
Whatever comes from outside goes through `_safe`.
"""

from __future__ import annotations

import html
import os
import stat
from calendar import Calendar, month_name
from datetime import date
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo

from sendonce import __version__
from sendonce.core.errors import Refused
from sendonce.core.ledger import ATTEMPTS_KEPT
from sendonce.core.model import State, many
from sendonce.report import local, printable, time_of_day
from sendonce.views import MEANINGS, SIGNS, WEEKDAYS, History, Mark, counts, days_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, tzinfo
    from pathlib import Path

    from sendonce.core.model import Batch, Entry, Reset


class About(NamedTuple):
    """Whose ledger it is, the zone of its dates, and when the page was made."""

    job: str
    zone: str
    now: datetime


_CLASSES: Final[Mapping[Mark, str]] = {
    Mark.SENT: "sent", Mark.NOBODY: "nobody", Mark.REFUSED: "refused", Mark.UNCLEAR: "unclear",
    Mark.MISSING: "missing", Mark.SKIPPED: "skipped", Mark.SCHEDULED: "scheduled", Mark.BEGUN: "begun",
    Mark.NOT_YET: "notyet", Mark.BEFORE: "before",
}  # fmt: skip
_WEEKDAY_NAMES: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# The signs stand in the text and not in the style: they are there without it, and when it is printed.
_STYLE: Final = """
:root { color-scheme: light dark; --page: #fff; --text: #1f2328; --soft: #59636e; --line: #d1d9e0; --card: #f6f8fa;
  --sent: #1a7f37; --nobody: #82071e; --refused: #cf222e; --unclear: #8250df; --missing: #9a6700; --skipped: #59636e;
  --scheduled: #0969da; --begun: #bc4c00; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --text: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --card: #151b23; --sent: #238636; --nobody: #a40e26; --refused: #da3633; --unclear: #8957e5; --missing: #9e6a03;
  --skipped: #656c76; --scheduled: #1f6feb; --begun: #bd561d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; font-size: 1.1rem; }
p { margin: 0; overflow-wrap: anywhere; }
a { color: inherit; }
.soft, footer { color: var(--soft); font-size: .9rem; }
.today { margin: 1rem 0; font-size: 1.1rem; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1.25rem; margin: 1rem 0; padding: 0; list-style: none;
  font-size: .9rem; }
.legend span { display: inline-block; border: 1px solid transparent; min-width: 1.5rem; margin-right: .35rem;
  padding: 0 .3rem; border-radius: .25rem; text-align: center; font-weight: 700; }
details { margin-top: 1rem; border: 1px solid var(--line); border-radius: .5rem; background: var(--page); }
summary { padding: .75rem 1rem; cursor: pointer; border-radius: .5rem; background: var(--card); }
summary b { margin-right: .75rem; font-size: 1.2rem; }
details > div { padding: 0 1rem 1rem; }
.year { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem .75rem; margin-top: 1rem; }
table { width: 100%; table-layout: fixed; border-collapse: separate; border-spacing: 1px; align-self: start; }
caption { padding-bottom: .15rem; text-align: left; font-size: .85rem; font-weight: 600; }
th { padding: 0; color: var(--soft); font-size: .65rem; font-weight: 400; }
td { padding: 0; }
td > * { display: block; padding: .1rem 0; border: 1px solid transparent; border-radius: .2rem; text-align: center;
  text-decoration: none; font-size: .65rem; line-height: 1.15; }
td i { display: block; height: 1.1em; font-size: .75rem; font-style: normal; font-weight: 700; }
td a:hover, td a:focus-visible { outline: 2px solid var(--text); outline-offset: 1px; }
.sent, .nobody, .refused, .unclear, .skipped, .scheduled, .begun { color: #fff; }
.sent { background: var(--sent); } .nobody { background: var(--nobody); } .refused { background: var(--refused); }
.unclear { background: var(--unclear); } .skipped { background: var(--skipped); }
.scheduled { background: var(--scheduled); } .begun { background: var(--begun); }
.missing { color: var(--text); background: color-mix(in srgb, var(--missing) 18%, transparent);
  border: 1px dashed var(--missing) !important; }
.notyet { color: var(--soft); border: 1px solid var(--line) !important; }
.before { color: var(--soft); }
.days { margin: 0; padding: 0; list-style: none; }
.days > li { display: grid; grid-template-columns: auto 1fr; gap: .25rem .75rem; padding: .6rem 0; scroll-margin-top: 1rem;
  border-top: 1px solid var(--line); }
.days > li:target { background: var(--card); }
.days time { font-variant-numeric: tabular-nums; white-space: nowrap; }
.badge { display: inline-block; justify-self: start; align-self: start; padding: 0 .5rem; border-radius: .25rem;
  font-size: .85rem; font-weight: 600; white-space: nowrap; }
.days .what { grid-column: 1 / -1; min-width: 0; }
.title { font-weight: 600; }
.off { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
footer { margin-top: 2rem; padding-top: 1rem; border-top: 1px solid var(--line); }
@media (min-width: 32rem) { .year { grid-template-columns: repeat(3, minmax(0, 1fr)); } }
@media (min-width: 44rem) { .year { grid-template-columns: repeat(4, minmax(0, 1fr)); }
  .days > li { grid-template-columns: 10rem 10rem minmax(0, 1fr); } .days .what { grid-column: auto; } }
@media (min-width: 64rem) { main { padding: 2rem 2rem 4rem; }
  .year { grid-template-columns: repeat(6, minmax(0, 1fr)); gap: 1.25rem 1rem; } }
@media print { details { break-inside: auto; } .days > li, table { break-inside: avoid; } }
"""


def render(known: History, resets: Sequence[Reset], about: About, years: frozenset[int]) -> str:
    """The page, in ASCII. `years` narrows it to these; empty: all."""
    zone = ZoneInfo(about.zone)
    by_day: dict[str, list[Reset]] = {}
    for reset in resets:
        by_day.setdefault(reset.date, []).append(reset)
    parts = [*_head(known, about, zone), *_years(_Book(known, by_day, zone), years), *_foot(about, zone)]
    return "\n".join(parts).encode("ascii", "xmlcharrefreplace").decode("ascii") + "\n"


def years_shown(known: History, reset_days: Iterable[str], wanted: frozenset[int]) -> list[int]:
    """The years with anything on record, narrowed to those `wanted` if any are; the latest first."""
    noted = {int(day[:4]) for day in (*known.batches, *reset_days)}
    return sorted(noted & wanted if wanted else noted, reverse=True)


class _Book(NamedTuple):
    """All that a year of the page is made of."""

    known: History
    resets: Mapping[str, Sequence[Reset]]
    zone: tzinfo


def _safe(text: str) -> str:
    """Text from outside as text of the page: no markup, no control characters."""
    return html.escape(printable(text))


def _head(known: History, about: About, zone: tzinfo) -> Iterator[str]:
    job, today = _safe(about.job), known.today.isoformat()
    yield "<!DOCTYPE html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    # should a title ever find its way past the escaping, it may still load nothing and run nothing
    yield (
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'\">"
    )
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">'
    yield f"<title>{job}: what was sent</title>"
    yield f"<style>{_STYLE}</style></head>"
    yield f"<body><main><header><h1>{job}: what was sent</h1>"
    yield f'<p class="soft">As of {local(about.now, zone)} ({_safe(about.zone)})</p></header>'
    mark = known.mark(today)
    batch = known.batches.get(today)
    reason = f" &ndash; {_safe(batch.reason)}" if batch is not None and batch.reason else ""
    yield f'<p class="today">Today, {today}: {_badge(mark)}{reason}</p>'


def _foot(about: About, zone: tzinfo) -> Iterator[str]:
    told = "; ".join(f"<b>{mark.value}</b>: {_safe(said)}" for mark, said in MEANINGS.items())
    yield f"<footer><p>{told}.</p>"
    yield f"<p>Made by sendonce {_safe(__version__)}, {local(about.now, zone)}.</p></footer></main></body></html>"


def _sign(mark: Mark) -> str:
    return f'<span aria-hidden="true">{SIGNS[mark].full.strip()}</span>'


# --------------------------------------------------------------------------------------------------------- years


def _years(book: _Book, wanted: frozenset[int]) -> Iterator[str]:
    """The years, the latest first and open. Those without any record are only named: a stray date may lie far off."""
    shown = years_shown(book.known, book.resets, wanted)
    days = [day for day in book.known.batches if not wanted or int(day[:4]) in wanted]
    if not shown:
        yield "<p>Nothing on record.</p>"
        return
    # what is missing counts in the years that are shown
    marks = [book.known.mark(day) for day in days_of([(y, m) for y in shown for m in range(1, 13)])]
    found = counts(mark for mark in marks if mark is not Mark.NOT_YET)
    yield f'<p class="soft">{len(days)} {"batch" if len(days) == 1 else "batches"} on record.</p><ul class="legend">'
    for mark, count in found.items():
        number = "" if mark is Mark.NOT_YET else f" <b>{count}</b>"
        yield f'<li><span class="{_CLASSES[mark]}" aria-hidden="true">{SIGNS[mark].full}</span>{mark.value}{number}</li>'
    yield "</ul>"
    for at, year in enumerate(shown):
        if at and shown[at - 1] - year > 1 and not wanted:
            yield f'<p class="soft">{_span(year + 1, shown[at - 1] - 1)}: nothing on record.</p>'
        yield from _year(book, year, is_open=at == 0)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}&ndash;{last}"


def _year(book: _Book, year: int, *, is_open: bool) -> Iterator[str]:
    marks = {day: book.known.mark(day) for day in days_of([(year, month) for month in range(1, 13)])}
    found = counts(marks.values())
    said = [f"{count} {mark.value}" for mark, count in found.items() if count and mark is not Mark.NOT_YET]
    stretches = _stretches(book, marks)
    anchor = {day: stretch[0] for stretch in stretches for day in stretch}
    yield f"<details{' open' if is_open else ''}><summary><b>{year:04}</b> {', '.join(said)}</summary><div>"
    yield f'<section class="year" aria-label="{year:04} at a glance">'
    for month in range(1, 13):
        yield from _month(book, year, month, anchor)
    yield "</section><h2>Day by day</h2>"
    yield '<ol class="days" reversed>'
    for stretch in reversed(stretches):
        yield _day(book, stretch[0]) if len(stretch) == 1 else _missing(stretch)
    yield "</ol></div></details>"


def _stretches(book: _Book, marks: Mapping[str, Mark]) -> list[list[str]]:
    """The days of the list, oldest first: what has a record or a reset, and what is missing, neighbours together."""
    found: list[list[str]] = []
    was_bare = False
    for day, mark in marks.items():
        is_bare = mark is Mark.MISSING and day not in book.resets
        if is_bare and was_bare:
            found[-1].append(day)
        elif is_bare or day in book.resets or mark not in {Mark.NOT_YET, Mark.BEFORE}:
            found.append([day])
        was_bare = is_bare
    return found


def _month(book: _Book, year: int, month: int, anchor: Mapping[str, str]) -> Iterator[str]:
    heads = "".join(
        f'<th scope="col" abbr="{name}">{short}</th>'
        for name, short in zip(_WEEKDAY_NAMES, WEEKDAYS, strict=True)
    )
    yield f"<table><caption>{month_name[month]}</caption><thead><tr>{heads}</tr></thead><tbody>"
    for week in Calendar().monthdayscalendar(year, month):
        cells = (
            _cell(book, f"{year:04}-{month:02}-{day:02}", day, anchor) if day else "<td></td>" for day in week
        )
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"


def _cell(book: _Book, day: str, number: int, anchor: Mapping[str, str]) -> str:
    """A day of the calendar: its number, its sign for the eye, its word for who listens."""
    mark = book.known.mark(day)
    kind, sign, word = _CLASSES[mark], SIGNS[mark].full.strip(), mark.value
    said = f'{number}<i aria-hidden="true">{sign}</i><span class="off">{word}</span>'
    if (target := anchor.get(day)) is None:
        return f'<td><span class="{kind}">{said}</span></td>'
    batch = book.known.batches.get(day)
    emails = batch.main.emails_sent if batch is not None and batch.main is not None else None
    title = f"{day}: {word}" + ("" if emails is None else f", {many(emails, 'email')}")
    return f'<td><a class="{kind}" href="#d{target}" title="{title}">{said}</a></td>'


# ---------------------------------------------------------------------------------------------------------- days


def _missing(stretch: Sequence[str]) -> str:
    first, last = stretch[0], stretch[-1]
    time = f'<time datetime="{first}">{_named(first)}</time>'
    until = f"<p>until {_named(last)}: {len(stretch)} days without a record</p>"
    return f'<li id="d{first}">{time}{_badge(Mark.MISSING)}<div class="what">{until}</div></li>'


def _day(book: _Book, day: str) -> str:
    """All of one date: campaigns, numbers, tries, reasons, resets."""
    batch = book.known.batches.get(day)
    lines = list(_batch_lines(batch, book.zone)) if batch is not None else []
    lines += [f"<bdi>{_safe(why)}</bdi>"] if (why := book.known.holidays.get(day)) else []
    lines += [_reset_line(reset, book.zone) for reset in book.resets.get(day, ())]
    what = "".join(f"<p>{line}</p>" for line in lines) or "<p>without a record</p>"
    time = f'<time datetime="{day}">{_named(day)}</time>'
    return f'<li id="d{day}">{time}{_badge(book.known.mark(day))}<div class="what">{what}</div></li>'


def _named(day: str) -> str:
    return f"{_WEEKDAY_NAMES[date.fromisoformat(day).weekday()][:3]} {day}"


def _badge(mark: Mark) -> str:
    return f'<b class="badge {_CLASSES[mark]}">{_sign(mark)} {mark.value}</b>'


def _batch_lines(batch: Batch, zone: tzinfo) -> Iterator[str]:
    tries = _tries(len(batch.attempts))
    for at, entry in enumerate(batch.campaigns):
        yield f'<bdi class="title">{_safe(entry.title) or "(no title)"}</bdi>'
        facts = [*_facts(entry, batch.date, zone), *([tries] if tries and at == 0 else [])]
        yield f'<span class="soft">{" &middot; ".join(facts)}</span>'
        if entry.order:
            yield f'<span class="soft">ordered by</span> <bdi>{_safe(entry.order)}</bdi>'
    last = batch.attempts[-1].detail if batch.attempts else ""
    is_said_twice = last in batch.reason or batch.reason in last
    if batch.reason:
        # the try says the reason, and at times what to do as well
        yield f"<bdi>{_safe(max(batch.reason, last if is_said_twice else '', key=len))}</bdi>"
    if last and not (batch.reason and is_said_twice) and batch.state is not State.SENT:
        yield f'<span class="soft">last try:</span> <bdi>{_safe(last)}</bdi>'
    if tries and not batch.campaigns:
        yield f'<span class="soft">{tries}</span>'


def _tries(count: int) -> str:
    if count < 2:  # noqa: PLR2004 - grammar
        return "1 try" if count else ""
    return many(count, "try", "tries") + (" or more" if count >= ATTEMPTS_KEPT else "")


def _facts(entry: Entry, day: str, zone: tzinfo) -> Iterator[str]:
    yield f"campaign {_safe(entry.id) or 'not made yet'}" + (
        "" if entry.role == "main" else f" ({_safe(entry.role)})"
    )
    if entry.sent_at is not None:
        by = "" if entry.by == "sendonce" else f" ({_safe(entry.by)})"
        yield f"sent {time_of_day(entry.sent_at, zone, day)}{by}"
    elif entry.requested_at is not None:
        yield f"requested {time_of_day(entry.requested_at, zone, day)}"
    if entry.scheduled_for is not None:
        yield f"scheduled for {time_of_day(entry.scheduled_for, zone, day)}"
    if entry.recipients is not None:
        yield f"{many(entry.recipients, 'recipient')} before the send"
    if entry.emails_sent is not None:
        yield many(entry.emails_sent, "email")


def _reset_line(reset: Reset, zone: tzinfo) -> str:
    was = reset.was.get("state")
    forgot = f" forgot the record ({_safe(was)})" if isinstance(was, str) else " forgot the record"
    reason = _safe(reset.reason) or "no reason given"
    return f"Reset {local(reset.at, zone)}: <bdi>{_safe(reset.by)}</bdi>{forgot}: <bdi>{reason}</bdi>"


# ------------------------------------------------------------------------------------------------------ the file


def put(path: Path, page: str) -> None:
    """Write the page to a file, whole or not at all, for its owner alone (0600); a link is followed and kept.

    Raise Refused if it cannot be written.
    """
    draft: Path | None = None
    try:
        if not _may_be_replaced(path):
            raise Refused(
                f"The report was not written: {path} is no regular file. Name another, or - for standard output."
            )
        target = path.resolve()
        made = target.with_name(f".sendonce-{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        draft = made
        with os.fdopen(descriptor, "wb") as file:
            file.write(page.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        draft = None
    except OSError as fault:
        raise Refused(
            f"The report was not written: {path} cannot be written ({fault.strerror}). What was there is as it was. "
            "Name a file in a folder that is there and that you may write."
        ) from fault
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


def _may_be_replaced(path: Path) -> bool:
    """Whether it is a file or nothing: a page in place of /dev/null would be a catastrophe, as root."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True
