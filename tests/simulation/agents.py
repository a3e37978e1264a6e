"""
Agents as they are in the field: they tell the truth of their machine in the real wire format, unless something ails them.

Ailments are words in `Agent.ails`; what each does to a report stands in `Agent.body`. An agent may be blind, never
inventive: one that makes up idleness under its own good name could not be told from a true one by anybody.
"""

import random
from dataclasses import dataclass, field

import msgspec

from tests.simulation.truth import Seen, Track

AILMENTS = (
    "dead", "mute", "nvml-failed", "gpu-lost", "half-covered", "no-cpu", "no-disk", "no-wait", "no-jobs", "misfit", "no-orchestrator-look",
)  # fmt: skip
"""What may befall any agent for a while. ``mute``: it works and its network does not."""

WEDGED = "wedged"
"""A driver that reads zero for the GPUs that were loaded when it broke. Comes to many at once, with a bad release."""

MODELS = {"V100": "Tesla V100-SXM2-16GB", "A10G": "NVIDIA A10G", "H100": "NVIDIA H100 80GB HBM3", "T4": "Tesla T4", "L40S": "NVIDIA L40S", "L4": "NVIDIA L4", "A100-SXM4-40GB": "NVIDIA A100-SXM4-40GB"}


@dataclass(slots=True)
class Window:
    """One report as the world knows it: ``start`` and ``end`` by truth, ``body`` as it goes out but for its age."""

    start: float
    end: float
    body: dict[str, object]
    ails: frozenset[str]
    seen: Seen
    origin: str = "own"


@dataclass(slots=True)
class Agent:
    """``shared``: it has no token of its own. ``hook``: outcome of its pre-stop hook; None: none installed."""

    resource: str
    track: Track
    rng: random.Random
    model: str
    local_disks: int = 0
    shared: bool = False
    hook: str | None = None
    orchestrators: tuple[str, ...] = ()
    version: str = "0.1.0/580.65.06"
    disk_used: float = 0.0
    disk_written_at: float = -1e6
    boot_id: str = ""
    booted_at: float = 0.0
    until: float = 0.0  # up to where it has reported
    stood_still: float = 0.0  # seconds its boot clock lost in pauses of the whole machine
    boots: int = 0
    ails: set[str] = field(default_factory=set)
    spool: list[Window] = field(default_factory=list)
    wedged: frozenset[int] = frozenset()

    def boot(self, t: float, up: float = 0.0) -> None:
        """``up``: how long the machine has run already."""
        self.boots += 1
        self.boot_id = f"{self.resource.rpartition(':')[2]}-boot-{self.boots}"
        self.booted_at, self.until, self.stood_still = t - up, t + (45.0 if up == 0.0 else 0.0), 0.0
        self.spool.clear()

    def wake(self, t: float) -> None:
        """Out of a suspension: the same boot, and nothing to tell of the time in between."""
        self.until = max(self.until, t)

    def window(self, end: float) -> Window | None:
        """What the agent has to say up to ``end``; None where it says nothing, and then that time is lost for ever."""
        if "dead" in self.ails:
            self.until = max(self.until, end)
            return None
        if end - self.until < 5.0:
            return None
        start, self.until = self.until, end
        seen = self.track.seen(start, end)
        return Window(start, end, self.body(seen, start, end), frozenset(self.ails), seen)

    def body(self, seen: Seen, start: float, end: float) -> dict[str, object]:
        ails, span = self.ails, min(end - start, 3600.0)
        up = end - self.booted_at - self.stood_still
        cpu_s, disk, net, *joules = self.track.counters(end)
        known = "no-cpu" not in ails
        host: dict[str, object] = {"cpus": 8, "net_bytes_per_s": round(seen.net, 1)}
        if known:
            host["cpu_ratio"] = round(min(seen.cpu, 1.0), 4)
        if "no-disk" not in ails:
            host["disk_bytes_per_s"] = round(seen.disk, 1)
        if "no-orchestrator-look" not in ails:
            host["orchestrators"] = list(self.orchestrators)
        body: dict[str, object] = {
            "v": 1, "resource": self.resource, "boot_id": self.boot_id, "up_s": round(up, 3), "seq": round(up * 1000),
            "window_s": round(span, 3), "sampler": {"state": "ok", "version": self.version}, "expected_gpus": self.track.gpus,
            "totals": {"cpu_s": round(cpu_s * 8, 2), "disk_bytes": int(disk), "net_bytes": int(net)},
            "gpus": self._gpus(seen, span, joules), "host": host, "people": [],
        }  # fmt: skip
        if seen.held:
            tree: dict[str, object] = {"id": "python", "cpu_cores": round(seen.cores, 3)}
            if "no-wait" not in ails:
                tree["wait_ratio"] = round(min(seen.wait, 1.0), 4)
            body["loader"] = [tree]
        else:
            body["loader"] = []
        if "no-jobs" not in ails:
            body["jobs"] = _jobs(seen)
        if self.local_disks:
            body["disks"] = [
                {"device": f"nvme{n + 1}n1", "use": "mounted", "mount": f"/data{n}", "used_ratio": self.disk_used,
                 "written_age_s": round(max(end - self.disk_written_at, 0.0), 1)}
                for n in range(self.local_disks)
            ]  # fmt: skip
        if self.hook is not None:
            body["hooks"] = {"installed": True, **({} if self.hook == "nothing" else {"outcome": self.hook})}
        return body

    def _gpus(self, seen: Seen, span: float, joules: list[float]) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for n in range(self.track.gpus):
            gpu: dict[str, object] = {
                "uuid": f"GPU-{self.resource[-8:]}-{n}", "model": "NVIDIA B200" if "misfit" in self.ails else self.model,
                "mem_used_bytes": 8 << 30 if seen.held else 1 << 20, "mem_total_bytes": 16 << 30, "processes": 1 if seen.held else 0,
                "power_w": 50.0 + 250.0 * seen.mean[n], "energy_j": round(joules[n], 1),
            }  # fmt: skip
            if "gpu-lost" in self.ails and n == self.track.gpus - 1:
                gpu = {"uuid": gpu["uuid"], "trouble": "lost"}
            elif "nvml-failed" in self.ails:
                gpu = {"uuid": gpu["uuid"], "trouble": "unsupported"}
            else:
                peak = 0.0 if n in self.wedged and WEDGED in self.ails else min(seen.peak[n], 1.0)
                gpu |= {"peak_ratio": round(peak, 4), "mean_ratio": round(min(seen.mean[n], peak), 4), "samples": max(int(span / 5), 1)}
                gpu["covered_s"] = round(span * (0.5 if "half-covered" in self.ails else 1.0), 2)
                if WEDGED in self.ails and n in self.wedged:
                    del gpu["power_w"], gpu["energy_j"]
            found.append(gpu)
        return found


def _jobs(seen: Seen) -> list[dict[str, object]]:
    if seen.job is None:
        return []
    job: dict[str, object] = {"id": seen.job}
    if seen.ended_age is not None and seen.ended_age >= 60.0:
        job["ended_age_s"] = round(seen.ended_age, 1)
    if seen.launcher is not None:
        job["launcher"] = seen.launcher
    else:
        job["launcher_known"] = True
    return [job]


def to_bytes(window: Window, now: float, hidden: float = 0.0) -> bytes:
    """``hidden``: seconds the report spent on the way without its agent knowing."""
    body = {**window.body, "age_s": round(max(now - hidden - window.end, 0.0), 3)}
    return msgspec.json.encode(body)
