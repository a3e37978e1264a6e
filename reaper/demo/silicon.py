"""
Scripted readings for a real agent loop: GPUs, the processes that hold them, and the host's counters.

Each source is read as the real one would be: utilisation comes as samples since the last read (NVML keeps such a buffer,
so a late read loses none), counters only ever grow. What runs can be changed from another thread.
"""

import math
import uuid
from collections.abc import Sequence

from agent.clock import Clock
from agent.readings import GpuReading, GpuSnapshot, HostReading, Sample, TreeReading
from reaper.demo.story import Act, Chip

SAMPLE_EVERY_S = 0.1
_MOST_SAMPLES = 100  # as many as NVML keeps
_MIB = 1 << 20
_DRIVER = "580.65.06"


class Silicon:
    """One machine's inside, as agent.readings.GpuSource and LoaderSource. ``act`` may be set at any time."""

    doing = ""

    def __init__(self, name: str, chip: Chip, act: Act, clock: Clock) -> None:
        self.act = act
        self._chip, self._clock = chip, clock
        self._uuids = [f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}.{i}')}" for i in range(chip.count)]
        self._sampled_s = clock.boot_s()
        self._energy_j = [50.0 * self._sampled_s] * chip.count
        self._looks = 0
        self._looked_s = self._sampled_s

    def read(self) -> GpuSnapshot:
        act, now, first = self.act, self._clock.boot_s(), self._sampled_s
        due = min(int((now - first) / SAMPLE_EVERY_S), _MOST_SAMPLES)
        moments = [first + SAMPLE_EVERY_S * (i + 1) for i in range(due)]
        if moments:
            self._sampled_s = moments[-1]
        gpus = tuple(self._gpu(i, act, moments) for i in range(self._chip.count))
        return GpuSnapshot(gpus=gpus, count=self._chip.count, driver=_DRIVER)

    def look(self, gpus: Sequence[GpuReading]) -> tuple[TreeReading, ...] | None:
        holders = tuple(gpu.uuid for gpu in gpus if gpu.processes)
        now, before = self._clock.boot_s(), self._looked_s
        self._looked_s = now
        self._looks += 1
        if not holders:
            return ()
        if self.act is Act.STARVED:  # three beats of four in uninterruptible sleep, on a share that is slow
            blocked = self._looks % 4 != 0
            return (TreeReading("pid-4242", holders, blocked=blocked, on_data_path=blocked, read_bytes=200_000, cpu_s=0.05 * (now - before)),)
        cores = 0.01 if self.act is Act.NOTEBOOK else 0.9
        return (TreeReading("pid-4242", holders, blocked=False, on_data_path=False, read_bytes=0, cpu_s=cores * (now - before)),)

    def close(self) -> None:
        """Nothing is open."""

    def _gpu(self, index: int, act: Act, moments: Sequence[float]) -> GpuReading:
        last = index == self._chip.count - 1
        if act is Act.ONE_LOST and last:
            return GpuReading(self._uuids[index], self._chip.model, trouble="GPU is lost")
        works = act is Act.TRAINING or (act is Act.ONE_WORKS and last)
        owned = works or act in (Act.STARVED, Act.NOTEBOOK)
        watts = 65.0 if works else 30.0 if owned else 12.0
        self._energy_j[index] += watts * SAMPLE_EVERY_S * len(moments)
        return GpuReading(
            self._uuids[index],
            self._chip.model,
            samples=tuple(Sample(at, _ratio(act if owned else Act.NOTHING, works, at + index)) for at in moments),
            mem_used_bytes=int(self._chip.mem_bytes * 0.7) if owned else _MIB,
            mem_total_bytes=self._chip.mem_bytes,
            power_w=watts,
            energy_j=self._energy_j[index],
            processes=1 if owned else 0,
        )


def _ratio(act: Act, works: bool, at_s: float) -> float:
    wave = math.sin(at_s * 2.1)
    if works:
        return 0.92 + 0.06 * wave
    return 0.02 + 0.01 * wave if act is Act.STARVED else 0.0


class ScriptedHost:
    """The host's counters, as agent.readings.HostSource: they follow what runs on its GPUs."""

    CPUS = 16

    def __init__(self, silicon: Silicon, clock: Clock) -> None:
        self._silicon, self._clock = silicon, clock
        self._read_s = clock.boot_s()
        self._busy_s, self._disk, self._net = 0.02 * self.CPUS * self._read_s, 10_000 * int(self._read_s), 20_000 * int(self._read_s)

    def read(self) -> HostReading:
        now = self._clock.boot_s()
        elapsed, self._read_s = now - self._read_s, now
        works = self._silicon.act in (Act.TRAINING, Act.ONE_WORKS)
        self._busy_s += (0.4 if works else 0.02) * self.CPUS * elapsed
        self._disk += int((8 * _MIB if works else 10_000) * elapsed)
        self._net += int(20_000 * elapsed)
        return HostReading(
            cpu_busy_s=self._busy_s, cpu_total_s=self.CPUS * now, cpus=self.CPUS, mem_used_ratio=0.3,
            disk_bytes=self._disk, net_bytes=self._net, orchestrators=(),
        )  # fmt: skip
