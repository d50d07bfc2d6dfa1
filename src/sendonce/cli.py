"""The command line: parse, call one function of `compose`, report, exit. Nothing here decides about sending."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sendonce import __version__, compose
from sendonce.core.dates import parse_day
from sendonce.core.errors import NoAnswer, Refused, SendonceError, SettingsWrong, Stopped, WrongUsage
from sendonce.core.model import Ending, Source, State
from sendonce.exits import ExitCode
from sendonce.report import Screen, Voice
from sendonce.settings import SETTINGS, Settings, environment, load, working_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sendonce.core.model import Outcome
    from sendonce.stage import Desk

Command = TypeVar("Command", bound="Callable[..., Any]")
EXAMPLE_DAY = date(2000, 1, 1)


@dataclass
class Shared:
    """The options that every command takes, before or after its name."""

    env_file: Path | None = None
    job: str | None = None
    is_json: bool = False
    is_quiet: bool = False
    is_verbose: bool = False
    command: str = "sendonce"

    @property
    def voice(self) -> Voice:
        """How this command speaks."""
        return Voice(is_json=self.is_json, is_quiet=self.is_quiet, is_verbose=self.is_verbose)

    @property
    def screen(self) -> Screen:
        """Where this command shows what goes on: nowhere with -q or --json."""
        return Screen(is_dark=self.is_quiet or self.is_json)

    def settings(self, *, needs_mailchimp: bool = True) -> Settings:
        """The settings that these options, the environment and the .env give."""
        if self.is_quiet and self.is_verbose:
            raise WrongUsage("-q and -v exclude each other.")
        return load(self.env_file, self.job, environment(), working_folder(), needs_mailchimp=needs_mailchimp)

    def open_job(self, *, needs_mailchimp: bool = True) -> compose.Job:
        """The job that these options mean."""
        settings = self.settings(needs_mailchimp=needs_mailchimp)
        return compose.open_job(settings, talk=self.voice.talk if self.is_verbose else None)


_shared = Shared()


def common(command: Command) -> Command:
    """Give a command the shared options."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
        _shared.command = ctx.command_path.removeprefix("sendonce").strip() or "sendonce"
        # an empty name counts: it is what a variable that was not set leaves behind, and must not become the default
        if value is not None and value is not False and not ctx.resilient_parsing:
            setattr(_shared, str(parameter.name), value)

    options = (
        click.option("--env-file", type=click.Path(path_type=Path), metavar="FILE", callback=keep, expose_value=False,
                     help="Settings file.  [default: $SENDONCE_ENV_FILE, else ./.env]"),
        click.option("--job", metavar="NAME", callback=keep, expose_value=False,
                     help="Name of the daily mailing.  [default: $SENDONCE_JOB, else daily]"),
        click.option("-v", "--verbose", "is_verbose", is_flag=True, callback=keep, expose_value=False,
                     help="Say each step on standard error."),
        click.option("-q", "--quiet", "is_quiet", is_flag=True, callback=keep, expose_value=False,
                     help="Silent on success, and on what was said before."),
        click.option("--json", "is_json", is_flag=True, callback=keep, expose_value=False,
                     help="Answer with one JSON object."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _day_text(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> str | None:
    """One --date at the most, in the wanted form. Checked before anything else happens."""
    if len(values) > 1:
        raise WrongUsage("--date is given more than once.")
    if values:
        parse_day(values[0], EXAMPLE_DAY)
        return values[0]
    return None


def day_option(text: str) -> Callable[[Command], Command]:
    """The option --date."""
    return click.option("--date", "day", multiple=True, metavar="D", callback=_day_text, help=text)


def _say_and_leave(ctx: click.Context, text: str) -> None:
    """Print help or version by our own means: click's would turn a full disk or a closed pipe into a failure."""
    from sendonce.report import write

    if not ctx.resilient_parsing:
        write(1, f"{text}\n")
        ctx.exit()


class _Command(click.Command):
    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = lambda ctx, _, value: _say_and_leave(ctx, ctx.get_help()) if value else None
        return option


class _Group(_Command, click.Group):
    command_class = _Command
    group_class = type


@click.group(
    cls=_Group,
    epilog="Exit codes: 0 done, 1 refused, 2 wrong usage, 70 bug, 75 run again, 78 settings or ledger unusable.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    help="Show the version and exit.",
    callback=lambda ctx, _, value: _say_and_leave(ctx, f"sendonce {__version__}") if value else None,
)
@common
def cli() -> None:
    """Send the day's Mailchimp campaign from cron, and send it once.

    However often it is started, whatever crashes: one date gets one campaign.
    Try it without an account: sendonce demo
    """


@cli.command("send-batch")
@day_option("The mailing's date: YYYY-MM-DD, today or yesterday.  [default: today in the job's time zone]")
@click.option("--early", is_flag=True, help="Allow a date in the future.")
@click.option("--dry-run", is_flag=True, help="Only say what a run would do, and end as it would.")
@click.option("--wait", is_flag=True, help="Stay until Mailchimp has finished sending (6 hours at the most).")
@common
def send_batch(day: str | None, *, early: bool, dry_run: bool, wait: bool) -> ExitCode:
    """Send the day's campaign, unless it is sent already.

    Safe to start at any time and as often as you like: the ledger and Mailchimp are
    asked first, and two runs never send side by side.
    """
    if dry_run and wait:
        raise WrongUsage("--dry-run sends nothing that could be waited for: leave out --wait.")
    job = _shared.open_job()
    when = job.day(day, early=early)
    outcome = compose.already_settled(job, when)
    if outcome is None and dry_run:
        outcome = compose.rehearse(job, when)
    elif outcome is None:
        outcome = compose.send(job, when, say_last=_say_last(job, when.isoformat()))
    job.log.note("ended", outcome=outcome.ending.value, said=outcome.message)
    if (
        wait
        and outcome.campaign_id
        and outcome.ending in {Ending.SENT, Ending.FOUND_SENT, Ending.ALREADY_SENT}
    ):
        outcome = _wait(job, outcome)
    return _shared.voice.outcome("send-batch", compose.with_zone(job, day, outcome), _warnings(job))


def _warnings(job: compose.Job) -> list[str]:
    return [*job.settings.warnings, *job.log.warnings]


def _say_last(job: compose.Job, day: str) -> Callable[[str], None]:
    """What the deadline's thread prints before the process ends."""
    from sendonce.core.model import Outcome

    return lambda said: (
        _shared.voice.outcome("send-batch", Outcome(Ending.TEMPORARY, day, said), _warnings(job)),
        None,
    )[1]


def _wait(job: compose.Job, outcome: Outcome) -> Outcome:
    if not sys.stderr or not sys.stderr.isatty() or _shared.is_quiet or _shared.is_json:
        return compose.watch(job, outcome, lambda *_: None)
    from rich.console import Console

    with Console(stderr=True).status(f"Mailchimp is sending {outcome.campaign_id} …") as status:

        def show(word: str, count: int | None) -> None:
            status.update(f"Mailchimp: {word}" + ("" if count is None else f", {count} emails so far"))

        return compose.watch(job, outcome, show)


# ------------------------------------------------------------------------------------------------------ ledger


@cli.group()
def ledger() -> None:
    """Look at the record of what was sent, and mend it."""


@ledger.command("list")
@click.option("--since", metavar="D", help="From this date on.")
@click.option("--until", metavar="D", help="Up to and with this date.")
@click.option(
    "--state", type=click.Choice([s.value for s in State if s is not State.NONE]), help="Only this state."
)
@click.option("--csv", "is_csv", is_flag=True, help="As CSV.")
@common
def ledger_list(since: str | None, until: str | None, state: str | None, *, is_csv: bool) -> ExitCode:
    """List the batches on record."""
    from zoneinfo import ZoneInfo

    from sendonce import report

    job = _shared.open_job(needs_mailchimp=False)
    first = job.day(since, early=True).isoformat() if since is not None else ""
    last = job.day(until, early=True).isoformat() if until is not None else "9999-99-99"
    if first > last:
        raise WrongUsage(f"--since {first} lies after --until {last}.")
    if is_csv and _shared.is_json:
        raise WrongUsage("--csv and --json exclude each other.")
    batches = [b for b in job.ledger().batches(first, last) if state is None or b.state.value == state]
    rows = report.ledger_rows(batches, ZoneInfo(job.settings.zone), is_short=not is_csv)
    voice = _shared.voice
    voice.document("ledger list", ExitCode.OK, batches=[report.batch_parts(b) for b in batches])
    if is_csv:
        voice.result(report.as_csv(report.COLUMNS, rows))
    elif not voice.is_json:
        which = " that matches" if since or until or state else ""
        empty = f"No batch on record for job {job.settings.job}{which}."
        voice.result(report.as_table(report.COLUMNS, rows) if rows else empty)
    voice.warnings(_warnings(job))
    return ExitCode.OK


@ledger.command("show")
@click.argument("of_day", metavar="[DATE]", required=False)
@day_option("The date to show.  [default: today]")
@common
def ledger_show(of_day: str | None, day: str | None) -> ExitCode:
    """Show everything on record of one date."""
    from zoneinfo import ZoneInfo

    from sendonce import report

    if of_day is not None and day is not None:
        raise WrongUsage("The date is given twice.")
    job = _shared.open_job(needs_mailchimp=False)
    when = job.day(day if of_day is None else of_day, early=True).isoformat()
    batch = next(iter(job.ledger().batches(when, when)), None)
    resets = [r for r in job.ledger().resets() if r.date == when]
    voice = _shared.voice
    parts = report.batch_parts(batch) if batch else None
    voice.document("ledger show", ExitCode.OK, batch=parts, resets=[report.reset_parts(r) for r in resets])
    zone = ZoneInfo(job.settings.zone)
    if batch is None:
        told = f"{when}: nothing on record for job {job.settings.job}."
        voice.result("\n".join([told, *report.reset_lines(resets, zone)]))
    else:
        voice.result(report.batch_story(batch, resets, zone))
    voice.warnings(_warnings(job))
    return ExitCode.OK


@ledger.command("reset")
@day_option("The date to forget. Required.")
@click.option("--reason", default="", help="Why; kept with the old record.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Even if the date is recorded as sent.")
@common
def ledger_reset(day: str | None, reason: str, *, yes: bool, force: bool) -> ExitCode:
    """Forget a date, so that a run starts over with it.

    A failed day needs no reset: the next run tries again by itself. A reset does not
    make anything be sent twice either: a run still finds the campaign in Mailchimp.
    """
    if day is None:
        raise WrongUsage("ledger reset needs --date.")
    job = _shared.open_job()
    when = job.day(day, early=True)
    _confirm(f"Forget the record of {when} (job {job.settings.job})? It is kept under resets.", is_agreed=yes)
    was = compose.reset(job, when, reason=reason, force=force)
    text = f"The record of {when} ({was.state.value}) is forgotten and kept under resets. The next run starts over."
    _shared.voice.document(
        "ledger reset", ExitCode.OK, date=when.isoformat(), was=was.state.value, message=text
    )
    _shared.voice.result(text)
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


@ledger.command("verify")
@common
def ledger_verify() -> ExitCode:
    """Compare the ledger with Mailchimp. Reads only."""
    job = _shared.open_job()
    count, findings = compose.verify(job)
    code = ExitCode.REFUSED if findings else ExitCode.OK
    voice = _shared.voice
    voice.document("ledger verify", code, batches=count, findings=[vars(f) for f in findings])
    if findings:
        from sendonce.report import printable

        voice.result("\n".join(printable(f"{f.date}: {f.said}") for f in findings))
    elif not voice.is_quiet:
        voice.result(f"{count} batches on record, and Mailchimp says the same.")
    voice.warnings(_warnings(job))
    return code


@ledger.command("rebuild")
@click.option("--yes", is_flag=True, help="Put it in place of the ledger without asking.")
@common
def ledger_rebuild(*, yes: bool) -> ExitCode:
    """Make the ledger anew from Mailchimp's campaigns.

    Finds them by the title pattern. The old ledger is kept aside.
    """
    job = _shared.open_job()
    batches, lost, put = compose.rebuild(job)
    left = ", ".join(f"{b.date} ({b.state.value})" for b in lost)
    _confirm(
        f"The ledger of job {job.settings.job} would hold {len(batches)} batches."
        + (f" Left out, as Mailchimp has nothing of them: {left}." if left else "")
        + " Put it in place?",
        is_agreed=yes,
    )
    kept = put()
    text = f"The ledger holds {len(batches)} batches now." + (
        f" The old ledger is kept as {kept}." if kept else ""
    )
    dates = [b.date for b in batches]
    _shared.voice.document("ledger rebuild", ExitCode.OK, dates=dates, kept=kept or None, message=text)
    _shared.voice.result(text)
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


@ledger.command("copy")
@click.option("--to", metavar="DIR|URL", help="Folder, or URL without a password.")
@click.option("--to-file", type=click.Path(path_type=Path), metavar="FILE", help="File that holds the URL.")
@click.option(
    "--yes", is_flag=True, help="Even if there is a ledger of the job already; that one is kept aside."
)
@common
def ledger_copy(to: str | None, to_file: Path | None, *, yes: bool) -> ExitCode:
    """Copy the ledger to another folder or server.

    Every record is read back and compared. The ledger itself stays as it is; SENDONCE_STATE is yours to change.
    """
    from sendonce import setup

    if (to is None) == (to_file is None):
        raise WrongUsage("Say where to, with --to or with --to-file.")
    job = _shared.open_job(needs_mailchimp=False)
    target, shown = compose.at_another_place(job, setup.place_of(to, to_file))
    if (there := len(compose.prepared(target).batches())) and not yes:
        _confirm(
            f"{shown} has a ledger of job {job.settings.job} already, with {there} batches. Replace it?",
            is_agreed=yes,
        )
    copied, kept = compose.copy_ledger(job, target)
    text = f"{copied} batches were copied to {shown}, and each was read back the same."
    text += f" What was there is kept as {kept}." if kept else ""
    _shared.voice.document(
        "ledger copy", ExitCode.OK, batches=copied, to=shown, kept=kept or None, message=text
    )
    _shared.voice.result(f"{text} Set SENDONCE_STATE to it to use it.")
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


def _confirm(question: str, *, is_agreed: bool) -> None:
    """Ask on a terminal; without one, `--yes` is the answer. Raise WrongUsage or Refused."""
    if is_agreed:
        return
    if not sys.stdin or not sys.stdin.isatty() or _shared.is_json:
        raise WrongUsage(f"{question} Without a terminal say --yes.")
    if not click.confirm(question, err=True):
        raise Refused("Nothing was changed.")


# -------------------------------------------------------------------------------------------------------- lock


@cli.group()
def lock() -> None:
    """Look at the lease that keeps two runs apart."""


@lock.command("status")
@common
def lock_status() -> ExitCode:
    """Say who holds the lease. Changes nothing."""
    job = _shared.open_job(needs_mailchimp=False)
    text, parts = compose.lock_status(job)
    _shared.voice.document("lock status", ExitCode.OK, holder=parts, message=text)
    _shared.voice.result(text)
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


@lock.command("break")
@click.option("--yes", is_flag=True, help="Even if the holder is alive.")
@common
def lock_break(*, yes: bool) -> ExitCode:
    """Remove the lease of a run that is gone.

    Hardly ever needed: a run takes over the lease of a dead one by itself.
    """
    job = _shared.open_job(needs_mailchimp=False)
    text = compose.break_lock(job, force=yes)
    _shared.voice.document("lock break", ExitCode.OK, message=text)
    _shared.voice.result(text)
    _shared.voice.warnings(_warnings(job))
    return ExitCode.OK


# -------------------------------------------------------------------------------------------------------- init


@cli.command()
@click.option(
    "--api-key-file", type=click.Path(path_type=Path), help="File that holds the API key; it stays there."
)
@click.option("--timezone", metavar="ZONE", help="Whose day it is, e.g. Europe/Berlin.")
@click.option(
    "--state", metavar="DIR|URL", help="Folder for ledger and lease, or the URL of a server for them."
)
@click.option(
    "--source", type=click.Choice([s.value for s in Source]), help="Where the day's campaign comes from."
)
@click.option("--title", metavar="PATTERN", help="The campaign's title, e.g. 'Digest {date}'.")
@click.option("--list-id", metavar="ID", help="The audience.")
@click.option("--set", "others", multiple=True, metavar="NAME=VALUE", help="Any other setting; repeatable.")
@common
def init(
    api_key_file: Path | None,
    timezone: str | None,
    state: str | None,
    source: str | None,
    title: str | None,
    list_id: str | None,
    others: tuple[str, ...],
) -> ExitCode:
    """Set up a job: its .env, and the place for its ledger.

    Tries the key with one harmless request. Asks on a terminal for what is not given. An .env that exists is kept and tried.
    """
    from sendonce import setup

    values = setup.assignments(others)
    flags = {
        "SENDONCE_JOB": _shared.job,
        "SENDONCE_TIMEZONE": timezone,
        "SENDONCE_STATE": setup.state_of(state) if state else None,
        "SENDONCE_SOURCE": source,
        "SENDONCE_TITLE": title,
        "SENDONCE_LIST_ID": list_id,
        "MAILCHIMP_API_KEY_FILE": str(working_folder() / api_key_file) if api_key_file else None,
    }
    values |= {name: value for name, value in flags.items() if value}
    named = _shared.env_file or environment().get("SENDONCE_ENV_FILE")
    path = working_folder() / (named or ".env")
    is_file = True
    told = []
    if path.exists():
        if values:
            raise WrongUsage(
                f"{path} exists already: change settings there, or name another file with --env-file."
            )
        settings = _shared.settings()
        told.append(f"Kept {path}.")
    elif not values and not named and setup.is_all_there(environment()):
        is_file = False
        settings = _shared.settings()
        told.append("The settings are in the environment: no .env was written.")
    else:
        settings = setup.write(path, _asked(values), environment())
        told.append(f"Wrote {path}.")
    made, warnings = setup.make_state(settings)
    told.append(made)
    try:
        setup.try_out(settings)
    except SendonceError as fault:
        raise type(fault)(f"{' '.join(told)} But: {fault.message}") from fault
    told.append("Mailchimp accepts the key.")
    env_file = str(path) if is_file else None
    state_shown = setup.state_shown(settings)
    _shared.voice.document("init", ExitCode.OK, env_file=env_file, state=state_shown, message=" ".join(told))
    _shared.voice.result("\n".join([*told, "", *_next_steps(path)] if is_file else told))
    _shared.voice.warnings([*settings.warnings, *warnings])
    return ExitCode.OK


def _asked(values: dict[str, str]) -> dict[str, str]:
    """The settings of a new .env: those given, and those that a person on a terminal types."""
    from sendonce import setup

    is_terminal = bool(sys.stdin and sys.stdin.isatty()) and not _shared.is_json
    proposed = {
        **setup.proposals(environment()),
        "SENDONCE_SOURCE": "draft",
        "SENDONCE_TITLE": "{job} {date}",
    }

    def ask(name: str, proposal: str) -> str:
        from sendonce.settings import SETTINGS, zone_exists

        meaning = next((doc.plain_meaning for doc in SETTINGS if doc.name == name), "")
        click.echo(f"\n{meaning[:1].upper()}{meaning[1:]}.", err=True)

        def checked(text: str) -> str:
            if name == "SENDONCE_TIMEZONE" and not zone_exists(text):
                raise click.BadParameter(
                    f'there is no time zone "{text}"; wanted: a name such as Europe/Berlin'
                )
            if name == "SENDONCE_SOURCE" and text not in set(Source):
                raise click.BadParameter(f"wanted: {', '.join(Source)}")
            return text

        return str(click.prompt(name, default=proposal or None, err=True, value_proc=checked))

    setup.complete(values, ask if is_terminal else None, proposed)
    key = {}
    if "MAILCHIMP_API_KEY_FILE" not in values:
        given = environment().get("MAILCHIMP_API_KEY", "").strip()
        if not given and not is_terminal:
            raise WrongUsage("The API key must be given: there is no terminal to ask on. Use --api-key-file.")
        key["MAILCHIMP_API_KEY"] = given or str(
            click.prompt("MAILCHIMP_API_KEY (not shown)", hide_input=True, err=True)
        )
    return {**key, **values}


def _next_steps(path: Path) -> list[str]:
    """What a newcomer does now."""
    command = f"{_own_command()} --env-file {shlex.quote(str(path))}"
    # a % ends a crontab's command unless it is escaped
    line = f"*/10 8-11 * * * {command} -q send-batch".replace("%", r"\%")
    return [
        "Next, see what a run would do:",
        f"  {command} send-batch --dry-run",
        "Then put this line into a crontab (crontab -e):",
        f"  {line}",
    ]


# --------------------------------------------------------------------------------------- sandbox, demo, drill


@cli.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on 127.0.0.1.  [default: any free one]",
)
@click.option("--audience", type=click.IntRange(0), default=100, metavar="N", help="Readers.  [default: 100]")
@click.option("--draft", "drafts", multiple=True, metavar="TITLE", help="One more campaign; repeatable.")
@common
def sandbox(port: int, audience: int, drafts: tuple[str, ...]) -> ExitCode:
    """Start a local stand-in for Mailchimp, to try things on.

    It mails nobody. It prints settings for another terminal, those of a scratch folder and a made-up key, and
    serves until Ctrl-C. Your own settings are not read.
    """
    from sendonce import demo

    def say(desk: Desk) -> None:
        known = {"url": desk.url, "env_file": str(desk.env_file), "settings": desk.settings}
        _shared.voice.document("sandbox", ExitCode.OK, **known)
        _shared.voice.result(demo.guide(desk, audience, _own_command()))

    zone = _zone_of_machine("sandbox")
    demo.serve_sandbox(port=port, audience=audience, drafts=drafts, zone=zone, ready=say)
    return ExitCode.OK


@cli.command("demo")
@common
def play_demo() -> ExitCode:
    """Play the whole story on the sandbox: no account needed.

    A campaign is sent, started again, its answer gets lost, the run is killed in mid-send;
    in the end each day was delivered once. Exit 0 if so, else 1.
    """
    from sendonce import demo

    zone = _zone_of_machine("demo")
    verdict = demo.play(zone, _shared.screen.say, is_verbose=_shared.is_verbose)
    code = ExitCode.OK if verdict.is_good else ExitCode.REFUSED
    days = [vars(day) for day in verdict.days]
    return _judged("demo", code, verdict.message, days=days)


@cli.command("drill")
@click.option(
    "--quick", is_flag=True, help="Only a sample, in less than 20 s: each step once, the send several times."
)
@click.option(
    "--source", type=click.Choice([s.value for s in Source]), help="Drill this source.  [default: yours]"
)
@click.option("--step", metavar="NAME", help="Only this step, e.g. send; the table has their names.")
@common
def play_drill(source: str | None, step: str | None, *, quick: bool) -> ExitCode:
    """Kill and cut off your way of sending at every step.

    On the sandbox, no account needed: the real command is killed, or loses its answer, at each request of
    a send, is run again until it is done, and the deliveries are counted. Takes some minutes. Of your
    settings only source, job, title, subject and times are used, the times shortened to seconds. Exit 0 if
    each time the day was delivered once, else 1.
    """
    from sendonce import drill

    if step is not None:
        drill.check_step(step)
    settings = _drilled_settings(is_source_given=source is not None)
    way = drill.way_of(settings, Source(source) if source else None)
    with _shared.screen as screen:
        report = drill.play(way, screen, step=step, is_quick=quick, is_verbose=_shared.is_verbose)
    code = ExitCode.OK if report.is_good else ExitCode.REFUSED
    return _judged("drill", code, report.message, is_quick=quick, **report.parts())


def _drilled_settings(*, is_source_given: bool) -> Settings:
    """Return the settings to drill; where there are none, the defaults, if it is said for which source."""
    environ, default = environment(), working_folder() / ".env"
    names = ["SENDONCE_ENV_FILE", *(doc.name for doc in SETTINGS if doc.name.startswith("SENDONCE_"))]
    is_set = any(environ.get(name, "").strip() for name in names)
    if _shared.env_file or _shared.job or is_set or default.exists():
        settings = _shared.settings(needs_mailchimp=False)
        _shared.voice.warnings(list(settings.warnings))
        return settings
    if not is_source_given:
        raise SettingsWrong(
            f"There are no settings to drill: no {default}, and no SENDONCE_... in the environment. Name a .env with "
            "--env-file (sendonce init makes one), or say --source draft, replicate or html: then the defaults are "
            "drilled."
        )
    needed = {"SENDONCE_TIMEZONE": "UTC", "SENDONCE_STATE": "/"}
    return load(None, None, needed, working_folder(), needs_mailchimp=False)


def _judged(command: str, code: ExitCode, message: str, **parts: object) -> ExitCode:
    """Report a verdict that was shown already: as JSON, and with -q only a bad one."""
    from sendonce.report import write

    _shared.voice.document(command, code, **parts, message=message)
    if code is not ExitCode.OK and _shared.is_quiet:
        write(2, f"{message}\n")
    return code


def _zone_of_machine(command: str) -> str:
    """Return the zone for what has settings of its own. Raise WrongUsage if it is given others."""
    from sendonce import setup, stage

    if _shared.env_file or _shared.job:
        raise WrongUsage(f"{command} has settings of its own: leave out --env-file and --job.")
    return stage.usable_zone(setup.machine_zone())


def _own_command() -> str:
    """How this very sendonce is called from anywhere."""
    called = Path(sys.argv[0]).absolute()
    is_module = called.name == "__main__.py"
    return shlex.join([sys.executable, "-m", "sendonce"] if is_module else [str(called)])


def command_table() -> str:
    """Return all commands with their options as a Markdown table, for the README."""
    rows = [*_command_rows(cli, ()), ("every command", _option_list(cli), "before or after its name")]
    lines = [f"| {path} | {options} | {meaning} |" for path, options, meaning in rows]
    return "\n".join(["| command | options | meaning |", "|---|---|---|", *lines]) + "\n"


def _command_rows(group: click.Group, above: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _command_rows(command, (*above, name))
        else:
            meaning = command.get_short_help_str(limit=200).rstrip(".")
            yield f"`{' '.join((*above, name))}`", _option_list(command), meaning


def _option_list(command: click.Command) -> str:
    """Return what a command takes; for all but the whole, without what every command takes."""
    ctx = click.Context(command)
    shared = {"version"} if command is cli else {parameter.name for parameter in cli.params}
    texts = []
    for parameter in command.params:
        if parameter.name not in shared:
            names = [*parameter.opts[:1]] if isinstance(parameter, click.Option) else []
            is_bare = isinstance(parameter, click.Option) and parameter.is_flag
            value = [] if is_bare else [parameter.make_metavar(ctx).strip("[]").replace("|", "\\|")]
            texts.append(f"`{' '.join([*names, *value])}`")
    return " ".join(texts)


# -------------------------------------------------------------------------------------------------------- main


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code comes back. Every foreseeable fault is one message."""
    try:
        code = cli.main(arguments, prog_name="sendonce", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        # click makes this of every Ctrl-C in a command: what was done by then is on record
        return _shared.voice.fault(
            _shared.command, Stopped("SIGINT"), "Interrupted. Run again, that is safe."
        )
    except click.exceptions.NoArgsIsHelpError as fault:
        return _usage("", fault.ctx)
    except click.ClickException as fault:
        return _usage(fault.format_message(), fault.ctx if isinstance(fault, click.UsageError) else None)
    except WrongUsage as fault:
        return _usage(fault.message, click.get_current_context(silent=True))
    except NoAnswer as fault:
        return _shared.voice.fault(_shared.command, fault, f"{fault.message} Run again, that is safe.")
    except SendonceError as fault:
        return _shared.voice.fault(_shared.command, fault, fault.message)
    except (Stopped, KeyboardInterrupt) as fault:
        return _shared.voice.fault(_shared.command, fault, "Interrupted. Run again, that is safe.")
    except Exception as fault:  # noqa: BLE001 - the last resort: a bug gets a code of its own, not a traceback
        return _shared.voice.fault(_shared.command, fault, _bug(fault))
    return int(code) if isinstance(code, int) else 0


def _usage(message: str, ctx: click.Context | None) -> int:
    from sendonce.report import write
    from sendonce.settings.masking import readable

    if ctx is not None and not message:
        write(2, f"{ctx.get_help()}\n")
    else:
        usage = f"{ctx.get_usage()}\n" if ctx is not None else ""
        write(2, f"{usage}Error: {readable(message)}\n")
    return int(ExitCode.WRONG_USAGE)


def _bug(fault: Exception) -> str:
    """Where it happened, without any value: a value might be the key."""
    place = fault.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = (
        f"{Path(place.tb_frame.f_code.co_filename).name} line {place.tb_lineno}"
        if place
        else "an unknown place"
    )
    return (
        f"This is a bug in sendonce: {type(fault).__name__} in {where}. What was sent is in the ledger or in Mailchimp: "
        "run the same command again, it asks both. Please report it."
    )
