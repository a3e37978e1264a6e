"""The idle clock against a definition that reads all windows again, and tables for its edges."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reaper.decide.windows import HOLE_PERIODS, Fold, IdleClock, Track, fold, period_of
from reaper.model.resource import ResourceId
from reaper.model.signal import GpuWindow, Limits, LoaderWindow, Observation, Signal, Totals

HOST = ResourceId.parse("aws:123456789012:eu-west-1:instance:i-0abc")
START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MIB = 2**20
LIMITS = Limits(gpu=0.05, cpu=0.2, disk_bytes_per_s=5 * MIB, net_bytes_per_s=5 * MIB, wait=0.3)
MINUTE = timedelta(minutes=1)


def gpu(peak=0.0, uuid="GPU-0", covered_s=60.0, processes=0, **more):
    return GpuWindow(uuid, peak=peak, covered_s=covered_s if peak is not None else None, processes=processes, **more)


def window(end_s, gpus=None, boot="boot-a", length_s=60.0, verified=True, step_s=0.0, **more):
    """The window that ended ``end_s`` seconds after START, on a boot clock that then stood at ``end_s`` + 1000."""
    up_s = end_s + 1000.0
    ended_at = START + timedelta(seconds=end_s + step_s)
    figures = {"cpu_ratio": 0.0, "cpus": 8, "disk_bytes_per_s": 0.0, "net_bytes_per_s": 0.0, "loaders": ()} | more
    return Observation(
        HOST, boot, round(up_s * 1000), up_s, length_s, ended_at - timedelta(seconds=length_s), ended_at, ended_at, verified, "ok",
        gpus=(gpu(),) if gpus is None else gpus, **figures,
    )  # fmt: skip


def minutes(*numbers, **more):
    return [window(60.0 * n, **more) for n in numbers]


def quiet(windows, limits=LIMITS, spans=(timedelta(minutes=10),)):
    return fold(windows).quiet(limits, spans)


# --- against a definition ---------------------------------------------------------------------------------------------


@dataclass
class Said:
    """What the definition says, in seconds of the boot clock; shares as (span, share)."""

    since: float
    unheld_since: float
    until: float
    began: float
    devices: int
    covered: dict
    host_covered: dict


def stretch_of(windows):
    """The windows of the last stretch: no new boot, no hole over three periods between verified ones, no clock step in it."""
    stretch = []
    for seen in windows:
        trusted = [w for w in stretch if w.verified]
        if not trusted or seen.boot_id != trusted[-1].boot_id:
            stretch = [seen]
            continue
        last = trusted[-1]
        longest = HOLE_PERIODS * max(period_of(last.window_s), period_of(seen.window_s)).total_seconds()
        hole = seen.up_s - seen.window_s - last.up_s > longest
        moved = (seen.ended_at - last.ended_at).total_seconds() - (seen.up_s - last.up_s)
        if seen.verified and (hole or abs(moved) > max(longest, 30.0)):
            stretch = []
        stretch.append(seen)
    return stretch


def is_busy(seen, limits):
    return any(g.peak is not None and g.peak > limits.gpu for g in seen.gpus) or (
        seen.cpu_ratio is not None and seen.cpu_ratio >= limits.cpu
    )


def _held(g):
    """A window that read nothing of a GPU says nothing of who holds it: it is not covered instead."""
    return g.processes > 0 if g.processes is not None else g.peak is not None or g.mem_used_bytes is not None


def define(windows, limits, spans):
    """Section by section what "idle since" and "covered" mean, over all windows, without any running sum."""
    stretch = stretch_of(windows)
    trusted = [w for w in stretch if w.verified]
    if not trusted:
        return None
    began, until = stretch[0].up_s - stretch[0].window_s, trusted[-1].up_s
    since = max([began, *(w.up_s for w in stretch if is_busy(w, limits))])
    held = max([began, *(w.up_s for w in stretch if any(_held(g) for g in w.gpus))])
    names = {g.uuid for w in trusted for g in w.gpus} | {g.uuid for w in stretch for g in w.gpus if g.peak is not None}

    def gpu_cover(name):
        def cover(seen, _elapsed):
            return sum(min(g.covered_s, seen.window_s) for g in seen.gpus if g.uuid == name and g.peak is not None)

        return cover

    def host_cover(is_known):
        return lambda seen, elapsed: min(seen.window_s, elapsed) if is_known(seen) else 0.0

    def share(span, cover, born=began):
        """A window that reaches into the span counts with all that it missed; time before a device was named, to the second."""
        start = max(until - span, began)
        missed, before = max(born - start, 0.0), began
        for seen in trusted:
            if seen.up_s > max(start, born):
                missed += max(seen.up_s - before - cover(seen, seen.up_s - before), 0.0)
            before = seen.up_s
        return max(0.0, 1.0 - (missed + span - (until - start)) / span)

    def born(name):
        """The end of the verified window before the first that named it, in whatever voice."""
        first = next(w for w in stretch if any(g.uuid == name and (w.verified or g.peak is not None) for g in w.gpus))
        return max((w.up_s for w in trusted if w.up_s < first.up_s), default=began)

    devices = [(gpu_cover(name), born(name)) for name in names]
    host = [host_cover(lambda w: w.cpu_ratio is not None), host_cover(lambda w: all(g.processes == 0 for g in w.gpus))]
    return Said(
        since=since,
        unheld_since=max(since, held),
        until=until,
        began=began,
        devices=sum(1 for g in trusted[-1].gpus if g.peak is not None and g.covered_s),
        covered={span: min((share(span, *device) for device in devices), default=0.0) for span in spans},
        host_covered={span: min(share(span, cover) for cover in host) for span in spans},
    )


PEAKS = (0.0, 0.0, 0.03, 0.05, 0.051, 0.9, None)
LIVES = st.lists(
    st.tuples(
        st.sampled_from((0, 0, 0, 0, 0, 30, 60, 179, 180, 181, 400)),  # seconds from the window before
        st.sampled_from(PEAKS),
        st.sampled_from((*PEAKS, "gone", "gone")),
        st.sampled_from((60.0, 60.0, 57.5, 30.0, 0.0, 70.0)),  # covered
        st.sampled_from((True, True, True, True, False)),  # verified
        st.sampled_from((0.0, 0.0, 0.1, 0.19, 0.2, 0.5, None)),  # cpu
        st.sampled_from((0, 0, 0, 2, None)),  # processes
        st.sampled_from((*("",) * 12, "boot", "step", "jitter")),
        st.sampled_from((60.0, 60.0, 60.0, 10.0)),  # length
    ),
    min_size=1,
    max_size=20,
)


def lived(life):
    windows, end_s, boot, step_s = [], 0.0, 0, 0.0
    for gap, first, second, covered_s, verified, cpu, processes, event, length_s in life:
        boot += event == "boot"
        step_s += {"step": 600.0, "jitter": 5.0}.get(event, 0.0)
        end_s += gap + length_s
        gpus = [gpu(first, covered_s=covered_s, processes=processes)]
        if second != "gone":
            gpus.append(gpu(second, "GPU-1", covered_s=covered_s, processes=0))
        windows.append(
            window(end_s, tuple(gpus), f"boot-{boot}", length_s, verified, step_s, cpu_ratio=cpu, loaders=None)
        )
    return windows


@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(life=LIVES, limit=st.sampled_from((0.0, 0.05, 0.5)), data=st.data())
def test_clock_agrees_with_the_definition_however_the_windows_come(life, limit, data):
    windows = lived(life)
    limits = replace(LIMITS, gpu=limit)
    spans = tuple(timedelta(seconds=s) for s in (60, 300, 1200))
    clock = IdleClock()
    for seen in windows:
        assert clock.add(seen) in (Fold.ADDED, Fold.RESTARTED)
    answer, said = clock.quiet(limits, spans), define(windows, limits, tuple(s.total_seconds() for s in spans))
    shuffled = data.draw(st.permutations(windows))

    assert fold(shuffled).quiet(limits, spans) == answer
    if said is None:
        assert answer is None
        return
    newest = [w for w in windows if w.verified][-1]

    def moment(up_s):
        return newest.ended_at - timedelta(seconds=newest.up_s - up_s)

    assert (answer.since, answer.unheld_since) == (moment(said.since), moment(said.unheld_since))
    assert (answer.until, answer.began_at, answer.devices) == (moment(said.until), moment(said.began), said.devices)
    for span in spans:
        seconds = span.total_seconds()
        for got, exact in ((answer.covered, said.covered), (answer.host_covered, said.host_covered)):
            # Read to the careful side, by at most the sixtieth of a window that is still being added up.
            assert exact[seconds] - 1.0 / seconds - 1e-6 <= got[span][0] <= exact[seconds] + 1e-6


@settings(max_examples=1000, deadline=None)
@given(peaks=st.lists(st.integers(0, 12), min_size=1, max_size=80), limit=st.integers(0, 12))
def test_track_keeps_no_more_steps_than_distinct_values_and_finds_the_last_above(peaks, limit):
    track = Track()
    for end, peak in enumerate(peaks):
        track.push(float(end), float(peak))
    above = [(float(end), float(peak)) for end, peak in enumerate(peaks) if peak > limit]

    assert len(track) <= len(set(peaks))
    assert track.last_above(float(limit)) == (above[-1] if above else None)


def test_days_of_windows_keep_few_steps():
    clock = IdleClock()
    for n in range(3 * 24 * 60):
        busy = n * 7919 % 101 / 1000.0
        clock.add(window(60.0 * n, (gpu(busy, covered_s=60.0),)))

    assert clock.steps <= 101 + 5


# --- what opens a hole -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "windows", "quiet_for"),
    [
        ("no hole", minutes(1, 2, 3, 4), 4 * MINUTE),
        ("three periods missing", minutes(1, 2, 6, 7), 7 * MINUTE),
        ("over three periods missing", [*minutes(1, 2), window(361.0), window(421.0)], 2 * MINUTE),
        ("a new boot", [*minutes(1, 2, 3), *minutes(4, 5, boot="boot-b")], 2 * MINUTE),
        ("our clock stepped", [*minutes(1, 2, 3), *minutes(4, 5, step_s=200.0)], 2 * MINUTE),
        ("our clock stepped back", [*minutes(1, 2, 3), *minutes(4, 5, step_s=-200.0)], 2 * MINUTE),
        ("late on the way", [*minutes(1, 2, 3), *minutes(4, 5, step_s=20.0)], 5 * MINUTE),
        ("a short sleep that cut a window", [*minutes(1), window(80.0, length_s=20.0), window(240.0), window(300.0)], 5 * MINUTE),
        ("a long sleep that cut a window", [*minutes(1), window(80.0, length_s=20.0), window(400.0), window(460.0)], 2 * MINUTE),
        ("unverified windows fill no hole", [*minutes(1, 2), *minutes(3, 4, 5, 6, verified=False), *minutes(7, 8)], 2 * MINUTE),
        ("few unverified windows open none", [*minutes(1, 2), *minutes(3, 4, verified=False), *minutes(5, 6)], 6 * MINUTE),
        ("a long window does not stretch the period", [window(600.0, length_s=600.0), window(1381.0, length_s=600.0)], 10 * MINUTE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_opens_a_hole(name, windows, quiet_for):
    assert quiet(windows).quiet_for == quiet_for, name


def test_time_slept_is_not_covered():
    slept = [*minutes(1), window(80.0, (gpu(covered_s=20.0),), length_s=20.0), window(240.0), window(300.0)]

    assert quiet(slept, spans=(5 * MINUTE,)).covered[5 * MINUTE][0] == pytest.approx(200 / 300, abs=0.01)


def test_no_verified_window_in_the_stretch_is_no_answer():
    assert quiet(minutes(1, 2, 3, verified=False)) is None
    assert quiet([*minutes(1, 2, 3), *minutes(4, boot="boot-b", verified=False)]) is None
    assert quiet([]) is None


# --- coverage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blind", "share"),
    [
        (gpu(None), 0.5),
        (gpu(None, trouble="lost"), 0.5),
        (GpuWindow("GPU-0", peak=0.0, covered_s=None), 0.5),
        (GpuWindow("GPU-0", peak=None, covered_s=60.0), 0.5),
        (gpu(covered_s=0.0), 0.5),
        (gpu(covered_s=30.0), 0.75),
        (gpu(covered_s=600.0), 1.0),
        (gpu(uuid="GPU-other"), 0.0),
    ],
    ids=["no peak", "lost", "a peak that covers nothing known", "cover without a peak", "zero seconds", "half", "more than its window", "another GPU"],
)  # fmt: skip
def test_absent_figure_never_covers(blind, share):
    windows = [*minutes(1, 2, 3, 4, 5), *minutes(6, 7, 8, 9, 10, gpus=(blind,))]

    least, name = quiet(windows).covered[timedelta(minutes=10)]
    assert least == pytest.approx(share if blind.uuid == "GPU-0" else 0.5, abs=1 / 600)
    assert name.startswith("gpu ")


def test_one_blind_gpu_of_eight_is_named():
    eight = tuple(gpu(None if n == 5 else 0.0, f"GPU-{n}") for n in range(8))

    assert quiet(minutes(*range(1, 11), gpus=eight)).covered[timedelta(minutes=10)] == (0.0, "gpu GPU-5")


def test_no_gpu_covers_nothing():
    assert quiet(minutes(1, 2, 3, gpus=())).covered[timedelta(minutes=10)] == (0.0, "nothing")


def test_gpu_that_vanished_is_missed():
    both = (gpu(), gpu(uuid="GPU-1"))
    windows = [*minutes(1, 2, 3, 4, 5, gpus=both), *minutes(6, 7, 8, 9, 10)]

    assert quiet(windows).covered[timedelta(minutes=10)] == (pytest.approx(0.5), "gpu GPU-1")


def test_gpu_that_came_late_lacks_what_was_before_and_nothing_after():
    both = (gpu(), gpu(uuid="GPU-1"))
    windows = [*minutes(*range(1, 61)), *minutes(*range(61, 81), gpus=both)]
    covered = quiet(windows, spans=(timedelta(minutes=20), timedelta(minutes=40))).covered

    assert covered[timedelta(minutes=20)][0] == pytest.approx(1.0)
    assert covered[timedelta(minutes=40)] == (pytest.approx(0.5), "gpu GPU-1")


@pytest.mark.parametrize("figure", ["cpu_ratio", "disk_bytes_per_s", "net_bytes_per_s"])
def test_host_figure_that_is_absent_is_not_covered(figure):
    windows = [*minutes(1, 2, 3, 4, 5), *minutes(6, 7, 8, 9, 10, **{figure: None})]

    assert quiet(windows).host_covered[timedelta(minutes=10)][0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("processes", "loaders", "share"),
    [
        (0, None, 1.0),
        (0, (), 1.0),
        (2, None, 0.5),
        (None, None, 0.5),
        (2, (), 0.5),
        (2, (LoaderWindow("a"),), 0.5),
        (2, (LoaderWindow("a", 0.0, 0.0), LoaderWindow("b", None, 0.0)), 0.5),
        (2, (LoaderWindow("a", 0.0, 0.0),), 1.0),
        (None, (LoaderWindow("a", 0.0, 0.0),), 0.5),
    ],
    ids=[
        "nobody there", "nobody, looked", "owned, not looked", "not known who", "owned, nobody found", "unreadable", "one unreadable", "readable",
        "the readable tree may not be the only one",
    ],
)  # fmt: skip
def test_data_wait_has_to_be_readable_where_a_process_holds_a_gpu(processes, loaders, share):
    windows = [*minutes(1, 2, 3, 4, 5), *minutes(6, 7, 8, 9, 10, gpus=(gpu(processes=processes),), loaders=loaders)]

    assert quiet(windows).host_covered[timedelta(minutes=10)][0] == pytest.approx(share)


# --- what counts as busy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("busy", "signal"),
    [
        ({"gpus": (gpu(0.051),)}, Signal.GPU),
        ({"gpus": (gpu(0.05),)}, None),
        ({"gpus": (gpu(0.0), gpu(1.0, "GPU-1"))}, Signal.GPU),
        ({"cpu_ratio": 0.2}, Signal.CPU),
        ({"cpu_ratio": 0.19}, None),
        ({"disk_bytes_per_s": 5.0 * MIB}, Signal.DISK),
        ({"disk_bytes_per_s": 4.0 * MIB}, None),
        ({"net_bytes_per_s": 5.0 * MIB}, Signal.NET),
        ({"loaders": (LoaderWindow("a", 0.1, 0.0), LoaderWindow("b", 0.3, 0.0))}, Signal.WAIT),
        ({"loaders": (LoaderWindow("a", 0.29, 0.0),)}, None),
        ({"loaders": (LoaderWindow("a", 0.0, 0.2),)}, Signal.TREE_CPU),
        ({"gpus": (gpu(0.9),), "verified": False}, Signal.GPU),
        ({"cpu_ratio": 0.9, "verified": False}, Signal.CPU),
    ],
    ids=["GPU above", "GPU at its limit", "one GPU of two", "CPU at its limit", "CPU below", "disk at its limit", "disk below", "network",
         "starved", "hardly starved", "owner computes", "unverified GPU", "unverified CPU"],
)  # fmt: skip
def test_what_resets_the_clock(busy, signal):
    windows = [*minutes(1, 2, 3), *minutes(4, **busy), *minutes(5, 6)]
    answer = quiet(windows)

    assert answer.quiet_for == (6 * MINUTE if signal is None else 2 * MINUTE)
    assert (answer.last_busy[0] if answer.last_busy is not None else None) == signal


def test_unverified_work_after_the_newest_verified_window_leaves_nothing_quiet():
    assert quiet([*minutes(1, 2, 3), *minutes(4, verified=False, gpus=(gpu(0.9),))]).quiet_for < timedelta(0)


def test_held_memory_is_quiet_and_not_unheld():
    windows = [*minutes(1, 2, 3), *minutes(4, gpus=(gpu(processes=1),)), *minutes(5)]
    answer = quiet(windows)

    assert (answer.quiet_for, answer.unheld_for) == (5 * MINUTE, MINUTE)


# --- totals over a gap -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "signal"),
    [
        (Totals(cpu_s=100.0), Totals(cpu_s=100.0 + 8 * 120 * 0.5), Signal.CPU),
        (Totals(cpu_s=100.0), Totals(cpu_s=100.0 + 8 * 120 * 0.1), None),
        (Totals(disk_bytes=0), Totals(disk_bytes=120 * 6 * MIB), Signal.DISK),
        (Totals(disk_bytes=0), Totals(disk_bytes=120 * 4 * MIB), None),
        (Totals(net_bytes=0), Totals(net_bytes=120 * 6 * MIB), Signal.NET),
        (Totals(), Totals(net_bytes=120 * 6 * MIB), None),
        (Totals(net_bytes=120 * 6 * MIB), Totals(net_bytes=0), None),
    ],
    ids=["CPU worked", "CPU idled", "disk worked", "disk idled", "network worked", "not known before", "counter ran backwards"],
)
def test_totals_show_work_that_no_window_saw(before, after, signal):
    windows = [*minutes(1, 2), window(180.0, totals=before), window(360.0, totals=after), *minutes(7, 8)]
    answer = quiet(windows)

    assert answer.quiet_for == (8 * MINUTE if signal is None else 3 * MINUTE)  # since the gap's end, at 5 minutes
    assert (answer.last_busy[0] if answer.last_busy is not None else None) == signal


def test_energy_that_no_window_saw_is_work_of_that_gpu():
    def drawn(end_s, energy_j):
        return window(end_s, (gpu(power_w=60.0, energy_j=energy_j),))

    idle = [drawn(60.0, 0.0), drawn(240.0, 180 * 60.0), drawn(300.0, 240 * 60.0)]
    busy = [drawn(60.0, 0.0), drawn(240.0, 180 * 60.0 + 120 * 300.0), drawn(300.0, 240 * 60.0 + 120 * 300.0)]

    assert quiet(idle).quiet_for == 5 * MINUTE
    assert quiet(busy).quiet_for == 2 * MINUTE
    assert quiet(busy).last_busy == (Signal.GPU, 1.0)


# --- order ---------------------------------------------------------------------------------------------------------------


def test_late_and_double_windows_change_nothing_and_say_so():
    clock = IdleClock()
    first, second = minutes(1, 2)

    assert clock.add(first) is Fold.RESTARTED
    assert clock.add(second) is Fold.ADDED
    assert clock.add(second) is Fold.DUPLICATE
    assert clock.add(replace(first, gpus=(gpu(0.9),))) is Fold.LATE
    assert clock.quiet(LIMITS).quiet_for == 2 * MINUTE


def test_second_boot_that_speaks_in_between_stands_where_it_spoke():
    """Its windows are kept under a boot of their own; folded again they must not come after all of the first one's."""
    first, second = minutes(*range(1, 21)), minutes(5.5, 6.5, boot="boot-b", verified=False)
    answer = quiet([*first, *second])

    assert answer.until == START + 20 * MINUTE
    assert answer.quiet_for == 14 * MINUTE


def test_window_that_read_nothing_covers_nothing_and_is_nobodys_hold():
    blind = window(600.0, (GpuWindow("GPU-0"),))
    answer = quiet([*minutes(*range(1, 10)), blind])

    assert answer.unheld_since == answer.since
    assert answer.covered[timedelta(minutes=10)][0] == pytest.approx(0.9)


def test_gpu_with_a_peak_whose_holders_cannot_be_read_counts_as_held():
    unread = window(600.0, (GpuWindow("GPU-0", peak=0.0, covered_s=60.0),))

    assert quiet([*minutes(*range(1, 10)), unread]).unheld_for == timedelta(0)


def test_last_window_cut_short_by_an_agents_end_does_not_shorten_the_period():
    cut = window(543.0, (gpu(covered_s=3.0),), length_s=3.0)

    assert quiet([*minutes(*range(1, 10)), cut]).period == timedelta(minutes=1)
