"""Once due, one more report of a window that began after that has to show it idle."""

from dataclasses import replace

import pytest

from reaper.decide.last_look import last_look
from reaper.model.mark import Stage
from tests.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    disk,
    facts,
    gpu,
    loader,
    local_facts,
    mark,
    observation,
    policy,
    quiet,
)

DUE = mark()  # five minutes ago


def hooked(outcome=None, **changes):
    return facts(newest=observation(hook_installed=True, hook_outcome=outcome), **changes)


def test_an_idle_window_begun_after_due_is_the_last_look():
    assert last_look(DUE, facts(), NOW) is None


@pytest.mark.parametrize(("its", "given", "why"), [
    pytest.param(mark(Stage.NOMINATED), facts(), "not served", id="nominated only"),
    pytest.param(mark(Stage.WARNED), facts(), "not served", id="the wait still runs"),
    pytest.param(mark(due_at=None), facts(), "not served", id="due since an unknown moment"),
    pytest.param(DUE, facts(newest=None), "no verified report", id="no report"),
    pytest.param(DUE, facts(quiet=None), "no verified report", id="no verified window"),
    pytest.param(DUE, facts(policies=()), "no verified report", id="no policy any more"),
    pytest.param(DUE, facts(newest=observation(verified=False)), "no verified report", id="an unverified voice"),
    pytest.param(mark(due_at=NOW - MINUTE), facts(), "began after", id="the window began before due"),
    pytest.param(mark(due_at=NOW + HOUR), facts(), "began after", id="due in the future after a step of the clock"),
    pytest.param(DUE, facts(newest=observation(gpus=(gpu(peak=0.5),))), "shows work", id="a GPU moved"),
    pytest.param(DUE, facts(newest=observation(loaders=(loader(wait=0.9),))), "shows work", id="a job waits for data"),
    pytest.param(DUE, facts(newest=observation(net_bytes_per_s=1e9)), "shows work", id="a download began"),
    pytest.param(DUE, facts(quiet=quiet(30 * SECOND)), "not quiet for the whole window", id="the clock was reset inside the window"),
    pytest.param(DUE, facts(newest=observation(61 * SECOND), quiet=quiet(until=NOW - 61 * SECOND)), "over one report period", id="a second too old"),
    pytest.param(DUE, facts(newest=observation(gpus=(gpu(peak=None),))), "does not show it idle", id="a window that read nothing"),
    pytest.param(DUE, facts(newest=observation(gpus=())), "does not show it idle", id="a window without GPUs"),
    pytest.param(DUE, facts(newest=observation(window_s=20.0)), "cut short", id="the last breath of an agent that ends"),
    pytest.param(DUE, facts(newest=observation(sampler="stuck")), "does not show it idle", id="a stuck sampler"),
    pytest.param(DUE, facts(distrust="two speak"), "does not show it idle", id="two speak for it"),
    pytest.param(DUE, facts(newest=observation(-HOUR), quiet=quiet(until=NOW + HOUR)), "in the future", id="a window from the future"),
    pytest.param(DUE, facts(newest=observation(window_s=0.0, gpus=(gpu(covered_s=0.0),))), "does not show it idle", id="a window of no length"),
    pytest.param(DUE, local_facts(disk(used=0.5)), "50.0% used", id="something was put on its local disk"),
    pytest.param(DUE, local_facts(disk(use="unmounted", mount=None)), "unmounted", id="its local disk was unmounted"),
    pytest.param(DUE, local_facts(newest=observation()), "does not tell", id="a report without its local disks"),
    pytest.param(DUE, hooked(), "hook said nothing", id="its hook says nothing"),
    pytest.param(DUE, hooked("veto"), "hook said veto", id="its hook vetoes"),
    pytest.param(DUE, hooked("timeout"), "hook said timeout", id="its hook timed out"),
    pytest.param(DUE, hooked("OK "), "hook said OK", id="an answer that is not quite ok"),
])  # fmt: skip
def test_it_may_not_act_yet(its, given, why):
    assert why in last_look(its, given, NOW)


def test_a_hook_that_agrees_lets_it_go():
    assert last_look(DUE, hooked("ok"), NOW) is None


def test_no_hook_is_no_veto():
    assert last_look(DUE, facts(newest=observation(hook_installed=False, hook_outcome="failed")), NOW) is None


def test_a_hook_vetoes_up_to_the_operators_cap():
    terms = (policy(hook_veto_up_to=HOUR),)

    assert last_look(mark(due_at=NOW - HOUR + SECOND), hooked("veto", policies=terms), NOW) is not None
    assert last_look(mark(due_at=NOW - HOUR), hooked("veto", policies=terms), NOW) is None


def test_in_observe_any_idle_window_begun_after_due_will_do_however_old():
    old = facts(newest=observation(HOUR), quiet=quiet(until=NOW - HOUR))
    its = mark(due_at=NOW - 2 * HOUR)

    assert last_look(its, old, NOW) is not None
    assert last_look(its, old, NOW, observe=True) is None


def test_in_observe_a_hook_that_nobody_called_has_nothing_to_say():
    assert last_look(DUE, hooked(), NOW, observe=True) is None


def test_in_observe_a_busy_window_is_not_the_last_look():
    busy = facts(newest=observation(HOUR, cpu_ratio=1.0), quiet=quiet(until=NOW - HOUR))

    assert "shows work" in last_look(mark(due_at=NOW - 2 * HOUR), busy, NOW, observe=True)


def test_a_window_that_began_the_moment_it_became_due_counts():
    given = facts()

    assert last_look(replace(DUE, due_at=given.newest.started_at), given, NOW) is None
    assert last_look(replace(DUE, due_at=given.newest.started_at + SECOND), given, NOW + DAY) is not None
