"""
Necessary conditions of every stop, said once more and on their own, against facts of which anything may be wrong at once.

Whatever the rules say, a machine that is let go must satisfy each line of `wrong_with`.
"""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from reaper.decide.engine import decide
from reaper.decide.last_look import last_look
from reaper.model.decision import Verdict
from reaper.model.kinds.instance import InstanceState, Lifecycle, Protections
from reaper.model.policy import MIB
from reaper.model.signal import Activity, State
from tests.builders import (
    DAY,
    HELD_FOR,
    HOUR,
    IDLE_FOR,
    MINUTE,
    NOW,
    SECOND,
    facts,
    gpu,
    instance,
    loader,
    mark,
    member,
    observation,
    policy,
    quiet,
    shield,
    snooze,
)  # fmt: skip

NAN, INF = float("nan"), float("inf")


def but(good, *others):
    """Mostly good: of forty figures a few are wrong, and now and then none is."""
    return st.sampled_from([good] * 24 * len(others) + list(others))


gpus = st.builds(
    gpu, but("GPU-0", "GPU-1", ""), peak=but(0.0, None, 0.05, 0.06, 1.0, NAN, -1.0, INF), covered_s=but(60.0, None, 0.0, NAN, -5.0),
    mem_used_bytes=but(0, None, 8 << 30), processes=but(0, None, 1, -1), model=but("NVIDIA A10G", None, "Tesla T4", ""),
)  # fmt: skip
loaders = st.builds(
    loader, wait=but(0.0, None, 0.29, 0.3, 1.0, NAN), cpu_cores=but(0.0, None, 0.19, 0.2, 4.0, NAN), exact=but(None, 0.0, 0.29, 0.3, 1.0, NAN),
    off_gpu=but(None, True),
)  # fmt: skip
newest = st.builds(
    observation, but(20 * SECOND, 0 * SECOND, 3 * MINUTE, HOUR, -HOUR, -20 * SECOND), verified=but(True, False), sampler=but("ok", "stuck", "", "no-gpu"),
    expected_gpus=but(1, None, 0, 2), gpus=gpus.map(lambda one: (one,)) | st.lists(gpus, max_size=2).map(tuple), loaders=but((), None) | st.lists(loaders, max_size=2).map(tuple),
    cpu_ratio=but(0.01, None, 0.2, 1.0, NAN, -1.0), disk_bytes_per_s=but(0.0, None, 5.0 * MIB, INF), net_bytes_per_s=but(0.0, None, 5.0 * MIB, NAN),
    orchestrators=but((), None, ("slurmd",)),
)  # fmt: skip
shares = but((1.0, "gpu"), (0.9, "gpu"), (0.89, "gpu"), (0.0, "nothing"), (NAN, "gpu"))
quiets = st.builds(
    quiet, but(4 * HOUR, IDLE_FOR, IDLE_FOR - SECOND, HELD_FOR, 0 * SECOND, -HOUR), but(NOW - 20 * SECOND, NOW - HOUR, NOW + HOUR, NOW - 3 * MINUTE),
    but(None, 0 * SECOND, IDLE_FOR, 12 * HOUR), devices=but(1, 0, 2), covered=st.fixed_dictionaries({IDLE_FOR: shares, HELD_FOR: shares}),
    host_covered=st.fixed_dictionaries({IDLE_FOR: shares, HELD_FOR: shares}),
)  # fmt: skip
instances = st.builds(
    instance, gpus=but(1, None, 0, 2), gpu_model=but("A10G", None), state=but(InstanceState.RUNNING, *InstanceState), lifecycle=but(Lifecycle.ON_DEMAND, None, *Lifecycle),
    local_store=but(False, None, True), managed_by=but(None, "auto scaling group a", ""),
)  # fmt: skip
anything = st.builds(
    facts, instance=instances, quiet=quiets, newest=newest,
    listed_at=but(NOW, NOW - HOUR, NOW + HOUR), place_failed=but(None, "throttled", ""), policies=but((policy(),), (), (policy(), policy("b")), (policy(action="report"),)),
    running_since=but(NOW - DAY, None, NOW, NOW + HOUR), ineligible=but(None, "", "outside"), shields=but((), (shield(),), (shield(until=NOW),)),
    claimed_by=but(None, ""), distrust=but(None, "", "two speak"), snoozes=but((), (snooze(),), (snooze(NOW),)), gang=but(None, "tag:job=a"),
    members=st.lists(st.builds(member, state=but(State.IDLE, *State), quiet_for=but(4 * HOUR, None, HOUR)), max_size=3).map(tuple), gang_incomplete=but(None, "throttled"),
    attempt_open=but(False, True), back_off_until=but(None, NOW + HOUR, NOW), protections=but(Protections(stop_protected=False), None, Protections(), Protections(stop_protected=True)),
)  # fmt: skip


def known(value):
    return value is not None and math.isfinite(value)


def readable_and_low(seen):
    return {g.uuid for g in seen.gpus if known(g.peak) and 0 <= g.peak <= 0.05 and known(g.covered_s) and g.covered_s > 0}


def wrong_with(its):
    """Everything that should have kept a stop of these facts from happening."""
    machine, seen, clock = its.instance, its.newest, its.quiet
    if seen is None or clock is None:
        return ["no report"]
    count = machine.gpus if machine.gpus is not None else seen.expected_gpus
    good = readable_and_low(seen)
    held = any(g.processes not in (0, None) or (g.mem_used_bytes or 0) > 256 << 20 for g in seen.gpus)
    span = IDLE_FOR if clock.unheld_for >= IDLE_FOR else HELD_FOR
    trees = seen.loaders or ()
    checks = {
        "not running": machine.state is InstanceState.RUNNING,
        "not on demand": machine.lifecycle is Lifecycle.ON_DEMAND,
        "local disks": machine.local_store is False,
        "managed": machine.managed_by is None,
        "not exactly one policy that stops": len(its.policies) == 1 and its.policies[0].action == "stop",
        "outside": its.ineligible is None and its.claimed_by is None,
        "protected": not any(s.until is None or s.until > NOW for s in its.shields),
        "snoozed": not any(s.until > NOW for s in its.snoozes),
        "young": its.running_since is not None and NOW - its.running_since >= 30 * MINUTE,
        "listing": its.place_failed is None and abs(NOW - its.listed_at) <= its.stale_after,
        "distrusted": its.distrust is None and seen.verified,
        "not fresh": abs(NOW - clock.until) <= 3 * MINUTE and abs(NOW - seen.ended_at) <= 3 * MINUTE,
        "sampler": seen.sampler in ("ok", "no-gpu"),
        "not every GPU": count is not None and count > 0 and len(good) == count == clock.devices,
        "some GPU above": not any(known(g.peak) and g.peak > 0.05 for g in seen.gpus),
        "another GPU": machine.gpu_model is None or all(g.model is None or machine.gpu_model in g.model for g in seen.gpus),
        "term": clock.quiet_for >= span and clock.quiet_for >= IDLE_FOR,
        "coverage": clock.covered[span][0] >= 0.9 and clock.host_covered[span][0] >= 0.9,
        "host": known(seen.cpu_ratio) and 0 <= seen.cpu_ratio < 0.2 and known(seen.disk_bytes_per_s) and seen.disk_bytes_per_s < 5 * MIB,
        "network": known(seen.net_bytes_per_s) and seen.net_bytes_per_s < 5 * MIB,
        "loader": all(t.off_gpu or (known(t.wait) and known(t.cpu_cores)) for t in trees),
        "waits": not any((known(t.wait) and t.wait >= 0.3) or (known(t.cpu_cores) and t.cpu_cores >= 0.2) for t in trees),
        "says that it waits": all(t.exact is None or (known(t.exact) and t.exact < 0.3) for t in trees),
        "owner unseen": not all(t.off_gpu for t in trees) or all(g.processes == 0 for g in seen.gpus),
        "orchestrator": seen.orchestrators == (),
        "gang": its.gang is None or (its.gang_incomplete is None and all(m.state.activity is Activity.IDLE and m.quiet_since and NOW - m.quiet_since >= IDLE_FOR for m in its.members)),
        "transition": not its.attempt_open and not (its.back_off_until and its.back_off_until > NOW),
        "stop protection": its.protections is not None and its.protections.stop_protected is False,
        "held too short": not held or clock.unheld_for >= IDLE_FOR or clock.quiet_for >= HELD_FOR,
    }  # fmt: skip
    return [name for name, fine in checks.items() if not fine]


ACTED = []


@settings(max_examples=2000, deadline=None, database=None, print_blob=True)
@given(anything)
def test_whatever_is_wrong_with_a_machine_keeps_it(its):
    decided = decide(its, NOW)
    if decided.verdict is Verdict.ACT:
        ACTED.append(its)
        assert wrong_with(its) == []
        assert decided.state.activity is Activity.IDLE


@settings(max_examples=1000, deadline=None, database=None, print_blob=True)
@given(anything, st.sampled_from([NOW - HOUR, NOW - 5 * MINUTE, NOW - MINUTE, NOW, NOW + HOUR]), st.booleans())
def test_the_last_look_is_taken_of_idle_windows_begun_after_due_only(its, due_at, observe):
    if last_look(mark(due_at=due_at), its, NOW, observe=observe) is None:
        assert its.newest.started_at >= due_at
        assert its.newest.verified
        assert observe or -30 <= (NOW - its.newest.ended_at).total_seconds() <= 60
        assert its.gpus == len(readable_and_low(its.newest))
        assert not any(known(g.peak) and g.peak > 0.05 for g in its.newest.gpus)
        assert its.newest.sampler in ("ok", "no-gpu")
        assert its.distrust is None


def test_the_facts_of_these_tests_are_not_all_wrong():
    """Else the first test would say nothing."""
    decided = [decide(its, NOW).verdict for its in (facts(), facts(snoozes=(snooze(NOW),)), facts(shields=(shield(until=NOW),)))]

    assert decided == [Verdict.ACT] * 3
    assert len(ACTED) > 50
