"""How a run is ended from outside: a signal, or its own deadline."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from sendonce.core.errors import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LAST_WORDS_S = 30
"""How long a run past its deadline may take to record and release; a stalled disk or server must not hold it."""
NO_WORDS = (
    b"This run was ended by its own deadline, and could not record or say what it had done: its disk or server does not "
    b"answer. Run again, that is safe: Mailchimp is asked first.\n"
)


class Signals:
    """The signals that end a run, while `stop_on_signals` is in force."""

    def __init__(self) -> None:
        # one that whoever started us ignores (nohup) stays ignored
        self._before = {s: h for s in ENDING_SIGNALS if (h := signal.getsignal(s)) is not signal.SIG_IGN}
        for number in self._before:
            signal.signal(number, self._stop)

    def ignore(self) -> None:
        """From here on the run is ending anyway, and must not be cut while it cleans up."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Put back what was there."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _: FrameType | None) -> None:
        self.ignore()
        raise Stopped(signal.Signals(number).name)


@contextmanager
def stop_on_signals() -> Iterator[Signals]:
    """SIGTERM, SIGINT and SIGHUP raise Stopped in the main thread, the first of them once."""
    signals = Signals()
    try:
        yield signals
    finally:
        signals.restore()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put off SIGTERM, SIGINT and SIGHUP until this is over: for what must not break off at just any line.

    Python runs handlers in the main thread whichever thread the kernel picked, and the lease's heartbeat
    leaves it a choice, so blocking the signals in this thread would not do: the handlers are put off.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    try:
        with ExitStack() as stack:
            for number in ENDING_SIGNALS:
                handler = signal.getsignal(number)
                if handler not in {signal.SIG_IGN, None}:
                    stack.callback(signal.signal, number, handler)
                    signal.signal(number, lambda received, _frame: came.append(received))
            yield
    finally:
        for received in came:
            signal.raise_signal(received)


@contextmanager
def deadline(seconds: float, last_words: Callable[[], None], exit_code: int) -> Iterator[None]:
    """End the process with `exit_code` after so many seconds, whatever the main thread hangs in.

    `last_words` is called on a thread of its own before, and is not waited for longer than 30 s, which is more
    than a ledger write and the release of a lease may take.
    """

    def end() -> None:
        words = threading.Thread(target=last_words, daemon=True)
        words.start()
        words.join(LAST_WORDS_S)
        if words.is_alive():
            with suppress(OSError):
                os.write(2, NO_WORDS)
        os._exit(exit_code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
