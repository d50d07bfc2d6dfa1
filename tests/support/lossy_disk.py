"""A disk that keeps, when the power fails, what was forced to it; of everything else some, or nothing.

A `Recorder` notes the calls by which real code changes real folders. A `Disk` replays them, and tells at any point
what may be found there after a power cut: the content of a file and the entries of a folder are on the disk for
certain once each of them was forced (fsync). Before that a file may be empty, cut, filled with NULs or whole, and each
name may stand for what it stood for at any time since its folder was forced, whatever the other names do.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FORCES = frozenset({"fsync", "fsync folder"})


@dataclass(frozen=True)
class Event:
    """A call that has changed the disk, or forced something to it.

    `create` makes the file number `file` under `path`, `write` appends to it, `fsync` forces its content. `rename` is
    from `path` to `target`; `unlink` and `fsync folder` are about `path`.
    """

    what: str
    path: Path = Path()
    target: Path = Path()
    file: int = 0
    data: bytes = b""


class Recorder:
    """Notes what happens below a folder while `recording`, in `events`."""

    def __init__(self, below: Path) -> None:
        self._below = below
        self.events: list[Event] = []
        self._open: dict[int, int | Path] = {}
        self._files = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Replace what module os has for changing a disk, for so long. Not for threads."""
        made: dict[str, Callable[..., None]] = {
            "open": self._on_open,
            "write": self._on_write,
            "fsync": self._on_fsync,
            "replace": self._on_rename,
            "rename": self._on_rename,
            "unlink": self._on_unlink,
            "remove": self._on_unlink,
        }
        real = {name: getattr(os, name) for name in made}
        try:
            for name, on in made.items():
                setattr(os, name, self._calling(real[name], on))
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    @staticmethod
    def _calling(real: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            note(result, *arguments)
            return result

        return noted

    def _is_ours(self, path: Path) -> bool:
        return self._below in path.parents

    def _on_open(self, descriptor: int, path: Any, flags: int, _mode: int = 0) -> None:
        self._open.pop(descriptor, None)
        place = Path(path)
        if not self._is_ours(place):
            return
        if place.is_dir():
            self._open[descriptor] = place
        elif flags & os.O_EXCL:
            self._files += 1
            self._open[descriptor] = self._files
            self.events.append(Event("create", place, file=self._files))

    def _on_write(self, written: int, descriptor: int, data: Any) -> None:
        if isinstance(file := self._open.get(descriptor), int):
            self.events.append(Event("write", file=file, data=bytes(data[:written])))

    def _on_fsync(self, _: None, descriptor: int) -> None:
        match self._open.get(descriptor):
            case int() as file:
                self.events.append(Event("fsync", file=file))
            case Path() as folder:
                self.events.append(Event("fsync folder", folder))
            case None:
                pass

    def _on_rename(self, _: None, source: Any, target: Any) -> None:
        self.events.append(Event("rename", Path(source), Path(target)))

    def _on_unlink(self, _: None, path: Any) -> None:
        self.events.append(Event("unlink", Path(path)))


class Disk:
    """Folders with files of known content, and what may be left of later changes when the power fails."""

    def __init__(self, files: dict[Path, bytes]) -> None:
        numbers = {path: -1 - n for n, path in enumerate(files)}
        self._contents = {numbers[path]: [data] for path, data in files.items()}
        self._entries: dict[Path, list[int | None]] = {path: [number] for path, number in numbers.items()}

    def happen(self, event: Event) -> None:
        """Let one recorded call happen."""
        match event.what:
            case "create":
                self._contents[event.file] = [b""]
                self._names(event.path).append(event.file)
            case "write":
                before = self._contents[event.file]
                whole = before[-1] + event.data
                self._contents[event.file] = [*before, whole[: len(whole) // 2], bytes(len(whole)), whole]
            case "fsync":
                self._contents[event.file] = self._contents[event.file][-1:]
            case "rename":
                self._names(event.target).append(self._names(event.path)[-1])
                self._names(event.path).append(None)
            case "unlink":
                self._names(event.path).append(None)
            case "fsync folder":
                for path, values in self._entries.items():
                    if path.parent == event.path:
                        values[:] = values[-1:]
            case _:
                raise AssertionError(event)

    def _names(self, path: Path) -> list[int | None]:
        return self._entries.setdefault(path, [None])

    def after_a_cut(self, paths: Iterable[Path] = ()) -> list[dict[Path, bytes]]:
        """Everything that may be found after a power cut now: the content of each file that is there.

        Of the `paths` named, or of all there ever were.
        """
        wanted = list(paths) or list(self._entries)
        found = []
        for numbers in product(*(dict.fromkeys(self._names(path)) for path in wanted)):
            files = sorted({number for number in numbers if number is not None})
            for contents in product(*(dict.fromkeys(self._contents[file]) for file in files)):
                held = dict(zip(files, contents, strict=True))
                pairs = zip(wanted, numbers, strict=True)
                found.append({path: held[number] for path, number in pairs if number is not None})
        return found

    def now(self) -> dict[Path, bytes]:
        """What is there as long as the power is on."""
        last = {path: values[-1] for path, values in self._entries.items()}
        return {path: self._contents[file][-1] for path, file in last.items() if file is not None}
