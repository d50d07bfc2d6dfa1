"""A desk whose commands are run by an ordinary user, whom file modes bind, even where the tests run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sendonce
from support.runs import Desk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.sandbox import Sandbox

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
US = NOBODY if IS_ROOT else os.geteuid()
"""The user id of an ordinary desk's commands."""
AS_US: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if IS_ROOT else {}

_UNUSED = shutil.ignore_patterns(
    "test", "tests", "site-packages", "config-*", "idlelib", "lib2to3", "tkinter", "ensurepip"
)


@dataclass(frozen=True)
class Python:
    """An interpreter, and the environment that it needs."""

    path: str
    needs: Mapping[str, str] = field(default_factory=dict)

    def runs_for_us(self) -> bool:
        """Whether the ordinary user can run it, and finds the project and its packages."""
        command = [sys.executable, "-c", "import sendonce.cli, sendonce.adapters.mailchimp.api"]
        env = {"PATH": "/usr/bin:/bin", **self.needs}
        try:
            tried = subprocess.run(
                command,
                executable=self.path,
                env=env,
                cwd="/",
                stderr=subprocess.DEVNULL,
                check=False,
                **AS_US,
            )
        except OSError:
            return False
        return tried.returncode == 0


@contextmanager
def python_for_all() -> Iterator[Python | None]:
    """Find an interpreter that an ordinary user can run too, or make one meanwhile; None if there is no way."""
    if (own := Python(sys.executable)).runs_for_us():
        yield own
        return
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        home.chmod(0o755)
        linked = _linked_python(home)
        yield linked if linked.runs_for_us() else None


def _linked_python(home: Path) -> Python:
    """The same interpreter in a place where all may go: its own may be in a folder of root's, as with pyenv."""
    base, program = Path(sys.base_prefix), Path(sys.executable).resolve()
    for file in (program, *base.glob("lib/libpython*.so*")):
        _link(str(file), str(home / file.relative_to(base)))
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(base / library, home / library, copy_function=_link, ignore=_UNUSED)
    packages = {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        str(Path(sendonce.__file__).parents[1]),
    }
    return Python(
        str(home / program.relative_to(base)),
        {
            "PYTHONHOME": str(home),
            "PYTHONPATH": os.pathsep.join(sorted(packages)),
            "LD_LIBRARY_PATH": str(home / "lib"),
        },
    )


def _link(source: str, target: str) -> None:
    """A second name costs nothing; another file system needs a copy."""
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class OrdinaryDesk(Desk):
    """A desk of an ordinary user; of nobody, when the tests are root."""

    def __init__(self, folder: Path, sandbox: Sandbox, python: Python) -> None:
        super().__init__(folder, sandbox)
        self._python = python
        self.give()

    def start(
        self, *arguments: str, environ: Mapping[str, str] | None = None, **how: Any
    ) -> subprocess.Popen[str]:
        """Start a command as that user."""
        environ = {**self._python.needs, **(environ or {})}
        return super().start(*arguments, environ=environ, executable=self._python.path, **AS_US, **how)

    def give(self) -> None:
        """Let everything here belong to that user."""
        if IS_ROOT:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
