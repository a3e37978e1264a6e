"""What is not seen well enough is not idle: each row is one way of not knowing."""

from dataclasses import replace

from reaper.decide.guards.blind import blind
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
    held_facts,
    instance,
    observation,
    quiet,
)  # fmt: skip
from tests.decide.tables import check, rows

NAN = float("nan")


def eight(**changes):
    """Eight GPUs where eight should be, with ``changes`` to the last one."""
    gpus = tuple(gpu(f"GPU-{n}") for n in range(7)) + (gpu(**({"uuid": "GPU-7"} | changes)),)
    readable = sum(1 for g in gpus if g.peak is not None and g.covered_s)
    return facts(instance=instance(gpus=8), newest=observation(gpus=gpus, expected_gpus=8), quiet=quiet(devices=readable))


def covered(share, of=facts, span=IDLE_FOR):
    its = of()
    return replace(its, quiet=replace(its.quiet, covered={**its.quiet.covered, span: (share, "gpu GPU-0")}))


def unknown_type(**changes):
    """The instance type could not be read, so only the agent says how many GPUs there should be."""
    return facts(instance=instance(gpus=None, gpu_model=None), **changes)


@rows([
    ("everything is seen", facts(), None),
    ("a held machine that is seen", held_facts(), None),
    # the listing
    ("its region was throttled", facts(place_failed="RequestLimitExceeded"), "could not be listed"),
    ("listed just in time", facts(listed_at=NOW - 3 * MINUTE), None),
    ("listed too long ago", facts(listed_at=NOW - 3 * MINUTE - SECOND), "listed 3m"),
    ("listed in the future after a step of the clock", facts(listed_at=NOW + HOUR), "in the future"),
    ("listed a little ahead of us", facts(listed_at=NOW + 20 * SECOND), None),
    # the voice
    ("never had an agent", facts(quiet=None, newest=None, agent_seen=False), "never had an agent"),
    ("had an agent once", facts(quiet=None, newest=None), "silent agent"),
    ("only an unverified voice speaks", facts(quiet=None, newest=observation(verified=False)), "no verified report"),
    ("an unverified voice spoke last", facts(newest=observation(verified=False)), "unverified voice"),
    ("two agents speak for it", facts(distrust="two machines use one identity"), "one identity"),
    ("distrusted for no reason given", facts(distrust=""), ""),
    ("a clock without its newest report", facts(newest=None), "newest report is not known"),
    ("three beats of silence are borne", facts(quiet=quiet(until=NOW - 3 * MINUTE), newest=observation(3 * MINUTE)), None),
    ("then it is silent", facts(quiet=quiet(until=NOW - 3 * MINUTE - SECOND), newest=observation(3 * MINUTE + SECOND)), "silent agent"),
    ("silent for half a day while we were down", facts(quiet=quiet(until=NOW - DAY / 2), newest=observation(DAY / 2)), "ended 12h ago"),
    ("an unverified voice does not break the silence", facts(quiet=quiet(until=NOW - HOUR)), "silent agent"),
    ("a report from the future is not fresh for ever", facts(quiet=quiet(until=NOW + HOUR), newest=observation(-HOUR)), "in the future"),
    ("only its clock is in the future", facts(quiet=quiet(until=NOW + HOUR)), "in the future"),
    ("a report a little ahead of us", facts(quiet=quiet(until=NOW + 20 * SECOND), newest=observation(-20 * SECOND)), None),
    ("a period of no length makes every report old", facts(quiet=quiet(period=0 * SECOND)), "silent agent"),
    # the devices
    ("the sampler is stuck in a call", facts(newest=observation(sampler="stuck")), "cannot sample: stuck"),
    ("driver and library differ", facts(newest=observation(sampler="failed", because="version mismatch")), "version mismatch"),
    ("a sampler of no state", facts(newest=observation(sampler="")), "cannot sample"),
    ("a GPU without a peak, as under MIG", eight(peak=None), "7 of 8 GPUs readable"),
    ("a GPU that was not covered", eight(covered_s=0.0), "7 of 8 GPUs readable"),
    ("a GPU whose cover is not known", eight(covered_s=None), "7 of 8 GPUs readable"),
    ("a GPU whose peak is not a number", eight(peak=NAN), "not known (blind)"),
    ("a GPU whose peak is below zero", eight(peak=-1.0), "not known (blind)"),
    ("a GPU whose cover is not a number", eight(covered_s=NAN), "not known (blind)"),
    ("one GPU named twice for a lost one", eight(uuid="GPU-6"), "not known (blind)"),
    ("a GPU fell off the bus", facts(instance=instance(gpus=2)), "1 of 2 GPUs readable"),
    ("no GPU is left", facts(newest=observation(gpus=()), quiet=quiet(devices=0)), "0 of 1 GPUs readable"),
    ("more GPUs than the type has", facts(newest=observation(gpus=(gpu(), gpu("GPU-1"))), quiet=quiet(devices=2)), "reports 2 GPUs"),
    ("GPUs on a type that has none", facts(instance=instance(gpus=0, gpu_model=None)), "reports 1 GPUs"),
    ("another GPU than the type has", facts(newest=observation(gpus=(gpu(model="NVIDIA H100 80GB HBM3"),))), "NVIDIA H100"),
    ("the second of two is another", facts(
        instance=instance(gpus=2), quiet=quiet(devices=2), newest=observation(gpus=(gpu(), gpu("GPU-1", model="Tesla T4")))), "Tesla T4"),
    ("the agent remembers more than it reads", unknown_type(newest=observation(expected_gpus=2)), "1 of 2 GPUs readable"),
    ("the agent's own count will do where the type is not known", unknown_type(), None),
    ("nobody knows how many there should be", unknown_type(newest=observation(expected_gpus=None)), "not known"),
    ("the newest window lost a GPU that the clock has not lost yet", facts(newest=observation(gpus=(gpu(peak=None),))), "not known (blind)"),
    ("hundreds of GPUs, all seen", facts(
        instance=instance(gpus=400), quiet=quiet(devices=400), newest=observation(gpus=tuple(gpu(f"GPU-{n}") for n in range(400)))), None),
    # the coverage
    ("nine tenths covered are enough", covered(0.90), None),
    ("less is not", covered(0.899), "gpu GPU-0 covered 90%"),
    ("coverage not a number", covered(NAN), "covered"),
    ("coverage not known for this span", facts(quiet=quiet(covered={})), "nothing covered 0%"),
    ("a held machine is covered over its longer term", covered(0.5, held_facts, HELD_FOR), "covered 50%"),
    ("no term yet, so no coverage is asked for", facts(quiet=quiet(HOUR, covered={})), None),
])  # fmt: skip
def test_what_is_not_seen_holds(given, expected):
    check(blind, given, expected)
