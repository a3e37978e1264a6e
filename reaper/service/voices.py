"""
Who speaks for a machine: one living boot at a time, one voice per boot (pure; the store keeps what comes out).

Two that speak with one identity (a cloned image, a restored memory snapshot, a copied token) cannot be told apart, so
neither is believed: an idle copy must never get its busy original stopped. What they say can still make the machine busy.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reaper.decide.windows import HOLE_PERIODS, HORIZON, period_of
from reaper.model.signal import Observation, Voice

CONFLICT_FOR = timedelta(hours=1)
"""How long nobody is believed after the last sign of a second speaker: sixty reports of silence from the other."""

KEPT_BOOTS = 16
_MOST_STEP_S = 30.0


def distrusted(voice: Voice, now: datetime) -> str | None:
    """Why what this voice says now is not believed; None: nothing speaks against it."""
    if voice.conflict_at is None or now - voice.conflict_at >= CONFLICT_FOR:
        return None
    return f"{voice.conflict or 'two machines spoke with one identity'}, last at {voice.conflict_at:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Clash:
    """Two windows that one boot of one machine cannot both have sent. ``since``: from when on neither is believed."""

    because: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Heard:
    """
    ``voice`` as it is to be kept. ``distrust_since``: turn the windows that ended after it into unverified ones.
    ``begins``: a new conflict, to be told once; ``verified``: whether this window is believed.
    """

    voice: Voice
    verified: bool
    distrust_since: datetime | None = None
    begins: bool = False


def overhear(voice: Voice | None, seen: Observation, now: datetime) -> Heard:
    """
    A shared token spoke: never believed, and the books of the machine's own voice stay as they are.

    Of a machine without a voice it makes one, so that from then on silence is told from "never had an agent".
    """
    if voice is None:
        return Heard(Voice(seen.resource, seen.boot_id, first_at=now, boot_since=seen.started_at, last_at=now), False)
    return Heard(replace(voice, last_at=max(voice.last_at, now)), False)


def hear(voice: Voice | None, seen: Observation, now: datetime, clash: Clash | None = None) -> Heard:
    """The machine's own token spoke. ``clash``: what `Spoken.clash` found among the windows of the same boot."""
    if voice is None:
        return Heard(Voice(seen.resource, seen.boot_id, first_at=now, boot_since=seen.started_at, last_at=now), True)
    if seen.boot_id in voice.retired:
        return _returned(voice, seen, now)
    if seen.boot_id != voice.boot_id:  # a reboot; if the old boot should speak again, it was not
        retired = (*voice.retired, voice.boot_id)[-KEPT_BOOTS:]
        after = replace(voice, boot_id=seen.boot_id, boot_since=seen.started_at, last_at=now, retired=retired)
        return _judged(after, seen, now)
    if clash is not None:
        return _conflict(replace(voice, last_at=now), now, clash.because, clash.since, voice)
    return _judged(replace(voice, last_at=now, boot_since=min(voice.boot_since, seen.started_at)), seen, now)


def _returned(voice: Voice, seen: Observation, now: datetime) -> Heard:
    """A boot that another had followed speaks again: it is made the living one, so that the last speaker wins in the end."""
    others = tuple(boot for boot in voice.retired if boot != seen.boot_id)
    after = replace(voice, boot_id=seen.boot_id, last_at=now, retired=(*others, voice.boot_id)[-KEPT_BOOTS:])
    because = f"boot {seen.boot_id[:13]} speaks again after boot {voice.boot_id[:13]} had followed it: two machines use one identity"
    return _conflict(after, now, because, voice.boot_since, voice)


def _conflict(after: Voice, now: datetime, because: str, since: datetime, before: Voice) -> Heard:
    begins = before.conflict_at is None or now - before.conflict_at >= CONFLICT_FOR
    return Heard(replace(after, conflict_at=now, conflict=because), False, distrust_since=since, begins=begins)


def _judged(voice: Voice, seen: Observation, now: datetime) -> Heard:
    if voice.conflict_at is None:
        return Heard(voice, True)
    if now - voice.conflict_at >= HORIZON:  # no window from before it is kept any more
        return Heard(replace(voice, conflict_at=None, conflict=None), True)
    # A late window from before the conflict's end may be the other one's.
    return Heard(voice, distrusted(voice, now) is None and seen.started_at >= voice.conflict_at)


class Spoken:
    """
    The kept windows of one boot, as much of them as it takes to find a duplicate or a second speaker: 16 bytes each.

    A clone by memory snapshot has the same boot id. Its boot clock either runs beside the original's, and then their
    windows overlap as no sampler's own do; or it lags, and then old windows seem to be sent as if they were new.
    """

    __slots__ = ("_ends", "_last", "_lengths")

    def __init__(self) -> None:
        self._ends = array("q")  # seq: milliseconds of the boot clock
        self._lengths = array("q")
        self._last: Observation | None = None  # by receipt

    def add(self, seen: Observation) -> None:
        at = bisect_left(self._ends, seen.seq)
        if at < len(self._ends) and self._ends[at] == seen.seq:
            return
        self._ends.insert(at, seen.seq)
        self._lengths.insert(at, _length(seen))
        if self._last is None or seen.received_at >= self._last.received_at:
            self._last = replace(seen, gpus=(), loaders=None)

    def __contains__(self, seq: int) -> bool:
        at = bisect_left(self._ends, seq)
        return at < len(self._ends) and self._ends[at] == seq

    def clash(self, seen: Observation) -> Clash | None:
        """Whether a window that is not yet among them cannot come from the sampler that sent these."""
        at = bisect_left(self._ends, seen.seq)
        for i in (at - 1, at):
            if 0 <= i < len(self._ends):
                found = overlap(seen, self._ends[i], self._lengths[i])
                if found is not None:
                    return found
        return self._lags(seen)

    def _lags(self, seen: Observation) -> Clash | None:
        last = self._last
        if last is None or last.seq < seen.seq:
            return None
        behind = (last.up_s - seen.up_s) - (last.ended_at - seen.ended_at).total_seconds()
        if behind <= max(HOLE_PERIODS * period_of(max(last.window_s, seen.window_s)).total_seconds(), _MOST_STEP_S):
            return None
        because = f"boot {seen.boot_id[:13]} has two boot clocks, {behind:.0f} s apart: two machines use one identity"
        return Clash(because, min(seen.started_at, last.started_at))


def overlap(seen: Observation, end_ms: int, length_ms: int) -> Clash | None:
    """The other window of the same boot ended at ``end_ms`` of the boot clock and is ``length_ms`` long."""
    own = _length(seen)
    common = min(seen.seq, end_ms) - max(seen.seq - own, end_ms - length_ms)
    if 2 * common <= min(own, length_ms):
        return None
    because = f"boot {seen.boot_id[:13]} sent two windows over the same time: two machines use one identity"
    return Clash(because, seen.started_at - timedelta(milliseconds=length_ms))


def _length(seen: Observation) -> int:
    return max(round(seen.window_s * 1000), 1)
