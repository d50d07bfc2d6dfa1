"""The power fails at any point of a write: the ledger that is found afterwards is the old one or the new one.

And once a write has returned it is the new one: that "about to send" is on the disk is what the POST relies on.
"""

from __future__ import annotations

import ast
import sys
from datetime import UTC, datetime
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sendonce.adapters import stores
from sendonce.adapters.clock import SystemClock
from sendonce.core.model import Batch, Entry, Reset, State
from support import tally
from support.lossy_disk import FORCES, Disk, Event, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from sendonce.adapters.stores import FileLedger

DAY = "2026-01-05"
API = "us19.api.mailchimp.com"
AT_EIGHT = datetime(2026, 1, 5, 8, tzinfo=UTC)
MADE = Entry("c1", "daily 2026-01-05 [5e0e96f7]")
ASKED = Entry("c1", "daily 2026-01-05 [5e0e96f7]", requested_at=AT_EIGHT)
A_DAY = (
    Batch(DAY, State.PLANNED, nonce="5e0e96f7"),
    Batch(DAY, State.PLANNED, nonce="5e0e96f7", campaigns=(MADE,)),
    Batch(DAY, State.READY, nonce="5e0e96f7", campaigns=(MADE,)),
    Batch(DAY, State.SENDING, nonce="5e0e96f7", campaigns=(ASKED,)),
    Batch(DAY, State.SENT, nonce="5e0e96f7", campaigns=(ASKED,)),
)
FILES_OF_A_WRITE = 2
"""The copy of the old ledger, and the new one."""


class Ours:
    def is_ours(self) -> bool:
        return True


class Write(NamedTuple):
    """One write of the ledger: the disk before it and what happened to it."""

    ledger: Path
    before: dict[Path, bytes]
    events: list[Event]
    after: dict[Path, bytes]

    @property
    def backup(self) -> Path:
        return self.ledger.with_name("daily.json.bak")

    def without(self, nth: int) -> Write:
        """Take the nth call out, by which something is forced to the disk."""
        forced = [at for at, event in enumerate(self.events) if event.what in FORCES][nth]
        return self._replace(events=[*self.events[:forced], *self.events[forced + 1 :]])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "disk" / "state"
    folder.mkdir(mode=0o700, parents=True)
    return folder


def files_below(folder: Path) -> dict[Path, bytes]:
    """All files but the guards, which are never written to."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.suffix != ".guard"
    }


def open_ledger(path: Path, module: ModuleType = stores) -> FileLedger:
    made: FileLedger = module.FileLedger(path, job="daily", api=API, claim=Ours(), clock=SystemClock())
    return made


def watched(path: Path, write: Callable[[], object]) -> Write:
    """Do a real write of the ledger at `path`, and tell what it did to the disk."""
    disk = path.parents[1]
    before, recorder = files_below(disk), Recorder(disk)
    with recorder.recording():
        write()
    seen = Write(path.resolve(), before, recorder.events, files_below(disk))
    replayed = Disk(before)
    for event in seen.events:
        replayed.happen(event)
    assert replayed.now() == seen.after, "something was done to the disk that the recorder does not know of"
    return seen


def a_days_writes(path: Path, module: ModuleType = stores) -> list[Write]:
    """The writes of a day."""
    store = open_ledger(path, module)
    page = store.load(DAY)
    writes = []
    for batch in A_DAY:

        def save(batch: Batch = batch) -> None:
            nonlocal page
            page = store.save(page, batch)

        writes.append(watched(path, save))
    return writes


def faults_of(write: Write, backup: Path | None = None) -> list[str]:
    """What a power cut at any point of the write, and after it, may spoil; nothing, it is hoped."""
    ledger, backup = write.ledger, backup or write.backup
    old, new = write.before.get(ledger), write.after[ledger]
    older, old_as_backup = write.before.get(backup), write.after.get(backup)
    # the copy is there before the ledger is replaced
    allowed = {(old, older), (old, old_as_backup), (new, old_as_backup)}
    disk, faults = Disk(write.before), []
    for number, event in enumerate([None, *write.events]):
        if event is not None:
            disk.happen(event)
        if number == len(write.events):
            allowed = {(new, old_as_backup)}
        for found in disk.after_a_cut([ledger, backup]):
            if (pair := (found.get(ledger), found.get(backup))) not in allowed:
                faults.append(f"after {event} the ledger and its copy may be {pair}")
    return faults


# ------------------------------------------------------------------------------------------------- the promise


def test_after_a_power_cut_the_ledger_is_the_old_one_or_the_new_one(state: Path) -> None:
    writes = a_days_writes(state / "daily.json")

    assert [faults_of(write) for write in writes] == [[]] * len(A_DAY)
    # a write: its temporary file made, written, forced, renamed, its folder forced; before it the same for the copy
    assert [sum(event.what in FORCES for event in write.events) for write in writes] == [2, 4, 4, 4, 4]
    assert all(write.after[write.ledger] != write.before.get(write.ledger) for write in writes)


def test_a_ledger_behind_a_link_survives_a_power_cut_like_any_other(state: Path) -> None:
    volume = state.with_name("volume")
    volume.mkdir()
    (volume / "real.json").write_bytes(a_days_writes(state / "daily.json")[0].after[state / "daily.json"])
    for file in state.iterdir():
        file.unlink()
    (state / "daily.json").symlink_to(volume / "real.json")
    store = open_ledger(state / "daily.json")

    write = watched(state / "daily.json", lambda: store.save(store.load(DAY), A_DAY[1]))

    assert write.ledger == volume / "real.json"
    assert faults_of(write, state / "daily.json.bak") == []


def test_a_reset_survives_a_power_cut_like_any_other_write(state: Path) -> None:
    path = state / "daily.json"
    a_days_writes(path)
    store = open_ledger(path)
    page = store.load(DAY)

    write = watched(path, lambda: store.reset(page, Reset(DAY, AT_EIGHT, "root@web1", "wrong list", {})))

    assert faults_of(write) == []


def test_a_rebuild_keeps_the_old_ledger_before_it_replaces_it_whenever_the_power_fails(state: Path) -> None:
    path = state / "daily.json"
    a_days_writes(path)
    path.write_bytes(b"{ damaged")

    write = watched(path, lambda: open_ledger(path).rebuild([A_DAY[-1]]))

    [kept] = set(write.after) - set(write.before)
    assert kept.name.startswith("daily.json.replaced-")
    assert faults_of(write, kept) == []


# ------------------------------------------------------------------------------------- the run after the power cut


def test_whatever_a_power_cut_leaves_the_next_run_reads_it_and_writes_over_it(
    state: Path, tmp_path: Path
) -> None:
    writes = a_days_writes(state / "daily.json")
    read = 0
    for write, batch in zip(writes, A_DAY, strict=True):
        disk = Disk(write.before)
        for event in write.events:
            disk.happen(event)
            for wreck in disk.after_a_cut():
                _goes_on(tmp_path / "found" / str(read), wreck, write, batch)
                read += 1
    tally.add("power cuts of a ledger", runs=read)
    # a file is not there or empty (2), or cut, full of NULs or whole (5), or forced (2); renamed or not, with either
    # name or both (4), and that forced (1); nine files are written
    assert read == 14 * 9


def _goes_on(folder: Path, wreck: dict[Path, bytes], write: Write, batch: Batch) -> None:
    """Read what was found, save over it, and leave nothing of it behind."""
    state = folder / "state"
    state.mkdir(mode=0o700, parents=True)
    for path, data in wreck.items():
        (state / path.name).write_bytes(data)
        (state / path.name).chmod(0o600)
    store = open_ledger(state / "daily.json")
    page = store.load(DAY)
    before = A_DAY[A_DAY.index(batch) - 1] if write.before else Batch(DAY, State.NONE)
    assert page.batch in {before, batch}
    store.save(page, batch)
    # the name of a temporary file is always the same: the next write that needs it removes what is left of it
    store.save(store.load(DAY), batch)
    assert store.load(DAY).batch == batch
    assert {path.name for path in state.iterdir()} == {"daily.json", "daily.json.bak", "daily.json.guard"}


# ------------------------------------------------------------------------------------ wrong stores must be caught


@pytest.mark.parametrize("nth", range(2 * FILES_OF_A_WRITE))
def test_a_write_that_forces_one_thing_less_to_the_disk_is_caught(state: Path, nth: int) -> None:
    for write in a_days_writes(state / "daily.json")[1:]:
        assert faults_of(write.without(nth)) != []


MUTANTS = {
    "the file is not forced": ("_write_new", "os.fsync(fd)"),
    "the folder is not forced": ("_force_folder", "os.fsync(fd)"),
    "the folder is not looked at": ("_put", "_force_folder(target.parent)"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_store_without_an_fsync_is_caught(
    state: Path, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = module_from_spec(ModuleSpec("stores_without_an_fsync", None))
    monkeypatch.setitem(sys.modules, wrong.__name__, wrong)  # where dataclasses look for it
    exec(compile(_source_without(*MUTANTS[mutant]), wrong.__name__, "exec"), vars(wrong))

    assert all(faults_of(write) != [] for write in a_days_writes(state / "daily.json", wrong))


def test_a_store_that_writes_into_the_ledger_itself_is_caught(state: Path) -> None:
    ledger = state / "daily.json"
    before, after = {ledger: b"old"}, {ledger: b"new"}
    steps = [Event("unlink", ledger), Event("create", ledger, file=1), Event("write", file=1, data=b"new")]
    forced = [Event("fsync", file=1), Event("fsync folder", state)]

    assert faults_of(Write(ledger, before, [*steps, *forced], after)) != []


def _source_without(function: str, call: str) -> ast.Module:
    """The source of the store, in which a function does not make a call."""
    tree = ast.parse(Path(stores.__file__).read_text())
    [found] = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    left_out = _LeftOut(call)
    left_out.visit(found)
    assert left_out.count == 1, f"{function} makes the call {call} {left_out.count} times"
    return ast.fix_missing_locations(tree)


class _LeftOut(ast.NodeTransformer):
    def __init__(self, call: str) -> None:
        self._call = call
        self.count = 0

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if ast.unparse(node) != self._call:
            return node
        self.count += 1
        return ast.Pass()
