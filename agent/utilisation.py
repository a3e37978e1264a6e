"""
Utilisation of one GPU since the last look: out of the driver's own sample buffer, else the rate it gives right now.

The driver keeps some six samples a second, each over a sixth of a second to a second.
Looking only at the rate of now would see a small part of the time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence, Tuple

from agent import nvml
from agent.calls import Calls, Failed
from agent.readings import Sample

if TYPE_CHECKING:
    from agent.device import Device

LOW_PERCENT = 5  # as loader.LOW_RATIO
FALLBACK_BEAT_S = 1.0  # without the driver's buffer its short window is only seen by looking often


class Util(NamedTuple):
    """``by_rate``: the buffer had nothing, so the beat must be short. ``dead``: the call failed for a reason that may pass."""

    samples: Tuple[Sample, ...]
    trouble: Optional[str] = None
    by_rate: bool = False
    dead: bool = False


class Moment(NamedTuple):
    """Now by both clocks, seconds. ``stepped``: the wall clock, by which the driver stamps its samples, was set since the last look."""

    boot_s: float
    wall_s: float
    stepped: bool


def utilisation(calls: Calls, device: Device, moment: Moment) -> Util:
    """``moment``: when this beat began to read."""
    if device.seen_us is None:
        device.seen_us = int((moment.wall_s - FALLBACK_BEAT_S) * 1e6)
    try:
        samples = _drain(calls, device, moment)
    except Failed:
        samples = ()
    return Util(samples) if samples else rate(calls, device, moment)


def rate(calls: Calls, device: Device, moment: Moment) -> Util:
    """The rate that the driver gives right now, over its own short window."""
    try:
        percent = calls("nvmlDeviceGetUtilizationRates", device.handle, on=device.index, to=lambda rates: float(rates.gpu))
    except Failed as failed:
        code = failed.code
        passing = code is not None and code not in nvml.CANNOT and code != nvml.NO_PERMISSION
        return Util((), nvml.trouble(failed.error), dead=passing)
    if not 0.0 <= percent <= 100.0:
        return Util((), "utilisation out of range", by_rate=True)
    return Util((Sample(moment.boot_s, percent / 100.0),), by_rate=True)


def _drain(calls: Calls, device: Device, moment: Moment) -> Tuple[Sample, ...]:
    since = 0 if moment.stepped else device.seen_us or 0
    sort = calls.api.NVML_GPU_UTILIZATION_SAMPLES
    kind, stamps, percents = calls("nvmlDeviceGetSamples", device.handle, sort, since, on=device.index, to=_stamped)
    if kind not in (1, 2, 3):  # NVML_VALUE_TYPE_UNSIGNED_INT, _LONG, _LONG_LONG: a percentage is a whole number
        return ()
    if not stamps:
        return ()
    latest = int((moment.wall_s + 0.5) * 1e6)
    if moment.stepped:
        return _over_a_step(device, stamps, percents, moment, latest)
    if min(stamps) <= since or max(stamps) > latest:
        # Older than what we asked for, or from the future: left over in the buffer, not a sample of this beat.
        ours = [one for one in zip(stamps, percents) if since < one[0] <= latest]
        if not ours:
            return ()
        stamps, percents = [stamp for stamp, _ in ours], [percent for _, percent in ours]
    device.seen_us = max(stamps)
    if max(percents) > 100 or min(percents) < 0:
        good = [one for one in zip(stamps, percents) if 0 <= one[1] <= 100]
        stamps, percents = [stamp for stamp, _ in good], [percent for _, percent in good]
    return _folded(stamps, percents, moment)


def _over_a_step(device: Device, stamps: Sequence[int], percents: Sequence[int], moment: Moment, latest: int) -> Tuple[Sample, ...]:
    """
    All that the buffer holds, as one sample of now: the stamps from before the clock was set cannot be placed, and what
    ran then must not be lost. Without a sample stamped by the clock of now, the buffer may be a leftover.
    """
    begin = int((moment.wall_s - FALLBACK_BEAT_S) * 1e6)
    fresh = [stamp for stamp in stamps if begin < stamp <= latest]
    device.seen_us = max(fresh, default=begin)
    good = [percent for percent in percents if 0 <= percent <= 100]
    return (Sample(moment.boot_s, max(good) / 100.0, len(good), sum(good) / 100.0, _low(good)),) if fresh and good else ()


def _stamped(answer: Any) -> Tuple[int, Sequence[int], Sequence[int]]:
    """The value type, and of each sample the microseconds and the percent."""
    kind, items = answer
    if not items:
        return int(kind), (), ()
    whole = getattr(items[0], "_b_base_", None)  # the C array, which is read at once: thirty structures a beat add up
    if whole is None:
        return int(kind), [int(item.timeStamp) for item in items], [int(item.sampleValue.uiVal) for item in items]
    words = struct.unpack_from("=%dQ" % (2 * len(items)), whole)  # nvmlSample_t: 64 bits of time, a union of 64 bits
    values = words[1::2]
    # The union's upper half means nothing: a percentage is a 32-bit number.
    return int(kind), words[0::2], values if max(values) <= 100 else [value & 0xFFFFFFFF for value in values]


def _folded(stamps: Sequence[int], percents: Sequence[int], moment: Moment) -> Tuple[Sample, ...]:
    """The first of the driver's samples, and all the others as one."""
    if not stamps:
        return ()
    now, ahead_s = moment.boot_s, moment.boot_s - moment.wall_s  # of the boot clock to the driver's
    begin, end = min(stamps), max(stamps)
    at = stamps.index(begin)
    first = Sample(min(now, ahead_s + begin / 1e6), percents[at] / 100.0)
    if len(stamps) == 1:
        return (first,)
    others = percents[1:] if at == 0 else [*percents[:at], *percents[at + 1 :]]
    return (first, Sample(min(now, ahead_s + end / 1e6), max(others) / 100.0, len(others), sum(others) / 100.0, _low(others)))


def _low(percents: Sequence[int]) -> int:
    """How many of them stood low: what waits for its data between two batches shows between two samples."""
    return sum([percent < LOW_PERCENT for percent in percents])
