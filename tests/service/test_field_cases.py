"""What has gone wrong elsewhere, as hours of reports and the decision at their end: each a life that a reaper once took, or missed."""

import pytest

from reaper.decide.engine import decide
from reaper.model.decision import Verdict
from reaper.model.kinds.instance import Lifecycle, Protections
from reaper.model.policy import MIB
from reaper.model.signal import Voice
from reaper.ports import KeptListing, Ledger
from reaper.service.gather import Gathering, Known
from reaper.service.inventory import Inventory
from reaper.service.watch import Watch
from tests.builders import (
    DAY,
    HERE,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    configuration,
    gpu,
    instance,
    loader,
    observation,
    resource,
)

ACT, WAIT, KEEP = Verdict.ACT, Verdict.WAIT, Verdict.KEEP


def lived(minutes, how=lambda ago: {}, skip=lambda ago: False):
    """One window a minute for so long; ``how`` tells what each was, by the minutes it lies back."""
    return [observation(20 * SECOND + ago * MINUTE, **how(ago)) for ago in range(minutes, -1, -1) if not skip(ago)]


def decided(windows, machine=None, listing=None, ledger=None, protections=None, now=NOW):
    machine = machine or instance()
    watch = Watch()
    for seen in windows:
        watch.add(seen, Voice(machine.id, seen.boot_id, NOW - DAY, NOW - DAY, seen.received_at))
    kept = listing or KeptListing(HERE, (machine,), now)
    inventory = Inventory({HERE: kept}, {machine.id: ledger} if ledger else {})
    gathering = Gathering(inventory, Known(), watch, configuration(), now)
    return decide(gathering.facts(machine.id, now, protections or Protections(stop_protected=False)), now)


def now_and_then(every, busy):
    return lambda ago: busy if ago % every == 0 else {}


HELD = {"gpus": (gpu(processes=1, mem_used_bytes=20 << 30),), "loaders": (loader(),)}


@pytest.mark.parametrize(("windows", "expected"), [
    pytest.param(lived(240), ACT, id="idle for four hours"),
    pytest.param(lived(110), KEEP, id="idle for less than the term"),
    pytest.param(lived(240, lambda ago: {"gpus": (gpu(peak=0.9),)} if ago > 130 else {}), ACT, id="a job that ended two hours ago does not protect for ever"),
    pytest.param(lived(400, now_and_then(90, {"gpus": (gpu(peak=0.3, mean=0.0001),)})), KEEP, id="one spike every ninety minutes is work"),
    pytest.param(lived(400, lambda ago: {"net_bytes_per_s": 20.0 * MIB}), KEEP, id="a dataset is downloaded for hours before training"),
    pytest.param(lived(400, lambda ago: {"disk_bytes_per_s": 200.0 * MIB} if ago < 3 else {}), KEEP, id="a long checkpoint is written"),
    pytest.param(lived(400, lambda ago: {"cpu_ratio": 0.9} if ago < 50 else {}), KEEP, id="kernels are compiled for an hour"),
    pytest.param(lived(400, lambda ago: {"loaders": (loader(wait=0.8),), "gpus": (gpu(processes=1, peak=0.0),)}), KEEP, id="a starved loader with the GPU and the CPU quiet"),
    pytest.param(lived(400, lambda ago: {"loaders": (loader(cpu_cores=0.9),), "gpus": (gpu(processes=1),)}), KEEP, id="the job thinks on one core of ninety-six"),
    pytest.param(lived(400, lambda ago: HELD), KEEP, id="a loaded model that nobody asked for six hours"),
    pytest.param(lived(660, lambda ago: HELD), ACT, id="a forgotten notebook of eleven hours"),
    pytest.param(lived(660, lambda ago: HELD if ago % 600 else HELD | {"cpu_ratio": 0.4}), KEEP, id="a model that was asked ten minutes ago"),
    pytest.param(lived(400, lambda ago: {"gpus": (gpu(peak=None, mean=None, covered_s=None),)}), WAIT, id="utilisation was never readable, as under MIG"),
    pytest.param(lived(400, lambda ago: {"gpus": (gpu(peak=None),)} if ago % 5 == 1 else {}), WAIT, id="a fifth of the samples failed"),
    pytest.param(lived(400, lambda ago: {"gpus": (gpu(peak=None),)} if ago % 20 == 1 else {}), ACT, id="a twentieth of the samples failed"),
    pytest.param(lived(400, lambda ago: {"loaders": None, "gpus": (gpu(processes=1),)}), KEEP, id="its processes' files may not be read, for less than the held term"),
    pytest.param(lived(700, lambda ago: {"loaders": None, "gpus": (gpu(processes=1),)}), WAIT, id="its processes' files may not be read, for longer"),
    pytest.param(lived(400, lambda ago: {"cpu_ratio": None}), WAIT, id="the host's CPU was never readable"),
    pytest.param(lived(400, skip=lambda ago: ago < 10), WAIT, id="heartbeats lost in an outage are no reason to stop"),
    pytest.param(lived(400, skip=lambda ago: 30 < ago < 40), KEEP, id="a hole begins the clock anew"),
    pytest.param(lived(400, skip=lambda ago: 30 < ago < 33), ACT, id="two beats lost are no hole"),
    pytest.param(lived(400, lambda ago: {"boot_id": "boot-2"} if ago < 60 else {}), KEEP, id="a reboot begins it anew"),
    pytest.param(lived(400, lambda ago: {"gpus": (gpu(peak=0.9),), "verified": False} if ago == 5 else {}), KEEP, id="an unverified voice says busy"),
    pytest.param(lived(400, lambda ago: {"sampler": "stuck", "gpus": ()} if ago < 2 else {}), WAIT, id="the driver hangs in a call"),
    pytest.param(lived(400, lambda ago: {"sampler": "failed", "because": "driver and library versions differ", "gpus": ()}), WAIT, id="the driver was upgraded under a running host"),
    pytest.param(lived(400, lambda ago: {"orchestrators": ("slurmd",)}), WAIT, id="a scheduler may place work at any moment"),
])  # fmt: skip
def test_a_life_and_its_end(windows, expected):
    assert decided(windows).verdict is expected


@pytest.mark.parametrize(("machine", "expected"), [
    pytest.param(instance(managed_by="auto scaling group train-a"), WAIT, id="a member of an auto scaling group would be replaced"),
    pytest.param(instance(managed_by="EKS node group gpu"), WAIT, id="a managed node would be replaced in half a minute"),
    pytest.param(instance(lifecycle=Lifecycle.CAPACITY_BLOCK), WAIT, id="prepaid capacity is not given back"),
    pytest.param(instance(lifecycle=Lifecycle.SPOT), WAIT, id="a spot machine may not come back"),
    pytest.param(instance(local_store=True), WAIT, id="a stop would wipe its disks"),
    pytest.param(instance(gpus=8), WAIT, id="seven of eight GPUs have no report"),
    pytest.param(instance(launched_at=NOW - 10 * MINUTE), WAIT, id="set-up comes before the first kernel"),
])  # fmt: skip
def test_an_idle_machine_that_must_stay(machine, expected):
    assert decided(lived(400), machine).verdict is expected


def test_a_throttled_listing_is_no_reason_to_act_on_the_last_one():
    assert decided(lived(400), listing=KeptListing(HERE, (instance(),), NOW - MINUTE, failed="RequestLimitExceeded")).verdict is WAIT


def test_a_veto_that_cannot_be_read_is_a_veto():
    assert decided(lived(400), protections=Protections(because="ThrottlingException")).verdict is WAIT


def test_a_cloud_that_keeps_the_old_launch_time_does_not_make_a_restarted_machine_old():
    restarted = Ledger(resource(), NOW - 3 * DAY, NOW, running_since=NOW - 5 * MINUTE, launched_at=NOW - DAY)

    assert decided(lived(400), ledger=restarted).verdict is WAIT


def test_a_dead_agents_last_idle_word_does_not_live_on():
    windows = lived(400)

    assert [decided(windows, now=NOW + after).verdict for after in (0 * MINUTE, 2 * MINUTE, 4 * MINUTE, HOUR, DAY)] == [ACT, ACT, WAIT, WAIT, WAIT]


def test_our_own_downtime_is_no_idle_time():
    """The reaper was away for twelve hours and agents could not reach it: what was not observed does not count."""
    windows = lived(12 * 60 + 30, skip=lambda ago: 5 < ago <= 12 * 60)

    assert decided(windows).verdict is KEEP


def test_late_reports_from_the_spool_fill_the_hole():
    on_time, late = lived(400, skip=lambda ago: 30 < ago < 60), lived(59)[:29]

    assert decided(sorted([*on_time, *late], key=lambda seen: seen.seq)).verdict is ACT
    assert decided(on_time).verdict is KEEP
