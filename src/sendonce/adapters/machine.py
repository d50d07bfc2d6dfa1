"""What a machine is like, this one or one whose files lie below another folder: zone, users, where a folder lies."""

from __future__ import annotations

import os
import pwd
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LARGEST_SCRIPT_BYTES: Final = 64 << 10
_ZONES: Final = "usr/share/zoneinfo/"


@dataclass(frozen=True)
class Folder:
    """A folder as it lies on its machine. `file_system` is "" where it is not known; `free_inodes` None if unlimited."""

    path: str
    real_path: str
    fault: str = ""
    owner_uid: int = 0
    mode: int = 0
    file_system: str = ""
    mount_point: str = ""
    free_bytes: int = 0
    free_inodes: int | None = None


class Machine:
    """The machine below `root`. Paths go in and out as that machine sees them, not with `root` before them."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    @property
    def is_this(self) -> bool:
        """Whether it is the machine that we run on."""
        return self.root == Path("/")

    def seen(self, path: Path | str) -> str:
        """A path of ours as that machine has it; one that is not below `root` as it is."""
        text = str(path)
        if not self.is_this and (text == str(self.root) or text.startswith(f"{self.root}/")):
            return text.removeprefix(str(self.root)) or "/"
        return text

    def exists(self, path: str) -> bool:
        """Whether there is something."""
        return os.path.lexists(self.root / path.lstrip("/"))

    def real(self, path: str) -> str:
        """The path with its links followed, as far as it exists."""
        place = self.root / path.lstrip("/")
        is_elsewhere = not self.is_this and not os.path.lexists(place) and os.path.lexists(path)
        if is_elsewhere or "\0" in path:
            return path
        return self.seen(os.path.realpath(place))

    def script(self, path: str) -> str:
        """The text of a small script, "" for everything else and for what may not be read."""
        place = self.root / path.lstrip("/")
        try:
            if not place.is_file():  # a FIFO would hold the doctor for ever
                return ""
            with place.open("rb") as file:
                data = file.read(LARGEST_SCRIPT_BYTES + 1)
        except (OSError, ValueError):  # a path with a NUL
            return ""
        is_text = len(data) <= LARGEST_SCRIPT_BYTES and b"\0" not in data
        return data.decode("utf-8", "replace") if is_text else ""

    def zone(self) -> str:
        """The IANA name of its time zone, "" if it does not say."""
        try:
            target = str((self.root / "etc/localtime").readlink())
        except OSError:
            target = ""
        if _ZONES in target:
            return target.rpartition(_ZONES)[2].removeprefix("posix/")
        try:
            return (self.root / "etc/timezone").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def home_of(self, user: str) -> str | None:
        """The home folder of a user, None if there is no such user."""
        if self.is_this:  # users may be kept elsewhere than in the file
            try:
                return pwd.getpwnam(user).pw_dir
            except (KeyError, ValueError):  # a name with a NUL
                return None
        return self._homes().get(user)

    def _homes(self) -> dict[str, str]:
        try:
            text = (self.root / "etc/passwd").read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        rows = (line.split(":") for line in text.splitlines())
        return {"root": "/root", **{row[0]: row[5] for row in rows if len(row) >= len(_PASSWD)}}

    def folder(self, path: Path) -> Folder:
        """Look at a folder. What stands in the way is its `fault`."""
        shown = self.seen(path)
        real = self.seen(os.path.realpath(path))
        kind, point = self._mount(real)
        try:
            found = path.stat()
            room = os.statvfs(path)
        except OSError as fault:
            return Folder(shown, real, fault=fault.strerror or "it cannot be read")
        if not stat.S_ISDIR(found.st_mode):
            return Folder(shown, real, fault="it is not a folder")
        return Folder(
            shown,
            real,
            owner_uid=found.st_uid,
            mode=stat.S_IMODE(found.st_mode),
            file_system=kind,
            mount_point=point,
            free_bytes=room.f_bavail * room.f_frsize,
            free_inodes=room.f_favail if room.f_files else None,
        )

    def _mount(self, path: str) -> tuple[str, str]:
        """The type of the file system that a path lies on, and where that is mounted."""
        try:
            text = (self.root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "", ""
        best = ("", "")
        for line in text.splitlines():
            before, _, after = line.partition(" - ")
            fields, kind = before.split(), after.split()
            if len(fields) < len(_MOUNT) or not kind:
                continue
            point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
            is_above = path == point or path.startswith(point.rstrip("/") + "/")
            if is_above and len(point) >= len(best[1]):  # of two at one place the later one is what is seen
                best = (kind[0], point)
        return best


_PASSWD: Final = ("name", "password", "uid", "gid", "comment", "home")
_MOUNT: Final = ("id", "parent", "device", "root", "point")
