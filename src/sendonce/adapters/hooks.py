"""Commands of the user's own, told how a run ended."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT_S: Final = 60
_OURS: Final = ("MAILCHIMP_", "SENDONCE_")


def call(command: Sequence[str], told: str, environ: Mapping[str, str]) -> str:
    """Run a command, without a shell, with `told` on its standard input. What went wrong, as a phrase; "" if nothing.

    Its environment is `environ` without our settings: the key is none of its business. After 60 s it is killed with
    all that it started. What it prints goes where ours goes. Never raises for what a command can do.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, from the user's own settings
            command, stdin=subprocess.PIPE, env=kept, cwd="/", start_new_session=True
        )
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or "it cannot be started"
    try:
        process.communicate(told.encode(), timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"it did not end within {TIMEOUT_S} s and was killed"
    except OSError as error:
        return error.strerror or "it could not be told"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left running in the background
        process.wait()
    code = process.returncode
    return "" if code == 0 else f"it ended with {code}" if code > 0 else f"it was ended by signal {-code}"
