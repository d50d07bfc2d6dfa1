"""What all commands share: the options, how they speak, the root of the command line."""

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
from sendonce.core.errors import Refused, WrongUsage
from sendonce.report import Screen, Voice
from sendonce.settings import Settings, environment, load, working_folder

if TYPE_CHECKING:
    from collections.abc import Callable

Command = TypeVar("Command", bound="Callable[..., Any]")
EXAMPLE_DAY = date(2000, 1, 1)
LONGEST_REASON = 500


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

    def settings(self, *, needs_mailchimp: bool = True, needs_state: bool = True) -> Settings:
        """The settings that these options, the environment and the .env give."""
        if self.is_quiet and self.is_verbose:
            raise WrongUsage("-q and -v exclude each other.")
        return load(
            self.env_file,
            self.job,
            environment(),
            working_folder(),
            needs_mailchimp=needs_mailchimp,
            needs_state=needs_state,
        )

    def open_job(self, *, needs_mailchimp: bool = True, needs_state: bool = True) -> compose.Job:
        """The job that these options mean."""
        settings = self.settings(needs_mailchimp=needs_mailchimp, needs_state=needs_state)
        return compose.open_job(settings, talk=self.voice.talk if self.is_verbose else None)


shared = Shared()


def common(command: Command) -> Command:
    """Give a command the shared options."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
        shared.command = ctx.command_path.removeprefix("sendonce").strip() or "sendonce"
        # an empty name counts: it is what a variable that was not set leaves behind, and must not become the default
        if value is not None and value is not False and not ctx.resilient_parsing:
            setattr(shared, str(parameter.name), value)

    # whether the file can be read is said with the settings: click would call it wrong usage
    options = (
        click.option("--env-file", type=click.Path(readable=False, path_type=Path), metavar="FILE", callback=keep,
                     expose_value=False, help="Settings file.  [default: $SENDONCE_ENV_FILE, else ./.env]"),
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


def reason_text(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A --reason is a sentence for the record, and no document. Checked before anything else happens."""
    if value is not None and len(" ".join(value.split())) > LONGEST_REASON:
        raise WrongUsage(f"--reason is longer than {LONGEST_REASON} characters; say it shorter.")
    return value


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


def warnings_of(job: compose.Job) -> list[str]:
    """What a person should know though the command goes on: of the settings, and of the run."""
    return [*job.settings.warnings, *job.log.warnings]


def confirm(question: str, *, is_agreed: bool) -> None:
    """Ask on a terminal; without one, `--yes` is the answer. Raise WrongUsage or Refused."""
    if is_agreed:
        return
    if not sys.stdin or not sys.stdin.isatty() or shared.is_json:
        raise WrongUsage(f"{question} Without a terminal say --yes.")
    if not click.confirm(question, err=True):
        raise Refused("Nothing was changed.")


def own_command() -> str:
    """How this very sendonce is called from anywhere."""
    called = Path(sys.argv[0]).absolute()
    is_module = called.name == "__main__.py"
    return shlex.join([sys.executable, "-m", "sendonce"] if is_module else [str(called)])
