"""The stores every contract test runs on. A new database is one more factory here."""

import pytest

from reaper.store import open_store


class Kept:
    """A state that outlives its store objects: ``open`` again is a restart. ``url``: path or URL."""

    def __init__(self, url):
        self.url = url
        self._opened = []

    def open(self, **options):
        self._opened.append(open_store(self.url, **options))
        return self._opened[-1]

    def close(self):
        for store in self._opened:
            store.close()


class Files(Kept):
    def __init__(self, folder):
        self.path = folder / "state" / "reaper.db"
        super().__init__(self.path)


@pytest.fixture
def state(tmp_path):
    """A file."""
    files = Files(tmp_path)
    yield files
    files.close()


@pytest.fixture(params=["file", "postgres"])
def shared(request, tmp_path):
    """What several processes can open."""
    kept = Files(tmp_path) if request.param == "file" else Kept(request.getfixturevalue("database"))
    yield kept
    kept.close()


@pytest.fixture(params=["file", "memory", "postgres"])
def store(request, tmp_path):
    match request.param:
        case "memory":
            opened = open_store(":memory:")
        case "file":
            opened = open_store(tmp_path / "reaper.db")
        case _:
            opened = open_store(request.getfixturevalue("database"))
    yield opened
    opened.close()
