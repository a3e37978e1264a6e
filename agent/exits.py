"""Exit codes of `reaper-agent`, and how it refuses settings."""

from __future__ import annotations

import sys

from agent.config import ConfigError

DONE, FAILED, USAGE = 0, 1, 2


def refuse(error: ConfigError) -> int:
    """Print every problem of the settings. Returns the exit code."""
    for problem in error.problems:
        print("reaper-agent: " + problem, file=sys.stderr)
    return USAGE
