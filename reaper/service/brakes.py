"""The kill switch: a file in the state folder. While it is there nothing is taken away; its first line is the reason."""

from pathlib import Path

NAME = "STOP"


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
