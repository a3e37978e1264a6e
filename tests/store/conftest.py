"""The stores every contract test runs on. A new database is one more factory here."""

import pytest

from reaper.store import open_store


class Files:
    """A state that outlives its store objects: ``open`` again is a restart."""

    def __init__(self, folder):
        self.path = folder / "state" / "reaper.db"
        self._opened = []

    def open(self, **options):
        self._opened.append(open_store(self.path, **options))
        return self._opened[-1]

    def close(self):
        for store in self._opened:
            store.close()


@pytest.fixture
def state(tmp_path):
    files = Files(tmp_path)
    yield files
    files.close()


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    opened = open_store(":memory:") if request.param == "memory" else open_store(tmp_path / "reaper.db")
    yield opened
    opened.close()
