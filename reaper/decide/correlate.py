"""What a machine is doing now, from every source that covers it: any that says BUSY wins, IDLE needs all, the rest is UNKNOWN."""

import math
import re
from datetime import datetime
from functools import lru_cache

from reaper.decide import at_work
from reaper.decide.facts import MOST_AHEAD, Facts, silent_for
from reaper.model.policy import MIB
from reaper.model.signal import Observation, State


def state_of(facts: Facts, now: datetime) -> State:
    """The newest window's state. Without a policy the shipped limits are used, for showing."""
    newest, quiet = facts.newest, facts.quiet
    if newest is None:
        return State.SILENT if facts.agent_seen else State.NO_AGENT
    period = quiet.period if quiet is not None else (newest.ended_at - newest.started_at)
    if now - newest.ended_at > 3 * period:
        return State.SILENT
    busy = busy_sign(facts, newest)
    if busy is not None:
        return State.STARVED if busy.startswith("data wait") else State.WORKING
    if facts.distrust is not None or quiet is None or silent_for(facts, now) is not None or not newest.verified:
        return State.BLIND
    if newest.ended_at - now > MOST_AHEAD or newest.sampler not in ("ok", "no-gpu"):
        return State.BLIND
    if facts.gpus is None or readable(newest) != facts.gpus or misfit(facts, newest) is not None:
        return State.BLIND
    if any(gpu.held for gpu in newest.gpus):
        return State.HELD
    return State.IDLE


def figure(value: float | None) -> float | None:
    """A figure as sent, or None where it cannot be one: NaN, infinite and below zero compare as quiet and say nothing."""
    return value if value is not None and 0.0 <= value < math.inf else None


def readable(seen: Observation) -> int:
    """How many GPUs this window could read: each counts once, however often it is named."""
    return len({gpu.uuid for gpu in seen.gpus if gpu.peak is not None and figure(gpu.peak) is not None and figure(gpu.covered_s)})


def misfit(facts: Facts, seen: Observation) -> str | None:
    """The first reported GPU type that is not the one the inventory tells; None: all fit, or one side does not say."""
    model = facts.instance.gpu_model
    if model is None:
        return None
    return next((gpu.model for gpu in seen.gpus if gpu.model is not None and not _words(model) <= _words(gpu.model)), None)


def busy_sign(facts: Facts, seen: Observation) -> str | None:
    """The first sign of work in one window, with its figure; None: none seen (which is not yet "idle")."""
    policy = facts.policy
    gpu_limit = policy.idle.gpu_at_most if policy else 0.05
    cpu = policy.busy.cpu if policy else 0.20
    disk = (policy.busy.disk_mib_s if policy else 5.0) * MIB
    net = (policy.busy.net_mib_s if policy else 5.0) * MIB
    starved = policy.starved_above if policy else 0.30
    for gpu in seen.gpus:
        peak = gpu.work
        if peak is not None and gpu_limit < peak < math.inf:
            return f"GPU peak {gpu.peak:.0%}"
    for tree in seen.loaders or ():
        wait = tree.waited
        if wait is not None and wait >= starved:
            return f"data wait {wait:.0%}"
    for tree in seen.loaders or ():
        cores = figure(tree.cpu_cores)
        if cores is not None and cores >= cpu:
            return f"a GPU's owner used {cores:.2f} cores"
    people = at_work.sign(seen, cpu, disk)
    if people is not None:
        return people
    if seen.cpu_ratio is not None and seen.cpu_ratio >= cpu:
        return f"CPU {seen.cpu_ratio:.0%}"
    if seen.disk_bytes_per_s is not None and seen.disk_bytes_per_s >= disk:
        return f"disk {seen.disk_bytes_per_s / MIB:.1f} MiB/s"
    if seen.net_bytes_per_s is not None and seen.net_bytes_per_s >= net:
        return f"network {seen.net_bytes_per_s / MIB:.1f} MiB/s"
    return None


@lru_cache(maxsize=1024)  # a handful of models, asked for every GPU; a hostile agent's names push each other out
def _words(name: str) -> frozenset[str]:
    """EC2 says "RTX PRO Server 6000" where the driver says "NVIDIA RTX PRO 6000 Blackwell Server Edition"; "L4" is no "L40S"."""
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
