"""The crontabs and timers of this machine, or of one whose files lie below another folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from sendonce.crontabs import Table, Unit

CRONTAB_WAIT_S: Final = 5
LARGEST_BYTES: Final = 1 << 20
SPOOLS: Final = ("var/spool/cron/crontabs", "var/spool/cron")


class Found:
    """What is there to read below `root`, as `user` may read it.

    `unread` are places with the reason, for people; `left_out` are files that cron does not read for their names.
    """

    def __init__(self, root: Path, user: str, home: str) -> None:
        self._root, self._user, self._home = root, user, home
        self.unread: list[tuple[str, str]] = []
        self.left_out: list[str] = []
        self.tables = [*self._of_users(), *self._of_system()]
        self.units = [
            *self._units("etc/systemd/system", "root"),
            *self._units(f"{home.lstrip('/')}/.config/systemd/user", user),
        ]
        places = ("etc/crontab", "etc/cron.d", *SPOOLS, "etc/systemd/system")
        self.is_cron_here = any(os.path.lexists(root / place) for place in places)

    @property
    def is_cron_tz_heeded(self) -> bool:
        """Whether cron is cronie, which heeds CRON_TZ; Debian's and busybox's do not."""
        return os.path.lexists(self._root / "usr/sbin/crond") and not os.path.lexists(self._root / SPOOLS[0])

    def _of_users(self) -> list[Table]:
        """The crontab of `user`, and those of others where they may be read."""
        tables = []
        own = self._from_command()
        if own is not None:
            tables.append(own)
        spool = next((self._root / place for place in SPOOLS if os.path.lexists(self._root / place)), None)
        for path in self._files(spool, is_told=False) if spool else ():
            if own is not None and path.name == self._user:
                continue
            text = self._text(path, is_told=path.name == self._user)
            if text is not None:
                tables.append(Table(self._seen(path), text, path.name))
        return tables

    def _from_command(self) -> Table | None:
        """What `crontab -l` prints: an ordinary user may not read the file itself."""
        command = shutil.which("crontab") if self._root == Path("/") else None
        if command is None:
            return None
        try:
            ended = subprocess.run(  # noqa: S603 - no shell, and no argument from outside
                [command, "-l"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CRONTAB_WAIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            self.unread.append(("crontab -l", "it does not answer"))
            return None
        if ended.returncode != 0:  # "no crontab for …", or a user who may have none
            return None
        return Table("crontab -l", _decoded(ended.stdout), self._user)

    def _of_system(self) -> list[Table]:
        paths = [self._root / "etc/crontab"] if os.path.lexists(self._root / "etc/crontab") else []
        paths += self._files(self._root / "etc/cron.d", is_told=True)
        tables = []
        for path in paths:
            text = self._text(path, is_told=True)
            if text is None:
                continue
            if path.parent.name == "cron.d" and not re.fullmatch("[A-Za-z0-9_-]+", path.name):
                if "sendonce" in text:
                    self.left_out.append(self._seen(path))
                continue
            tables.append(Table(self._seen(path), text))
        return tables

    def _units(self, folder: str, user: str) -> list[Unit]:
        place = self._root / folder
        return [
            Unit(self._seen(path), text, user, self._enabled(place, path.name))
            for path in self._files(place, is_told=False)
            if path.suffix in {".service", ".timer"} and (text := self._text(path, is_told=False)) is not None
        ]

    @staticmethod
    def _enabled(folder: Path, name: str) -> frozenset[str]:
        """The instances of a timer that some target wants; {""} for one that is no template."""
        stem, suffix = Path(name).stem, Path(name).suffix
        links: list[str] = []
        with suppress(OSError):
            links = [link.name for wants in folder.glob("*.wants") for link in wants.iterdir()]
        if not stem.endswith("@"):
            return frozenset({""} if name in links else ())
        return frozenset(
            link.removeprefix(stem).removesuffix(suffix)
            for link in links
            if link.startswith(stem) and link.endswith(suffix)
        )

    def _files(self, folder: Path, *, is_told: bool) -> list[Path]:
        try:
            return sorted(path for path in folder.iterdir() if not _is_folder(path))
        except FileNotFoundError:
            return []
        except OSError as fault:
            if is_told:
                self.unread.append((self._seen(folder), fault.strerror or "it cannot be read"))
            return []

    def _text(self, path: Path, *, is_told: bool) -> str | None:
        try:
            with open(path, "rb", opener=_not_blocking) as file:
                return _decoded(file.read(LARGEST_BYTES) or b"")
        except OSError as fault:
            if is_told:
                self.unread.append((self._seen(path), fault.strerror or "it cannot be read"))
            return None

    def _seen(self, path: Path) -> str:
        return f"/{path.relative_to(self._root)}"


def _is_folder(path: Path) -> bool:
    """Whether it is one; what cannot be looked at is told when it is read."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _not_blocking(path: str, flags: int) -> int:
    """Open a file; a FIFO among them would hold the doctor for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")
