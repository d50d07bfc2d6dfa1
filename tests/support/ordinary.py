"""What root may do and others may not, seen by an ordinary user even where the tests run as root."""

from __future__ import annotations

import codecs
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import filelock  # noqa: F401 - see below

from sendonce.adapters import lease, stores  # noqa: F401 - see below

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534

# Python and its packages may lie where only root can read. What the code under test imports late has to be there
# before root is given up, and a codec that was looked for in vain is never looked for again.
codecs.lookup("ascii")


@contextmanager
def ordinary_user_and_folder() -> Iterator[Path]:
    """Make a folder of ours, and be an ordinary user meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.geteuid() != 0:
            yield folder
            return
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(0)


@contextmanager
def root_for_a_moment() -> Iterator[None]:
    """Be root again within `ordinary_user_and_folder`, to leave something there that is not ours."""
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(NOBODY)
