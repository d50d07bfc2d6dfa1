"""What starts this job: crontabs and systemd timers as text in, lines and their flaws out. Reads nothing itself.

The rules are those of Debian's cron: a crontab of a user, or one whose lines name their user before the command.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import date, tzinfo

NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@reboot": "",
}
SEARCHED: Final = "/usr/bin:/bin"
"""PATH of a command that cron starts, unless the crontab sets another."""
DAYS_LOOKED_AT: Final = 14
YEAR_AND_MORE: Final = 400
HOURS: Final = 24
NEVER_MAIL: Final = {
    "--help": "only prints the help",
    "--version": "only prints the version",
    "--dry-run": "only says what a run would do",
    "--test-to": "sends a test mail and no campaign",
    "--early": "is for a date in the future",
    "--remaining": "is an order for one date, and nothing for cron",
    "--again": "is an order for one date, whose date a person must type",
}
"""Options of send-batch with which cron does not send the day's campaign, or sends that of another day."""
PASS_GUARDS: Final = ("--override", "--outside-window")
WORKS_ALL_THE_SAME: Final = frozenset(
    {"crontab-silenced", "crontab-clock-change", "crontab-zone", "crontab-window", "crontab-duplicate"}
)
"""Faults of a line that is started all the same."""


@dataclass(frozen=True)
class Table:
    """A crontab. `user` is whose it is; "" where each line names its user before the command."""

    path: str
    text: str
    user: str = ""


@dataclass(frozen=True)
class Unit:
    """A systemd unit file. `user` is whose it is, "root" for the system's; `instances` are those enabled of a timer.

    An instance is "" for a unit that is no template.
    """

    path: str
    text: str
    user: str = "root"
    instances: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Machine:
    """What of a machine decides what a line does. `home_of` gives a user's folder, None for no user; `zone` is cron's.

    `script` gives the text of a script that can be read, "" for everything else.
    """

    home_of: Callable[[str], str | None]
    exists: Callable[[str], bool]
    real: Callable[[str], str]
    zone: tzinfo
    zone_name: str
    is_cron_tz_heeded: bool = False
    today: date | None = None
    script: Callable[[str], str] = lambda _: ""


class Given(NamedTuple):
    """What words behind `sendonce` say: the values of each option ("" for a flag), and why they are no such call."""

    options: Mapping[str, Sequence[str]]
    fault: str = ""


@dataclass(frozen=True)
class Wanted:
    """The job that is looked for: its `.env` ("" if none), its name, and whether only --job gives it that name.

    `understood` reads the words of a `send-batch` as the command line does; `is_open` is whether SENDONCE_WINDOW, where
    it is set, is open at a time.
    """

    env_file: str
    job: str
    is_named_by_flag: bool = False
    understood: Callable[[Sequence[str]], Given] = lambda _: Given({})
    is_open: Callable[[datetime], bool] | None = None


@dataclass(frozen=True)
class Flaw:
    """Something about a line that does not do what it seems to. A note is no fault."""

    id: str
    fact: str
    remedy: str
    is_note: bool = False


@dataclass(frozen=True)
class Line:
    """A line, or a timer, that starts a command. `schedule` is "" where that is not said in cron's way."""

    place: str
    user: str
    schedule: str
    command: str
    variables: Mapping[str, str] = field(default_factory=dict)
    flaws: tuple[Flaw, ...] = ()
    folder: str = ""


class Call(NamedTuple):
    """One `sendonce … send-batch` in a command: the program, its words, where it runs, and what becomes of output."""

    program: str
    words: Sequence[str]
    folder: str
    is_folder_set: bool
    variables: Mapping[str, str]
    errors_to: str
    after: str


@dataclass(frozen=True)
class Report:
    """What was found: the lines that start this job, and all flaws."""

    lines: tuple[Line, ...]
    flaws: tuple[Flaw, ...]


def examine(
    tables: Iterable[Table],
    units: Sequence[Unit],
    wanted: Wanted,
    machine: Machine,
    *,
    is_cron_here: bool = True,
) -> Report:
    """Find what starts the wanted job, and what is wrong with it. `is_cron_here`: there is something that could."""
    found: list[Line] = []
    flaws: list[Flaw] = []
    for table in tables:
        lines, broken = parse(table, machine)
        ours = [line for line in lines if _is_ours(line, wanted, machine)]
        found += ours
        if ours:  # one line that cron cannot read makes it leave out the whole file
            flaws += broken
        else:
            flaws += [flaw for flaw in broken if "this sendonce line" in flaw.fact]
        for line in ours:
            flaws += [*line.flaws, *_flaws(line, wanted, machine)]
    timers, sleeping = _timers(units)
    started = [line for line in timers if _is_ours(line, wanted, machine)]
    found += started
    for line in started:
        flaws += _option_flaws(line, wanted, machine)
    flaws += _of_all(
        found, [line for line in sleeping if _is_ours(line, wanted, machine)], is_cron_here=is_cron_here
    )
    return Report(tuple(found), tuple(dict.fromkeys(flaws)))


def _of_all(found: Sequence[Line], sleeping: Sequence[Line], *, is_cron_here: bool) -> Iterator[Flaw]:
    """Tell whether exactly one line starts the job."""
    places = " and ".join(f"{line.place} (as {line.user or 'nobody'})" for line in found)
    if len({line.user for line in found}) > 1:
        yield Flaw(
            "crontab-two-users",
            f"Two users run this job: {places}.",
            "Leave the line of the user who owns the state, and take out the other: what one user writes the other may not.",
        )
    elif len(found) > 1:
        yield Flaw(
            "crontab-duplicate",
            f"{len(found)} lines start this job: {places}.",
            "Leave one. Nothing is sent twice, but each of them waits for the other, and mails what it has to say.",
        )
    elif not found and sleeping:
        yield Flaw(
            "timer-disabled",
            f"The timer {sleeping[0].place} would start this job, and is not enabled.",
            f"systemctl {_scope(sleeping[0].place)}enable --now {sleeping[0].place.rpartition('/')[2]}",
        )
    elif not found and is_cron_here:
        yield Flaw(
            "crontab-none",
            "No crontab line and no timer on this machine starts this job.",
            "Put in one line, as crontab.example shows. A script is seen if it names sendonce and its .env in full.",
        )
    elif not found:
        yield Flaw(
            "crontab-none",
            "There is no cron and no systemd here: something else must start this job.",
            "See that it does, with a window of tries.",
            is_note=True,
        )


def _scope(place: str) -> str:
    return "--user " if "/systemd/user/" in place else ""


# ------------------------------------------------------------------------------------------------------ a crontab


def parse(table: Table, machine: Machine) -> tuple[list[Line], list[Flaw]]:
    """Take a crontab apart: its lines in their order, and those that cron cannot read."""
    lines: list[Line] = []
    flaws: list[Flaw] = []
    variables: dict[str, str] = {}
    # not splitlines(): to cron, and so to an editor's line numbers, only a newline ends a line
    for number, raw in enumerate(table.text.split("\n"), 1):
        place = f"{table.path} line {number}"
        text = raw.rstrip("\r").strip(" \t")
        if not text or text.startswith("#"):
            continue
        if setting := re.fullmatch(r"""(["']?)([A-Za-z_]\w*)\1\s*=\s*(.*)""", text):
            variables[setting[2]] = _unquoted(setting[3])
            continue
        is_last = number == table.text.count("\n") + 1
        line = _line(table, place, text, machine, dict(variables))
        if isinstance(line, Flaw):
            flaws.append(line)
            continue
        extra = tuple(_ends(place, is_cut=is_last, is_crlf=raw.endswith("\r")))
        lines.append(
            Line(place, line.user, line.schedule, line.command, line.variables, (*line.flaws, *extra))
        )
    return lines, flaws


def _unquoted(text: str) -> str:
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def _ends(place: str, *, is_cut: bool, is_crlf: bool) -> Iterator[Flaw]:
    if is_cut:
        yield Flaw(
            "crontab-newline",
            f"{place}: the last line does not end with a newline, and cron leaves it out.",
            "Put an empty line after it.",
        )
    if is_crlf:
        yield Flaw(
            "crontab-crlf",
            f"{place}: the line ends as on Windows (CR LF), and the CR becomes part of the command.",
            "Save the file with Unix line ends: sed -i 's/\\r$//' FILE",
        )


def _line(table: Table, place: str, text: str, machine: Machine, variables: Mapping[str, str]) -> Line | Flaw:
    """Read one line, or say why cron cannot."""
    words = text.split(None, 1 if text.startswith("@") else 5)
    at, rest = (words[:1], words[1:]) if text.startswith("@") else (words[:5], words[5:])
    schedule = NICKNAMES.get(at[0].lower(), "?") if text.startswith("@") else " ".join(at)
    command = rest[0] if rest else ""
    if (fault := _schedule_fault(schedule)) or not command:
        what = "sendonce " if "sendonce" in text else ""
        return Flaw(
            "crontab-syntax",
            f"{place}: cron cannot read this {what}line ({fault or 'no command'}), and may leave out the whole file.",
            "Write minute, hour, day, month, weekday and the command, as */10 8-11 * * * COMMAND",
        )
    if table.user:
        return _of_user(table.user, place, schedule, command, machine, variables)
    return _of_system(place, schedule, command, machine, variables)


def _of_user(
    user: str, place: str, schedule: str, command: str, machine: Machine, variables: Mapping[str, str]
) -> Line:
    first, _, rest = command.partition(" ")
    if machine.home_of(first) is not None and re.match(r"\s*(/|\./|sendonce\b)", rest):
        flaw = Flaw(
            "crontab-user-column",
            f'{place}: "{first}" stands before the command. In a crontab of a user it is taken for the command.',
            f'Take out "{first}": the command comes after the fifth field.',
        )
        return Line(place, user, schedule, rest.strip(), variables, (flaw,))
    return Line(place, user, schedule, command, variables)


def _of_system(
    place: str, schedule: str, command: str, machine: Machine, variables: Mapping[str, str]
) -> Line:
    user, rest = (*command.split(None, 1), "")[:2]
    if machine.home_of(user) is not None:
        return Line(place, user, schedule, rest, variables)
    is_command = "/" in user or user in {"sendonce", "python3", "cd", "env"}
    flaw = Flaw(
        "crontab-no-user",
        f"{place}: the user is missing before the command."
        if is_command
        else f'{place}: there is no user "{user}" here.',
        "In this file the user stands after the fifth field, before the command.",
    )
    return Line(place, "", schedule, command if is_command else rest, variables, (flaw,))


def _schedule_fault(schedule: str) -> str:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - for the doctor alone

    if schedule == "":
        return ""
    try:
        CronSim(_plain(schedule), datetime(2026, 1, 1))  # noqa: DTZ001 - cron's fields know no zone
    except (CronSimError, ValueError, IndexError) as fault:
        return str(fault).lower()
    return ""


def _plain(schedule: str) -> str:
    """The schedule without random ranges (`0~30`), which cronsim does not know: their first value."""
    return re.sub(r"(\d*)~\d*", lambda found: found[1] or "0", schedule)


# ------------------------------------------------------------------------------------------------------ a command


def _is_ours(line: Line, wanted: Wanted, machine: Machine) -> bool:
    return any(_is_call_of(call, wanted, machine) for call in _calls(line, machine))


def _is_call_of(call: Call, wanted: Wanted, machine: Machine) -> bool:
    job = _value(call.words, "--job") or call.variables.get("SENDONCE_JOB", "")
    is_job = job == wanted.job if job else not wanted.is_named_by_flag
    named = _env_file(call)
    joined = _joined(call.folder, named or ".env")
    path = machine.real(joined)
    if not named and not wanted.env_file:
        return is_job
    # without --env-file, or with a relative one, where there is no such file: it is meant for somebody's job, and works
    # for none
    is_alike = not named or (not named.startswith("/") and _name(named) == _name(wanted.env_file))
    return is_job and (path == wanted.env_file or (is_alike and not machine.exists(joined)))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _calls(line: Line, machine: Machine) -> list[Call]:
    """Every `send-batch` of sendonce in the command of a line."""
    home = line.variables.get("HOME") or machine.home_of(line.user) or "/"
    # what comes after an unescaped % is standard input; here it is read on, to tell what was meant
    text = line.command.replace("\\%", "%")
    folder = line.folder or home
    found = list(_calls_in(text, folder, line.variables, is_folder_set=bool(line.folder)))
    return found or list(_calls_of_scripts(text, folder, line.variables, machine))


def _calls_of_scripts(
    text: str, folder: str, variables: Mapping[str, str], machine: Machine
) -> Iterator[Call]:
    """What scripts that the command names start, read line by line: what a shell would make of them is not known."""
    words, errors_to = _redirected(_tokens(text))
    for word in words:
        script = machine.script(_joined(folder, word)) if "/" in word else ""
        if "sendonce" not in script or "send-batch" not in script:
            continue
        lines = [re.sub(r"\s#.*", "", said).strip() for said in re.sub(r"\\\r?\n", " ", script).splitlines()]
        told = [said for said in lines if said and not said.startswith("#")]
        settings = (
            re.fullmatch(r"(?:export\s+)?([A-Za-z_]\w*)=(\S*|'[^']*'|\"[^\"]*\")", said) for said in told
        )
        known = {**variables, **{said[1]: _unquoted(said[2]) for said in settings if said}}
        for call in _calls_in(" ; ".join(told), folder, known, is_folder_set=False):
            yield call if call.errors_to else call._replace(errors_to=errors_to)


def _calls_in(text: str, folder: str, variables: Mapping[str, str], *, is_folder_set: bool) -> Iterator[Call]:
    tokens = _tokens(text)
    start = 0
    for end in range(len(tokens) + 1):
        if end < len(tokens) and not re.fullmatch("[();&|]+", tokens[end]):
            continue
        part, after = tokens[start:end], tokens[end] if end < len(tokens) else ""
        start = end + 1
        words, errors_to = _redirected(part)
        if words[:1] == ["cd"] and len(words) > 1:
            folder, is_folder_set = _joined(folder, words[1]), is_folder_set or words[1].startswith("/")
        yield from _call(words, folder, variables, errors_to, after, is_folder_set=is_folder_set)


def _call(
    words: list[str],
    folder: str,
    variables: Mapping[str, str],
    errors_to: str,
    after: str,
    *,
    is_folder_set: bool,
) -> Iterator[Call]:
    # the last one: a lock file, a folder or a job may be called sendonce, too
    for n in reversed(range(len(words))):
        word, rest = words[n], words[n + 1 :]
        is_module = word == "-m" and rest[:1] == ["sendonce"]
        is_value = n > 0 and words[n - 1].startswith("-")
        if (is_module or (word.rpartition("/")[2] == "sendonce" and not is_value)) and "send-batch" in rest:
            program = words[n - 1] if is_module and n else word
            given = dict(pair.split("=", 1) for pair in words[:n] if re.match(r"[A-Za-z_]\w*=", pair))
            yield Call(program, rest, folder, is_folder_set, {**variables, **given}, errors_to, after)
            return
        if " " in word and "sendonce" in word and "send-batch" in word:  # sh -c "…"
            for call in _calls_in(word, folder, variables, is_folder_set=is_folder_set):
                yield call if call.errors_to else call._replace(errors_to=errors_to)


def _tokens(text: str) -> list[str]:
    # its parentheses would end the command
    plain = re.sub(
        r"\$\(([^()]*)\)|`([^`]*)`",
        lambda found: found[0] if "send-batch" in (found[1] or found[2] or "") else "$",
        text,
    )
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # a quote that is not closed: what was meant is told all the same
        return [word.strip("'\"") for word in text.split() if word != "-c"]


def _is_quote_open(text: str) -> bool:
    """Whether a shell would still look for the end of a quote. In a comment there is none."""
    quote, before = "", " "
    characters = iter(text)
    for sign in characters:
        if sign == "\\" and quote != "'":
            next(characters, "")
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#" and before.isspace():
            return False
        before = sign
    return bool(quote)


def _redirected(tokens: Sequence[str]) -> tuple[list[str], str]:
    """Split off redirections; the words, and where errors go: "" for cron's mail, else a path."""
    words: list[str] = []
    to = {"1": "", "2": ""}
    rest = list(tokens)
    while rest:
        sign = rest.pop(0)
        if not re.fullmatch("[<>&]+", sign):
            words.append(sign)
            continue
        number = words.pop() if words and words[-1] in {"0", "1", "2"} else "1"
        target = rest.pop(0) if rest else ""
        if sign == ">&" and target in to:
            to[number] = to[target]
        elif ">" in sign:
            to[number] = target
            if "&" in sign:
                to["2"] = target
    return words, to["2"]


def _value(words: Sequence[str], option: str) -> str:
    for n, word in enumerate(words):
        if word == option:
            return words[n + 1] if n + 1 < len(words) else ""
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _env_file(call: Call) -> str:
    return _value(call.words, "--env-file") or call.variables.get("SENDONCE_ENV_FILE", "")


def _joined(folder: str, path: str) -> str:
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{folder}/{path}").split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in {"", "."}:
            parts.append(part)
    return "/" + "/".join(parts)


# ---------------------------------------------------------------------------------------------- what is wrong with it


def _flaws(line: Line, wanted: Wanted, machine: Machine) -> Iterator[Flaw]:
    calls = _calls(line, machine)
    if re.search(r"(?<!\\)%", line.command):
        yield Flaw(
            "crontab-percent",
            f"{line.place}: to cron a % ends the command, and what comes after it is standard input.",
            "Write \\% for each %. Without --date sendonce takes today, so a date is hardly ever needed.",
        )
    elif _is_quote_open(line.command):
        yield Flaw(
            "crontab-quote",
            f"{line.place}: a quote in the command is not closed, so the shell does not run it.",
            "Close it.",
        )
    else:
        yield from _option_flaws(line, wanted, machine)
    yield from _variable_flaws(line, machine)
    for call in calls[:1]:
        yield from _path_flaws(line, call, wanted, machine)
        yield from _output_flaws(line, call)
    if len(calls) > 1 and any(call.after == "||" for call in calls):
        yield Flaw(
            "crontab-retry",
            f"{line.place}: after a failure the command is started again at once, by ||.",
            "Take that out, and let a window of tries do it, as */10 8-11 * * *: what was in the way needs a while.",
            is_note=True,
        )
    yield from _time_flaws(line, wanted, machine)


def _option_flaws(line: Line, wanted: Wanted, machine: Machine) -> Sequence[Flaw]:
    """What follows `send-batch`: of several calls the one that mails is what counts."""
    told = [
        list(_of_options(line, call, wanted))
        for call in _calls(line, machine)
        if _is_call_of(call, wanted, machine)
    ]
    return min(told, key=lambda flaws: sum(not flaw.is_note for flaw in flaws), default=[])


def _of_options(line: Line, call: Call, wanted: Wanted) -> Iterator[Flaw]:
    words = [*call.words[1:]] if call.words[:1] == ["sendonce"] else [*call.words]
    comment = next((n for n, word in enumerate(words) if word.startswith("#")), len(words))
    given = wanted.understood(words[:comment])
    if given.fault:
        yield Flaw(
            "crontab-option",
            f"{line.place}: sendonce does not take this command, and sends nothing: {given.fault}",
            "Correct it; send-batch alone is what a crontab needs.",
        )
    for name, why in NEVER_MAIL.items():
        if name in given.options:
            yield Flaw(
                "crontab-option",
                f"{line.place}: {name} {why}: so the line does not send the day's campaign.",
                f"Take out {name}.",
            )
    for day in given.options.get("--date", ())[-1:]:
        # what the shell puts in is known when it does
        if day not in {"today", "yesterday"} and not re.search("[$`]", day):
            yield Flaw(
                "crontab-option",
                f"{line.place}: --date {day} is the same date every day.",
                "Take out --date: without it sendonce takes today.",
            )
    if "--override" in given.options and not "".join(given.options.get("--reason", ())).strip():
        yield Flaw(
            "crontab-option",
            f"{line.place}: --override needs --reason, and without it nothing is sent.",
            "Take out --override: a guard is passed by hand, for one date.",
        )
        return
    for name in PASS_GUARDS:
        if name in given.options:
            said = " ".join([name, *given.options[name]]).strip()
            yield Flaw(
                "crontab-guard-passed",
                f"{line.place}: {said} has every run pass the guard that it names.",
                "If that is not meant, take it out; if it is, take the guard out of the settings.",
                is_note=True,
            )


def _variable_flaws(line: Line, machine: Machine) -> Iterator[Flaw]:
    """What the crontab sets above the line."""
    shell = line.variables.get("SHELL", "")
    if shell and not (shell.startswith("/") and machine.exists(shell)):
        yield Flaw(
            "crontab-shell",
            f"{line.place}: SHELL={shell} is set above it, and there is no such program.",
            "Take it out, or write the whole path of a shell that is there.",
        )
    names = [n for n in line.variables if re.match("SENDONCE_|MAILCHIMP_", n) and n != "SENDONCE_ENV_FILE"]
    if names:
        yield Flaw(
            "crontab-settings",
            f"{line.place}: {' and '.join(names)} set above it in the crontab wins over the .env, and a command typed by "
            "hand does not see it.",
            "Put it into the .env.",
            is_note=True,
        )


def _path_flaws(line: Line, call: Call, wanted: Wanted, machine: Machine) -> Iterator[Flaw]:
    is_elsewhere = not call.is_folder_set
    if "/" not in call.program:
        searched = call.variables.get("PATH") or SEARCHED
        if not any(machine.exists(f"{folder}/{call.program}") for folder in searched.split(":")):
            yield Flaw(
                "crontab-relative",
                f"{line.place}: cron does not find {call.program}, it looks in {searched} only.",
                "Write the whole path of the command.",
            )
    elif not call.program.startswith("/") and is_elsewhere:
        yield Flaw(
            "crontab-relative",
            f"{line.place}: {call.program} is a relative path, and cron starts in {call.folder}.",
            "Write the whole path of the command.",
        )
    elif not machine.exists(_joined(call.folder, call.program)):
        yield Flaw(
            "crontab-command",
            f"{line.place}: there is no {_joined(call.folder, call.program)}.",
            "Write the path of the sendonce that is installed.",
        )
    named = _env_file(call)
    if not named and is_elsewhere:
        yield Flaw(
            "crontab-no-env-file",
            f"{line.place}: no --env-file is given, so .env is looked for in {call.folder}, where cron starts.",
            "Put --env-file and the whole path of the .env behind sendonce.",
        )
    elif named and not named.startswith("/") and is_elsewhere:
        joined = _joined(call.folder, named)
        meant = joined if machine.exists(joined) else wanted.env_file
        yield Flaw(
            "crontab-relative",
            f"{line.place}: --env-file {named} is a relative path, and cron starts in {call.folder}.",
            f"Write --env-file {meant}, if that is the one that is meant.",
        )


def _output_flaws(line: Line, call: Call) -> Iterator[Flaw]:
    is_mail_off = line.variables.get("MAILTO") == "" and call.errors_to == ""
    if is_mail_off or call.errors_to == "/dev/null":
        how = 'MAILTO="" throws away' if is_mail_off else "/dev/null gets"
        yield Flaw(
            "crontab-silenced",
            f"{line.place}: {how} what sendonce says, so nobody hears of a failure.",
            "Set MAILTO to an address, let sendonce be quiet with -q, and take out >/dev/null 2>&1.",
        )


def _time_flaws(line: Line, wanted: Wanted, machine: Machine) -> Iterator[Flaw]:
    if not line.schedule:  # @reboot
        yield Flaw(
            "crontab-one-try",
            f"{line.place}: it is started when the machine is, and then never again.",
            "Let cron try several times a day, as */10 8-11 * * *",
            is_note=True,
        )
        return
    if machine.today is None:
        return
    zone, zone_name = machine.zone, machine.zone_name
    if name := line.variables.get("CRON_TZ"):
        if not machine.is_cron_tz_heeded:
            yield Flaw(
                "crontab-zone",
                f"{line.place}: this machine's cron ignores CRON_TZ={name}; the hours are those of {machine.zone_name}.",
                f"Take out CRON_TZ, and write the hours in {machine.zone_name}.",
            )
        elif (other := _zone(name)) is None:
            yield Flaw(
                "crontab-zone", f'{line.place}: CRON_TZ "{name}" is no time zone.', "Write an IANA name."
            )
        else:
            zone, zone_name = other, name
    if max((len(_tries(line, machine.today + timedelta(n))) for n in range(DAYS_LOOKED_AT)), default=0) == 1:
        yield Flaw(
            "crontab-one-try",
            f"{line.place}: one try a day only: what is in its way then costs the day.",
            "Let cron try several times, as */10 8-11 * * *: once the day is sent, a try ends at once.",
            is_note=True,
        )
    if wanted.is_open is not None and not re.search("--outside-window|--override[ =]window", line.command):
        days = (machine.today + timedelta(n) for n in range(DAYS_LOOKED_AT))
        starts = [at.replace(tzinfo=zone) for day in days for at in _tries(line, day)]
        if starts and not any(map(wanted.is_open, starts)):
            yield Flaw(
                "crontab-window",
                f"{line.place}: none of its starts lies in SENDONCE_WINDOW, the first is {starts[0]:%H:%M} ({zone_name}).",
                "Have it start inside the window, or open the window for its hours.",
            )
    yield from _clock_flaws(line, machine.today, zone, zone_name)


def _clock_flaws(line: Line, today: date, zone: tzinfo, zone_name: str) -> Iterator[Flaw]:
    """Name hours that a change of the clocks skips or repeats; a line that runs at every hour need not care."""
    if len({at.hour for n in range(DAYS_LOOKED_AT) for at in _tries(line, today + timedelta(n))}) == HOURS:
        return
    said = []
    for n in range(YEAR_AND_MORE):
        day = today + timedelta(n)
        if _offset(day, zone) == _offset(day + timedelta(1), zone):
            continue
        tries = _tries(line, day)
        skipped = [at for at in tries if _is_skipped(at, zone)]
        repeated = [at for at in tries if _is_repeated(at, zone)]
        for what, times in (("does not exist", skipped), ("comes twice", repeated)):
            said += [f"{times[0]:%H:%M} {what} on {day}"] if times else []
    if said:
        yield Flaw(
            "crontab-clock-change",
            f"{line.place}: the clocks change ({zone_name}): {', '.join(said[:2])}.",
            "Choose hours in which no clock is changed, say from 5 on.",
        )


def _zone(name: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - only for a crontab with a zone of its own

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _offset(day: date, zone: tzinfo) -> timedelta | None:
    return datetime.combine(day, time(), zone).utcoffset()


def _tries(line: Line, day: date) -> list[datetime]:
    """The times of a day, by cron's clock, at which the line is due."""
    from cronsim import CronSim  # noqa: PLC0415 - as above

    begin = datetime.combine(day, time())
    found: list[datetime] = []
    try:
        for at in CronSim(_plain(line.schedule), begin - timedelta(seconds=1)):
            if at.date() != day:
                break
            found.append(at)
    except StopIteration:  # a date that never comes
        return found
    return found


def _is_skipped(at: datetime, zone: tzinfo) -> bool:
    before, after = (at.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    return before is not None and after is not None and before < after


def _is_repeated(at: datetime, zone: tzinfo) -> bool:
    before, after = (at.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    return before is not None and after is not None and before > after


# -------------------------------------------------------------------------------------------------------- systemd


def _timers(units: Sequence[Unit]) -> tuple[list[Line], list[Line]]:
    """What enabled timers start, and what those would that are not enabled."""
    services = {(unit.user, unit.name): unit for unit in units if unit.name.endswith(".service")}
    awake: list[Line] = []
    asleep: list[Line] = []
    for timer in units:
        if not timer.name.endswith(".timer"):
            continue
        stem = timer.name.removesuffix(".timer")
        named = _directives(timer.text).get("Timer.Unit") or [f"{stem}.service"]
        instances = timer.instances or frozenset({""})
        for instance in sorted(instances):
            name = re.sub(r"@.*\.service", "@.service", named[-1]) if stem.endswith("@") else named[-1]
            service = services.get((timer.user, name))
            if service is not None:
                (awake if timer.instances else asleep).extend(_started(timer, service, instance))
    return awake, asleep


def _started(timer: Unit, service: Unit, instance: str) -> Iterator[Line]:
    said = _directives(service.text)
    variables: dict[str, str] = {}
    for text in said.get("Service.Environment", ()):
        pairs = (word.partition("=") for word in _tokens(text))
        variables |= {name: value for name, equals, value in pairs if equals}
    user = (said.get("Service.User") or [timer.user])[-1]
    folder = (said.get("Service.WorkingDirectory") or ["/"])[-1]
    for command in said.get("Service.ExecStart", ()):
        text = re.sub("^[@:+!-]*", "", command)
        for mark, value in (("%i", instance), ("%I", instance), ("%n", service.name), ("%%", "%")):
            text = text.replace(mark, value)
        place = timer.path.replace("@.", f"@{instance}.") if instance else timer.path
        yield Line(place, user, "", text, variables, (), folder.lstrip("-").replace("%i", instance))


def _directives(text: str) -> dict[str, list[str]]:
    """The settings of a unit file, as Section.Name; an empty one takes back what was said before."""
    found: dict[str, list[str]] = {}
    section = ""
    for raw in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            values = found.setdefault(f"{section}.{name.strip()}", [])
            values[:] = [*values, value.strip()] if value.strip() else []
    return found
