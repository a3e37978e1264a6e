"""Which process trees wait for their data, by what evidence, which GPUs nobody uses, and what that costs: for `reaper why` and its neighbours."""

from datetime import timedelta
from typing import Any

from reaper.decide.findings import span_text
from reaper.decide.waste import IdleGpus, Waste, idle_told, told
from reaper.model.signal import LoaderWindow, Observation

MIB = 1 << 20


def document(seen: Observation | None) -> dict[str, Any]:
    """Null is "not known"; an empty list is "looked, no process holds a GPU"."""
    trees = seen.loaders if seen is not None else None
    return {"data_path": None if trees is None else [_tree(tree) for tree in trees]}


def starved(wasted: Waste | None) -> dict[str, Any] | None:
    if wasted is None:
        return None
    return {"tree": wasted.tree, "wait_ratio": wasted.share, "measured": wasted.measured, "usd_per_day": wasted.usd_per_day}


def unused(wasted: IdleGpus | None) -> dict[str, Any] | None:
    if wasted is None:
        return None
    return {
        "idle": wasted.idle, "of": wasted.count, "idle_for_s": round(wasted.idle_for.total_seconds()), "held": wasted.held,
        "usd_per_day": wasted.usd_per_day,
    }  # fmt: skip


def unused_of(document: dict[str, Any]) -> IdleGpus:
    """Back from what `unused` wrote."""
    return IdleGpus(document["idle"], document["of"], timedelta(seconds=document["idle_for_s"]), document["held"], document["usd_per_day"])


def lines(seen: Observation | None, wasted: Waste | None, idle: IdleGpus | None = None) -> list[str]:
    shown = [tree for tree in (seen.loaders if seen is not None else None) or () if tree.wait is not None or tree.exact is not None]
    spent = [*([told(wasted)] if wasted is not None else []), *([f"{idle_told(idle)}; nothing is done about it"] if idle is not None else [])]
    return [*spent, *(f"data path of {tree.id}: {_words(tree)}" for tree in shown)]


def _tree(tree: LoaderWindow) -> dict[str, Any]:
    return {
        "id": tree.id, "wait_ratio": tree.wait, "exact_wait_ratio": tree.exact, "exact_s": tree.exact_s, "batches": tree.batches, "off_gpu": bool(tree.off_gpu),
        "blocked_ratio": tree.blocked, "cpu_cores": tree.cpu_cores, "worker_cpu_cores": tree.worker_cpu_cores, "read_bytes": tree.read_bytes,
        "read_calls": tree.read_calls, "called_bytes": tree.called_bytes, "write_bytes": tree.write_bytes, "delayed_ratio": tree.delayed,
        "io_pressure_ratio": tree.io_pressure, "host_io_pressure_ratio": tree.host_io_pressure,
        "host_received_bytes_per_s": tree.host_received_bytes_per_s,
    }  # fmt: skip


def _words(tree: LoaderWindow) -> str:
    """What is known of it, the wait first; nothing is said of what is not known."""
    parts = []
    if tree.exact is not None:
        over = f" over {span_text(timedelta(seconds=tree.exact_s))}" if tree.exact_s else ""
        parts.append(f"waited {tree.exact:.0%}{over} by its own count")
    if tree.wait is not None:
        parts.append(f"{'' if parts else 'waited '}{tree.wait:.0%} by the agent's look")
    if tree.off_gpu:
        parts.append("holds no GPU")
    if tree.blocked:
        parts.append(f"asleep for a disk or a mount {tree.blocked:.0%}")
    if tree.cpu_cores is not None:
        workers = f" ({tree.worker_cpu_cores:.2g} in workers)" if tree.worker_cpu_cores else ""
        parts.append(f"{tree.cpu_cores:.2g} cores{workers}")
    for name, number in (("storage gave", tree.read_bytes), ("read calls gave", tree.called_bytes), ("wrote", tree.write_bytes)):
        if number:
            parts.append(f"{name} {number / MIB:,.1f} MiB")
    if tree.io_pressure:
        parts.append(f"io pressure {tree.io_pressure:.0%}")
    if tree.host_received_bytes_per_s:
        parts.append(f"the machine received {tree.host_received_bytes_per_s / MIB:,.1f} MiB/s")
    return ", ".join(parts)
