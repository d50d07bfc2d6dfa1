"""Fixtures for tests of whole commands."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.ordinary_desk import OrdinaryDesk, Python, python_for_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.sandbox import Sandbox


@pytest.fixture(scope="session")
def ordinary_python() -> Iterator[Python]:
    """An interpreter that an ordinary user can run."""
    with python_for_all() as python:
        if python is None:
            pytest.skip("an ordinary user cannot run this Python, or not read the project")
        yield python


@pytest.fixture
def ordinary_desk(sandbox: Sandbox, ordinary_python: Python) -> Iterator[OrdinaryDesk]:
    """A job with a draft source, of an ordinary user; today's draft is not made yet."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # pytest's own are for us alone
        yield OrdinaryDesk(folder / "desk", sandbox, ordinary_python)
