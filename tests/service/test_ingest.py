import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent import report as wire
from agent.report import Loader
from reaper.errors import StoreError
from reaper.model.audit import AuditKind
from reaper.model.presence import AtWork, Links, Presence
from reaper.model.signal import Holder, Job, Person
from reaper.service.board import Board, Notice
from reaper.service.ingest import Ingest, Reason, Rejected
from reaper.service.voices import KEPT_BOOTS
from reaper.service.watch import Watch
from reaper.store import open_store
from tests.service.door import HOST, LIMITS, OTHER, OWN, SHARED, START, Counts, Flaky, ManualClock, body, report

HOUR = timedelta(hours=1)


class Door:
    """Ingest over a real store, with a clock turned by hand."""

    def __init__(self, store=None):
        self.clock, self.board, self.counts = ManualClock(), Board(), Counts()
        self.store = store if store is not None else open_store(":memory:")
        self.watch = Watch(self.store)
        self.ingest = Ingest(self.store, self.watch, self.board, self.clock, self.counts)

    def hear(self, minute, boot="boot-a", token=OWN, **changes):
        """The report of that minute, heard at that minute (or as late as its age says)."""
        self.clock.at = START + timedelta(minutes=minute, seconds=changes.get("age_s", 0.0))
        return self.ingest.accept(body(minute, boot=boot, **changes), token)

    def windows(self, verified=None):
        kept = self.store.observations(START - timedelta(days=3), HOST)
        return [seen for seen in kept if verified is None or seen.verified is verified]

    def quiet(self, span=timedelta(minutes=10)):
        return self.watch.quiet(HOST, LIMITS, (span,))

    def audited(self):
        return [entry for entry in self.store.audit(HOST) if entry.kind is AuditKind.VOICE]


@pytest.fixture
def door():
    made = Door()
    yield made
    made.store.close()


def test_report_is_kept_with_its_figures_and_its_place(door):
    door.clock.at = START
    accepted = door.ingest.accept(body(1, age_s=90.0, peak=0.5, expected_gpus=1), OWN)

    (kept,) = door.windows()
    assert accepted.verified
    assert not accepted.duplicate
    assert json.loads(accepted.answer) == {"seq": 3660000}
    assert kept.ended_at == START - timedelta(seconds=90)
    assert kept.started_at == START - timedelta(seconds=150)
    assert kept.received_at == START
    assert (kept.up_s, kept.window_s, kept.expected_gpus) == (3660.0, 60.0, 1)
    assert (kept.gpus[0].peak, kept.gpus[0].covered_s, kept.agent) == (0.5, 60.0, "0.1.0")
    assert (kept.cpu_ratio, kept.cpus, kept.orchestrators) == (0.01, 8, ())
    assert door.watch.newest(HOST) == kept
    assert door.counts.results == ["accepted"]


def test_what_a_report_leaves_out_stays_unknown(door):
    door.ingest.accept(body(1, host=None, gpus=(), loader=None, totals=None, hooks=None), OWN)

    (kept,) = door.windows()
    unknown = (kept.cpu_ratio, kept.disk_bytes_per_s, kept.net_bytes_per_s, kept.loaders, kept.orchestrators, kept.totals.cpu_s)
    assert unknown == (None,) * 6
    assert kept.gpus == ()
    assert kept.hook_installed is False


def test_answer_tells_what_is_upcoming_and_snoozed(door):
    due = START + HOUR
    door.board.publish({HOST: Notice("stop", due, "idle for 2 h")}, {HOST: due})

    answer = json.loads(door.hear(1).answer)

    assert answer["upcoming"] == {"action": "stop", "due_at": "2026-03-02T13:00:00Z", "because": "idle for 2 h"}
    assert answer["snoozed_until"] == "2026-03-02T13:00:00Z"


def test_agent_speaks_only_for_itself(door):
    with pytest.raises(Rejected, match="i-0def") as refused:
        door.ingest.accept(body(1, resource=OTHER), OWN)

    assert refused.value.reason is Reason.NOT_YOURS
    assert door.store.voices() == {}
    assert door.counts.results == ["not-yours"]


@pytest.mark.parametrize(
    ("text", "reason", "path"),
    [
        (b"{", Reason.MALFORMED, "body"),
        (b"", Reason.MALFORMED, "body"),
        (b"\xff", Reason.MALFORMED, "body"),
        (b"[" * 60000, Reason.MALFORMED, "body"),
        (body(1).replace(b'"v":1', b'"v":2'), Reason.UNKNOWN_VERSION, "v"),
        (body(1).replace(b'"window_s":60.0', b'"window_s":NaN'), Reason.MALFORMED, "body"),
        (body(1).replace(b'"age_s":0.0', b'"age_s":-1'), Reason.MALFORMED, "age_s"),
        (body(1).replace(b'"age_s":0.0', b'"age_s":1' + b"0" * 400), Reason.MALFORMED, "age_s"),
        (body(1).replace(b'"up_s":3660.0', b'"up_s":9.0'), Reason.MALFORMED, "seq"),
        (body(1).replace(b'"seq":3660000', b'"seq":9223372036854775807'), Reason.MALFORMED, "seq"),
    ],
    ids=["cut off", "empty", "not UTF-8", "nested deeply", "newer version", "not a number", "from the future",
         "number beyond floats", "seq beside the boot clock", "seq beyond all time"],
)  # fmt: skip
def test_what_is_no_report_is_refused_and_nothing_is_kept(door, text, reason, path):
    with pytest.raises(Rejected) as refused:
        door.ingest.accept(text, OWN)

    assert (refused.value.reason, refused.value.path) == (reason, path)
    assert refused.value.remedy
    assert door.store.voices() == {}


def test_report_older_than_the_horizon_is_dropped_with_a_reason(door):
    with pytest.raises(Rejected, match="72 h") as refused:
        door.ingest.accept(body(1, age_s=73 * 3600.0), OWN)

    assert refused.value.reason is Reason.TOO_OLD
    assert door.windows() == []


def test_duplicate_is_answered_again_and_changes_nothing(door):
    door.hear(1)
    before = door.store.voice(HOST)
    door.clock.turn(minutes=1)

    again = door.ingest.accept(body(1, age_s=60.0), OWN)

    assert again.duplicate
    assert json.loads(again.answer)["seq"] == 3660000
    assert len(door.windows()) == 1
    assert door.store.voice(HOST) == before
    assert door.counts.results == ["accepted", "duplicate"]


def test_late_duplicate_is_no_second_speaker(door):
    for minute in range(1, 6):
        door.hear(minute)

    again = door.hear(2, age_s=240.0)

    assert again.duplicate
    assert door.audited() == []
    assert len(door.windows(verified=True)) == 5


def test_shared_token_is_never_believed_and_can_still_show_work(door):
    for minute in range(1, 30):
        assert not door.hear(minute, token=SHARED).verified

    assert door.windows(verified=True) == []
    assert door.quiet() is None
    assert door.watch.voice(HOST).first_at == START + timedelta(minutes=1)


def test_busy_word_under_a_shared_token_resets_the_clock(door):
    for minute in range(1, 30):
        door.hear(minute)
    assert door.quiet().quiet_for == timedelta(minutes=29)

    door.hear(30, token=SHARED, peak=0.9)

    assert door.quiet().quiet_for < timedelta(0)


def test_shared_token_leaves_the_books_of_the_machines_own_voice_alone(door):
    door.hear(1)
    door.hear(2, boot="boot-z", token=SHARED)
    door.hear(3)

    voice = door.store.voice(HOST)
    assert (voice.boot_id, voice.retired, voice.conflict_at) == ("boot-a", (), None)
    assert [seen.verified for seen in sorted(door.windows(), key=lambda seen: seen.ended_at)] == [True, False, True]


def test_reboot_retires_the_old_boot_and_stays_believed(door):
    door.hear(1)
    accepted = door.hear(3, boot="boot-b")

    voice = door.store.voice(HOST)
    assert accepted.verified
    assert (voice.boot_id, voice.retired, voice.conflict_at) == ("boot-b", ("boot-a",), None)
    assert voice.boot_since == START + timedelta(minutes=2)
    assert voice.first_at == START + timedelta(minutes=1)


def test_only_the_last_retired_boots_are_remembered(door):
    for minute in range(1, 25):
        door.hear(minute, boot=f"boot-{minute}")

    assert door.store.voice(HOST).retired == tuple(f"boot-{n}" for n in range(24 - KEPT_BOOTS, 24))


def test_two_speakers_are_both_unverified_from_the_younger_ones_first_word(door):
    for minute in range(1, 20):
        door.hear(minute)
    door.hear(20, boot="boot-b")  # a clone: looks like a reboot at first
    door.hear(21)  # and here the original is again

    unverified = {(seen.boot_id, seen.ended_at) for seen in door.windows(verified=False)}
    assert unverified == {("boot-b", START + timedelta(minutes=20)), ("boot-a", START + timedelta(minutes=21))}
    assert door.quiet() is None
    assert not door.hear(22, boot="boot-b").verified
    assert not door.hear(23).verified
    (entry,) = door.audited()  # told once, however often they alternate
    assert "two machines" in entry.because
    assert door.watch.voice(HOST).conflict_at == START + timedelta(minutes=23)


def test_original_is_believed_again_an_hour_after_the_other_fell_silent(door):
    door.hear(1)
    door.hear(2, boot="boot-b")
    for minute in range(3, 63):
        assert not door.hear(minute).verified, minute

    assert door.hear(63).verified
    for minute in range(64, 80):
        door.hear(minute)
    assert door.quiet().quiet_for == timedelta(minutes=17)
    assert door.quiet().covered[timedelta(minutes=10)][0] == 1.0


def test_clock_after_a_conflict_is_the_same_when_made_again_from_the_store(door):
    door.hear(1)
    door.hear(2, boot="boot-b")
    for minute in range(3, 80):
        door.hear(minute)
    again = Watch()
    again.rebuild(door.store, door.clock.now())

    assert again.quiet(HOST, LIMITS, (HOUR,)) == door.watch.quiet(HOST, LIMITS, (HOUR,)) is not None


def test_a_conflict_after_the_hour_is_told_anew(door):
    door.hear(1)
    door.hear(2, boot="boot-b")
    door.hear(3)
    door.hear(90, boot="boot-b")

    assert len(door.audited()) == 2


def test_late_window_from_within_the_conflict_is_not_believed_after_it(door):
    door.hear(1)
    door.hear(2, boot="boot-b")
    door.hear(10)
    door.hear(75)

    assert not door.hear(5, age_s=71 * 60.0).verified
    assert door.hear(74, age_s=3 * 60.0).verified


def test_retired_boot_that_sends_an_old_report_twice_is_no_second_speaker(door):
    door.hear(1)
    door.hear(2, boot="boot-b")

    again = door.hear(1, age_s=120.0)

    assert again.duplicate
    assert door.store.voice(HOST).conflict_at is None


@pytest.mark.parametrize("shift_s", [-25.0, 20.0], ids=["a little behind", "a little ahead"])
def test_clone_by_memory_snapshot_is_found_by_windows_that_overlap(door, shift_s):
    for minute in range(1, 10):
        door.hear(minute)
    door.clock.at = START + timedelta(minutes=9, seconds=shift_s)
    clone = door.ingest.accept(body(9, offset_s=shift_s), OWN)

    assert not clone.verified
    assert door.store.voice(HOST).conflict_at == door.clock.at
    assert len(door.audited()) == 1
    assert not door.hear(10).verified


def test_clone_whose_boot_clock_lags_is_found_by_old_windows_sent_as_new(door):
    for minute in range(100, 110):
        door.hear(minute)
    door.clock.at = START + timedelta(minutes=109, seconds=10)
    clone = door.ingest.accept(body(40), OWN)

    assert not clone.verified
    assert "boot clocks" in door.store.voice(HOST).conflict
    assert door.watch.newest(HOST).verified is False


def test_late_spool_reports_are_no_second_speaker(door):
    door.hear(1)
    door.hear(10)
    for minute in (2, 9, 5, 3, 4, 8, 7, 6):
        assert door.hear(minute, age_s=60.0 * (10 - minute) + 3.0).verified

    assert door.audited() == []
    assert door.quiet().quiet_for == timedelta(minutes=10)
    assert door.quiet().covered[timedelta(minutes=10)][0] == pytest.approx(1.0)


@pytest.mark.parametrize("names", [(), ("voice",), ("add_observation",), ("distrust",)])
def test_store_that_fails_loses_nothing_and_the_next_try_is_kept(names):
    real = open_store(":memory:")
    door = Door(Flaky(real, *names))
    door.hear(1)
    door.hear(2, boot="boot-b")
    door.store.down = True

    with pytest.raises(StoreError):
        door.hear(3)
    door.store.down = False

    assert not door.hear(3, age_s=5.0).duplicate
    assert len(door.windows()) == 3
    assert door.audited()  # told, if need be twice
    assert door.windows(verified=True) == door.windows()[:1]
    assert door.watch.newest(HOST).seq == report(3).seq
    real.close()


def test_restarted_reaper_knows_who_speaks(door):
    door.hear(1)
    door.hear(2, boot="boot-b")
    again = Door(door.store)
    again.watch.rebuild(door.store, door.clock.now())
    again.hear(3)

    assert again.store.voice(HOST).conflict_at == START + timedelta(minutes=3)


MINUTES = 12


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    order=st.permutations(range(1, MINUTES + 1)),
    peaks=st.lists(st.sampled_from([None, 0.0, 0.03, 0.2, 0.9]), min_size=MINUTES, max_size=MINUTES),
    lost=st.sets(st.integers(1, MINUTES), max_size=6),
    ask=st.sets(st.integers(0, MINUTES)),
)
def test_spool_replayed_in_any_order_ends_in_the_same_clock(order, peaks, lost, ask):
    """In order as they were measured, or all after the outage in any order: the same clock, before and after a restart."""

    def reports(minutes, door, at_end):
        for i, minute in enumerate(m for m in minutes if m not in lost):
            peak = peaks[minute - 1]
            gpu = replace(report().gpus[0], peak_ratio=peak, mean_ratio=peak, samples=12 if peak is not None else None)
            age_s = 60.0 * (MINUTES - minute) if at_end else 0.0
            assert door.hear(minute, gpus=(gpu,), age_s=age_s).verified
            if i in ask:
                door.quiet()  # whether somebody asks in between makes no difference

    first, second = Door(), Door()
    try:
        reports(range(1, MINUTES + 1), first, at_end=False)
        reports(order, second, at_end=True)
        again = Watch()
        again.rebuild(second.store, second.clock.now())
        spans = tuple(timedelta(minutes=n) for n in (1, 5, 12))
        expected = first.watch.quiet(HOST, LIMITS, spans)

        assert second.watch.quiet(HOST, LIMITS, spans) == expected
        assert again.quiet(HOST, LIMITS, spans) == expected
        assert second.audited() == []
        assert (expected is None) == (len(lost) == MINUTES)
    finally:
        first.store.close()
        second.store.close()


def test_holders_jobs_and_people_are_kept_and_read_again(door):
    gpu = replace(report().gpus[0], processes=1, holders=(wire.Holder(7, "python", "mia", 5, 60.0),))
    jobs, people = (wire.Job("a", 900.0, None, True), wire.Job("b", launcher="bash")), (wire.Person("mia", 1001, "login", 12.0),)
    door.hear(1, gpus=(gpu,), jobs=jobs, people=people)
    (kept,) = door.windows()

    assert kept.gpus[0].holders == (Holder(7, "python", "mia", 5, 60.0),)
    assert kept.jobs == (Job("a", 900.0, None, True), Job("b", None, "bash", None))
    assert kept.people == (Person("mia", 1001, "login", 12.0),)


def test_people_at_work_and_connections_are_kept_and_read_again(door):
    at_work = wire.AtWork("kernel", "ada", 1000, "python3", None, 0.5, 1024.0, True, 60.0)
    links = wire.Links(True, ("10.0.0.1",), ("10.0.0.2",), (0, 1), 4, "10.0.0.2")
    door.hear(1, presence=wire.Presence((at_work,), ("kernels",)), links=links)
    (kept,) = door.windows()

    assert kept.presence == Presence((AtWork("kernel", "ada", 1000, "python3", None, 0.5, 1024.0, True, 60.0),), ("kernels",))
    assert kept.links == Links(True, ("10.0.0.1",), ("10.0.0.2",), (0, 1), 4, "10.0.0.2")


def test_what_an_agent_does_not_tell_of_is_not_known_rather_than_none(door):
    door.hear(1)
    (kept,) = door.windows()

    assert (kept.jobs, kept.people, kept.gpus[0].holders) == (None, None, None)
    assert (kept.presence, kept.links) == (None, None)


def test_wait_is_kept_as_the_agent_saw_it_and_as_the_job_told_it(door):
    trees = (
        Loader("pid-1", 0.75, 0.25, 4096, 3.5, read_calls=9, worker_cpu_cores=3.0, io_pressure_ratio=0.5, exact_wait_ratio=0.5, exact_s=58.0, batches=12),
        Loader("pid-2", exact_wait_ratio=1.0, off_gpu=True),
    )
    door.hear(1, loader=trees)

    held, alone = door.windows()[0].loaders
    assert (held.wait, held.exact, held.exact_s, held.batches, held.blocked, held.read_calls) == (0.75, 0.5, 58.0, 12, 0.25, 9)
    assert (held.worker_cpu_cores, held.io_pressure, held.delayed, held.waited, held.shown) == (3.0, 0.5, None, 0.75, 0.5)
    assert (alone.wait, alone.exact, alone.off_gpu) == (None, 1.0, True)


def test_job_that_says_it_waits_makes_its_machine_busy_and_one_that_says_it_does_not_never_idle(door):
    quiet = {"loader": (Loader("pid-1", 0.0, 0.0, 0, 0.0),)}
    waiting = {"loader": (Loader("pid-1", 0.0, 0.0, 0, 0.0, exact_wait_ratio=0.9),)}
    hidden = {"loader": (Loader("pid-1", None, exact_wait_ratio=0.0),)}
    for minute in range(1, 11):
        door.hear(minute, **quiet)
    assert door.quiet().quiet_for >= timedelta(minutes=9)
    assert door.quiet().host_covered[timedelta(minutes=10)][0] >= 0.9

    door.hear(11, **waiting)
    assert door.quiet().quiet_for == timedelta(0)
    for minute in range(12, 32):
        door.hear(minute, **hidden)
    assert door.quiet().host_covered[timedelta(minutes=10)][0] < 0.5
