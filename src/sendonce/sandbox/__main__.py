"""`python -m sendonce.sandbox`: print the base URL, then serve until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

from sendonce.core.errors import Unusable
from sendonce.sandbox.account import Settings, Setup
from sendonce.sandbox.server import serve

_UNUSABLE = 78


def main() -> int:
    """Serve; 0 when stopped, 78 if the port cannot be had."""
    options = _parser().parse_args()
    settings = Settings(
        listing_lag_s=options.listing_lag,
        status_lag_s=options.status_lag,
        sending_s=options.sending,
        recipients_ready_s=options.recipients_ready,
        clock_offset_s=options.clock_offset,
        api_key=options.api_key,
    )
    setup = Setup(members=options.audience, drafts=tuple(options.draft), settings=settings)
    if options.until_eof:
        threading.Thread(target=_stop_at_eof, daemon=True).start()
    try:
        serve(options.port, ready=_say, setup=setup)
    except Unusable as error:
        sys.stderr.write(f"{error}\n")
        return _UNUSABLE
    return 0


def _say(base_url: str) -> None:
    sys.stdout.write(f"{base_url}\n")
    sys.stdout.flush()


def _stop_at_eof() -> None:
    """Stop when nobody holds the other end of standard input any more: a test run may be killed."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sendonce.sandbox", description="A local stand-in for Mailchimp."
    )
    add = parser.add_argument
    add("--port", type=int, default=0, help="port on 127.0.0.1 (default: any free one)")
    add("--audience", type=int, default=100, metavar="N", help="members of the audience (default: 100)")
    add("--draft", action="append", default=[], metavar="TITLE", help="a finished draft; repeatable")
    add("--api-key", default="", metavar="KEY", help="the only key accepted (default: any)")
    add("--until-eof", action="store_true", help="stop at the end of standard input, too")
    seconds = {
        "--listing-lag": ("listings miss a new campaign for so long", 0.0),
        "--status-lag": ("reads show the old status after a send for so long", 0.0),
        "--sending": ("how long a send stays in `sending`", 0.5),
        "--recipients-ready": ("how long a new campaign says `recipients not ready`", 0.0),
        "--clock-offset": ("how far its clock is ahead", 0.0),
    }
    for name, (meaning, default) in seconds.items():
        add(name, type=float, default=default, metavar="S", help=f"{meaning} (default: {default} s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
