"""What jobs look like from outside while their GPUs stand still, as reports tell it: each keeps its machine."""

import pytest

from reaper.decide.correlate import state_of
from reaper.decide.engine import decide
from reaper.model.decision import Verdict
from reaper.model.policy import MIB
from reaper.model.signal import State
from tests.builders import HOUR, NOW, facts, gpu, loader, member, observation, quiet


def seen(**changes):
    """Of a machine that was found quiet for long up to this window."""
    return facts(newest=observation(**changes), quiet=quiet(4 * HOUR))


HELD = (gpu(processes=1, mem_used_bytes=60 << 30),)


@pytest.mark.parametrize(
    ("given", "state"),
    [
        pytest.param(seen(net_bytes_per_s=20.0 * MIB), State.WORKING, id="downloads its dataset before a process holds a GPU"),
        pytest.param(seen(disk_bytes_per_s=200.0 * MIB), State.WORKING, id="unpacks an image during set-up"),
        pytest.param(seen(cpu_ratio=0.9), State.WORKING, id="preprocesses before the first kernel"),
        pytest.param(
            seen(loaders=(loader("pid-9", None, None, exact=1.0, off_gpu=True),)), State.STARVED, id="waits for its first batch and holds no GPU yet, as it says"
        ),
        pytest.param(seen(gpus=HELD, loaders=(loader(wait=1.0, blocked=0.9),)), State.STARVED, id="waits for storage with idle CPUs"),
        pytest.param(seen(gpus=HELD, loaders=(loader(wait=0.8, cpu_cores=40.0, worker_cpu_cores=39.0),)), State.STARVED, id="workers decode on every core"),
        pytest.param(seen(gpus=HELD, loaders=(loader(wait=0.9, write_bytes=40 << 30),)), State.STARVED, id="writes a checkpoint for half an hour"),
        pytest.param(seen(gpus=HELD, loaders=(loader(wait=0.9, cpu_cores=30.0),)), State.STARVED, id="compiles in thirty processes"),
        pytest.param(seen(gpus=HELD, loaders=(loader(wait=0.0, cpu_cores=1.0),)), State.WORKING, id="compiles in itself, and its look missed it"),
        pytest.param(seen(gpus=(gpu(peak=1.0, processes=1),), loaders=(loader(cpu_cores=8.0),)), State.WORKING, id="hangs in a collective with spinning proxies"),
        pytest.param(seen(gpus=(gpu(peak=0.4, mean=0.01, processes=1),), loaders=(loader(wait=0.95),)), State.WORKING, id="computes four batches, then waits long"),
    ],
)
def test_job_without_its_gpus_keeps_its_machine(given, state):
    assert state_of(given, NOW) is state
    assert decide(given, NOW).verdict is not Verdict.ACT


def test_node_that_waits_at_a_barrier_is_kept_by_the_one_that_loads():
    """The rank that reads or writes for all is starved on its own machine; the others only stand there."""
    still = facts(gang="job-7", members=(member(), member("i-03", State.STARVED, None)))

    assert decide(still, NOW).verdict is not Verdict.ACT


@pytest.mark.parametrize("gpus", [HELD, (gpu(processes=None),), (gpu(), gpu("GPU-1", processes=None))], ids=["held", "not known", "one of two not known"])
@pytest.mark.parametrize("told", [0.0, 0.2])
def test_process_without_a_gpu_speaks_for_no_gpus_owner(gpus, told):
    given = seen(gpus=gpus, loaders=(loader("pid-9", None, None, exact=told, off_gpu=True),))

    assert decide(given, NOW).verdict is not Verdict.ACT


@pytest.mark.parametrize("unreadable", [loader(wait=None, cpu_cores=0.0), loader(wait=0.0, cpu_cores=None), loader(wait=None, cpu_cores=None, exact=0.0)])
def test_data_path_that_cannot_be_read_is_not_a_quiet_one(unreadable):
    given = seen(gpus=HELD, loaders=(unreadable,))

    assert decide(given, NOW).verdict is not Verdict.ACT
