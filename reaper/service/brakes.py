"""The kill switch: a file in the state folder. While it is there nothing is taken away; its first line is the reason."""

import json
import platform
from pathlib import Path

from reaper.errors import StoreError
from reaper.ports import Store

NAME = "STOP"

_FACT = "brake"


class FileBrake:
    """Read before every call. What cannot be read is engaged."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def engaged(self) -> str | None:
        try:
            text = self.path.read_text(errors="replace")
        except FileNotFoundError:
            # The file is not there; but a folder that vanished with its switch must not look like "off".
            return None if self.path.parent.is_dir() else f"the state folder {self.path.parent} is gone"
        except OSError as error:
            return f"the kill switch {self.path} cannot be read: {error.strerror}"
        lines = text.strip().splitlines()
        return f"kill switch {self.path}: {lines[0][:200] if lines else 'no reason given'}"


class SharedBrake:
    """
    The file of each process on several machines, made known to the others through the store: whoever takes over finds it set.

    Who finds its own file writes that down; who no longer finds it takes its own word back, and nobody else's.
    """

    def __init__(self, file: FileBrake, store: Store) -> None:
        self._file, self._store = file, store
        self._mine = f"{platform.node()}:{file.path}"

    def engaged(self) -> str | None:
        own = self._file.engaged()
        try:
            told = self._told(self._store.fact(_FACT))
            if told.get(self._mine) != own:
                self._store.edit_fact(_FACT, lambda kept: json.dumps(self._with(self._told(kept), own)))
        except (StoreError, ValueError, TypeError, AttributeError) as error:
            return own or f"whether another reaper's kill switch is set cannot be read: {error}"
        for where, why in told.items():
            if where != self._mine and own is None:
                remedy = f"remove it there; is that machine gone, then: DELETE FROM facts WHERE key = '{_FACT}'"
                return f"{why} (set at {where}; {remedy})"
        return own

    @staticmethod
    def _told(kept: str | None) -> dict[str, str]:
        return {str(where): str(why) for where, why in json.loads(kept).items()} if kept is not None else {}

    def _with(self, told: dict[str, str], own: str | None) -> dict[str, str]:
        others = {where: why for where, why in told.items() if where != self._mine}
        return others if own is None else others | {self._mine: own}
