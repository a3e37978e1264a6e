"""What every command understands: where configuration and state are, and how to talk."""

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

STATE_ENVIRONMENT = "REAPER_STATE"
STORE_ENVIRONMENT = "REAPER_STORE"
SYSTEM_STATE = Path("/var/lib/idle-reaper")
LEVELS = ("error", "warning", "info", "debug")

_COMMON: tuple[tuple[tuple[str, ...], dict[str, Any], Any], ...] = (
    (("--config",), {"metavar": "PATH", "help": "configuration file or folder (default: $REAPER_CONFIG, else /etc/idle-reaper, else built in)"}, None),
    (("--state",), {"metavar": "FOLDER", "help": f"state folder (default: $REAPER_STATE, else {SYSTEM_STATE}, else ~/.local/state/idle-reaper)"}, None),
    (("--store",), {"metavar": "URL", "help": "postgresql://USER@HOST/DATABASE, or a file (default: $REAPER_STORE, else state.db in the state folder)"}, None),
    (("--json",), {"action": "store_true", "help": "one JSON object on the last line, for machines"}, False),
    (("--log-level",), {"choices": LEVELS, "metavar": "LEVEL", "help": f"{', '.join(LEVELS)}; logs go to standard error"}, None),
    (("-v", "--verbose"), {"action": "count", "help": "one log level more; may be repeated"}, 0),
)


def add_common(parser: argparse.ArgumentParser) -> None:
    """
    To a command's parser and the parsers of its own verbs, so that an option may stand after any of them.

    What a command defines itself is left as it is.
    """
    _add(parser, nested=False)
    for inner in _nested(parser):
        _add(inner, nested=True)


def _add(parser: argparse.ArgumentParser, *, nested: bool) -> None:
    group = parser.add_argument_group("common options")
    for flags, settings, default in _COMMON:
        own = parser._option_string_actions.get(flags[-1])
        if own is None:
            own = group.add_argument(*flags, **settings)
            own.default = default
        if nested:  # else the inner default would undo what stood before the verb
            own.default = argparse.SUPPRESS


def _nested(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def state_folder(environ: Mapping[str, str] = os.environ, system: Path = SYSTEM_STATE) -> Path:
    """Where the state is when nobody says: $REAPER_STATE, the system's folder if we may write there, else the user's own."""
    named = environ.get(STATE_ENVIRONMENT)
    if named:
        return Path(named)
    if system.is_dir() and os.access(system, os.W_OK | os.X_OK):
        return system
    home = environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "idle-reaper"


def log_level(asked: str | None, more: int, usual: str) -> str:
    """``asked`` wins; else ``usual`` and one level more for each -v."""
    if asked is not None:
        return asked
    return LEVELS[min(LEVELS.index(usual) + more, len(LEVELS) - 1)]
