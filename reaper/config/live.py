"""The configuration of a running process: read again when its files change, the last good one kept while a newer is refused."""

from pathlib import Path

from reaper import log
from reaper.config import built_in, load
from reaper.errors import ConfigurationError
from reaper.model.policy import Configuration

_log = log.get(__name__)

Stamp = tuple[tuple[str, int, int, int], ...]


class LiveConfiguration:
    """Raises ConfigurationError at first, if there is no good one to begin with. ``path`` None: the built-in one, for ever."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp = self._look()
        self._good: Configuration = built_in() if path is None else load(path)
        self._refused: str | None = None

    def current(self) -> tuple[Configuration, str | None]:
        """The one in force, and why the newest is refused. A vanished file is a refusal, never defaults."""
        if self._path is None:
            return self._good, None
        stamp = self._look()
        if stamp == self._stamp:
            return self._good, self._refused
        self._stamp = stamp
        try:
            self._good, self._refused = load(self._path), None
            _log.info("configuration read", source=str(self._path), digest=self._good.digest)
        except ConfigurationError as error:
            self._refused = error.problems[0] + (f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else "")
            _log.error("configuration refused; nothing is taken away until it is mended", problems=list(error.problems))
        return self._good, self._refused

    def _look(self) -> Stamp:
        """Name, inode, size and time of every file, cheap enough for every cycle. Empty: nothing there."""
        if self._path is None:
            return ()
        try:
            files = sorted(self._path.iterdir()) if self._path.is_dir() else [self._path]
            return tuple((str(f), s.st_ino, s.st_size, s.st_mtime_ns) for f in files for s in (f.stat(),))
        except OSError:
            return ()
