"""`init`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from sendonce.cli.base import cli, common, own_command, shared
from sendonce.core.errors import SendonceError, WrongUsage
from sendonce.core.model import Source
from sendonce.exits import ExitCode
from sendonce.settings import environment, working_folder


@cli.command()
@click.option(
    "--api-key-file",
    type=click.Path(readable=False, path_type=Path),
    help="File that holds the API key; it stays there.",
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
        "SENDONCE_JOB": shared.job,
        "SENDONCE_TIMEZONE": timezone,
        "SENDONCE_STATE": setup.state_of(state) if state else None,
        "SENDONCE_SOURCE": source,
        "SENDONCE_TITLE": title,
        "SENDONCE_LIST_ID": list_id,
        "MAILCHIMP_API_KEY_FILE": str(working_folder() / api_key_file) if api_key_file else None,
    }
    values |= {name: value for name, value in flags.items() if value}
    named = shared.env_file or environment().get("SENDONCE_ENV_FILE")
    path = working_folder() / (named or ".env")
    is_file = True
    told = []
    if path.exists():
        if values:
            raise WrongUsage(
                f"{path} exists already: change settings there, or name another file with --env-file."
            )
        settings = shared.settings()
        told.append(f"Kept {path}.")
    elif not values and not named and setup.is_all_there(environment()):
        is_file = False
        settings = shared.settings()
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
    shared.voice.document("init", ExitCode.OK, env_file=env_file, state=state_shown, message=" ".join(told))
    shared.voice.result("\n".join([*told, "", *_next_steps(path)] if is_file else told))
    winning = setup.winning_environment(settings, path) if is_file else []
    shared.voice.warnings([*settings.warnings, *warnings, *winning])
    return ExitCode.OK


def _asked(values: dict[str, str]) -> dict[str, str]:
    """The settings of a new .env: those given, and those that a person on a terminal types."""
    from sendonce import setup

    is_terminal = bool(sys.stdin and sys.stdin.isatty()) and not shared.is_json
    proposed = {
        **setup.proposals(environment()),
        "SENDONCE_SOURCE": "draft",
        "SENDONCE_TITLE": "{job} {date}",
    }
    # what the environment sets would win over any other answer
    in_force = {name: environment().get(name, "").strip() for name in proposed}
    if is_terminal:  # a URL may hold a password, which a proposal would show
        values |= {name: url for name, url in in_force.items() if "://" in url and name not in values}
    proposed |= {name: value for name, value in in_force.items() if value}

    def ask(name: str, proposal: str) -> str:
        from sendonce.settings import SETTINGS, zone_exists

        meaning = next((doc.plain_meaning for doc in SETTINGS if doc.name == name), "")
        click.echo(f"\n{meaning[:1].upper()}{meaning[1:]}.", err=True)
        if in_force.get(name):
            click.echo("The environment sets it, and wins: unset it there to set another.", err=True)

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
    command = f"{own_command()} --env-file {shlex.quote(str(path))}"
    # a % ends a crontab's command unless it is escaped
    line = f"*/10 8-11 * * * {command} -q send-batch".replace("%", r"\%")
    return [
        "Next, see what a run would do:",
        f"  {command} send-batch --dry-run",
        "Then put this line into a crontab (crontab -e):",
        f"  {line}",
    ]
