"""What every store promises (reaper.ports.Store)."""

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text

from reaper.errors import BudgetSpent, LeaseLost, StoreError
from reaper.model.audit import AuditKind
from reaper.model.decision import Action
from reaper.model.kinds.disk import Disk, DiskState, KeptDisk, Leftover
from reaper.model.mark import Stage
from reaper.model.plan import Debit, Outcome
from reaper.model.resource import ResourceId
from reaper.ports import KeptListing, KeptShelf, Lease, Ledger, SeenProtection, Store, Token
from tests.store.store_values import (
    HERE,
    HOUR,
    MINUTE,
    NOW,
    ONE,
    TWO,
    approval,
    attempt,
    entry,
    keep,
    machine,
    mark,
    plan,
    snooze,
    voice,
    window,
)

EVER = NOW - timedelta(days=400)


def admit(debits):
    return None


def because(store, **query):
    return [kept.because for kept in store.audit(**query)]


def test_a_store_is_a_store(store):
    typed: Store = store

    assert typed.audit() == ()


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_window_and_its_voice_are_kept(store):
    kept = window(loaders=None, orchestrators=("slurmd",))

    assert store.add_observation(kept, voice()) is True
    assert list(store.observations(EVER)) == [kept]
    assert store.voice(ONE) == voice()
    assert store.voices() == {ONE: voice()}
    assert store.voice(TWO) is None


def test_a_duplicate_changes_nothing_not_even_the_voice(store):
    keep(store, window())

    assert store.add_observation(window(sampler="other"), voice(at=NOW + HOUR)) is False
    assert list(store.observations(EVER)) == [window()]
    assert store.voice(ONE) == voice()


def test_the_same_seq_of_another_boot_or_machine_is_no_duplicate(store):
    assert keep(store, window(), window(boot="boot-2"), window(of=TWO)) == [True, True, True]


def test_several_windows_in_one_go_answer_each_for_itself(store):
    first, second = window(), window(seq=120_000, ended_at=NOW + MINUTE)

    answers = store.add_observations([(w, voice(at=w.received_at)) for w in (first, first, second)])

    assert answers == (True, False, True)
    assert list(store.observations(EVER)) == [first, second]
    assert store.voice(ONE) == voice(at=NOW + MINUTE)


def test_windows_come_by_machine_then_by_first_receipt_of_the_boot_then_by_seq(store):
    later_boot_smaller_name = window(boot="a", seq=1, received_at=NOW + HOUR)
    late_from_the_spool = window(boot="z", seq=5, received_at=NOW + 2 * HOUR)
    first = window(boot="z", seq=10, received_at=NOW)
    other = window(of=TWO, seq=3)
    keep(store, other, first, later_boot_smaller_name, late_from_the_spool)

    got = list(store.observations(EVER))

    assert got == [late_from_the_spool, first, later_boot_smaller_name, other]
    assert list(store.observations(EVER, TWO)) == [other]


def test_windows_since_a_moment_include_that_end(store):
    old, new = window(seq=1, ended_at=NOW - MINUTE), window(seq=2, ended_at=NOW)
    keep(store, old, new)

    assert list(store.observations(NOW)) == [new]


def test_the_order_of_boots_stands_when_their_first_windows_are_not_asked_for(store):
    first = window(boot="z", seq=1, ended_at=NOW - HOUR)
    second = window(boot="a", seq=2, ended_at=NOW - 30 * MINUTE)
    late = window(boot="z", seq=9, ended_at=NOW, received_at=NOW)
    keep(store, first, second, late)

    assert list(store.observations(NOW - 30 * MINUTE)) == [late, second]


def test_a_reader_that_stops_halfway_keeps_no_writer_waiting(store):
    keep(store, window(), window(of=TWO))
    reading = iter(store.observations(EVER))
    next(reading)

    assert keep(store, window(seq=99)) == [True]
    assert next(reading).resource == TWO


def test_distrusted_windows_are_unverified_and_older_ones_are_not(store):
    old, new = window(seq=1, ended_at=NOW - MINUTE), window(seq=2, ended_at=NOW)
    other = window(of=TWO)
    keep(store, old, new, other)

    store.distrust(ONE, NOW - MINUTE)

    assert list(store.observations(EVER)) == [old, replace(new, verified=False), other]


def test_forgetting_drops_what_ended_before_and_says_how_many(store):
    keep(store, *(window(seq=n, ended_at=NOW + n * MINUTE) for n in range(5)))

    assert store.forget_observations(NOW + 2 * MINUTE) == 2
    assert [w.seq for w in store.observations(EVER)] == [2, 3, 4]
    assert store.forget_observations(NOW) == 0
    assert store.voice(ONE) is not None


def test_forgetting_more_than_one_transaction_holds_forgets_it_all(store, monkeypatch):
    monkeypatch.setattr("reaper.store.reports._FORGOTTEN_AT_ONCE", 3)
    windows = [window(seq=n, ended_at=NOW + (n // 2) * MINUTE) for n in range(20)]
    store.add_observations([(w, voice()) for w in windows])

    assert store.forget_observations(NOW + 8 * MINUTE) == 16
    assert [w.seq for w in store.observations(EVER)] == [16, 17, 18, 19]


def test_a_voice_cannot_be_kept_with_another_machines_window(store):
    with pytest.raises(StoreError, match="i-02 cannot speak for .*i-01"):
        store.add_observation(window(of=ONE), voice(of=TWO))

    assert list(store.observations(EVER)) == []


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"up_s": float("nan")}, id="a boot clock that is not a number"),
        pytest.param({"window_s": float("inf")}, id="an endless window"),
        pytest.param({"ended_at": NOW.replace(tzinfo=None)}, id="an end without a zone"),
        pytest.param({"received_at": NOW.replace(tzinfo=None)}, id="a receipt without a zone"),
        pytest.param({"sampler": "\ud800"}, id="half a character"),
        pytest.param({"seq": 2**63}, id="a seq the database cannot count"),
        pytest.param({"seq": "7", "up_s": 60.0}, id="a seq that is text"),
    ],
)
def test_a_window_that_could_not_be_read_again_is_refused_and_hides_no_other(store, broken):
    keep(store, window(seq=1))
    good, bad = window(seq=2), window(**broken)

    with pytest.raises(StoreError):
        store.add_observations([(good, voice()), (bad, voice())])

    assert list(store.observations(EVER)) == [window(seq=1)]


def test_a_gpu_figure_that_is_no_number_comes_back_unknown_not_zero(store):
    odd = replace(window().gpus[0], peak=float("nan"))
    keep(store, window(gpus=(odd,)))

    assert next(iter(store.observations(EVER))).gpus[0].peak is None


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_tokens_are_kept_and_revoked_once(store):
    token = Token("t1", b"\x00\xff digest", NOW, ONE)
    shared = Token("t0", b"d", NOW + MINUTE)
    store.add_token(shared, entry("issued a shared one"))
    store.add_token(token, entry("issued"))

    assert store.tokens() == (token, shared)
    assert store.revoke_token("t1", NOW + HOUR, entry("revoked")) is True
    assert store.token("t1") == replace(token, revoked_at=NOW + HOUR)
    assert store.revoke_token("t1", NOW + 2 * HOUR, entry("again")) is False
    assert store.revoke_token("t9", NOW, entry("who")) is False
    assert store.token("t9") is None
    assert because(store) == ["issued a shared one", "issued", "revoked"]


def test_a_token_id_is_not_given_twice(store):
    store.add_token(Token("t1", b"first", NOW), entry("issued"))

    with pytest.raises(StoreError, match="tokens .* has t1 already"):
        store.add_token(Token("t1", b"second", NOW), entry("issued again"))

    assert store.token("t1").digest == b"first"
    assert because(store) == ["issued"]


# --- inventory --------------------------------------------------------------------------------------------------------


def test_listings_and_ledgers_are_replaced_by_place_and_machine(store):
    there = replace(HERE, name="us-east-1")
    old, other = KeptListing(HERE, (machine(),), NOW), KeptListing(there, (), NOW, failed="denied", empty_once=True)
    store.save_listings([old, other], [Ledger(ONE, NOW, NOW), Ledger(TWO, NOW, NOW)])
    new, seen = KeptListing(HERE, (), NOW + MINUTE), Ledger(ONE, NOW, NOW + MINUTE, running_since=NOW, launched_at=NOW)
    store.save_listings([new], [seen])

    assert store.listings() == {HERE: new, there: other}
    assert store.ledgers() == {ONE: seen, TWO: Ledger(TWO, NOW, NOW)}


def fleet(count):
    return tuple(replace(machine(), id=replace(ONE, native=f"i-{n:05d}")) for n in range(count))


@pytest.mark.parametrize("fewer", [0, 1, 250, 251, 700])
def test_a_listing_of_any_length_comes_back_in_its_order_and_a_shorter_one_leaves_nothing_behind(store, fewer):
    neighbour, longer_name = replace(HERE, name="eu-west-2"), replace(HERE, name=f"{HERE.name}0")
    others = [KeptListing(place, fleet(300), NOW, failed="denied") for place in (neighbour, longer_name)]
    kept = KeptListing(HERE, tuple(reversed(fleet(1001))), NOW)
    store.save_listings([others[0], kept, others[1]], [])
    assert store.listings() == {HERE: kept, neighbour: others[0], longer_name: others[1]}

    shorter = KeptListing(HERE, fleet(fewer), NOW + MINUTE)
    store.save_listings([shorter], [])
    assert store.listings() == {HERE: shorter, neighbour: others[0], longer_name: others[1]}

    store.save_listings([], [], [HERE])
    assert store.listings() == {neighbour: others[0], longer_name: others[1]}


def test_a_listing_with_one_machine_that_cannot_be_stored_is_not_stored_at_all(store):
    good = KeptListing(HERE, fleet(600), NOW)
    store.save_listings([good], [])
    machines = fleet(600)
    bad = (*machines[:-1], replace(machines[-1], name="\ud800"))

    with pytest.raises(StoreError, match="could not be read again"):
        store.save_listings([KeptListing(HERE, bad, NOW + MINUTE)], [])

    assert store.listings() == {HERE: good}


@pytest.mark.parametrize("row", ["", "\n000001", "\n000002"])
def test_a_part_of_a_listing_that_is_lost_or_damaged_is_an_error_and_no_shorter_listing(store, row):
    store.save_listings([KeptListing(HERE, fleet(700), NOW)], [])
    with store._write() as connection:
        connection.execute(text("UPDATE listings SET value = '{}' WHERE place = :place"), {"place": f"{HERE}{row}"})
    with pytest.raises(StoreError, match="listings cannot be read"):
        store.listings()

    with store._write() as connection:
        connection.execute(text("DELETE FROM listings WHERE place = :place"), {"place": f"{HERE}{row}"})
    with pytest.raises(StoreError, match="of listings do not fit together"):
        store.listings()


def test_seen_protections_change_and_go(store):
    first, second = SeenProtection(ONE, "tag:keep", NOW, NOW), SeenProtection(ONE, "tag:claim", NOW, NOW)
    store.save_seen_protections([first, second], [])
    vanished = replace(first, vanished_at=NOW + MINUTE)
    store.save_seen_protections([vanished], [second])

    assert store.seen_protections() == (vanished,)


def test_a_protection_both_seen_and_gone_stays(store):
    seen = SeenProtection(ONE, "tag:keep", NOW, NOW)
    store.save_seen_protections([seen], [seen])

    assert store.seen_protections() == (seen,)


# --- marks, snoozes, plans, approvals ---------------------------------------------------------------------------------


def test_marks_change_and_clear_with_their_entries(store):
    store.save_marks([mark(), mark(TWO), mark(action=Action.START)], [], [entry("nominated")])
    warned = mark(stage=Stage.WARNED)
    store.save_marks([warned], [mark(TWO)], [entry("warned"), entry("cleared", of=TWO)])

    assert store.marks() == {(ONE, Action.STOP): warned, (ONE, Action.START): mark(action=Action.START)}
    assert because(store) == ["nominated", "warned", "cleared"]


def test_a_mark_cleared_and_nominated_anew_stands(store):
    store.save_marks([mark(stage=Stage.DUE)], [], [])
    store.save_marks([mark()], [mark(stage=Stage.DUE)], [])

    assert store.marks() == {(ONE, Action.STOP): mark()}


def test_marks_are_not_saved_without_their_entries(store):
    naive = replace(entry("warned"), at=NOW.replace(tzinfo=None))
    with pytest.raises(StoreError, match="no time zone"):
        store.save_marks([mark()], [], [entry("nominated"), naive])

    assert store.marks() == {}
    assert store.audit() == ()


def test_snoozes_are_active_until_their_end(store):
    long, short = snooze("s1", NOW + HOUR), snooze("s2", NOW + MINUTE)
    store.add_snooze(long, entry("snoozed", kind=AuditKind.SNOOZED))
    store.add_snooze(short, entry("snoozed"))

    assert store.snoozes(NOW) == (short, long)
    assert store.snoozes(NOW + MINUTE) == (long,)
    assert store.snoozes(NOW + HOUR) == ()
    with pytest.raises(StoreError, match="has s1 already"):
        store.add_snooze(snooze("s1", NOW), entry("shortened"))
    assert store.snoozes(NOW) == (short, long)


def test_a_snooze_at_an_ambiguous_local_time_keeps_its_moment(store):
    later = NOW.replace(year=2026, month=10, day=25, hour=2, minute=30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    store.add_snooze(snooze(until=later), entry())

    (kept,) = store.snoozes(NOW)

    assert kept.until.timestamp() == later.timestamp()
    assert kept.until.isoformat() == "2026-10-25T01:30:00+00:00"


def test_the_newest_plan_is_the_one_saved_last_even_if_the_clock_went_back(store):
    store.save_plan(replace(plan("p1"), made_at=NOW + HOUR))
    store.save_plan(plan("p2"))

    assert store.plan() == plan("p2")
    assert store.plan("p1").made_at == NOW + HOUR
    assert store.plan("p9") is None


def test_only_the_newest_200_plans_are_kept(store):
    assert store.plan() is None
    for n in range(203):
        store.save_plan(plan(f"p{n}"))

    assert store.plan("p2") is None
    assert store.plan("p3") == plan("p3")
    assert store.plan() == plan("p202")


def test_a_plan_saved_again_replaces_itself(store):
    store.save_plan(plan("p1"))
    store.save_plan(plan("p2"))
    store.save_plan(replace(plan("p1"), notes=("again",)))

    assert store.plan() == replace(plan("p1"), notes=("again",))


def test_approvals_wait_oldest_first_until_they_are_done(store):
    newer, older = approval("b", NOW + MINUTE), approval("a", NOW)
    store.add_approval(newer, entry("approved"))
    store.add_approval(older, entry("approved"))

    assert store.approvals() == (older, newer)
    store.finish_approval("a", NOW + HOUR)
    store.finish_approval("a", NOW + 2 * HOUR)
    assert store.approvals() == (newer,)
    with pytest.raises(StoreError, match="no approval zz"):
        store.finish_approval("zz", NOW)
    with pytest.raises(StoreError, match="has a already"):
        store.add_approval(older, entry("twice"))


# --- lease ------------------------------------------------------------------------------------------------------------


def test_a_free_lease_is_taken_and_renewed_under_its_epoch(store):
    assert store.acquire_lease("us", NOW, MINUTE) == Lease(1, "us", NOW + MINUTE)
    assert store.acquire_lease("us", NOW + timedelta(seconds=30), MINUTE).epoch == 1
    assert store.acquire_lease("us", NOW + HOUR, MINUTE) == Lease(1, "us", NOW + HOUR + MINUTE)


def test_another_holder_waits_until_the_lease_ran_out_and_then_leads_under_the_next_epoch(store):
    store.acquire_lease("us", NOW, MINUTE)

    assert store.acquire_lease("them", NOW + timedelta(seconds=59), MINUTE) is None
    assert store.acquire_lease("them", NOW + MINUTE, MINUTE) == Lease(2, "them", NOW + 2 * MINUTE)
    assert store.acquire_lease("us", NOW + MINUTE, MINUTE) is None


def test_a_released_lease_is_free_at_once_and_its_epoch_is_not_used_again(store):
    first = store.acquire_lease("us", NOW, HOUR)
    store.release_lease(first)

    assert store.acquire_lease("us", NOW, HOUR).epoch == 2


def test_releasing_a_lease_that_another_took_over_leaves_it_theirs(store):
    ours = store.acquire_lease("us", NOW, MINUTE)
    theirs = store.acquire_lease("them", NOW + HOUR, HOUR)
    store.release_lease(ours)
    store.release_lease(replace(theirs, epoch=1))

    assert store.acquire_lease("us", NOW + HOUR, MINUTE) is None


def test_the_held_lease_is_read_as_it_stands_run_out_or_not(store):
    before = store.held_lease()
    ours = store.acquire_lease("us", NOW, MINUTE)

    assert before is None
    assert store.held_lease() == ours == Lease(1, "us", NOW + MINUTE)
    theirs = store.acquire_lease("them", NOW + HOUR, MINUTE)
    assert store.held_lease() == theirs
    store.release_lease(ours)
    assert store.held_lease() == theirs
    store.release_lease(theirs)
    assert store.held_lease() is None


def test_marks_are_saved_under_our_lease_run_out_or_not(store):
    lease = store.acquire_lease("us", NOW, MINUTE)
    store.save_marks((mark(),), (), (entry("nominated"),), lease)

    assert list(store.marks().values()) == [mark()]
    assert because(store) == ["nominated"]


@pytest.mark.parametrize("taken", [True, False], ids=["another leads", "no lease was ever taken"])
def test_marks_of_a_leader_that_is_none_any_more_are_not_saved(store, taken):
    ours = Lease(1, "us", NOW + MINUTE)
    store.save_marks((mark(),), (), ())
    if taken:
        assert store.acquire_lease("us", NOW, MINUTE) == ours
        store.acquire_lease("them", NOW + HOUR, MINUTE)

    with pytest.raises(LeaseLost):
        store.save_marks((mark(TWO),), (mark(),), (entry("of old"),), ours)

    assert list(store.marks().values()) == [mark()]
    assert because(store) == []


def test_a_lease_needs_a_holder(store):
    with pytest.raises(StoreError, match="needs a holder"):
        store.acquire_lease("", NOW, MINUTE)


# --- attempts ---------------------------------------------------------------------------------------------------------


def begin(store, tried, lease=None, now=NOW, admit=admit):
    lease = lease or store.acquire_lease("us", now, MINUTE)
    store.begin_attempt(tried, lease, now, entry(f"intent {tried.id}"), admit)


def test_an_intent_is_written_with_its_entry_and_closed_with_its_outcome(store):
    tried = attempt(usd_per_hour=2.5)
    begin(store, tried)
    assert store.attempt("a1") == tried
    assert store.attempts(open_only=True) == (tried,)

    done = replace(tried, outcome=Outcome.DONE, outcome_at=NOW + MINUTE, after=machine())
    store.end_attempt(done, entry("outcome"))

    assert store.attempt("a1") == done
    assert store.attempts(open_only=True) == ()
    assert because(store) == ["intent a1", "outcome"]
    assert store.attempt("a9") is None


@pytest.mark.parametrize(
    ("wrong", "at"),
    [
        pytest.param({"epoch": 2}, NOW, id="an epoch to come"),
        pytest.param({"epoch": 0}, NOW, id="an epoch that is over"),
        pytest.param({"holder": "them"}, NOW, id="another holder under the same epoch"),
        pytest.param({}, NOW + MINUTE, id="ran out at this very moment"),
        pytest.param({"expires_at": NOW + HOUR}, NOW + MINUTE, id="ran out, whatever we remember"),
    ],
)
def test_nothing_begins_under_a_lease_that_is_not_ours_now(store, wrong, at):
    lease = store.acquire_lease("us", NOW, MINUTE)
    asked = []

    with pytest.raises(LeaseLost, match="i-01"):
        store.begin_attempt(attempt(), replace(lease, **wrong), at, entry(), asked.append)

    assert (store.attempts(), store.audit(), asked) == ((), (), [])


def test_nothing_begins_where_no_lease_was_ever_taken(store):
    with pytest.raises(LeaseLost):
        store.begin_attempt(attempt(), Lease(1, "us", NOW + HOUR), NOW, entry(), admit)


def test_a_lease_taken_over_by_another_stops_the_first(store):
    ours = store.acquire_lease("us", NOW, MINUTE)
    store.acquire_lease("them", NOW + MINUTE, HOUR)

    with pytest.raises(LeaseLost, match="another reaper leads"):
        store.begin_attempt(attempt(), replace(ours, expires_at=NOW + HOUR), NOW + MINUTE, entry(), admit)


def test_a_spent_budget_leaves_nothing_behind_and_says_why(store):
    with pytest.raises(BudgetSpent, match="4 stops an hour"):
        begin(store, attempt(), admit=lambda debits: "4 stops an hour")

    assert (store.attempts(), store.audit(), store.debits(Action.STOP, EVER)) == ((), (), ())


def test_an_admission_that_fails_leaves_nothing_behind(store):
    def broken(debits):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin(store, attempt(), admit=broken)

    assert (store.attempts(), store.audit()) == ((), ())
    begin(store, attempt())


def test_an_attempt_id_begins_once(store):
    begin(store, attempt())

    with pytest.raises(StoreError, match="attempts .* has a1 already"):
        begin(store, attempt(detail="again"))

    assert store.attempts() == (attempt(),)
    assert because(store) == ["intent a1"]


def test_admission_sees_the_debits_of_the_same_verb_and_of_the_last_25_hours(store):
    begin(store, attempt("old", intent_at=NOW - timedelta(hours=25, seconds=1)))
    begin(store, attempt("edge", of=TWO, intent_at=NOW - timedelta(hours=25), usd_per_hour=3.0))
    begin(store, attempt("start", action=Action.START, intent_at=NOW))
    begin(store, attempt("ahead", intent_at=NOW + MINUTE))
    seen = []

    begin(store, attempt("new"), admit=seen.append)

    edge = Debit(NOW - timedelta(hours=25), TWO, Action.STOP, 3.0)
    assert seen == [(edge, Debit(NOW + MINUTE, ONE, Action.STOP, None))]


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [(None, True), (Outcome.DONE, True), (Outcome.FAILED, True), (Outcome.REFUSED, False), (Outcome.ABANDONED, False)],
)
def test_an_attempt_is_debited_unless_nothing_was_changed(store, outcome, counts):
    begin(store, attempt())
    if outcome is not None:
        store.end_attempt(attempt(outcome=outcome, outcome_at=NOW), entry())

    assert len(store.debits(Action.STOP, NOW)) == counts


def test_an_outcome_stands_but_an_abandoned_one_may_be_corrected(store):
    begin(store, attempt())
    done = attempt(outcome=Outcome.DONE, outcome_at=NOW)
    store.end_attempt(attempt(outcome=Outcome.ABANDONED, outcome_at=NOW), entry("abandoned"))
    store.end_attempt(done, entry("done after all"))

    with pytest.raises(StoreError, match="ended as done"):
        store.end_attempt(attempt(outcome=Outcome.ABANDONED, outcome_at=NOW), entry("abandoned again"))

    assert store.attempt("a1") == done
    assert because(store) == ["intent a1", "abandoned", "done after all"]


def test_an_attempt_ends_only_with_an_outcome_and_only_if_it_began(store):
    with pytest.raises(StoreError, match="no attempt a1"):
        store.end_attempt(attempt(outcome=Outcome.DONE, outcome_at=NOW), entry())
    with pytest.raises(StoreError, match="without an outcome"):
        store.end_attempt(attempt(), entry())
    with pytest.raises(StoreError, match="cannot begin"):
        begin(store, attempt(outcome=Outcome.DONE, outcome_at=NOW))
    assert store.audit() == ()


def test_attempts_come_newest_first_and_bounded(store):
    for n in range(4):
        begin(store, attempt(f"a{n}", of=(ONE, TWO)[n % 2], intent_at=NOW + n * MINUTE))

    assert [a.id for a in store.attempts(limit=3)] == ["a3", "a2", "a1"]
    assert [a.id for a in store.attempts(resource=TWO)] == ["a3", "a1"]


# --- audit and facts --------------------------------------------------------------------------------------------------


def test_the_audit_counts_up_and_comes_oldest_first(store):
    store.append_audit(entry("one"), entry("two", of=None))
    store.append_audit(replace(entry("three", of=TWO), evidence={"peak": "3 %"}))

    got = store.audit()

    assert [(e.seq, e.because) for e in got] == [(1, "one"), (2, "two"), (3, "three")]
    assert got[2] == replace(entry("three", of=TWO), evidence={"peak": "3 %"}, seq=3)


def test_the_audit_is_asked_by_machine_moment_and_place(store):
    store.append_audit(*(entry(f"e{n}", of=(ONE, TWO)[n % 2], at=NOW + n * MINUTE) for n in range(6)))

    assert because(store, resource=TWO) == ["e1", "e3", "e5"]
    assert because(store, since=NOW + 4 * MINUTE) == ["e4", "e5"]
    assert because(store, limit=2) == ["e4", "e5"]
    assert because(store, after_seq=4) == ["e4", "e5"]
    assert because(store, resource=ONE, limit=1) == ["e4"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET value = '{}'",
        "DELETE FROM audit",
        "DELETE FROM audit WHERE seq = 1",
        "INSERT INTO audit (seq, at, value) VALUES (1, 0, '{}') ON CONFLICT (seq) DO UPDATE SET value = '{}'",
        {"sqlite": "INSERT OR REPLACE INTO audit (seq, at, value) VALUES (1, 0, '{}')", "postgresql": "TRUNCATE audit"},
    ],
)
def test_the_audit_cannot_be_altered_through_the_connection(store, statement):
    store.append_audit(entry("one"))
    if isinstance(statement, dict):
        statement = statement[store._engine.dialect.name]

    with pytest.raises(StoreError, match="append-only"), store._write() as connection:
        connection.exec_driver_sql(statement)

    assert because(store) == ["one"]


def test_facts_are_set_changed_and_removed(store):
    assert store.fact("last cycle") is None
    store.set_facts({"last cycle": "1", "mode": "observe", "empty": ""})
    store.set_facts({"last cycle": "2", "mode": None, "never": None})

    assert store.fact("last cycle") == "2"
    assert store.fact("mode") is None
    assert store.fact("empty") == ""


# --- disks ------------------------------------------------------------------------------------------------------------


def kept_disk(native="vol-1", **changes):
    id = ResourceId("aws", "111122223333", "eu-west-1", "disk", native)
    disk = Disk(id, DiskState.AVAILABLE, size_gib=100, tags={"team": "ml"}, attachments=(), created_at=NOW - 400 * HOUR)
    return KeptDisk(disk, NOW, **changes)


def test_disks_shelves_and_leftovers_stay_as_kept_until_they_are_replaced_or_gone(store):
    one, two = kept_disk(unattached_since=NOW, last_on=("i-1",)), kept_disk("vol-2")
    snapshot = Leftover(replace(one.disk.id, kind="snapshot", native="snap-1"), "snapshot", "its disk is gone", size_gib=8)
    shelf = KeptShelf(HERE, NOW, unread=("addresses: not allowed",))
    store.save_shelves([shelf], [one, two], [snapshot])
    later = replace(two, attached_until=NOW + MINUTE, missed=MINUTE)
    store.save_shelves([], [later], [], [one.disk.id, snapshot.id])

    assert store.shelves() == {HERE: shelf}
    assert store.disks() == {two.disk.id: later}
    assert store.leftovers() == {}
    store.save_shelves([], [], [], [HERE])
    assert store.shelves() == {}


def test_thousands_of_disks_are_kept_at_once(store):
    many = [kept_disk(f"vol-{n:05d}") for n in range(2345)]
    store.save_shelves([KeptShelf(HERE, NOW)], many, [])

    assert list(store.disks().values()) == many


# --- rows that cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "read"),
    [
        ("marks", lambda store: store.marks()),
        ("snoozes", lambda store: store.snoozes(NOW)),
        ("attempts", lambda store: store.attempts(open_only=True)),
        ("ledgers", lambda store: store.ledgers()),
        ("listings", lambda store: store.listings()),
        ("voices", lambda store: store.voice(ONE)),
        ("observations", lambda store: list(store.observations(EVER))),
        ("seen_protections", lambda store: store.seen_protections()),
        ("tokens", lambda store: store.token("t1")),
        ("plans", lambda store: store.plan()),
        ("approvals", lambda store: store.approvals()),
        ("disks", lambda store: store.disks()),
        ("shelves", lambda store: store.shelves()),
    ],
)
@pytest.mark.parametrize("value", ["{}", "not json", '{"stage": "asleep"}'])
def test_a_row_that_cannot_be_read_is_an_error_that_names_it_never_a_default(store, table, read, value):
    keep(store, window())
    store.save_marks([mark()], [], [])
    store.add_snooze(snooze(), entry())
    begin(store, attempt())
    store.save_listings([KeptListing(HERE, (), NOW)], [Ledger(ONE, NOW, NOW)])
    store.save_seen_protections([SeenProtection(ONE, "tag:keep", NOW, NOW)], [])
    store.add_token(Token("t1", b"d", NOW), entry())
    store.save_plan(plan())
    store.add_approval(approval(), entry())
    store.save_shelves([KeptShelf(HERE, NOW)], [kept_disk()], [])
    read(store)
    with store._write() as connection:
        connection.execute(text(f"UPDATE {table} SET value = :value"), {"value": value})

    with pytest.raises(StoreError, match=f"the row .*(i-01|s1|a1|t1|p1|ok1|eu-west-1).* of {table} cannot be read"):
        read(store)


def test_a_member_that_a_newer_version_added_is_passed_over(store):
    store.save_marks([mark()], [], [])
    with store._write() as connection:
        connection.execute(text("""UPDATE marks SET value = replace(value, '{"resource"', '{"new"\\:1,"resource"')"""))

    assert store.marks() == {(ONE, Action.STOP): mark()}


def test_a_closed_store_says_so(store):
    store.close()

    with pytest.raises(StoreError, match="was closed"):
        store.marks()
    with pytest.raises(StoreError, match="was closed"):
        store.append_audit(entry())


def test_text_no_database_takes_is_an_error_of_ours(store):
    with pytest.raises(StoreError):
        store.plan("\udcff")
    with pytest.raises(StoreError):
        store.set_facts({"key": "\ud800"})
