"""Revisions and tables say the same; an older store is brought up whole or not at all, once, and without loss."""

import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from reaper.errors import StoreError
from reaper.store import files, migrate, open_store, tables
from tests.store.store_values import NOW, ONE, entry, keep, mark, snooze, window
from tests.store.test_store_several import everything, fill

ROOT = Path(__file__).parents[2]

OURS, NEXT = tables.SCHEMA, tables.SCHEMA + 1
IS_OURS, IS_NEXT = migrate.Found(True, OURS, f"{OURS:04d}"), migrate.Found(True, NEXT, f"{NEXT:04d}")

ONE_MORE = '''
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{revision}", "{before}", None, None


def upgrade():
    op.add_column("facts", sa.Column("author", sa.Text))
    op.execute("UPDATE facts SET author = 'unknown'")
    with op.batch_alter_table("snoozes") as snoozes:
        snoozes.alter_column("until", new_column_name="ends_at")
    {then}
'''


@pytest.fixture
def newer(tmp_path, monkeypatch):
    """A version of ours that knows one revision more; ``then`` is its last line."""

    def with_one_more(then="pass"):
        folder = tmp_path / "versions"
        folder.mkdir(exist_ok=True)
        for known in migrate.VERSIONS.glob("r*.py"):
            (folder / known.name).write_text(known.read_text())
        (folder / "one_more.py").write_text(ONE_MORE.format(then=then, revision=IS_NEXT.revision, before=IS_OURS.revision))
        monkeypatch.setattr(tables, "SCHEMA", NEXT)
        monkeypatch.setattr(migrate.bring_up, "__defaults__", (folder,))

    return with_one_more


def made_before_there_were_revisions(kept):
    """A full store as the first version left it."""
    store = kept.open()
    fill(store)
    before = everything(store)
    with store._write() as connection:
        connection.execute(text("DROP TABLE alembic_version"))
    store.close()
    return before


def versions(store):
    with store._read() as connection:
        return migrate.look(connection)


# --- they say the same ------------------------------------------------------------------------------------------------


def test_the_tables_are_what_the_revisions_make(shared):
    store = shared.open()
    with store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})

        assert compare_metadata(context, tables.metadata) == []


def test_a_store_in_memory_is_what_the_revisions_make(state):
    def told(store):
        with store._read() as connection:
            rows = connection.execute(text("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE '%alembic%'")).all()
        return {(kind, name, " ".join((sql or "").replace('"', "").replace("\t", " ").split()).replace("( ", "(").replace(" )", ")")) for kind, name, sql in rows}

    with closing(open_store(":memory:")) as memory:
        assert told(memory) == told(state.open())


def test_the_revisions_end_where_the_tables_are():
    settings = Config()
    settings.set_main_option("script_location", str(migrate.SCRIPTS))
    settings.set_main_option("path_separator", "newline")
    script = ScriptDirectory.from_config(settings)

    assert script.get_heads() == [f"{tables.SCHEMA:04d}"]
    assert [r.revision for r in reversed(list(script.walk_revisions()))] == [f"{n + 1:04d}" for n in range(tables.SCHEMA)]


def test_only_a_store_that_is_made_or_brought_up_loads_what_migrates(state):
    state.open().close()
    script = f"import sys\nfrom reaper.store import open_store\nopen_store({str(state.path)!r}).close()\nprint('alembic' in sys.modules, 'psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == ["False", "False"]


# --- stores of before -------------------------------------------------------------------------------------------------


def test_a_store_from_before_there_were_revisions_is_taken_over_whole(shared):
    before = made_before_there_were_revisions(shared)
    store = shared.open(create=False)

    assert everything(store) == before
    assert versions(store) == IS_OURS
    store.append_audit(entry("goes on"))
    with pytest.raises(StoreError, match="append-only"), store._write() as connection:
        connection.execute(text("DELETE FROM audit"))


def test_a_file_that_the_first_version_wrote_is_taken_over_whole(state):
    """Made by that version's own statements, not by ours of today."""
    state.path.parent.mkdir()
    with closing(sqlite3.connect(state.path)) as connection:
        connection.executescript((Path(__file__).parent / "first_version.sql").read_text())
        connection.execute("PRAGMA journal_mode = WAL")
    store = state.open(create=False)

    assert versions(store) == IS_OURS
    assert [e.because for e in store.audit()] == ["written by the first version"]
    assert store.snoozes(NOW) == (snooze(),)
    assert [w.seq for w in store.observations(NOW.replace(year=2020))] == [60_000]
    keep(store, window(seq=61_000))
    assert [e.seq for e in store.audit()] == [1]
    store.append_audit(entry("goes on"))
    assert [e.seq for e in store.audit()] == [1, 2]


def test_an_older_store_is_brought_up_without_loss(shared, newer):
    before = made_before_there_were_revisions(shared)
    newer()
    store = shared.open(create=False)

    assert versions(store) == IS_NEXT
    with store._read() as connection:
        assert connection.execute(text("SELECT value, author FROM facts WHERE key = 'mode'")).all() == [("observe", "unknown")]
        assert connection.scalar(text("SELECT count(*) FROM snoozes WHERE ends_at > 0")) == 1
    assert (list(store.observations(NOW.replace(year=2020))), store.marks(), store.audit(), store.attempts()) == (before[0], before[2], before[10], before[9])
    store.close()
    assert shared.open(create=False).fact("mode") == "observe"  # once, not at each start


def test_a_revision_that_breaks_off_leaves_the_store_as_it_was(shared, newer, monkeypatch):
    before = made_before_there_were_revisions(shared)
    newer(then='op.execute("SELECT no_such_column FROM facts")')

    with pytest.raises(StoreError, match="no_such_column"):
        shared.open()

    monkeypatch.undo()
    store = shared.open()
    assert everything(store) == before
    assert versions(store) == IS_OURS


def test_many_that_start_at_once_bring_it_up_once(shared, newer):
    made_before_there_were_revisions(shared)
    newer()
    together = threading.Barrier(4)

    def begin(n):
        together.wait()
        with closing(open_store(shared.url)) as store:
            store.append_audit(entry(f"from {n}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(4)))

    store = shared.open()
    assert versions(store) == IS_NEXT
    assert sum(e.because.startswith("from ") for e in store.audit()) == 4


def test_processes_that_start_at_once_make_one_store(shared, cluster):
    url = cluster.url(cluster.database()) if "://" in str(shared.url) else str(shared.url)
    script = "import sys\nfrom reaper.store import open_store\nfrom tests.store.store_values import entry\nopen_store(sys.argv[1]).append_audit(entry(sys.argv[2]))"
    running = [subprocess.Popen([sys.executable, "-c", script, url, str(n)], cwd=ROOT) for n in range(3)]

    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    with closing(open_store(url, create=False)) as store:
        assert sorted(e.because for e in store.audit()) == ["0", "1", "2"]


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_newer_store_is_refused_and_kept(shared):
    store = shared.open()
    fill(store)
    with store._write() as connection:
        connection.execute(text(f"UPDATE reaper_schema SET version = {NEXT}"))
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{NEXT:04d}'"))

    with pytest.raises(StoreError, match=f"schema {NEXT} and this version knows up to {OURS}: a newer reaper wrote it"):
        open_store(shared.url)

    assert versions(store) == IS_NEXT


def test_two_words_for_the_schema_that_differ_are_refused(shared):
    store = shared.open()
    with store._write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0007'"))

    with pytest.raises(StoreError, match=f"says that it has schema {OURS} and revision 0007"):
        open_store(shared.url)


def test_the_file_brought_up_is_the_one_that_was_looked_at(state):
    store = state.open()
    store.save_marks([mark()], [], [])
    store.close()

    assert files.inspect(state.path, 1.0, thoroughly=True) is True
    assert next(iter(state.open().marks()))[0] == ONE
