"""The file on disk: restarts, damage, other versions, rights, and several processes at once."""

import os
import shutil
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from reaper.errors import StoreError
from reaper.store import open_store, tables
from tests.store.store_values import (
    EVER,
    TWO,
    bytes_of,
    entry,
    everything,
    fill,
    keep,
    snooze,
    window,
)

# --- making and finding it --------------------------------------------------------------------------------------------


def test_folder_and_files_are_for_their_owner_alone(state):
    store = state.open()
    fill(store)

    rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.path.parent.iterdir()}

    assert rights == {"reaper.db": 0o600, "reaper.db-wal": 0o600, "reaper.db-shm": 0o600}
    assert stat.S_IMODE(state.path.parent.stat().st_mode) == 0o700


def test_a_folder_that_was_there_keeps_its_rights(tmp_path):
    tmp_path.chmod(0o755)
    open_store(tmp_path / "reaper.db").close()

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["reaper.db", "a b?c#d%20.db", "träge.db"])
def test_path_and_url_name_the_same_file(tmp_path, name):
    path = tmp_path / name
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.set_facts({"here": "yes"})

    with closing(open_store(str(path), create=False)) as store:
        assert store.fact("here") == "yes"
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("url", ["sqlite://s3cret", "mysql:///s3cret", "postgresql://reaper:s3cret@db:port/reaper", "postgresql://reaper:s3cret@db"])
def test_another_kind_of_url_is_refused_without_its_text(url):
    with pytest.raises(StoreError, match=r"postgresql://USER@HOST/DATABASE") as refused:
        open_store(url)

    assert "s3cret" not in str(refused.value)


def test_a_store_that_is_not_there_is_not_made_unasked(state):
    with pytest.raises(StoreError, match=f"no store at {state.path}"):
        state.open(create=False)

    assert not state.path.parent.exists()


def test_two_that_make_it_at_once_share_one(state):
    together = threading.Barrier(4)

    def opened(n):
        together.wait()
        store = open_store(state.path)
        store.set_facts({f"from {n}": "here"})
        store.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(opened, range(4)))

    store = state.open()
    assert [store.fact(f"from {n}") for n in range(4)] == ["here"] * 4
    store.close()
    assert [p.name for p in state.path.parent.iterdir()] == ["reaper.db"]


# --- refusals that keep the file --------------------------------------------------------------------------------------


def filled(state):
    store = state.open()
    fill(store)
    keep(store, *(window(seq=n) for n in range(300)))
    store.close()
    return state.path


def overwritten(path, at, text):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(text)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: overwritten(path, 0, b"not a database at all"), id="header overwritten"),
        pytest.param(lambda path: overwritten(path, 4096 * 3, b"\xff" * 4096 * 8), id="pages overwritten"),
        pytest.param(lambda path: os.truncate(path, path.stat().st_size // 2), id="cut in half"),
        pytest.param(lambda path: os.truncate(path, 0), id="cut to nothing"),
        pytest.param(lambda path: path.write_text("state = 1\n" * 1000), id="another file in its place"),
    ],
)
def test_a_damaged_file_is_refused_and_kept_byte_for_byte(state, damage):
    path = filled(state)
    damage(path)
    before = bytes_of(path)

    with pytest.raises(StoreError, match=f"{path} is damaged.*left as it is.*backup"):
        state.open()

    assert bytes_of(path) == before


def test_damage_found_later_is_an_error_not_an_empty_answer(state):
    path = filled(state)
    store = state.open()
    store.fact("mode")
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'marks'").fetchone()
    overwritten(path, 4096 * (page - 1), b"\xff" * 4096)

    with pytest.raises(StoreError, match="is damaged"):
        store.marks()


def test_a_store_of_a_newer_version_is_refused_and_kept(state):
    path = filled(state)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE reaper_schema SET version = ?", (tables.SCHEMA + 1,))
    before = bytes_of(path)

    with pytest.raises(StoreError, match=f"schema {tables.SCHEMA + 1} and this version knows up to {tables.SCHEMA}: a newer reaper wrote it"):
        state.open()

    assert bytes_of(path) == before


@pytest.mark.parametrize("version", [None, 0])
def test_a_store_without_a_schema_we_know_is_refused(state, version):
    path = filled(state)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM reaper_schema")
        if version is not None:
            connection.execute("INSERT INTO reaper_schema VALUES (?)", (version,))

    with pytest.raises(StoreError, match="schema"):
        state.open()


def test_somebody_elses_database_is_refused_and_kept(tmp_path):
    path = tmp_path / "grafana.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE dashboards (id INTEGER)")
    before = bytes_of(path)

    with pytest.raises(StoreError, match="not an Idle Reaper store"):
        open_store(path)

    assert bytes_of(path) == before


def test_a_folder_in_its_place_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is not a file"):
        open_store(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused_with_its_path(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match=f"{tmp_path}/file/reaper.db"):
        open_store(tmp_path / "file" / "reaper.db")


def test_a_store_that_was_moved_away_while_in_use_is_not_made_anew(state):
    store = state.open()
    fill(store)
    state.path.rename(state.path.with_suffix(".old"))

    with pytest.raises(StoreError, match=r"is missing, but its reaper.db-wal is there"):
        state.open()

    assert not state.path.exists()


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_that_another_holds_too_long_says_whom_to_look_for(state):
    store = state.open(busy_timeout_s=0.05)
    with closing(sqlite3.connect(state.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=f"{state.path} is locked.*fuser"):
            store.append_audit(entry())
        assert store.audit() == ()
        other.execute("ROLLBACK")

    store.append_audit(entry("afterwards"))
    assert [e.because for e in store.audit()] == ["afterwards"]


def test_readers_wait_for_no_writer(state):
    store = state.open(busy_timeout_s=0.05)
    fill(store)
    before = everything(store)
    with closing(sqlite3.connect(state.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO facts VALUES ('half', 'done')")

        assert everything(store) == before
        assert store.fact("half") is None


def test_a_full_disk_is_said_and_changes_nothing(state):
    store = state.open()
    with store._write() as connection:  # this connection goes back to the pool and is the next one out
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(StoreError, match="the disk is full"):
        store.set_facts({"long": "x" * 100_000})

    assert store.fact("long") is None


# --- several at once ----------------------------------------------------------------------------------------------------


def test_threads_share_a_store_in_memory():
    with closing(open_store(":memory:")) as store, ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: store.append_audit(entry(str(n))) or store.audit(), range(60)))

        assert sorted(int(e.because) for e in store.audit()) == list(range(60))


# --- backup -----------------------------------------------------------------------------------------------------------


def test_a_backup_taken_in_use_restores_to_the_same_content(state, tmp_path):
    store = state.open()
    fill(store)
    copy = tmp_path / "copy.db"
    store.backup(copy)
    before = everything(store)
    store.add_snooze(snooze("after"), entry())

    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(open_store(shutil.copy(copy, tmp_path / "restored.db"), create=False)) as restored:
        assert everything(restored) == before
        with pytest.raises(StoreError, match="append-only"), restored._write() as connection:
            connection.exec_driver_sql("DELETE FROM audit")


def test_a_backup_replaces_no_file(store, tmp_path):
    there = tmp_path / "there.db"
    there.write_text("precious")

    with pytest.raises(StoreError, match=f"no backup was written to {there}"):
        store.backup(there)

    assert there.read_text() == "precious"


def test_an_unverified_window_stays_so_over_a_backup_and_a_restart(state, tmp_path):
    store = state.open()
    fill(store)
    store.backup(tmp_path / "copy.db")

    with closing(open_store(tmp_path / "copy.db")) as restored:
        assert list(restored.observations(EVER, TWO)) == [replace(window(of=TWO), verified=False)]
