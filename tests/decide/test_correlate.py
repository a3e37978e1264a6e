"""What a machine is shown as: any source that says busy wins, idle needs all of them, the rest is unknown."""

import pytest

from reaper.decide.correlate import busy_sign, state_of
from reaper.model.signal import Activity, State
from tests.builders import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    facts,
    gpu,
    held_facts,
    instance,
    loader,
    observation,
    policy,
    quiet,
)

NAN = float("nan")


def seen(**changes):
    return facts(newest=observation(**changes))


@pytest.mark.parametrize(("given", "expected"), [
    pytest.param(facts(), State.IDLE, id="quiet and nothing held"),
    pytest.param(held_facts(), State.HELD, id="a process holds memory"),
    pytest.param(seen(gpus=(gpu(mem_used_bytes=300 << 20),)), State.HELD, id="memory is taken and no process is seen, as inside a container"),
    pytest.param(seen(gpus=(gpu(processes=None, mem_used_bytes=None),)), State.HELD, id="neither memory nor processes can be read"),
    pytest.param(seen(gpus=(gpu(peak=0.05),)), State.IDLE, id="a peak at the limit"),
    pytest.param(seen(gpus=(gpu(peak=0.051, mean=0.0),)), State.WORKING, id="one spike above it"),
    pytest.param(seen(gpus=(gpu(peak=0.01, model="GRID T4-16Q"),)), State.WORKING, id="a throttled virtual GPU does a little"),
    pytest.param(seen(gpus=(gpu(peak=0.01, model="NVIDIA A100-40C"),)), State.WORKING, id="a virtual GPU under its newer name"),
    pytest.param(facts(instance=instance(gpu_model=None), newest=observation(gpus=(gpu(peak=0.0, model="GRID T4-16Q"),))), State.IDLE, id="a virtual GPU does nothing at all"),
    pytest.param(facts(instance=instance(gpu_model=None), newest=observation(gpus=(gpu(peak=0.01, model="NVIDIA A100-SXM4-40GB"),))), State.IDLE, id="a whole GPU does next to nothing"),
    pytest.param(seen(gpus=(gpu(peak=0.9, processes=0),)), State.WORKING, id="full use without any visible process"),
    pytest.param(seen(loaders=(loader(wait=0.3),)), State.STARVED, id="a job waits for its data"),
    pytest.param(seen(loaders=(loader(wait=0.3),), cpu_ratio=0.9), State.STARVED, id="a waiting job computes too"),
    pytest.param(seen(cpu_ratio=0.5), State.WORKING, id="the host computes"),
    pytest.param(seen(cpu_ratio=None), State.IDLE, id="the host's CPU is not told, which in-use holds"),
    pytest.param(facts(quiet=None, newest=None, agent_seen=False), State.NO_AGENT, id="never had an agent"),
    pytest.param(facts(quiet=None, newest=None), State.SILENT, id="had an agent, and no window is kept"),
    pytest.param(facts(newest=observation(3 * MINUTE + SECOND)), State.SILENT, id="three beats missed"),
    pytest.param(facts(newest=observation(HOUR, gpus=(gpu(peak=1.0),))), State.SILENT, id="was busy an hour ago"),
    pytest.param(facts(quiet=None), State.BLIND, id="no verified window"),
    pytest.param(seen(verified=False), State.BLIND, id="an unverified voice says idle"),
    pytest.param(seen(verified=False, gpus=(gpu(peak=1.0),)), State.WORKING, id="an unverified voice says busy"),
    pytest.param(facts(distrust="two speak"), State.BLIND, id="two speak with one identity"),
    pytest.param(facts(distrust="two speak", newest=observation(cpu_ratio=1.0)), State.WORKING, id="two speak and one says busy"),
    pytest.param(facts(distrust=""), State.BLIND, id="distrusted for no reason given"),
    pytest.param(facts(quiet=quiet(until=NOW - HOUR)), State.BLIND, id="the verified voice fell silent and another speaks"),
    pytest.param(seen(sampler="stuck"), State.BLIND, id="the sampler is stuck"),
    pytest.param(seen(gpus=()), State.BLIND, id="all of no GPUs are idle"),
    pytest.param(seen(gpus=(gpu(peak=None),)), State.BLIND, id="a GPU without a peak"),
    pytest.param(seen(gpus=(gpu(covered_s=0.0),)), State.BLIND, id="a peak that covers nothing"),
    pytest.param(seen(gpus=(gpu(peak=NAN),)), State.BLIND, id="a peak that is no number"),
    pytest.param(seen(gpus=(gpu(), gpu())), State.IDLE, id="one GPU told twice is one GPU"),
    pytest.param(facts(instance=instance(gpus=2), newest=observation(gpus=(gpu(), gpu()))), State.BLIND, id="one GPU told twice is not two"),
    pytest.param(facts(instance=instance(gpus=2)), State.BLIND, id="one of two is told"),
    pytest.param(facts(instance=instance(gpus=2), newest=observation(gpus=(gpu(peak=0.8),))), State.WORKING, id="one of two is told, and works"),
    pytest.param(facts(instance=instance(gpus=None), newest=observation(expected_gpus=None)), State.BLIND, id="nobody knows how many there should be"),
    pytest.param(seen(gpus=(gpu(model="Tesla T4"),)), State.BLIND, id="another GPU than the inventory tells"),
    pytest.param(facts(newest=observation(-HOUR)), State.BLIND, id="a report from the future"),
    pytest.param(facts(newest=observation(-HOUR, cpu_ratio=1.0)), State.WORKING, id="a report from the future says busy"),
    pytest.param(facts(policies=(), newest=observation(cpu_ratio=0.2)), State.WORKING, id="without a policy the shipped limits are shown"),
    pytest.param(facts(instance=instance(gpus=0, gpu_model=None), newest=observation(gpus=(), sampler="no-gpu"), quiet=quiet(devices=0)),
                 State.IDLE, id="a machine without GPUs that does nothing"),
])  # fmt: skip
def test_a_machine_is_shown_as(given, expected):
    assert state_of(given, NOW) is expected


@pytest.mark.parametrize("moment", [NOW, NOW + 10 * MINUTE, NOW + 12 * HOUR], ids=["now", "ten minutes on", "half a day on"])
def test_the_age_of_a_report_is_taken_when_it_is_asked_for(moment):
    assert state_of(facts(), moment).activity is (Activity.IDLE if moment == NOW else Activity.UNKNOWN)


def test_busy_is_told_by_the_first_sign_with_its_figure():
    given = facts(newest=observation(gpus=(gpu("GPU-0"), gpu("GPU-1", peak=0.42)), cpu_ratio=1.0))

    assert busy_sign(given, given.newest) == "GPU peak 42%"


def test_figures_that_are_none_show_no_sign_and_no_idleness():
    given = seen(gpus=(gpu(peak=None),), loaders=(loader(wait=None, cpu_cores=None),), cpu_ratio=None, disk_bytes_per_s=None, net_bytes_per_s=None)

    assert busy_sign(given, given.newest) is None
    assert state_of(given, NOW).activity is Activity.UNKNOWN


def test_a_policy_sets_the_limits():
    given = facts(newest=observation(cpu_ratio=0.2), policies=(policy(starved_above=0.1),))

    assert busy_sign(given, given.newest) == "CPU 20%"


@pytest.mark.parametrize(("by_type", "by_driver", "fits"), [
    pytest.param("V100", "Tesla V100-SXM2-16GB", True, id="a V100"),
    pytest.param("A10G", "NVIDIA A10G", True, id="an A10G"),
    pytest.param("H100", "NVIDIA H100 80GB HBM3", True, id="an H100"),
    pytest.param("RTX PRO Server 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True, id="the same words in another order"),
    pytest.param("L4", "NVIDIA L40S", False, id="an L40S is no L4"),
    pytest.param("H100", "NVIDIA H200", False, id="an H200 is no H100"),
    pytest.param("T4", "Tesla T4G", False, id="a T4G is no T4"),
])  # fmt: skip
def test_driver_and_instance_type_call_one_gpu_by_different_names(by_type, by_driver, fits):
    its = facts(instance=instance(gpu_model=by_type), newest=observation(gpus=(gpu(model=by_driver),)))

    assert (state_of(its, NOW) is State.IDLE) is fits
