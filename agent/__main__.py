"""The command `reaper-agent`: run the agent, show what it last saw and sent, keep the machine, or find out what it cannot see."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Callable, Optional, Sequence

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Entry point of `reaper-agent`. Returns the exit code. Each command loads what it needs and no more."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["run"]:  # as the service runs it: the parser would stay in memory for good
        return _run(None, once=False)
    from agent.arguments import parse

    arguments = parse(words)
    if arguments.command == "doctor":
        from agent import doctor

        return doctor.command(arguments.config, arguments.json)
    if arguments.command == "keep":
        from agent import keep

        return _with_settings(
            arguments.config, lambda settings: keep.keep(settings, arguments.span, arguments.reason, arguments.off, arguments.json), or_usual=True
        )
    if arguments.command == "status":
        from agent import status

        return _with_settings(arguments.config, lambda settings: status.status(settings, arguments.json))
    return _run(arguments.config, arguments.once)


def _run(config: "Optional[Path]", once: bool) -> int:
    gc.disable()  # while all is loaded there is nothing to collect; `running.run` turns it on again
    from agent import running

    return _with_settings(config, lambda settings: running.run(settings, once))


def _with_settings(path: "Optional[Path]", command: "Callable[[Settings], int]", or_usual: bool = False) -> int:
    """``or_usual``: the usual places do where nobody named settings and they cannot be read, since whoever is logged in may ask."""
    from agent.config import ConfigError, Settings, load
    from agent.exits import refuse

    try:
        settings = load(path)
    except ConfigError as error:
        if path is not None or not or_usual:
            return refuse(error)
        settings = Settings(reaper="")
    return command(settings)


if __name__ == "__main__":
    sys.exit(main())
