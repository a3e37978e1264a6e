"""The server: what its refusals mean, the time it is away, secrets, and another database in its place."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from reaper.errors import HeardElsewhere, LeaseLost, StoreError
from reaper.model.policy import Configuration, Mode
from reaper.ports import SeenProtection
from reaper.service.continuity import Continuity
from reaper.store import open_store
from tests import postgres
from tests.store.store_values import HOUR, MINUTE, NOW, ONE, TWO, attempt, entry, keep, mark, snooze, voice, window

EVER = NOW - timedelta(days=400)


@pytest.fixture
def opened(database):
    """Opens the same database as often as asked."""
    stores = []

    def open_(**options):
        stores.append(open_store(database, **options))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


# --- finding it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgres"])
def test_every_usual_spelling_of_the_url_names_the_same_store(cluster, database, scheme):
    with closing(open_store(database.replace("postgresql", scheme, 1), create=False)) as store:
        store.set_facts({"here": scheme})

    with closing(open_store(database)) as store:
        assert store.fact("here") == scheme


def test_an_empty_database_becomes_a_store_when_it_is_asked_for(cluster):
    name = cluster.database()
    with pytest.raises(StoreError, match=f"no store in postgresql://postgres@{cluster.folder}/{name}; `reaper run` makes it"):
        open_store(cluster.url(name), create=False)
    with closing(open_store(cluster.url(name))) as store:
        store.append_audit(entry("first"))

    with closing(open_store(cluster.url(name), create=False)) as store:
        assert [e.because for e in store.audit()] == ["first"]
    cluster.drop(name)


def test_a_store_can_live_in_a_schema_of_its_own(cluster):
    name = cluster.database()
    cluster.do("CREATE TABLE audit (id int)", "CREATE SCHEMA reaper", database=name)
    with closing(open_store(cluster.url(name) + "&options=-csearch_path%3Dreaper")) as store:
        store.append_audit(entry("first"))

    assert cluster.do("SELECT count(*) FROM reaper.audit", database=name) == [(1,)]
    cluster.drop(name)


def test_somebody_elses_database_is_refused_and_kept(cluster):
    name = cluster.database()
    cluster.do("CREATE TABLE dashboards (id int)", database=name)

    with pytest.raises(StoreError, match="not an Idle Reaper store"):
        open_store(cluster.url(name))

    assert cluster.do("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", database=name) == [("dashboards",)]
    cluster.drop(name)


def test_a_database_that_cannot_keep_every_script_is_refused(cluster):
    cluster.do("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")

    with pytest.raises(StoreError, match="keeps text as LATIN1.*createdb -E UTF8"):
        open_store(cluster.url("latin"))
    cluster.drop("latin")


def test_another_locale_changes_no_order(cluster):
    name = "sorted_otherwise"
    cluster.do(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'de-DE' LOCALE 'C.UTF-8'")
    with closing(open_store(cluster.url(name))) as store:
        for boot in ("b", "A", "a", "B"):
            keep(store, window(boot=boot))

        assert [w.boot_id for w in store.observations(EVER)] == ["A", "B", "a", "b"]
    cluster.drop(name)


def test_many_that_find_it_empty_make_one_store(cluster):
    name = cluster.database()
    together = threading.Barrier(4)

    def begin(n):
        together.wait()
        with closing(open_store(cluster.url(name))) as store:
            store.append_audit(entry(str(n)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(4)))

    with closing(open_store(cluster.url(name))) as store:
        assert sorted(e.because for e in store.audit()) == ["0", "1", "2", "3"]
    cluster.drop(name)


# --- what its refusals mean -------------------------------------------------------------------------------------------


def refused(url, **options):
    with pytest.raises(StoreError) as said:
        open_store(url, **options)
    whole = f"{said.value} {said.value!r} {said.value.__cause__} {said.value.__cause__!r}"
    assert postgres.PASSWORD not in whole
    assert "wr0ng" not in whole
    return str(said.value)


def test_a_wrong_password_a_missing_user_database_or_server_are_told_apart(cluster):
    folder = str(cluster.folder)

    assert "does not know this user or password" in refused(cluster.url("migrated", "guest", "wr0ng"))
    assert "PGPASSWORD" in refused(cluster.url("migrated", "guest"))
    assert 'role "nobody" does not exist' in refused(cluster.url("migrated", "nobody", "wr0ng"))
    assert "createdb" in refused(cluster.url("nowhere", password="wr0ng"))
    assert "cannot be reached" in refused(cluster.url().replace(folder, f"{folder}/elsewhere"))
    assert "cannot be reached" in refused("postgresql://reaper:wr0ng@127.0.0.1:1/reaper")
    assert "cannot be read" in refused("postgresql://reaper:wr0ng@host:port/reaper")
    assert "names no database" in refused("postgresql://reaper:wr0ng@host/")
    assert "refused" in refused(cluster.url() + f"&bogus=1&sslpassword={postgres.PASSWORD}")


def test_who_may_not_make_tables_is_told_what_is_missing(cluster):
    name = cluster.database()

    said = refused(cluster.url(name, "guest", postgres.PASSWORD))

    assert "does not allow us this" in said
    assert "CREATE" in said
    cluster.drop(name)


def test_a_password_is_in_no_word_of_the_store(cluster, caplog):
    caplog.set_level(logging.DEBUG)
    name = cluster.database()
    cluster.do(f"ALTER DATABASE {name} OWNER TO guest")
    with closing(open_store(cluster.url(name, "guest", postgres.PASSWORD))) as store:
        shown = [store.where, repr(store), repr(store.__dict__), repr(store._engine), repr(store._engine.url), str(store._engine.url)]
        with pytest.raises(StoreError) as said:
            store.plan("\0")
        shown += [str(said.value), repr(said.value.__cause__)]
        with store._read() as connection:
            shown.append(repr(connection.connection.driver_connection))

    assert postgres.PASSWORD not in " ".join([*shown, caplog.text])
    assert store.where == f"postgresql://guest@{cluster.folder}/{name}"
    cluster.drop(name)


def test_a_role_that_may_do_no_more_than_own_its_tables_is_enough(cluster):
    name = cluster.database()
    cluster.do(f"ALTER DATABASE {name} OWNER TO guest")
    with closing(open_store(cluster.url(name, "guest", postgres.PASSWORD))) as store:
        store.keep_track()
        store.append_audit(entry("first"))

        assert store.lost_track() is None
        assert "?" not in (store.fact("database") or "?")
        assert abs(store.skew(NOW)) > timedelta(days=1)
    cluster.drop(name)


def test_a_lock_that_another_holds_too_long_says_where_to_look(opened):
    store, other = opened(busy_timeout_s=0.05), opened()
    with other._write():
        with pytest.raises(StoreError, match="is locked.*pg_stat_activity"):
            store.append_audit(entry())
        assert store.audit() == ()
        assert keep(store, window()) == [True]

    store.append_audit(entry("afterwards"))
    assert [e.because for e in store.audit()] == ["afterwards"]


def test_a_hand_on_the_lease_in_psql_holds_up_an_intent(opened, cluster):
    store, other = opened(busy_timeout_s=0.05), opened()
    lease = store.acquire_lease("us", NOW, MINUTE)
    with other._engine.begin() as hand:
        hand.execute(text("UPDATE lease SET epoch = 7"))
        with pytest.raises(StoreError, match="is locked"):
            store.begin_attempt(attempt(), lease, NOW, entry(), lambda debits: None)

    with pytest.raises(LeaseLost, match="another reaper leads"):
        store.begin_attempt(attempt(), lease, NOW, entry(), lambda debits: None)
    assert store.attempts() == ()


def test_a_writer_that_stands_still_lets_the_others_go_on_and_has_written_nothing(opened, monkeypatch):
    monkeypatch.setattr("reaper.store.dialect._IDLE_S", 0.2)
    frozen, store = opened(), opened()

    def stand_still():
        with frozen._write() as connection:
            connection.execute(text("INSERT INTO facts VALUES ('half', 'done')"))
            store.append_audit(entry("went on"))  # waits for the server to end the other
            connection.execute(text("INSERT INTO facts VALUES ('whole', 'done')"))

    with pytest.raises(StoreError, match="stood still|was ended|cannot be reached"):
        stand_still()

    assert (store.fact("half"), store.fact("whole")) == (None, None)
    assert frozen.fact("half") is None
    assert [e.because for e in store.audit()] == ["went on"]


def test_a_read_only_server_is_called_that(opened, cluster, database):
    store = opened()
    name = database.partition("@/")[2].partition("?")[0]
    cluster.do(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store._engine.dispose()

    with pytest.raises(StoreError, match="is read-only: a standby"):
        store.append_audit(entry())
    assert store.audit() == ()


def test_too_many_connections_are_called_that(cluster, database):
    name = database.partition("@/")[2].partition("?")[0]
    cluster.do(f"ALTER DATABASE {name} CONNECTION LIMIT 0", f"ALTER DATABASE {name} OWNER TO guest")

    assert "takes no more connections" in refused(cluster.url(name, "guest", postgres.PASSWORD))


def test_a_statement_that_takes_too_long_is_ended(opened):
    store = opened()

    def ask():
        with store._read() as connection:
            connection.execute(text("SET LOCAL statement_timeout = 50"))
            connection.execute(text("SELECT pg_sleep(30)"))

    with pytest.raises(StoreError, match="too slow"):
        ask()


# --- text it cannot keep ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda s: s.set_facts({"good": "1", "b\0d": "2"}), id="a fact's key"),
        pytest.param(lambda s: s.set_facts({"good": "1", "bad": "b\0d"}), id="a fact"),
        pytest.param(lambda s: s.add_observations([(window(), voice()), (window(boot="b\0d"), voice())]), id="a boot"),
        pytest.param(lambda s: s.save_seen_protections([SeenProtection(ONE, "b\0d", NOW, NOW)], []), id="a protection's name"),
        pytest.param(lambda s: s.add_snooze(snooze("b\0d"), entry()), id="a snooze's id"),
        pytest.param(lambda s: s.voice(replace(ONE, native="b\0d")), id="a question"),
    ],
)
def test_a_nul_where_the_database_takes_none_is_refused_whole_and_nothing_else_is_lost(opened, write):
    store = opened()
    keep(store, window(seq=1))

    with pytest.raises(StoreError, match="NUL character"):
        write(store)

    assert store.fact("good") is None
    assert list(store.observations(EVER)) == [window(seq=1)]
    store.set_facts({"good": "again"})
    assert store.fact("good") == "again"


def test_a_nul_inside_a_value_comes_back_as_it_was(store):
    odd = replace(snooze(), reason="de\0mo")
    store.add_snooze(odd, entry("because\0"))

    assert store.snoozes(NOW) == (odd,)
    assert store.audit()[0].because == "because\0"


# --- several doors ----------------------------------------------------------------------------------------------------


def test_a_report_judged_by_a_voice_that_stands_no_more_is_not_kept(shared):
    here, there = shared.open(), shared.open()
    assert there.add_observation(window(seq=1), voice(), after=None)

    with pytest.raises(HeardElsewhere, match="i-01"):
        here.add_observation(window(seq=2), voice(at=NOW + MINUTE), after=None)

    assert list(here.observations(EVER)) == [window(seq=1)]
    assert here.add_observation(window(seq=2), voice(at=NOW + MINUTE), after=voice())


def test_of_two_doors_that_hear_a_machine_at_once_one_judges_again(shared):
    opened = [shared.open(), shared.open()]
    together = threading.Barrier(2)

    def hear(n):
        together.wait()
        try:
            return opened[n].add_observation(window(boot=f"boot-{n}"), voice(boot=f"boot-{n}"), after=None)
        except HeardElsewhere:
            return "again"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(map(str, pool.map(hear, range(2)))) == ["True", "again"]


def test_reports_of_one_boot_that_two_doors_hear_at_once_share_its_first_receipt(opened):
    stores = [opened(), opened()]
    together = threading.Barrier(2)

    def hear(n):
        for boot in range(10):
            together.wait()
            keep(stores[n], window(boot=f"boot-{boot}", seq=n, received_at=NOW + n * HOUR))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(hear, range(2)))

    with stores[0]._read() as connection:
        firsts = connection.execute(text("SELECT boot_id, count(DISTINCT boot_received_at) FROM observations GROUP BY boot_id")).all()
    assert len(firsts) == 10
    assert {count for _, count in firsts} == {1}


def test_the_neighbours_of_a_window_are_those_of_its_own_boot(store):
    keep(store, *(window(seq=n) for n in (10, 20, 30)), window(boot="boot-2", seq=21), window(of=TWO, seq=22))
    store.distrust(ONE, EVER)

    def seqs(seq):
        return tuple(None if w is None else (w.seq, w.verified) for w in store.before_and_after(ONE, "boot-1", seq))

    assert seqs(20) == ((20, False), (30, False))
    assert seqs(25) == ((20, False), (30, False))
    assert seqs(5) == (None, (10, False))
    assert seqs(31) == ((30, False), None)


def test_a_fact_edited_from_many_places_loses_nothing(shared):
    opened = [shared.open(), shared.open()]

    def add(n):
        for k in range(10):
            opened[n].edit_fact("list", lambda kept, k=k: f"{kept or ''}{n}{k} ")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, range(2)))

    assert sorted(opened[0].fact("list").split()) == sorted(f"{n}{k}" for n in range(2) for k in range(10))
    opened[0].edit_fact("list", lambda kept: None)
    assert opened[0].fact("list") is not None


# --- away, and back ---------------------------------------------------------------------------------------------------


@pytest.fixture
def own():
    """A cluster that a test may stop."""
    with postgres.made() as cluster:
        yield postgres.with_template(cluster)


def configuration():
    return Configuration(name="ml", policies=(), mode=Mode.ENFORCE)


def test_a_server_that_went_away_is_an_error_each_time_and_then_it_goes_on(own):
    store = open_store(own.url("migrated"))
    lease = store.acquire_lease("us", NOW, HOUR)
    for n, how in enumerate(("fast", "immediate")):
        keep(store, window())
        own.stop(how)
        for _ in range(2):
            with pytest.raises(StoreError, match="cannot be reached|was ended"):
                store.begin_attempt(attempt(), lease, NOW, entry(), lambda debits: None)
            with pytest.raises(StoreError):
                store.fact("mode")
        own.start()

        store.begin_attempt(attempt(f"a{n}"), lease, NOW, entry(how), lambda debits: None)

    assert [e.because for e in store.audit()] == ["fast", "immediate"]
    assert store.lost_track() is None
    store.close()


def test_a_standby_that_took_over_without_the_last_writes_is_noticed_and_begins_nothing(own):
    store = open_store(own.url("migrated"))
    lease = store.acquire_lease("us", NOW, HOUR)
    kept = Continuity(store)
    kept.remember(configuration(), NOW)
    kept.begin(configuration(), NOW)
    store.append_audit(entry("both have it"))
    with postgres.made(copy_of=own) as standby:
        own.do("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        standby.stop("immediate")  # cut off from here on
        store.append_audit(entry("only the old one has it"))
        own.stop("immediate")
        standby.start()
        standby.promote()
        after = open_store(standby.url("migrated"))
        store._engine.dispose()
        store._engine, store._reading, store._writing = after._engine, after._reading, after._writing  # the address leads there now

        assert "another server took over" in kept.broken(configuration(), NOW)
        with pytest.raises(LeaseLost, match="warned anew"):
            store.begin_attempt(attempt(), lease, NOW, entry(), lambda debits: None)
        assert Continuity(after).broken(configuration(), NOW) is not None  # a process without any memory sees it as well
        assert "another server took over" in after.lost_track()
        kept.begin(configuration(), NOW)
        assert kept.broken(configuration(), NOW) is None
        assert after.lost_track() is None
        store.begin_attempt(attempt(), lease, NOW, entry("warned anew"), lambda debits: None)
        store.close()


def test_a_dump_that_was_restored_is_noticed_also_by_a_process_without_memory(cluster, database):
    name = database.partition("@/")[2].partition("?")[0]
    with closing(open_store(database)) as store:
        Continuity(store).begin(configuration(), NOW)
        assert store.lost_track() is None
    cluster.do(f"CREATE DATABASE restored TEMPLATE {name}")
    with closing(open_store(cluster.url("restored"))) as store:
        assert "restored or another server took over" in store.lost_track()
    cluster.drop("restored")


@pytest.mark.parametrize("back", ["the audit", "the lease"])
def test_a_store_that_lacks_what_we_wrote_is_noticed_until_it_was_dealt_with(shared, back):
    store = shared.open()
    lease = store.acquire_lease("us", NOW, HOUR)
    store.release_lease(lease)
    lease = store.acquire_lease("us", NOW, HOUR)
    store.append_audit(entry("one"), entry("two"))
    kept = Continuity(store)
    kept.remember(configuration(), NOW)
    with store._write() as connection:  # as a restored backup has it
        if back == "the lease":
            connection.execute(text("UPDATE lease SET epoch = 1"))
        else:
            sqlite = connection.dialect.name == "sqlite"
            connection.execute(text("DROP TRIGGER audit_no_delete" if sqlite else "DROP TRIGGER audit_no_change ON audit"))
            connection.execute(text("DELETE FROM audit WHERE seq = 2"))

    assert "went back in time" in kept.broken(configuration(), NOW)
    assert "went back in time" in kept.broken(configuration(), NOW)
    if back == "the audit":
        with pytest.raises(LeaseLost, match="went back in time"):
            store.begin_attempt(attempt(), lease, NOW, entry(), lambda debits: None)
    kept.begin(configuration(), NOW)
    assert kept.broken(configuration(), NOW) is None


def test_what_was_rolled_back_is_not_missed(shared):
    store = shared.open()
    store.append_audit(entry("one"))
    store.add_snooze(snooze(), entry("two"))
    written = []

    def roll_back():
        with store._write() as connection:
            store._record(connection, entry("three"))
            written.append(connection.scalar(text("SELECT max(seq) FROM audit")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        roll_back()
    store.save_marks([mark()], [], [])

    assert written == [3]
    assert store.lost_track() is None
