"""Several doors over one store, each with a memory of its own: what one of them heard, the others judge by."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reaper.model.audit import AuditKind
from reaper.service.board import Notice, SharedBoard
from reaper.service.brakes import FileBrake, SharedBrake
from reaper.service.ingest import Ingest, Rejected
from reaper.service.tokens import Verifier, issue, revoke
from reaper.service.watch import Watch
from reaper.store import open_store
from tests.service.door import HOST, LIMITS, OWN, SHARED, START, Counts, Flaky, ManualClock, body

EVER = START - timedelta(days=3)
MINUTE = timedelta(minutes=1)


class Doors:
    """Two processes that take reports and one that leads, over one store, on one time."""

    def __init__(self, url):
        self.clock = ManualClock()
        self.stores = [open_store(url) for _ in range(3)]
        self.doors = [self.door(store) for store in self.stores[:2]]
        self.leader = Watch(self.stores[2])
        self.leader.rebuild(self.stores[2], START)

    def door(self, store):
        return Ingest(store, Watch(store), SharedBoard(store, self.clock), self.clock, Counts())

    def hear(self, door, minute, boot="boot-a", token=OWN, **changes):
        self.clock.at = START + timedelta(minutes=minute, seconds=changes.get("age_s", 0.0))
        return self.doors[door].accept(body(minute, boot=boot, **changes), token)

    @property
    def store(self):
        return self.stores[2]

    def windows(self):
        return list(self.store.observations(EVER, HOST))

    def quiet(self):
        self.leader.catch_up(self.store, self.clock.at)
        return self.leader.quiet(HOST, LIMITS, (timedelta(minutes=10),))

    def close(self):
        for store in self.stores:
            store.close()


@pytest.fixture(params=["file", "postgres"])
def doors(request, tmp_path):
    made = Doors(tmp_path / "state.db" if request.param == "file" else request.getfixturevalue("database"))
    yield made
    made.close()


def test_reports_that_alternate_between_doors_are_one_history_to_the_leader(doors):
    for minute in range(1, 21):
        accepted = doors.hear(minute % 2, minute)
        assert accepted.verified
        assert not accepted.duplicate
        doors.quiet()

    quiet = doors.quiet()
    assert [w.verified for w in doors.windows()] == [True] * 20
    assert quiet is not None
    assert quiet.until - quiet.since >= 19 * MINUTE
    busy = doors.hear(0, 21, peak=0.9)
    assert busy.verified
    assert doors.quiet() is None or doors.quiet().since > START + 20 * MINUTE


def test_a_window_sent_again_to_another_door_is_a_duplicate(doors):
    doors.hear(0, 1)
    doors.hear(1, 2)

    assert doors.hear(1, 1, age_s=60.0).duplicate
    assert doors.hear(0, 2).duplicate
    assert len(doors.windows()) == 2


def test_the_same_window_at_two_doors_is_kept_once(doors):
    assert [doors.hear(n, 1).duplicate for n in (0, 1)] == [False, True]
    assert doors.store.voice(HOST).conflict_at is None


def test_late_windows_through_another_door_are_taken_in(doors):
    doors.hear(0, 1)
    doors.hear(0, 5)

    late = [doors.hear(n % 2, minute, age_s=60.0 * (6 - minute)) for n, minute in enumerate((3, 2, 4))]

    assert [a.verified for a in late] == [True] * 3
    assert [w.seq for w in doors.windows()] == [3_660_000 + 60_000 * n for n in range(5)]


def test_a_clone_that_reports_through_the_other_door_is_found_and_neither_is_believed(doors):
    for minute in range(1, 6):
        doors.hear(0, minute)
    clone = doors.hear(1, 5, offset_s=5.0)  # a memory snapshot's boot clock runs beside the original's

    assert not clone.verified
    assert not doors.hear(0, 6).verified
    assert [w.verified for w in doors.windows()][-3:] == [False] * 3
    assert doors.quiet().until <= START + 4 * MINUTE
    assert [e.kind for e in doors.store.audit(HOST)] == [AuditKind.VOICE]
    assert doors.store.voice(HOST).conflict_at is not None


def test_a_clone_behind_the_original_is_found_through_the_other_door(doors):
    for minute in range(1, 6):
        doors.hear(0, minute)
    doors.clock.at = START + timedelta(minutes=6)

    assert not doors.doors[1].accept(body(-1, offset_s=30.0), OWN).verified
    assert doors.store.voice(HOST).conflict_at is not None


def test_an_old_boot_that_speaks_through_another_door_after_a_new_one_is_two_machines(doors):
    doors.hear(0, 1, boot="boot-a")
    doors.hear(1, 2, boot="boot-b")

    assert not doors.hear(0, 3, boot="boot-a").verified
    assert doors.store.voice(HOST).conflict_at is not None


def test_an_unverified_voice_at_another_door_changes_no_books(doors):
    doors.hear(0, 1)
    doors.hear(1, 2, boot="other", token=SHARED)

    assert doors.hear(0, 3).verified
    assert doors.store.voice(HOST).boot_id == "boot-a"


def test_a_door_whose_clock_is_a_little_behind_is_not_overheard_by_the_leader(doors):
    doors.hear(0, 1)
    doors.quiet()
    doors.clock.at -= timedelta(seconds=3)
    doors.doors[1].accept(body(1, offset_s=5.0), OWN)  # the second speaker, a moment later and by a clock behind
    doors.leader.catch_up_on(doors.store, [HOST], doors.clock.at)

    assert doors.leader.voice(HOST).conflict_at is not None
    assert doors.leader.voice(HOST) == doors.store.voice(HOST)


def test_a_door_that_starts_in_the_middle_knows_what_was_heard(doors):
    for minute in range(1, 4):
        doors.hear(0, minute)
    doors.doors[1] = doors.door(doors.stores[1])

    assert doors.hear(1, 3).duplicate
    assert doors.hear(1, 4).verified
    assert not doors.hear(1, 4, offset_s=5.0).verified


def test_a_report_that_another_door_overtakes_is_judged_again_and_kept_once(doors):
    doors.hear(0, 1)
    real = doors.stores[1]

    class Overtaken(Flaky):
        """Another door keeps a report between the look at the voice and the writing."""

        def voice(self, resource):
            voice = real.voice(resource)
            if len(doors.windows()) == 1:
                doors.hear(0, 2, boot="boot-b")
            return voice

    doors.doors[1] = doors.door(Overtaken(real))
    again = doors.hear(1, 3)

    assert not again.verified  # of the boot that had been followed meanwhile
    assert len(doors.windows()) == 3
    assert doors.store.voice(HOST).conflict_at is not None


def test_a_token_that_was_revoked_elsewhere_is_refused_everywhere_soon(doors):
    text = issue(doors.stores[0], HOST, START, "ada")
    verifiers = [Verifier(store) for store in doors.stores[:2]]
    assert [verify(text, START).resource for verify in verifiers] == [HOST, HOST]
    revoke(doors.store, text.split("_")[1], START + MINUTE, "ada")

    assert [verify(text, START + MINUTE + timedelta(seconds=5)) for verify in verifiers] == [None, None]


def test_another_machines_token_is_refused_at_every_door(doors):
    with pytest.raises(Rejected):
        doors.hear(1, 1, token=replace(OWN, resource=replace(HOST, native="i-0def")))


@pytest.fixture
def folds(doors, monkeypatch):
    """How often the leader has read a machine's whole history."""
    counted = []
    whole = doors.store.observations
    monkeypatch.setattr(doors.store, "observations", lambda *words: counted.append(words) or whole(*words))
    return counted


def test_the_leader_reads_only_what_is_new_and_comes_to_the_same(doors, folds):
    doors.hear(0, 1)
    doors.quiet()
    folds.clear()
    for minute in range(2, 12):
        doors.hear(minute % 2, minute, peak=0.5 if minute == 5 else 0.0)
        if minute % 3:
            doors.quiet()

    quiet, whole = doors.quiet(), Watch()
    assert folds == []
    whole.rebuild(doors.stores[0], doors.clock.at)
    assert quiet == whole.quiet(HOST, LIMITS, (timedelta(minutes=10),))
    assert quiet.since == START + 5 * MINUTE


@pytest.mark.parametrize("what", ["a late window", "a new boot", "a second speaker", "a late one and a new one"])
def test_whatever_is_not_simply_the_next_window_is_folded_anew(doors, folds, what):
    for minute in (1, 2, 4):
        doors.hear(0, minute)
    doors.quiet()
    folds.clear()
    match what:
        case "a late window":
            doors.hear(1, 3, age_s=120.0, peak=0.9)
        case "a new boot":
            doors.hear(1, 5, boot="boot-b")
        case "a second speaker":
            doors.hear(1, 4, offset_s=5.0)
        case _:
            doors.hear(1, 3, age_s=120.0, peak=0.9)
            doors.hear(0, 5)

    quiet, whole = doors.quiet(), Watch()
    assert len(folds) == 1
    whole.rebuild(doors.stores[0], doors.clock.at)
    assert quiet == whole.quiet(HOST, LIMITS, (timedelta(minutes=10),))


# --- what people should know, and the kill switch ---------------------------------------------------------------------


def test_what_the_leader_tells_people_reaches_them_through_every_door(doors):
    leading = SharedBoard(doors.store, doors.clock)
    doors.store.set_facts({"last_cycle_at": START.isoformat()})
    leading.publish({HOST: Notice("stop", START + MINUTE, "idle")}, {HOST: START + 2 * MINUTE})

    answer = doors.hear(0, 0).answer
    assert b'"action":"stop"' in answer
    assert b'"snoozed_until":"2026-03-02T12:02:00Z"' in answer
    leading.publish({}, {})
    doors.clock.boot += 10.0
    assert b"upcoming" not in doors.hear(0, 1).answer


def test_what_a_leader_said_that_has_gone_is_told_no_more(doors):
    doors.store.set_facts({"last_cycle_at": (START - timedelta(minutes=11)).isoformat()})
    SharedBoard(doors.store, doors.clock).publish({HOST: Notice("stop", START, "idle")}, {})

    assert b"upcoming" not in doors.hear(0, 0).answer


@pytest.mark.parametrize("kept", ["not json", '{"notices": {"x": 1}}', "[]"])
def test_news_that_cannot_be_read_cost_no_report(doors, kept):
    doors.store.set_facts({"last_cycle_at": START.isoformat(), "board": kept})

    assert not doors.hear(0, 0).duplicate


def test_a_kill_switch_holds_whoever_takes_over(doors, tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    brakes = [SharedBrake(FileBrake(folder), store) for folder, store in zip(folders, doors.stores, strict=False)]
    assert [brake.engaged() for brake in brakes] == [None, None]
    (folders[0] / "STOP").write_text("incident 7")

    assert "incident 7" in brakes[0].engaged()
    assert "incident 7" in brakes[1].engaged()
    assert str(folders[0]) in brakes[1].engaged()
    (folders[1] / "STOP").write_text("also here")
    assert "also here" in brakes[1].engaged()
    (folders[1] / "STOP").unlink()
    assert "incident 7" in brakes[1].engaged()
    (folders[0] / "STOP").unlink()
    assert [brake.engaged() for brake in brakes] == [None, None]


def test_a_kill_switch_that_cannot_be_read_is_set(doors, tmp_path):
    flaky = Flaky(doors.store)
    brake = SharedBrake(FileBrake(tmp_path), flaky)
    flaky.down = True
    assert "cannot be read" in brake.engaged()
    flaky.down = False
    doors.store.set_facts({"brake": "not json"})
    assert "cannot be read" in brake.engaged()
