"""
The configuration of a running process: read again every cycle, the last good one kept while a newer is refused.

It takes milliseconds, and any sign that would spare it (size, times, inode) misses something: a secret in a file of its
own, a right that was given, a dangling link that an editor leaves beside it.
"""

from pathlib import Path

from reaper import log
from reaper.config import built_in, load
from reaper.errors import ConfigurationError
from reaper.model.policy import Configuration

_log = log.get(__name__)


class LiveConfiguration:
    """Raises ConfigurationError at first, if there is no good one to begin with. ``path`` None: the built-in one, for ever."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._good: Configuration = built_in() if path is None else load(path)
        self._problems: tuple[str, ...] = ()

    def current(self) -> tuple[Configuration, str | None]:
        """The one in force, and why the newest is refused. A vanished file is a refusal, never defaults. Never raises."""
        if self._path is None:
            return self._good, None
        try:
            newest = load(self._path)
        except ConfigurationError as error:
            return self._refuse(error.problems)
        except Exception as error:  # noqa: BLE001 - what our own reader trips over is refused like any other; machines stay watched
            return self._refuse((f"{self._path}: cannot be read ({type(error).__name__}: {error})",))
        if self._problems or newest.digest != self._good.digest:
            _log.info("configuration read", source=str(self._path), digest=newest.digest)
        self._good, self._problems = newest, ()
        return self._good, None

    def _refuse(self, problems: tuple[str, ...]) -> tuple[Configuration, str]:
        """Told in the log when it changes, not every minute."""
        if problems != self._problems:
            _log.error("configuration refused; nothing is taken away until it is mended", problems=list(problems))
        self._problems = problems
        return self._good, problems[0] + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
