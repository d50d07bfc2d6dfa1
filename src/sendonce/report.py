"""What people and programs get to see: one outcome, lists, tables; and where it is written, come what may.

Text from outside (titles, error details, host names) is escaped here: control characters for terminals, formulas
for spreadsheets, markup for rich.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, TYPE_CHECKING, Any, Final, Self, cast

from sendonce.core.model import many
from sendonce.exits import ExitCode, code_of, code_of_ending
from sendonce.settings import environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, tzinfo

    from rich.console import Console
    from rich.progress import Progress

    from sendonce.core.campaigns import Campaign
    from sendonce.core.model import Batch, Entry, Outcome, Reset
    from sendonce.runbook import Section

JSON_VERSION = 1
ERROR, WARNING = 3, 4
"""Priorities of syslog."""


class Voice:
    """How this command speaks: as text or JSON, loudly or not. Results to standard output, talk to standard error.

    Writing never raises and never changes an exit code: a closed pipe or a full disk must not turn a sent
    batch into a failure (the record is written before anything is said).
    """

    def __init__(self, *, is_json: bool = False, is_quiet: bool = False, is_verbose: bool = False) -> None:
        self.is_json, self.is_quiet, self.is_verbose = is_json, is_quiet, is_verbose

    def talk(self, line: str) -> None:
        """An event, for `-v`."""
        if self.is_verbose:
            write(2, f"{printable(line)}\n")

    def result(self, text: str) -> None:
        """A command's answer as text."""
        if not self.is_json and text:
            write(1, f"{text.rstrip(chr(10))}\n")

    def document(self, command: str, code: ExitCode, **parts: object) -> None:
        """A command's answer as the one JSON object; only with `--json`."""
        if self.is_json:
            body = {"version": JSON_VERSION, "command": command, "exit": int(code), **parts}
            write(1, json.dumps(body, ensure_ascii=True) + "\n")

    def warnings(self, lines: Sequence[str]) -> None:
        """Sentences that a person should read though all went on. Silent with `-q`."""
        if not self.is_quiet:
            for line in lines:
                complain(f"Warning: {printable(line)}", WARNING)

    def outcome(self, command: str, outcome: Outcome, warnings: Sequence[str] = ()) -> ExitCode:
        """How a run ended."""
        code = code_of_ending(outcome.ending)
        section = None
        if code is not ExitCode.OK:
            from sendonce.runbook import of_outcome

            section = of_outcome(command, outcome)
        self.document(command, code, **_outcome_parts(outcome, warnings), runbook=section)
        notes = [*warnings, *outcome.notes]
        if self.is_quiet and (code is ExitCode.OK or outcome.is_hushed):
            return code
        for note in notes:
            complain(f"Warning: {printable(note)}", WARNING)
        if code is ExitCode.OK:
            self.result(printable(outcome.message))
        else:
            complain(printable(outcome.message))
            self.what_to_do(section)
        return code

    def fault(self, command: str, error: BaseException, message: str) -> ExitCode:
        """A command that ended with an error: one message on standard error."""
        from sendonce.runbook import of_error

        code, section = code_of(error), of_error(command, error, message)
        self.document(command, code, outcome="error", message=message, runbook=section)
        complain(printable(message, keep_lines=True))
        self.what_to_do(section)
        return code

    def what_to_do(self, section: Section | None) -> None:
        """Where the runbook has what was said; the last line of what needs somebody."""
        if section is not None:
            from sendonce.runbook import line

            complain(line(section))


def show_page(markdown: str, plain: str) -> None:
    """Print a page: rendered on a terminal, at the most 80 columns wide, else the plain text."""
    if sys.stdout and sys.stdout.isatty():
        from rich.markdown import Markdown
        from rich.theme import Theme

        console = _console(1)
        console.push_theme(Theme({"markdown.code": "cyan"}))  # by default on black, whatever the terminal is
        console.print(Markdown(markdown), width=min(80, console.width))
    else:
        write(1, f"{plain.rstrip()}\n")


class Screen:
    """Where a story or a drill is watched as it goes on: in colour on a terminal, plainly elsewhere.

    `with` it, a terminal shows below the lines how far it is. What cannot be written changes nothing.
    """

    _COLOURS: Final = {"title": "bold", "quote": "cyan", "good": "bold green", "bad": "bold red"}

    def __init__(self, *, is_dark: bool = False) -> None:
        """Show on standard output; nothing if `is_dark`."""
        self._is_dark = is_dark
        self._console: Console | None = None
        self._bar: Progress | None = None
        if not is_dark and sys.stdout and sys.stdout.isatty():
            self._console = _console(1)

    def say(self, text: str, style: str = "") -> None:
        """Say some lines; `style` is "title", "quote", "good", "bad" or "" for plain text."""
        if self._console is not None:
            from rich.text import Text

            self._console.print(Text(text), style=self._COLOURS.get(style, ""), soft_wrap=True)
        elif not self._is_dark:
            write(1, f"{text}\n")

    def __enter__(self) -> Self:
        """Begin to show how far it is, if there is a terminal; standard error may be one where output is not."""
        console = self._console
        if console is None and not self._is_dark and sys.stderr and sys.stderr.isatty():
            console = _console(2)
        if console is not None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(
                *columns,
                console=console,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.start()
        return self

    def progress(self, done: int, of: int) -> None:
        """Tell how far it is."""
        if self._bar is not None:
            task = self._bar.task_ids[0] if self._bar.task_ids else self._bar.add_task("", total=of)
            self._bar.update(task, completed=done, total=of)

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


class _Terminal:
    """A terminal as a file for rich, written to as to all others here."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        stream = sys.stdout if descriptor == 1 else sys.stderr
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write all of it, or as much as can be."""
        write(self._descriptor, text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def isatty(self) -> bool:
        """Say yes."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor


def _console(descriptor: int) -> Console:
    from rich.console import Console

    return Console(file=cast("IO[str]", _Terminal(descriptor)))


def _outcome_parts(outcome: Outcome, warnings: Sequence[str]) -> dict[str, object]:
    return {
        "outcome": outcome.ending.value,
        "date": outcome.date,
        "message": outcome.message,
        "campaign_id": outcome.campaign_id or None,
        "title": outcome.title or None,
        "emails_sent": outcome.emails_sent,
        "recipients": outcome.recipients,
        "warnings": [*warnings, *outcome.notes],
    }


def complain(text: str, level: int = ERROR) -> None:
    """Write lines to standard error; where that is the journal, with the priority by which it files them."""
    mark = f"<{level}>" if _is_journal() else ""
    write(2, "".join(f"{mark}{line}\n" for line in text.split("\n")))


def _is_journal() -> bool:
    """Whether systemd connected standard error to the journal: it says to what, in the environment (sd-daemon(3))."""
    if not (stream := environment().get("JOURNAL_STREAM")):
        return False
    try:
        found = os.fstat(2)
    except OSError:
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"


def write(descriptor: int, text: str) -> None:
    """Write all of it to 1 or 2, or as much as can be.

    Past Python's buffers, whose failure at exit would become exit code 120.
    """
    stream = sys.stdout if descriptor == 1 else sys.stderr
    encoding = getattr(stream, "encoding", None) or "utf-8"
    data = text.encode(encoding, "backslashreplace")
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return  # nobody reads, or no room


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Text with everything escaped that would drive a terminal instead of being shown on it."""
    return "".join(c if c.isprintable() or (keep_lines and c == "\n") else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def local(time: datetime | None, zone: tzinfo) -> str:
    """A time in the job's zone with its offset, "-" for none."""
    return "-" if time is None else time.astimezone(zone).isoformat(sep=" ", timespec="seconds")


# -------------------------------------------------------------------------------------------------- the ledger


def batch_parts(batch: Batch) -> dict[str, Any]:
    """A batch as JSON."""
    return {
        "date": batch.date,
        "state": batch.state.value,
        "reason": batch.reason or None,
        "nonce": batch.nonce or None,
        "campaigns": [_plain(entry._asdict()) for entry in batch.campaigns],
        "attempts": [_plain(attempt._asdict()) for attempt in batch.attempts],
    }


def reset_parts(reset: Reset) -> dict[str, Any]:
    """A reset as JSON."""
    return _plain(reset._asdict())


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in fields.items()}


def state_words(batch: Batch) -> str:
    """What a state means, for people."""
    main = batch.main
    if batch.state.value == "sending":
        return "started, outcome unknown"
    if batch.state.value == "sent" and main is not None and main.by != "sendonce":
        return f"sent ({main.by})"
    if main is not None and main.scheduled_for is not None and batch.state.value != "sent":
        return "scheduled in Mailchimp"
    return batch.state.value


COLUMNS = ("date", "state", "campaign", "title", "sent at", "emails", "tries")


def ledger_rows(batches: Iterable[Batch], zone: tzinfo, *, is_short: bool) -> list[tuple[str, ...]]:
    """A row of text for each batch, in `COLUMNS`; `is_short` leaves out of a time what the date says already."""
    rows: list[tuple[str, ...]] = []
    for batch in batches:
        main: Entry | None = batch.main
        emails = "" if main is None or main.emails_sent is None else str(main.emails_sent)
        rows.append(
            (
                batch.date,
                state_words(batch),
                main.id if main else "",
                main.title if main else "",
                _sent_at(main, zone, batch.date if is_short else ""),
                emails,
                str(len(batch.attempts)),
            )
        )
    return rows


def _sent_at(main: Entry | None, zone: tzinfo, known_date: str) -> str:
    if main is None or main.sent_at is None:
        return ""
    return time_of_day(main.sent_at, zone, known_date) if known_date else local(main.sent_at, zone)


def time_of_day(time: datetime, zone: tzinfo, date: str) -> str:
    """A time in the job's zone with its offset; with its date only where that is another one."""
    text = local(time, zone)
    day, hour, offset = text[:10], text[11:16], text[19:]
    return f"{hour} {offset}" if day == date else f"{day} {hour} {offset}"


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """CSV that a spreadsheet opens without running anything in it."""
    import csv
    import io

    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(columns)
    table.writerows([_no_formula(printable(cell)) for cell in row] for row in rows)
    return out.getvalue()


def _no_formula(cell: str) -> str:
    return f"'{cell}" if cell[:1] in {"=", "+", "-", "@", "\t"} and cell != "-" else cell


def as_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> str:
    """A table for people, as wide as their terminal, 80 columns where there is none."""
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_ascii = "utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    table = Table(
        title=title or None,
        box=box.ASCII if is_ascii else box.SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
        collapse_padding=True,
    )
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in {"emails", "tries"} else "left",
            no_wrap=name in {"date", "campaign"},
            # the date in them is not to be broken
            min_width=len("2026-11-30") if name in {"title", "sent at"} else None,
            overflow="fold",
        )
    for row in rows:
        # Text, not markup: a title such as "[bold]" is a title
        table.add_row(*(Text(printable(cell)) for cell in row))
    out = io.StringIO()
    width = terminal_width()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def terminal_width() -> int:
    """How many columns standard output has, at least 60; 80 where it is no terminal."""
    try:
        return max(60, os.get_terminal_size(1).columns)
    except OSError:
        return 80


def batch_story(batch: Batch, resets: Sequence[Reset], zone: tzinfo) -> str:
    """Everything on record of one date, for `ledger show`."""
    from itertools import groupby
    from textwrap import wrap

    lines = [f"{batch.date}: {state_words(batch)}"]
    is_told = any(batch.reason in attempt.detail for attempt in batch.attempts)
    if batch.reason and not is_told:
        lines.append(f"  reason       {batch.reason}")
    for entry in batch.campaigns:
        is_ordered = entry.state.value != "-"
        what = f'{entry.id}  "{entry.title}"' if entry.id else "none yet"
        role = (
            ""
            if entry.role == "main"
            else f"  ({entry.role}{f', {entry.state.value}' if is_ordered else ''})"
        )
        lines.append(f"  campaign     {what}{role}")
        if entry.order:
            lines.append(f"    {'ordered by':<10} {entry.order}")
        if entry.reason and not any(entry.reason in attempt.detail for attempt in batch.attempts):
            lines.append(f"    {'reason':<10} {entry.reason}")
        times = (
            ("requested", entry.requested_at), ("gave up", entry.gave_up_at),
            ("sent", entry.sent_at), ("scheduled", entry.scheduled_for),
        )  # fmt: skip
        lines += [f"    {name:<10} {local(time, zone)}" for name, time in times if time is not None]
        if entry.recipients is not None:
            lines.append(f"    {'recipients':<10} {entry.recipients} before the send")
        if entry.emails_sent is not None:
            lines.append(f"    {'emails':<10} {entry.emails_sent}")
    for (outcome, detail), group in groupby(batch.attempts, key=lambda a: (a.outcome, a.detail)):
        runs = list(group)
        last = runs[-1]
        lines.append(
            f"  run {last.run:<8} {local(last.started_at, zone)}  {last.host} pid {last.pid}"
            f"  {outcome or 'no end on record'}"
        )
        if len(runs) > 1:
            lines.append(f"    the last of {len(runs)} runs that ended so")
        if detail:
            lines += wrap(
                printable(detail),
                width=terminal_width() - 4,
                initial_indent="    ",
                subsequent_indent="    ",
            )
    return "\n".join([*(printable(line) for line in lines), *reset_lines(resets, zone)])


def reset_lines(resets: Sequence[Reset], zone: tzinfo) -> list[str]:
    """A line for each reset."""
    said = (f"  reset        {local(r.at, zone)}  by {r.by}: {r.reason or 'no reason given'}" for r in resets)
    return [printable(line) for line in said]


# ------------------------------------------------------------------------------------------- looking after a job


def finding_text(level: str, name: str, fact: str, remedy: str, details: Sequence[str]) -> str:
    """A finding of the doctor as lines: how bad, which, what is so, and what to do."""
    mark = {"ok": "ok", "note": "note", "fault": "FAULT"}[level]
    lines = _beside(f"{mark:<6}", f"{name}: {fact}")
    lines += _beside(" " * 9, f"-> {remedy}", first=6) if remedy else []
    # one on each line, however long: they are for looking up, and for copying
    return "\n".join([*lines, *(f"{'':<8}{printable(detail)}" for detail in details)])


def screen_text(head: str, parts: Sequence[tuple[str, Sequence[str], int]], command: str) -> str:
    """One screen: a heading, named parts with so many lines each at the most, and a command that can be copied."""
    lines = [printable(head)]
    for name, texts, at_most in parts:
        told = [line for text in texts for line in _beside(" " * 11, text)] or [" " * 11 + "-"]
        told[0] = f"{name:<11}{told[0].lstrip()}"
        if len(told) > at_most:
            told = [*told[: at_most - 1], f"{told[at_most - 1][: terminal_width() - 4]} ..."]
        lines += told
    return "\n".join([*lines, f"  {printable(command)}"])


def _beside(margin: str, text: str, first: int | None = None) -> list[str]:
    """Text with a margin before it, as wide as the terminal; paths and words are not broken."""
    from textwrap import wrap

    return wrap(
        printable(text),
        width=terminal_width(),
        initial_indent=margin[:first],
        subsequent_indent=" " * len(margin),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [margin.rstrip()]


def record_lines(batch: Batch, resets: Sequence[Reset], zone: tzinfo) -> list[str]:
    """What the ledger has of a date, in a few sentences."""
    said = [f"{state_words(batch)}{f': {batch.reason}' if batch.reason else ''}"]
    if batch.state.value == "-":
        said = ["nothing is on record"]
    if (main := batch.main) is not None:
        times = (
            ("requested", main.requested_at), ("gave up", main.gave_up_at), ("sent", main.sent_at),
        )  # fmt: skip
        told = "".join(f", {name} {local(time, zone)}" for name, time in times if time is not None)
        if main.emails_sent is not None:
            from sendonce.core.audit import compared

            told += f", {compared(main.emails_sent, main.recipients, 'before the send')}"
        said.append(f'"{main.title}" ({main.id}){told}')
    said += [
        f"{entry.role}: {entry.state.value}" + (f', "{entry.title}" ({entry.id})' if entry.id else "")
        for entry in batch.campaigns
        if entry.state.value != "-"
    ]
    if batch.attempts:
        last = batch.attempts[-1]
        how = f"{last.outcome or 'no end on record'}, {local(last.started_at, zone)} on {last.host}"
        said.append(
            f"{len(batch.attempts)} runs, the last: {how}" if batch.attempts[1:] else f"one run: {how}"
        )
    if resets:
        said.append(f"reset by {resets[-1].by}, {local(resets[-1].at, zone)}: {resets[-1].reason or '-'}")
    return said


def campaign_lines(campaigns: Sequence[Campaign], zone: tzinfo) -> list[str]:
    """What Mailchimp shows of a date now."""
    lines = []
    for campaign in campaigns:
        at = f", {local(campaign.send_time, zone)}" if campaign.send_time is not None else ""
        count = (
            ""
            if campaign.is_draft or campaign.emails_sent is None
            else f", {many(campaign.emails_sent, 'email')}"
        )
        people = campaign.recipient_count
        whom = f", for {many(people, 'person', 'people')}" if campaign.is_draft and people is not None else ""
        word = "a draft" if campaign.is_draft else campaign.status
        lines.append(f'{word}{at}{count}{whom}: "{campaign.title}" ({campaign.id})')
    return lines or ["no campaign of this date"]
