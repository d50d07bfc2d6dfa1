"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import hypothesis
import pytest

from support import servers, tally
from support.runs import Desk
from support.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# no deadline: how long an example takes says something of the machine; the same examples each time in CI
hypothesis.settings.register_profile("sendonce", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("sendonce")

MAY_CHANGE_THE_MACHINE = os.environ.get("SENDONCE_TEST_SYSTEM") == "1"


def pytest_xdist_auto_num_workers() -> int:
    """Two for each processor: most tests wait, for a lease, an answer or a process, more than they compute."""
    return 2 * (os.cpu_count() or 1)


def pytest_configure(config: pytest.Config) -> None:
    """Have all worker processes count their fault runs in one place, and share one server of each kind."""
    # nohup, and a shell's `&`, hand ignored signals down to every command under test, which would heed it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        tally.begin()
        servers.begin()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what all the fault runs came to."""
    if said := tally.total():
        terminalreporter.write_line(said, bold=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The counting ends with the session, and so do the servers, also after Ctrl-C."""
    if not hasattr(config, "workerinput"):
        servers.end()
        tally.end()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A newcomer's pytest changes nothing on their machine, and takes minutes, not an hour."""
    is_full = "full" in config.option.markexpr or os.environ.get("SENDONCE_TEST_FULL") == "1"
    is_wide = is_full or os.environ.get("SENDONCE_TEST_WIDE") == "1"
    left_out = {"full": not is_full, "wide": not is_wide}
    for item in items:
        if _is_the_same_once_more(item):
            item.add_marker("wide")
    items[:] = [
        item
        for item in items
        if not any(is_out and item.get_closest_marker(name) for name, is_out in left_out.items())
    ]
    if "live" not in config.option.markexpr:
        items[:] = [item for item in items if item.get_closest_marker("live") is None]
    skip = pytest.mark.skip(reason="changes the machine: set SENDONCE_TEST_SYSTEM=1 (as .ci/run does)")
    for item in items:
        if item.get_closest_marker("system") is not None and not MAY_CHANGE_THE_MACHINE:
            item.add_marker(skip)


def _is_the_same_once_more(item: pytest.Item) -> bool:
    """A process test on another server or of another source than one that always runs.

    `replicate` differs from `html` in where its content comes from; MariaDB is the third SQL server, and no wheel
    brings it.
    """
    if "mariadb" in item.name:
        return True
    is_of_replicate = "/process/" in item.nodeid and "replicate" in item.name
    of_servers = ("test_several_servers", "test_store_faults", "test_recipients_contract")
    is_of_servers = any(name in item.nodeid for name in of_servers)
    is_of_postgresql = is_of_servers and "postgresql" in item.name
    # a death at each system call of a draft is the newcomer's; the longer way of a created campaign is CI's
    is_long_sweep = (
        any(f in item.nodeid for f in ("test_syscall_sweep", "test_repair")) and "[html" in item.name
    )
    # the doctor on PostgreSQL is the newcomer's
    is_of_doctor = "test_doctor" in item.nodeid and ("redis" in item.name or "[html" in item.name)
    return is_of_replicate or is_of_postgresql or is_long_sweep or is_of_doctor


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A sandbox of its own, in its own process."""
    with Sandbox(audience=5, sending=0.2) as running:
        yield running


@pytest.fixture
def desk(tmp_path: Path, sandbox: Sandbox) -> Desk:
    """A job with a draft source; today's draft is not made yet."""
    return Desk(tmp_path / "desk", sandbox)


@pytest.fixture
def make_desk(tmp_path: Path, sandbox: Sandbox) -> Callable[..., Desk]:
    """Jobs with a source and settings of one's choice."""
    made: list[Desk] = []

    def make(source: str = "draft", **settings: str) -> Desk:
        made.append(Desk(tmp_path / f"desk{len(made)}", sandbox, source, **settings))
        return made[-1]

    return make
