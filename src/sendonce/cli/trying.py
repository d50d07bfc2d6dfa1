"""`sandbox`, `demo` and `drill`: to see and to test it without an account."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sendonce.cli.base import cli, common, own_command, shared
from sendonce.core.errors import SettingsWrong, WrongUsage
from sendonce.core.model import Source
from sendonce.exits import ExitCode
from sendonce.runbook import OF_COMMANDS
from sendonce.settings import SETTINGS, Settings, environment, load, working_folder

if TYPE_CHECKING:
    from sendonce.stage import Desk


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
        shared.voice.document("sandbox", ExitCode.OK, **known)
        shared.voice.result(demo.guide(desk, audience, own_command()))

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
    verdict = demo.play(zone, shared.screen.say, is_verbose=shared.is_verbose)
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
    with shared.screen as screen:
        report = drill.play(way, screen, step=step, is_quick=quick, is_verbose=shared.is_verbose)
    code = ExitCode.OK if report.is_good else ExitCode.REFUSED
    return _judged("drill", code, report.message, is_quick=quick, **report.parts())


def _drilled_settings(*, is_source_given: bool) -> Settings:
    """Return the settings to drill; where there are none, the defaults, if it is said for which source."""
    environ, default = environment(), working_folder() / ".env"
    names = ["SENDONCE_ENV_FILE", *(doc.name for doc in SETTINGS if doc.name.startswith("SENDONCE_"))]
    is_set = any(environ.get(name, "").strip() for name in names)
    if shared.env_file or shared.job or is_set or default.exists():
        settings = shared.settings(needs_mailchimp=False)
        shared.voice.warnings(list(settings.warnings))
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

    section = None if code is ExitCode.OK else OF_COMMANDS[command]
    shared.voice.document(command, code, **parts, message=message, runbook=section)
    if code is not ExitCode.OK and shared.is_quiet:
        write(2, f"{message}\n")
    shared.voice.what_to_do(section)
    return code


def _zone_of_machine(command: str) -> str:
    """Return the zone for what has settings of its own. Raise WrongUsage if it is given others."""
    from sendonce import setup, stage

    if shared.env_file or shared.job:
        raise WrongUsage(f"{command} has settings of its own: leave out --env-file and --job.")
    return stage.usable_zone(setup.machine_zone())
