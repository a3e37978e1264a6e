"""
The door's inside: a report's bytes and whose token they came with, to a kept window and an answer.

Here the wire ends. A report is placed in our time (receipt minus age), given the trust its sender has, kept, and added
to the idle clocks. A report's ``keep`` (a person's wish on the host) becomes a snooze of that machine: see `host_keeps`.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from agent import report as wire
from reaper.decide.windows import HORIZON
from reaper.errors import HeardElsewhere, ReaperError
from reaper.log import get
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.presence import AtWork, Links, Presence
from reaper.model.resource import ResourceId
from reaper.model.signal import GpuWindow, Holder, Job, LoaderWindow, LocalDisk, Observation, Person, Totals, Voice
from reaper.ports import Clock, Store, Token
from reaper.service.board import Board
from reaper.service.host_keeps import HostKeeps
from reaper.service.lost import record as record_lost
from reaper.service.voices import Clash, Heard, Spoken, hear, overhear, overlap
from reaper.service.watch import Watch

MAX_BODY_BYTES = wire.MAX_BODY_BYTES

_LOCKS = 64
_MOST_SPOKEN = 512
_SPOKEN_FOR_S = 60.0
_MOST_OFF_S = 600.0
_TRIES = 5
_CLOCKS_APART = timedelta(seconds=30)

log = get("ingest")


class Reason(StrEnum):
    """Why a report is refused for good: sending it again would not help."""

    MALFORMED = "malformed"
    UNKNOWN_VERSION = "unknown-version"
    NOT_YOURS = "not-yours"
    TOO_OLD = "too-old"


class Rejected(ReaperError):
    """``path`` names the field, ``remedy`` what to do, ``resource`` the sender as far as it could be read."""

    def __init__(self, reason: Reason, path: str, problem: str, remedy: str, resource: str) -> None:
        self.reason, self.path, self.problem, self.remedy, self.resource = reason, path, problem, remedy, resource
        super().__init__(f"report of {resource}: {path} {problem}; {remedy}")


@dataclass(frozen=True, slots=True)
class Accepted:
    """``answer``: the encoded answer for the agent. ``duplicate``: the window was known and nothing changed."""

    answer: bytes
    duplicate: bool
    verified: bool


class DoorMetrics(Protocol):
    def report_accepted(self) -> None: ...
    def report_duplicate(self) -> None: ...
    def report_refused(self, reason: str) -> None: ...


class Ingest:
    """Thread-safe: reports of one machine are taken one after the other, those of others beside them."""

    def __init__(self, store: Store, watch: Watch, board: Board, clock: Clock, metrics: DoorMetrics | None = None) -> None:
        self._store, self._watch, self._board, self._clock, self._metrics = store, watch, board, clock, metrics
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        self._spoken = _SpokenCache(store, clock)
        self._keeps = HostKeeps(store, clock)

    def accept(self, body: bytes, token: Token, received_at: datetime | None = None) -> Accepted:
        """
        Keep one report. ``received_at``: when the request began (None: now); the window's place follows from it.

        Raises Rejected; StoreError when it could not be kept, and then sending it again is right.
        """
        try:
            accepted = self._accept(body, token, received_at if received_at is not None else self._clock.now())
        except Rejected as refused:
            if self._metrics is not None:
                self._metrics.report_refused(refused.reason)
            raise
        if self._metrics is not None:
            self._metrics.report_duplicate() if accepted.duplicate else self._metrics.report_accepted()
        return accepted

    def _accept(self, body: bytes, token: Token, now: datetime) -> Accepted:
        report = _decode(body)
        resource = ResourceId.parse(report.resource)
        if token.resource is not None and token.resource != resource:
            remedy = f"issue a token for it: reaper token issue {resource}"
            raise Rejected(Reason.NOT_YOURS, "resource", "is not the machine this token was issued for", remedy, str(resource))
        seen = _observation(report, resource, now)
        if now - seen.ended_at > HORIZON:
            hours = HORIZON / timedelta(hours=1)
            raise Rejected(
                Reason.TOO_OLD, "age_s", f"is {report.age_s:.0f}, more than {hours:.0f} h", "drop it: no decision looks back so far", str(resource)
            )
        with self._locks[hash(resource) % _LOCKS]:
            kept, verified = self._keep(seen, token, now, report.lost)
            if kept and verified:  # it was the machine's own token, and nobody else speaks for it
                newest = self._watch.newest(resource)
                last = newest is not None and (newest.boot_id, newest.seq) == (seen.boot_id, seen.seq)
                self._keeps.heard(resource, report.keep, seen.ended_at, now, newest=last)
        return Accepted(self._answer(report.seq, resource), duplicate=not kept, verified=verified)

    def _keep(self, seen: Observation, token: Token, now: datetime, lost: wire.Lost | None = None) -> tuple[bool, bool]:
        """Whether it was kept (else a duplicate), and whether it is believed."""
        for _ in range(_TRIES - 1):
            try:
                return self._judge_and_keep(seen, token, now, lost)
            except HeardElsewhere:
                self._spoken.forget(seen)
        return self._judge_and_keep(seen, token, now, lost)

    def _judge_and_keep(self, seen: Observation, token: Token, now: datetime, lost: wire.Lost | None) -> tuple[bool, bool]:
        """Raises HeardElsewhere when another process kept a report of the machine since its voice was read: judge again."""
        voice = self._store.voice(seen.resource)  # from the store: another process may hear the second speaker
        known, clash = self._compare(seen, voice)
        if known:
            return False, False
        heard = overhear(voice, seen, now) if token.resource is None else hear(voice, seen, now, clash)
        seen = replace(seen, verified=heard.verified)
        if heard.distrust_since is not None:
            self._distrust(seen, heard, now)
        if lost is not None:  # before the new boot is known: should this break off, the agent's next try finds it as it was
            record_lost(self._store, seen, lost.boot_id, lost.peak_ratio, lost.because, voice, now)
        spoken = replace(_later(heard.voice, voice), kept=(voice.kept if voice is not None else 0) + 1)
        if not self._store.add_observation(seen, spoken, after=voice):
            return False, False
        self._spoken.add(seen)
        self._watch.add(seen, spoken)
        return True, heard.verified

    def _compare(self, seen: Observation, voice: Voice | None) -> tuple[bool, Clash | None]:
        """Whether this window is known already, and whether it can stand beside the known ones of its boot."""
        if self._watch.voice(seen.resource) != voice:
            return self._compare_with_kept(seen, voice)
        newest = self._watch.peek(seen.resource)
        if newest is not None and newest.boot_id == seen.boot_id:
            if seen.seq == newest.seq:
                return True, None
            if seen.seq > newest.seq:
                return False, overlap(seen, newest.seq, round(newest.window_s * 1000))
        if voice is None or (seen.boot_id != voice.boot_id and seen.boot_id not in voice.retired):
            return False, None
        spoken = self._spoken.of(seen, now=seen.received_at)
        return (True, None) if seen.seq in spoken else (False, spoken.clash(seen))

    def _compare_with_kept(self, seen: Observation, voice: Voice | None) -> tuple[bool, Clash | None]:
        """The same where another process heard the machine since we did: what is in memory here is not all of it."""
        self._spoken.forget(seen)
        before, after = self._store.before_and_after(seen.resource, seen.boot_id, seen.seq)
        if before is not None and before.seq == seen.seq:
            return True, None
        if after is None:
            return False, None if before is None else overlap(seen, before.seq, round(before.window_s * 1000))
        return False, self._spoken.of(seen, now=seen.received_at).clash(seen)

    def _distrust(self, seen: Observation, heard: Heard, now: datetime) -> None:
        # First what makes us careful, then what tells of it, last the window: broken off, the agent's next try repeats it.
        assert heard.distrust_since is not None
        self._store.distrust(seen.resource, heard.distrust_since)
        self._watch.refold(seen.resource)
        because = heard.voice.conflict or ""
        if heard.begins:
            evidence = {"boot": seen.boot_id, "distrusted since": _rfc3339(heard.distrust_since)}
            self._store.append_audit(AuditEntry(now, AuditKind.VOICE, "reaper", because, seen.resource, evidence=evidence))
            log.warning("two speakers", resource=str(seen.resource), because=because, remedy="give each host a token of its own")

    def _answer(self, seq: int, resource: ResourceId) -> bytes:
        notice, snoozed_until = self._board.read(resource)
        upcoming = None
        if notice is not None:
            due_at = _rfc3339(notice.due_at) if notice.due_at is not None else None
            upcoming = wire.Upcoming(notice.action, due_at, notice.because)
        return wire.encode(wire.Answer(seq, upcoming, _rfc3339(snoozed_until) if snoozed_until is not None else None))


class _SpokenCache:
    """Windows of the boots that send late reports, read from the store once a minute at most, so a replay costs little."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[ResourceId, str], tuple[float, Spoken]] = OrderedDict()

    def of(self, seen: Observation, now: datetime) -> Spoken:
        key = (seen.resource, seen.boot_id)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and self._clock.monotonic() - kept[0] < _SPOKEN_FOR_S:
            return kept[1]
        spoken = Spoken()
        for window in self._store.observations(now - HORIZON, seen.resource):
            if window.boot_id == seen.boot_id:
                spoken.add(window)
        with self._lock:
            self._kept[key] = (self._clock.monotonic(), spoken)
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST_SPOKEN:
                self._kept.popitem(last=False)
        return spoken

    def forget(self, seen: Observation) -> None:
        with self._lock:
            self._kept.pop((seen.resource, seen.boot_id), None)

    def add(self, seen: Observation) -> None:
        """Called under the machine's own lock, like every use of what `of` returned."""
        with self._lock:
            kept = self._kept.get((seen.resource, seen.boot_id))
        if kept is not None:
            kept[1].add(seen)


def _later(voice: Voice, before: Voice | None) -> Voice:
    """The newest voice has the latest moment also where the doors' clocks differ a little: by that others tell which it is."""
    if before is None or not timedelta(0) <= before.last_at - voice.last_at < _CLOCKS_APART:
        return voice
    return replace(voice, last_at=before.last_at + timedelta(microseconds=1))


def _decode(body: bytes) -> wire.Report:
    try:
        report = wire.decode(body)
    except wire.UnknownVersion as error:
        raise Rejected(Reason.UNKNOWN_VERSION, error.path, error.problem, error.remedy, error.resource) from error
    except wire.ReportError as error:
        remedy = error.remedy or "see the report's format"
        raise Rejected(Reason.MALFORMED, error.path, error.problem, remedy, error.resource) from error
    if abs(report.seq / 1000.0 - report.up_s) > _MOST_OFF_S:
        problem = f"is {report.seq}, which does not fit up_s {report.up_s:.0f}"
        remedy = "send the boot clock's milliseconds at the window's end"
        raise Rejected(Reason.MALFORMED, "seq", problem, remedy, report.resource)
    return report


def _observation(report: wire.Report, resource: ResourceId, now: datetime) -> Observation:
    """Not trusted yet. Lengths come from ``seq`` alone, so that the order of windows and their boot clock cannot differ."""
    ended_at = now - timedelta(seconds=report.age_s)
    host = report.host if report.host is not None else wire.Host()
    totals = report.totals if report.totals is not None else wire.Totals()
    return Observation(
        resource=resource,
        boot_id=report.boot_id,
        seq=report.seq,
        up_s=report.seq / 1000.0,
        window_s=report.window_s,
        started_at=ended_at - timedelta(seconds=report.window_s),
        ended_at=ended_at,
        received_at=now,
        verified=False,
        sampler=report.sampler.state,
        because=report.sampler.because,
        agent=report.sampler.version,
        expected_gpus=report.expected_gpus,
        gpus=tuple(_gpu(gpu) for gpu in report.gpus),
        loaders=tuple(_loader(tree) for tree in report.loader) if report.loader is not None else None,
        totals=Totals(totals.gpu_energy_j, totals.cpu_s, totals.disk_bytes, totals.net_bytes),
        cpu_ratio=host.cpu_ratio,
        cpus=host.cpus,
        disk_bytes_per_s=host.disk_bytes_per_s,
        net_bytes_per_s=host.net_bytes_per_s,
        orchestrators=host.orchestrators,
        hook_installed=report.hooks is not None and report.hooks.installed,
        hook_outcome=report.hooks.outcome if report.hooks is not None else None,
        disks=tuple(LocalDisk(disk.device, disk.use, disk.mount, disk.used_ratio, disk.written_age_s) for disk in report.disks)
        if report.disks is not None
        else None,
        jobs=tuple(Job(job.id, job.ended_age_s, job.launcher, job.launcher_known) for job in report.jobs) if report.jobs is not None else None,
        presence=_presence(report.presence) if report.presence is not None else None,
        links=_links(report.links) if report.links is not None else None,
        people=tuple(Person(who.user, who.uid, who.how, who.idle_s) for who in report.people) if report.people is not None else None,
    )


def _presence(told: wire.Presence) -> Presence:
    people = (
        AtWork(one.kind, one.user, one.uid, one.name, one.idle_s, one.cpu_cores, one.io_bytes_per_s, one.busy, one.busy_s) for one in told.at_work
    )
    return Presence(tuple(people), told.unread)


def _links(told: wire.Links) -> Links:
    return Links(told.whole, told.addresses, told.peers, told.ranks, told.world_size, told.master)


def _loader(tree: wire.Loader) -> LoaderWindow:
    return LoaderWindow(
        id=tree.id,
        wait=tree.wait_ratio,
        cpu_cores=tree.cpu_cores,
        exact=tree.exact_wait_ratio,
        exact_s=tree.exact_s,
        batches=tree.batches,
        off_gpu=tree.off_gpu,
        blocked=tree.blocked_ratio,
        read_bytes=tree.read_bytes,
        read_calls=tree.read_calls,
        called_bytes=tree.called_bytes,
        write_bytes=tree.write_bytes,
        worker_cpu_cores=tree.worker_cpu_cores,
        delayed=tree.delayed_ratio,
        io_pressure=tree.io_pressure_ratio,
        host_io_pressure=tree.host_io_pressure_ratio,
        host_received_bytes_per_s=tree.host_received_bytes_per_s,
    )


def _gpu(gpu: wire.Gpu) -> GpuWindow:
    return GpuWindow(
        uuid=gpu.uuid,
        model=gpu.model,
        peak=gpu.peak_ratio,
        mean=gpu.mean_ratio,
        covered_s=gpu.covered_s,
        mem_used_bytes=gpu.mem_used_bytes,
        mem_total_bytes=gpu.mem_total_bytes,
        power_w=gpu.power_w,
        energy_j=gpu.energy_j,
        processes=gpu.processes,
        trouble=gpu.trouble,
        holders=tuple(Holder(h.pid, h.name, h.user, h.mem_bytes, h.since_s) for h in gpu.holders) if gpu.holders is not None else None,
    )


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
