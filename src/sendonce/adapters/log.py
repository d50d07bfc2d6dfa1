"""What a run did, event by event: into the log file, and to the terminal with `-v`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class Log:
    """Satisfies core.ports.Witness. `warnings` are kept for whoever reports at the end."""

    def __init__(
        self,
        *,
        run: str,
        path: str,
        now: Callable[[], datetime],
        talk: Callable[[str], None] | None,
        is_json: bool = False,
    ) -> None:
        self._run, self._path, self._now, self._talk = run, path, now, talk
        self._is_json = is_json
        self.warnings: list[str] = []

    def note(self, event: str, **facts: object) -> None:
        """One event, one line. Never raises."""
        text = " ".join([event, *(f"{name}={_plain(value)}" for name, value in facts.items())])
        if self._talk is not None:
            self._talk(text)
        if self._path:
            at = f"{self._now():%Y-%m-%dT%H:%M:%SZ}"
            parts = {"at": at, "run": self._run, "event": event, **facts}
            line = (
                json.dumps(parts, default=str) if self._is_json else f"{at} run={self._run} {_one_line(text)}"
            )
            self._append(f"{line}\n")

    def warn(self, message: str) -> None:
        """A warning: a line in the log, and kept for the end of the run."""
        self.warnings.append(message)
        self.note("warning", said=message)

    def _append(self, line: str) -> None:
        try:
            # opened anew for each line: logrotate may have moved the file away since the last one;
            # not blocking: a FIFO in its place must not hold the run
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            fd = os.open(self._path, flags, 0o600)
            try:
                os.write(fd, line.encode("utf-8", "backslashreplace"))
            finally:
                os.close(fd)
        except OSError as fault:
            path, self._path = self._path, ""
            self.warnings.append(
                f"The log {path} cannot be written ({fault.strerror}); the run goes on without."
            )


def _plain(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "\\=') else text


def _one_line(text: str) -> str:
    """Control characters would forge lines, or drive the terminal of whoever reads the log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
