"""
`reaper demo`: a dozen machines in a local EC2 API, and which of them are stopped.

No account, no GPU, no compiler. Nothing outside a temporary folder is written, and that is removed.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

NAME = "demo"
HELP = "watch it find and stop idle machines, in a local EC2 API"
EXAMPLES = """\
examples:
  reaper demo                     a live table; under a minute, no account and no GPU needed
  reaper demo | cat               a line an event
  reaper demo --json              a JSON object an event; the last line is the summary
  reaper demo --svg demo.svg      the final screen as a picture, too

exit codes: 0 exactly the right machines were stopped, 1 not so, 2 moto is not installed, 130 interrupted
"""

DONE, FAILED, USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="every event as one JSON object a line; the last line is the summary")
    parser.add_argument("--svg", metavar="PATH", help="write the final screen as SVG to PATH")


def run(args: argparse.Namespace) -> int:
    """Raises ReaperError when the demo cannot even begin."""
    from reaper.demo.local_ec2 import NotInstalled  # the demo loads nearly everything, which --help does not need
    from reaper.demo.play import play
    from reaper.demo.screens import JsonLines, LiveTable, PlainLines, Recorder
    from reaper.demo.events import Screen

    live = LiveTable() if sys.stdout.isatty() and not args.json else None
    screen: Screen = live or (JsonLines() if args.json else PlainLines())
    if args.svg is not None:
        screen = Recorder(screen, Path(args.svg))
    try:
        with _quiet_log(), _terminated_like_interrupted(), live or nullcontext():
            return DONE if play(screen).good else FAILED
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return USAGE
    except _Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        print("interrupted; everything is cleaned up", file=sys.stderr)
        return INTERRUPTED


class _Terminated(BaseException):
    """SIGTERM, on its way out through everything that cleans up."""


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Only errors: the daemon's log would talk over the story, which tells the same."""
    import structlog

    from reaper import log

    configured, before = structlog.is_configured(), structlog.get_config()
    log.configure("error")
    try:
        yield
    finally:
        structlog.configure(**before) if configured else structlog.reset_defaults()
