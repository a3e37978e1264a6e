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

from reaper.cli import exits
from reaper.errors import UsageError

NAME = "demo"
HELP = "see it work in a minute, on this machine alone"
EXAMPLES = """\
examples:
  reaper demo                     a live table; under a minute, no account and no GPU needed
  reaper demo | cat               a line an event
  reaper demo --json              a JSON object an event; the last line is the summary
  reaper demo --svg demo.svg      the final screen as a picture, too

exit codes: 0 exactly the right machines were stopped, 1 not so, 2 moto is not installed, 130 interrupted
"""
LOG_LEVEL = "error"  # the daemon's log would talk over the story, which tells the same

TERMINATED = 143


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="every event as one JSON object a line; the last line is the summary")
    parser.add_argument("--svg", metavar="PATH", help="write the final screen as SVG to PATH")


def run(args: argparse.Namespace) -> int:
    """Raises UsageError for a picture that cannot be written, ReaperError when the demo cannot even begin."""
    from reaper.demo.events import Screen  # the demo loads nearly everything, which --help does not need
    from reaper.demo.local_ec2 import NotInstalled
    from reaper.demo.play import play
    from reaper.demo.screens import JsonLines, LiveTable, PlainLines, Recorder

    live = LiveTable() if sys.stdout.isatty() and not args.json else None
    screen: Screen = live or (JsonLines() if args.json else PlainLines())
    if args.svg is not None:
        screen = Recorder(screen, _writable(Path(args.svg)))
    try:
        with _first_signal_only(), live or nullcontext():
            return exits.DONE if play(screen).good else exits.FAILED
    except NotInstalled as error:
        raise UsageError(str(error)) from error
    except _Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        print("interrupted; nothing is left behind", file=sys.stderr)
        return exits.INTERRUPTED


def _writable(path: Path) -> Path:
    """Told now and not after a minute."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"--svg {path} cannot be written: name a file in a folder that exists")
    return path


class _Terminated(BaseException):
    """SIGTERM, on its way out through everything that cleans up."""


@contextmanager
def _first_signal_only() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the demo; a second one would only break off its cleaning up, and is ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else _Terminated

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
