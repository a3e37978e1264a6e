"""What outlives a process and what several share, in a file and on a server: restarts, and several at once."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reaper.errors import BudgetSpent
from reaper.model.decision import Action
from reaper.store import open_store
from tests.store.store_values import (
    EVER,
    HOUR,
    MINUTE,
    NOW,
    ONE,
    attempt,
    entry,
    everything,
    fill,
    voice,
    window,
)

# --- restart ----------------------------------------------------------------------------------------------------------


def test_a_restart_finds_what_was_there(shared):
    store = shared.open()
    fill(store)
    before = everything(store)
    store.close()

    assert everything(shared.open()) == before


def test_a_restart_finds_what_was_there_when_the_process_was_killed(shared):
    script = (
        "import os\n"
        "from reaper.store import open_store\n"
        "from tests.store.test_store_files import fill\n"
        f"fill(open_store({str(shared.url)!r}))\n"
        "os._exit(9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=False, timeout=60)
    reference = open_store(":memory:")
    fill(reference)

    assert killed.returncode == 9
    assert everything(shared.open()) == everything(reference)
    reference.close()


def test_the_epoch_of_the_lease_outlives_a_restart(shared):
    store = shared.open()
    store.acquire_lease("us", NOW, MINUTE)
    store.close()

    assert shared.open().acquire_lease("them", NOW, MINUTE) is None
    assert shared.open().acquire_lease("them", NOW + HOUR, MINUTE).epoch == 2


# --- several at once --------------------------------------------------------------------------------------------------


def test_threads_write_and_read_at_once_and_nothing_is_lost(shared):
    store = shared.open()

    def spoken(n):
        for seq in range(25):
            w = window(boot=f"boot-{n}", seq=seq)
            assert store.add_observation(w, voice())
            assert not store.add_observation(w, voice())
            store.append_audit(entry(f"{n}/{seq}"))
            assert store.voice(ONE) is not None
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(spoken, range(6)))
    assert len(list(store.observations(EVER))) == 150
    assert [e.seq for e in store.audit(limit=1000)] == list(range(1, 151))


WRITER = """
import sys
from reaper.store import open_store
from tests.store.store_values import entry
store = open_store(sys.argv[1])
for n in range(40):
    store.append_audit(entry(f"{sys.argv[2]}/{n}"))
store.close()
"""


def test_processes_write_at_once_and_nothing_is_lost(shared):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", WRITER, str(shared.url)]
    running = [subprocess.Popen([*command, name], cwd=root) for name in ("one", "two")]
    store = shared.open()
    for n in range(40):
        store.append_audit(entry(f"three/{n}"))

    assert [process.wait(timeout=60) for process in running] == [0, 0]
    said = [e.because for e in store.audit(limit=1000)]
    assert sorted(said) == sorted(f"{who}/{n}" for who in ("one", "two", "three") for n in range(40))
    assert [e.seq for e in store.audit(limit=1000)] == list(range(1, 121))


@pytest.mark.parametrize("stores", [1, 2], ids=["two threads of one process", "two openings of one file"])
def test_of_two_intents_at_once_the_budget_of_one_admits_one(shared, stores):
    opened = [shared.open() for _ in range(stores)]
    lease = opened[0].acquire_lease("us", NOW, MINUTE)
    together = threading.Barrier(2)

    def one_at_most(debits):
        return "1 stop an hour" if debits else None

    def begin(n):
        together.wait()
        try:
            opened[n % stores].begin_attempt(attempt(f"a{n}"), lease, NOW, entry(f"intent a{n}"), one_at_most)
        except BudgetSpent:
            return "spent"
        return "admitted"

    for _ in range(5):
        store = opened[0]
        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(begin, range(2))) == ["admitted", "spent"]
        assert len(store.attempts()) == len(store.audit()) == len(store.debits(Action.STOP, EVER)) == 1
        with store._write() as connection:
            connection.exec_driver_sql("DELETE FROM attempts")
            for trigger in ("audit_no_delete",) if connection.dialect.name == "sqlite" else ("audit_no_change",):
                connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {trigger}{' ON audit' if connection.dialect.name != 'sqlite' else ''}")
            connection.exec_driver_sql("DELETE FROM audit")
        for one in opened:
            one.keep_track()  # what the test took away is not missed


def test_of_two_that_want_a_free_lease_at_once_one_gets_it(shared):
    opened = [shared.open(), shared.open()]
    together = threading.Barrier(2)

    def take(n):
        together.wait()
        return opened[n].acquire_lease(f"holder {n}", NOW, MINUTE)

    with ThreadPoolExecutor(2) as pool:
        assert [lease.epoch for lease in pool.map(take, range(2)) if lease is not None] == [1]


