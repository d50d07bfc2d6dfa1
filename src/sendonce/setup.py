"""`sendonce init`: ask for, or take from flags, what must be set; write the `.env`, make the state folder, try the key."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sendonce import compose
from sendonce.core.errors import SettingsWrong, WrongUsage
from sendonce.core.model import Source
from sendonce.settings import NEEDED_BY, SETTINGS, load, render_env, working_folder
from sendonce.settings.env_file import read_private
from sendonce.settings.state_url import read_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sendonce.settings import Settings
    from sendonce.settings.state_url import StateUrl

ALWAYS_ASKED = ("SENDONCE_TIMEZONE", "SENDONCE_STATE")


def assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE flags as values. Raise WrongUsage for a malformed one, and for the key: arguments are public."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WrongUsage("--set wants NAME=VALUE.")
        if name == "MAILCHIMP_API_KEY":
            raise WrongUsage(
                "The API key does not belong on the command line, where every user of the machine sees it. "
                "Type it when asked, or use --api-key-file."
            )
        values[name] = state_of(value) if name == "SENDONCE_STATE" else value
    return values


def proposals(environ: Mapping[str, str]) -> dict[str, str]:
    """What can be proposed, and is never taken without a yes: the machine's time zone, and a place for the state."""
    proposed = {"SENDONCE_STATE": "/var/lib/sendonce" if os.geteuid() == 0 else _users_state(environ)}
    if zone := machine_zone():
        proposed["SENDONCE_TIMEZONE"] = zone
    return proposed


def _users_state(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_STATE_HOME", "")
    return str((Path(base) if base.startswith("/") else Path("~/.local/state").expanduser()) / "sendonce")


def machine_zone() -> str:
    """The machine's IANA time zone, "" if it does not say."""
    zones = "/usr/share/zoneinfo/"
    target = os.path.realpath("/etc/localtime")
    if target.startswith(zones) and Path(target).exists():
        return target.removeprefix(zones).removeprefix("posix/")
    try:
        return Path("/etc/timezone").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def complete(
    values: dict[str, str], ask: Callable[[str, str], str] | None, proposed: Mapping[str, str]
) -> None:
    """Fill in what must be set and is not. `ask` gets a name and a proposal; None: nobody can be asked.

    Raise WrongUsage if something is missing and nobody can be asked.
    """
    wanted = [n for n in ALWAYS_ASKED if not values.get(n) and not values.get(f"{n}_FILE")]
    if ask is not None and "SENDONCE_SOURCE" not in values:
        wanted += ["SENDONCE_SOURCE", "SENDONCE_TITLE"]
    for name in wanted:
        _fill(name, values, ask, proposed)
    source = values.get("SENDONCE_SOURCE") or Source.DRAFT
    for name in NEEDED_BY.get(Source(source), ()) if source in set(Source) else ():
        if not values.get(name):
            _fill(name, values, ask, proposed)


def is_all_there(environ: Mapping[str, str]) -> bool:
    """Whether the environment alone sets what every job needs, as in a container."""
    needed = ("MAILCHIMP_API_KEY", *ALWAYS_ASKED)
    return all(environ.get(n, "").strip() or environ.get(f"{n}_FILE", "").strip() for n in needed)


def _fill(
    name: str, values: dict[str, str], ask: Callable[[str, str], str] | None, proposed: Mapping[str, str]
) -> None:
    if ask is None:
        hint = f" (proposed: {proposed[name]})" if name in proposed else ""
        raise WrongUsage(f"{name} must be given{hint}: there is no terminal to ask on. Say --set {name}=…")
    values[name] = ask(name, proposed.get(name, ""))


def write(path: Path, values: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """Write a new `.env` (0600) and read it back as a run will. One that cannot be used is not left behind."""
    refuse_overriding(values, environ, path)
    text = render_env(values)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SettingsWrong(f"{path} exists already and is left as it is.") from None
    except OSError as fault:
        raise SettingsWrong(f"{path} cannot be written ({fault.strerror}).") from fault
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        return load(path, None, environ, Path.cwd())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def refuse_overriding(values: Mapping[str, str], environ: Mapping[str, str], path: Path) -> None:
    """Raise SettingsWrong if the environment would win over what is about to be written.

    The sandbox's exports, still set in this terminal, would have the wrong Mailchimp accept the key.
    """
    known = {doc.name for doc in SETTINGS}
    odd = sorted(n for n in known if environ.get(n, "").strip() and environ[n].strip() != values.get(n))
    if odd:
        raise SettingsWrong(
            f"The environment sets {', '.join(odd)}, which would win over {path}. Nothing was written: take a new "
            f"terminal, or unset {' '.join(odd)}, or give the same with --set NAME=VALUE."
        )


def winning_environment(settings: Settings, path: Path) -> list[str]:
    """A warning of what the environment sets and the `.env` does not decide: a crontab line sees the latter alone."""
    names = sorted(name for name, place in settings.origins.items() if place == "environment")
    if not names:
        return []
    are = "is" if len(names) == 1 else "are"
    said = (
        f"{', '.join(names)} {are} set in this terminal's environment, which wins over {path}; cron has no such "
        f"environment. To have the file decide here, too: unset {' '.join(names)}"
    )
    return [said]


def state_of(text: str, *, instead: str = "--set SENDONCE_STATE_FILE=FILE") -> str:
    """A `--state` as a setting: a URL as it is, a path made absolute. Raise WrongUsage for one with a password.

    `instead` is how a file is named here.
    """
    if "://" not in text:
        return str(working_folder() / text)
    if re.search("://[^/?#]*:[^/?#]*@|password=", text):
        raise WrongUsage(
            "A URL with a password does not belong on the command line, where every user of the machine sees it. "
            f"Put it into a file of your own (chmod 600) and say {instead}."
        )
    return text


def state_shown(settings: Settings) -> str:
    """The folder, or the URL without its password."""
    return str(settings.state) if isinstance(settings.state, Path) else settings.state.place


def make_state(settings: Settings) -> tuple[str, list[str]]:
    """Make the place for lease and ledger ready; what was done, and warnings. Raises as `compose.prepare_state`."""
    is_made, warnings = compose.prepare_state(settings)
    if not isinstance(settings.state, Path):
        return f"Lease and ledger are kept at {settings.state.place}.", warnings
    return f"{'Made' if is_made else 'Kept'} the state folder {settings.state}.", warnings


def place_of(to: str | None, to_file: Path | None) -> Path | StateUrl:
    """A place for a ledger, as `--to` names it or a file does. Raise WrongUsage, SettingsWrong as `load` does."""
    text = (
        read_private(working_folder() / to_file).text.strip()
        if to_file
        else state_of(to or "", instead="--to-file FILE")
    )
    if to_file and "://" not in text:
        raise WrongUsage("The file of --to-file holds no URL.")
    if "://" not in text:
        return working_folder() / text
    url = read_url(text)
    if isinstance(url, str):
        raise WrongUsage(f"The URL {url}.")
    return url


def try_out(settings: Settings) -> None:
    """One GET with the key, and a look at whether the ledger can be read and written. Raises as a run would."""
    job = compose.open_job(settings, talk=None)
    store = job.ledger()
    if isinstance(settings.state, Path):
        store.check_writable()
    else:
        store.load(job.today().isoformat())
    compose.mailchimp(job).ping()
