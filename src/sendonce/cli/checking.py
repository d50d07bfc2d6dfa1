"""`doctor`, `check` and `explain`: for whoever must know whether all is well. They change nothing."""

from __future__ import annotations

import re
import shlex
import sys
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sendonce import compose, inspection
from sendonce.cli.base import cli, common, day_option, own_command, shared, warnings_of
from sendonce.core.errors import SettingsWrong, WrongUsage
from sendonce.core.model import Ending, State
from sendonce.exits import ExitCode
from sendonce.runbook import OF_COMMANDS
from sendonce.settings import environment, where_env_file, working_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sendonce.core.model import Outcome
    from sendonce.crontabs import Given
    from sendonce.doctor import Finding


@cli.command()
@click.option("--as-cron", is_flag=True, help="Look as cron would: empty environment, /bin/sh, in /.")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The machine is the one below this folder: a container image, a rescue system.",
)
@common
def doctor(*, as_cron: bool, root: Path | None) -> ExitCode:
    """Look for what is wrong, and say what to do.

    Settings, key, audience, the campaigns of today and the next 7 days, clock, state, ledger, crontabs. Reads
    only. Exit 0 if there is no fault, else 1.
    """
    if as_cron:
        return _as_cron()
    if root is not None and not (working_folder() / root).is_dir():
        raise WrongUsage(f"--root wants a folder, and {root} is none.")
    findings = _findings(working_folder() / root if root else Path("/"))
    faults, notes = (sum(f.level.value == word for f in findings) for word in ("fault", "note"))
    code = ExitCode.REFUSED if faults else ExitCode.OK
    told = [
        {"id": f.id, "level": f.level.value, "is_ok": f.is_ok, "fact": f.fact, "remedy": f.remedy or None,
         "details": list(f.details)}
        for f in findings
    ]  # fmt: skip
    section = OF_COMMANDS["doctor"] if faults else None
    shared.voice.document("doctor", code, findings=told, runbook=section)
    if shared.is_json or (shared.is_quiet and not faults):
        return code
    _show(findings)
    if not shared.is_quiet:
        shared.voice.result(
            f"\nFaults: {faults}, notes: {notes}, in order: {len(findings) - faults - notes}."
        )
    shared.voice.what_to_do(section)
    return code


def _findings(root: Path) -> list[Finding]:
    """All findings; of wrong settings what is wrong with them, and what can be looked at without."""
    from sendonce.doctor import of_wrong_settings

    try:
        settings = shared.settings()
    except SettingsWrong as error:
        path = where_env_file(shared.env_file, environment(), working_folder())
        if path is None:  # of which job could anything be said?
            return list(of_wrong_settings(error))
        about = inspection.of_machine(root, None, path, _understood, is_job_named=shared.job is not None)
        return [*of_wrong_settings(error), *about]
    return inspection.examine(settings, root, _understood, is_job_named=shared.job is not None)


def _understood(words: Sequence[str]) -> Given:
    """Read the words behind `sendonce` as click would, without doing anything."""
    from sendonce.cli.sending import send_batch
    from sendonce.crontabs import Given

    said: dict[str, list[str]] = {}
    rest = list(words)
    try:
        for command in (cli, send_batch):
            context = click.Context(command, info_name="sendonce")
            options, rest, _ = command.make_parser(context).parse_args(rest)
            for parameter in command.get_params(context):
                value = options.get(str(parameter.name))
                if value is not None:
                    values = value if isinstance(value, list) else [value]
                    name = max(parameter.opts, key=len)
                    said.setdefault(name, []).extend("" if one is True else str(one) for one in values)
            if command is cli:
                rest = rest[1:]  # send-batch itself
    except click.UsageError as error:
        return Given(said, error.format_message())
    # what the shell puts in may be nothing
    odd = [word for word in rest if "$" not in word]
    return Given(said, f"Got unexpected extra argument ({odd[0]})" if odd else "")


def _show(findings: list[Finding]) -> None:
    from sendonce.report import Screen, finding_text

    screen = Screen()
    for f in findings:
        level = f.level.value
        if shared.is_quiet and level == "ok":
            continue
        style = "bad" if level == "fault" else ""
        screen.say(finding_text(level, f.id, f.fact, f.remedy, f.details), style)


def _as_cron() -> ExitCode:
    """Start the same doctor in the environment that cron gives, with the same arguments."""
    import json
    import os
    import pwd
    import subprocess

    from sendonce.report import complain, write

    try:
        user = pwd.getpwuid(os.getuid())
        home, name = user.pw_dir, user.pw_name
    except KeyError:  # a container's made-up uid
        home, name = "/", str(os.getuid())
    clean = {"HOME": home, "LOGNAME": name, "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    words = [word for word in sys.argv[1:] if word != "--as-cron"]
    command = f"{own_command()} {shlex.join(words)}"
    told = shlex.join(["env", "-i", *(f"{k}={v}" for k, v in clean.items()), "/bin/sh", "-c", command])
    if not shared.is_quiet:
        shared.voice.result(f"As cron starts it, in /:\n  {told}\n")
    ended = subprocess.run(  # noqa: S603 - our own command and arguments, quoted
        ["/bin/sh", "-c", command],
        env=clean,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if shared.is_json else None,
        check=False,
    )
    if shared.is_json and ended.stdout:  # wrong usage has no document
        write(1, json.dumps({**json.loads(ended.stdout), "as_cron": told}) + "\n")
    if ended.returncode in set(ExitCode):
        return ExitCode(ended.returncode)
    # 126, 127: the shell has said why on standard error
    said = f"Cron's shell could not start sendonce (exit {ended.returncode}). Write its whole path, as above."
    section = OF_COMMANDS["doctor"]
    shared.voice.document(
        "doctor", ExitCode.REFUSED, outcome="error", message=said, as_cron=told, runbook=section
    )
    complain(said)
    shared.voice.what_to_do(section)
    return ExitCode.REFUSED


@cli.command()
@day_option("The date to look for.  [default: today in the job's time zone]")
@click.option(
    "--by", metavar="HH:MM", help="Before that time, in the job's zone, not yet is 75; later it is 1."
)
@common
def check(day: str | None, by: str | None) -> ExitCode:
    """Say whether the day's mail left, by Mailchimp alone.

    For a monitoring system, or a second host: it needs the key, the time zone and the title, no ledger and no
    state. Exit 0 if the day's one campaign is sent or being sent, else 1.
    """
    if by is not None and not re.fullmatch("([01][0-9]|2[0-3]):[0-5][0-9]", by):
        raise WrongUsage("--by wants a time of day, HH:MM, as 09:30.")
    job = shared.open_job(needs_state=False)
    when = job.day(day, early=True)
    outcome = inspection.check(job, when)
    if by is not None and outcome.ending is Ending.REFUSED:
        outcome = _in_time(job, when, by, outcome)
    return shared.voice.outcome("check", outcome, warnings_of(job))


def _in_time(job: compose.Job, day: date, by: str, outcome: Outcome) -> Outcome:
    """What a missing mail means before the time by which it should have left, and after it."""
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(job.settings.zone)
    due = datetime.combine(day, time.fromisoformat(by), zone)
    # told apart in UTC: two times of one zone are compared without their offsets
    is_early = job.clock.now() < due.astimezone(UTC)
    now = job.clock.now().astimezone(zone)
    said = f"{outcome.message} It is {now:%H:%M}{'' if now.date() == day else f' on {now:%Y-%m-%d}'} ({job.settings.zone})"
    if is_early:
        return outcome._replace(ending=Ending.TEMPORARY, message=f"{said}, and it has time until {by}.")
    return outcome._replace(message=f"{said}; it should have left by {by}.")


@cli.command()
@day_option("The date to explain.  [default: today in the job's time zone]")
@common
def explain(day: str | None) -> ExitCode:
    """Say all about one date, on one screen.

    What the ledger has, who holds the lease, what Mailchimp shows, what the next run will do, and the one
    command that is safe to type.
    """
    from sendonce import report

    job = shared.open_job()
    when = job.day(day, early=True)
    told = inspection.explain(job, when)
    zone = job.settings.zone
    advice, words = _advice_on_record(told, when) or _advice(told.next_run, when, job.today())
    if told.is_at_work:
        advice, words = "A run is at work: wait for it. Who it is:", ["lock", "status"]
    command = " ".join([own_command(), *_named(job), *words])
    shared.voice.document(
        "explain",
        ExitCode.OK,
        date=when.isoformat(),
        record=report.batch_parts(told.batch),
        resets=[report.reset_parts(reset) for reset in told.resets],
        lease=told.lease,
        pause=told.pause or None,
        campaigns=[{"id": c.id, "title": c.title, "status": c.status, "emails_sent": c.emails_sent,
                    "recipients": c.recipient_count}
                   for c in told.campaigns],
        next_run={"outcome": told.next_run.ending.value, "message": told.next_run.message},
        advice=advice,
        safe_command=command,
    )  # fmt: skip
    now = job.clock.now().astimezone(told.zone)
    is_pause_told = told.pause != "" and told.pause not in told.next_run.message
    parts = (
        ("Ledger", report.record_lines(told.batch, told.resets, told.zone), 4 if is_pause_told else 6),
        ("Lease", [told.lease], 3),
        *([("Pause", [told.pause], 2)] if is_pause_told else []),
        ("Mailchimp", report.campaign_lines(told.campaigns, told.zone), 4),
        ("Next run", [told.next_run.message], 5),
        ("To do", [advice], 2),
    )
    head = f"{when} of job {job.settings.job}; now it is {now:%Y-%m-%d %H:%M} ({zone})"
    shared.voice.result(report.screen_text(head, parts, command))
    shared.voice.warnings(warnings_of(job))
    return ExitCode.OK


def _named(job: compose.Job) -> list[str]:
    """The options that name this job, for a command to type."""
    words = ["--env-file", shlex.quote(str(job.settings.env_file))] if job.settings.env_file else []
    return [*words, "--job", job.settings.job] if shared.job else words


def _advice_on_record(told: inspection.Explained, day: date) -> tuple[str, list[str]] | None:
    """What to do where that hangs on more than the next run's end: an open order, a canceled mailing, a pause."""
    main, orders = told.batch.main, [e for e in told.batch.campaigns if e.state is not State.NONE]
    send = ["send-batch", "--date", str(day)]
    is_unclear = told.batch.state is State.SENDING and told.next_run.ending is not Ending.FOUND_SENT
    if told.pause and is_unclear:
        return "The send is not confirmed, and not asked for again while paused. To end the pause:", [
            "resume"
        ]
    if (unfinished := next((e for e in orders if e.state is not State.SENT), None)) is not None:
        order = [*send, f"--{unfinished.role.partition(' ')[0]}", "--reason", "TEXT"]
        return (
            f"The order {unfinished.role} is not carried out. Repeated, it goes on; it is sent once:",
            order,
        )
    own = {main.id} if main is not None else {c.id for c in told.campaigns}
    is_canceled = any(c.id in own and c.status == "canceled" for c in told.campaigns)
    if is_canceled and not any(e.role.startswith("remaining ") for e in orders):
        return "It was canceled half-way. To send it to those who were not sent it:", [
            *send, "--remaining", "--reason", "TEXT",
        ]  # fmt: skip
    return None


def _advice(outcome: Outcome, day: date, today: date) -> tuple[str, list[str]]:
    """What a person should do, and the one command for it; each of these can be typed at any moment."""
    send = ["send-batch", "--date", str(day)]
    show = ["ledger", "show", str(day)]
    match outcome.ending:
        case Ending.ALREADY_SENT | Ending.SKIPPED:
            return "Nothing. All that is on record:", show
        case Ending.PAUSED:
            return "Nothing, while the pause is meant. To end it:", ["resume"]
        case Ending.ALARM:
            return "A person must look; nothing is sent again by itself. All that is on record:", show
        case Ending.SCHEDULED:
            return "Nothing, Mailchimp sends it. Afterwards, whether it did:", ["check", "--date", str(day)]
        case Ending.REFUSED | Ending.SCHEDULED_ELSEWHEN if day > today:
            return "Put that right in time; what a run would do then:", [*send, "--early", "--dry-run"]
        case Ending.REFUSED | Ending.SCHEDULED_ELSEWHEN:
            return "Put that right; then see what a run would do:", [*send, "--dry-run"]
        case Ending.FOUND_SENT:
            return "Nothing. The next run, or this, puts it on record:", send
        case Ending.WOULD_SEND if day < today:
            return "Cron does not send a date that is past. To send it, once:", send
        case Ending.WOULD_SEND if day > today:
            return "Wait for its date. What a run would do then:", [*send, "--early", "--dry-run"]
        case Ending.WAITING | Ending.TEMPORARY if outcome.message.startswith("Nothing would be sent now: "):
            return "Wait for cron: time puts that right. What a run would do now:", [*send, "--dry-run"]
        case _:
            return "Wait for cron, or run it now; it is sent once:", send
