from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from reaper.decide.windows import HORIZON
from reaper.model.signal import GpuWindow, Observation, Voice
from reaper.service.watch import Watch
from reaper.store import open_store
from tests.service.door import HOST, LIMITS, OTHER, START, Flaky


def window(minute, resource=HOST, boot="boot-a", verified=True, peak=0.0):
    ended_at = START + timedelta(minutes=minute)
    up_s = 3600.0 + 60.0 * minute
    return Observation(
        resource, boot, round(up_s * 1000), up_s, 60.0, ended_at - timedelta(minutes=1), ended_at, ended_at, verified, "ok",
        gpus=(GpuWindow("GPU-0", peak=peak, covered_s=60.0, processes=0),), cpu_ratio=0.0, disk_bytes_per_s=0.0, net_bytes_per_s=0.0,
    )  # fmt: skip


def voice(seen):
    return Voice(seen.resource, seen.boot_id, START, START, seen.received_at)


@pytest.fixture
def store():
    opened = open_store(":memory:")
    yield opened
    opened.close()


def keep(store, watch, *windows):
    for seen in windows:
        store.add_observation(seen, voice(seen))
        if watch is not None:
            watch.add(seen, voice(seen))


def quiet_for(watch, resource=HOST):
    quiet = watch.quiet(resource, LIMITS)
    return quiet.quiet_for if quiet is not None else None


def test_nobody_ever_spoke_is_told_from_silence(store):
    watch = Watch(store)
    keep(store, watch, window(1))

    assert watch.voice(HOST) is not None
    assert (watch.voice(OTHER), watch.newest(OTHER), watch.quiet(OTHER, LIMITS)) == (None, None, None)
    assert set(watch.voices()) == {HOST}


def test_late_window_fills_the_gap_it_left(store):
    watch = Watch(store)
    keep(store, watch, *(window(n) for n in (1, 2, 3)), *(window(n) for n in (8, 9)))
    assert quiet_for(watch) == timedelta(minutes=2)  # four minutes without a report are a hole

    keep(store, watch, window(6, peak=0.0), window(5, peak=0.0))

    assert quiet_for(watch) == timedelta(minutes=9)


def test_late_window_that_shows_work_resets_the_clock(store):
    watch = Watch(store)
    keep(store, watch, *(window(n) for n in (1, 2, 3, 5, 6)))
    keep(store, watch, window(4, peak=0.9))

    assert quiet_for(watch) == timedelta(minutes=2)


def test_without_a_store_a_late_window_makes_the_answer_unknown():
    watch = Watch()
    for n in (1, 3, 2):
        watch.add(window(n))

    assert watch.quiet(HOST, LIMITS) is None
    assert watch.newest(HOST) is None
    assert watch.peek(HOST) == window(3)


def test_newest_window_need_not_be_the_newest_verified_one(store):
    watch = Watch(store)
    keep(store, watch, window(1), window(2, verified=False))

    assert watch.newest(HOST).ended_at == START + timedelta(minutes=2)
    assert watch.newest_verified(HOST).ended_at == START + timedelta(minutes=1)


def test_distrusted_windows_count_no_longer(store):
    watch = Watch(store)
    keep(store, watch, *(window(n) for n in range(1, 9)))
    store.distrust(HOST, START + timedelta(minutes=5))
    watch.refold(HOST)

    assert watch.newest_verified(HOST).ended_at == START + timedelta(minutes=5)
    assert watch.newest(HOST).verified is False


def test_rebuild_brings_back_every_machine(store):
    before = Watch(store)
    keep(store, before, *(window(n, host) for n in range(1, 9) for host in (HOST, OTHER)))
    after = Watch()
    after.rebuild(store, START + timedelta(minutes=9))

    for host in (HOST, OTHER):
        assert after.quiet(host, LIMITS) == before.quiet(host, LIMITS) is not None
        assert after.voice(host) == before.voice(host)


def test_rebuild_loses_nothing_that_comes_in_meanwhile(store):
    watch = Watch(store)
    keep(store, watch, *(window(n) for n in range(1, 5)))

    class Slow:
        """Reports come in after the rebuild has read its rows."""

        def __getattr__(self, name):
            return getattr(store, name)

        def observations(self, since, resource=None):
            rows = list(store.observations(since, resource))
            if resource is None:
                keep(store, watch, window(5), window(1, OTHER))
            return iter(rows)

    watch.rebuild(Slow(), START + timedelta(minutes=5))

    assert watch.newest(HOST) == window(5)
    assert quiet_for(watch) == timedelta(minutes=5)
    assert watch.newest(OTHER) == window(1, OTHER)
    assert watch.voice(OTHER) is not None


def test_other_processs_reports_are_caught_up_with(store):
    mine, other = Watch(store), Watch(store)
    keep(store, mine, *(window(n) for n in range(1, 4)))
    keep(store, other, window(4), window(5), window(1, OTHER))
    mine.catch_up(store, START + timedelta(minutes=5))

    assert quiet_for(mine) == timedelta(minutes=5)
    assert mine.newest(OTHER) == window(1, OTHER)


def test_catching_up_with_nothing_new_reads_no_window(store):
    watch = Watch(store)
    keep(store, watch, window(1), window(2))
    flaky = Flaky(store, "observations")
    flaky.down = True
    watch.catch_up(flaky, START + timedelta(minutes=3))

    assert quiet_for(watch) == timedelta(minutes=2)


def test_machine_silent_for_the_horizon_is_forgotten_but_not_its_voice(store):
    watch = Watch(store)
    keep(store, watch, window(1))
    long_after = int(HORIZON / timedelta(minutes=1)) + 120
    keep(store, watch, window(long_after, OTHER))

    assert len(watch) == 1
    assert watch.newest(HOST) is None
    assert watch.voice(HOST) is not None


def test_questions_and_reports_from_many_threads_agree_in_the_end(store):
    watch = Watch(store)
    windows = [window(n) for n in range(1, 41)]
    shuffled = [*windows[::2], *windows[1::2][::-1]]

    def add(part):
        keep(store, watch, *part)
        watch.quiet(HOST, LIMITS)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, [shuffled[i::4] for i in range(4)]))

    assert quiet_for(watch) == timedelta(minutes=40)


def test_foreign_boot_under_a_shared_token_makes_it_unknown_in_both_folds(store):
    watch = Watch(store)
    keep(store, watch, *(window(n) for n in range(1, 5)), replace(window(5, boot="boot-z"), verified=False))
    again = Watch()
    again.rebuild(store, START + timedelta(minutes=5))

    assert watch.quiet(HOST, LIMITS) is None
    assert again.quiet(HOST, LIMITS) is None
