"""What a machine is doing now, from every source that covers it: any that says BUSY wins, IDLE needs all, the rest is UNKNOWN."""

from datetime import datetime

from reaper.decide.facts import Facts, silent_for
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
    if facts.distrust or quiet is None or silent_for(facts, now) is not None or not newest.verified:
        return State.BLIND
    seen = sum(1 for gpu in newest.gpus if gpu.peak is not None and gpu.covered_s)
    if newest.sampler not in ("ok", "no-gpu") or (facts.gpus is not None and seen != facts.gpus):
        return State.BLIND
    if any(gpu.held for gpu in newest.gpus):
        return State.HELD
    return State.IDLE


def busy_sign(facts: Facts, seen: Observation) -> str | None:
    """The first sign of work in one window, with its figure; None: none seen (which is not yet "idle")."""
    policy = facts.policy
    gpu_limit = policy.idle.gpu_at_most if policy else 0.05
    cpu = policy.busy.cpu if policy else 0.20
    disk = (policy.busy.disk_mib_s if policy else 5.0) * MIB
    net = (policy.busy.net_mib_s if policy else 5.0) * MIB
    starved = policy.starved_above if policy else 0.30
    for gpu in seen.gpus:
        if gpu.peak is not None and gpu.peak > gpu_limit:
            return f"GPU peak {gpu.peak:.0%}"
    for tree in seen.loaders or ():
        if tree.wait is not None and tree.wait >= starved:
            return f"data wait {tree.wait:.0%}"
    for tree in seen.loaders or ():
        if tree.cpu_cores is not None and tree.cpu_cores >= cpu:
            return f"a GPU's owner used {tree.cpu_cores:.2f} cores"
    if seen.cpu_ratio is not None and seen.cpu_ratio >= cpu:
        return f"CPU {seen.cpu_ratio:.0%}"
    if seen.disk_bytes_per_s is not None and seen.disk_bytes_per_s >= disk:
        return f"disk {seen.disk_bytes_per_s / MIB:.1f} MiB/s"
    if seen.net_bytes_per_s is not None and seen.net_bytes_per_s >= net:
        return f"network {seen.net_bytes_per_s / MIB:.1f} MiB/s"
    return None
