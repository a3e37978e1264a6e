"""
The loop: sample on the beat, close a window, hand the report over.

Everything it reads or tells goes through what it is given, so that the demo runs a
dozen of them in one process with scripted machines. Heartbeats go out whatever the
driver does: a report without GPU figures says "alive, and blind because ...".
"""

from __future__ import annotations

import math
import os
import socket
import threading
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from agent.at_work import words
from agent.build import OpenWindow, host, totals
from agent.clock import BootClock, Clock, rfc3339
from agent.clock import boot_id as read_boot_id
from agent.config import Settings
from agent.identity import Identity
from agent.keeps import Keeps
from agent.log import configured
from agent.lost import LastWork
from agent.readings import (
    FAILED,
    NO_GPU,
    STUCK,
    DiskSource,
    GpuSource,
    HostReading,
    HostSource,
    LoaderSource,
    Log,
    WorkSource,
)  # fmt: skip
from agent.report import Report, as_dict, encode
from agent.report import Sampler as SamplerPart
from agent.sampler import Sampler
from agent.sender import Delivery, Outbox, Post, Sender
from agent.spool import Spool
from agent.state import STATUS, Memory, load_memory, save_memory, write_json
from agent.version import VERSION
from agent.window import Span
from agent.witness import Witness

# The wire's own bounds of a window: shorter is no window, longer is a hole (the machine slept).
LEAST_WINDOW_S, MOST_WINDOW_S = 0.1, 3600.0
_WATCHDOG = "WATCHDOG=1"


def notify_systemd(message: str) -> None:
    """Tell systemd (READY=1, WATCHDOG=1, ...). Without NOTIFY_SOCKET, and when nobody listens, nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        try:
            out.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError:
            return  # systemd then restarts us by its watchdog, which is what the watchdog is for


def whole_ms(time_s: float) -> float:
    """Down to the millisecond, as the wire tells window ends: windows then join without a seam, in few digits."""
    return math.floor(time_s * 1000) / 1000


class Loop:
    """One agent. `run_loop` is the way to run it; the steps are methods so that tests can take them one by one."""

    def __init__(
        self,
        settings: Settings,
        sampler: Sampler,
        hosts: HostSource,
        outbox: Outbox,
        who: Callable[[], Optional[Identity]],
        boot_id: str,
        clock: Clock,
        log: Log,
        memory: Memory,
        disks: Optional[DiskSource] = None,
        keeps: Optional[Keeps] = None,
    ) -> None:
        self._disks, self._keeps = disks, keeps
        self._status_file = settings.state_dir / STATUS
        self._last_work = LastWork(settings.state_dir, boot_id, log)
        self._settings, self._sampler, self._hosts, self._outbox = settings, sampler, hosts, outbox
        self._who, self._boot_id, self._clock, self._log, self._memory = who, boot_id, clock, log, memory
        self._identity: Optional[Identity] = None
        self._version = VERSION
        self._models: Dict[str, Optional[str]] = {}  # every GPU seen since the start, by UUID
        self._expected: Optional[int] = None  # seen since the start; the memory's count is another machine's until identity is known
        self._driver: Optional[str] = None
        self._beat_s = settings.beat_s
        now = whole_ms(clock.boot_s())
        self._witness = Witness()
        self._window = OpenWindow(now, None, self._witness)
        self._before, self._before_at = hosts.read(), now
        self._last_beat_at = now
        self._slept_s = clock.slept_s()  # when the window was opened
        self._report: Optional[Report] = None
        self._shown: Tuple[Optional[int], Optional[Delivery]] = (None, None)
        self._stopped = False
        self.windows = 0

    def beat(self) -> None:
        """Read once; close the window when it is full, or when the machine slept through the middle of it."""
        now = self._clock.boot_s()
        if self._missed(now):
            # What lies between was not watched. The window ends where watching ended, and a new one begins now.
            self.close_window(self._last_beat_at)
            self._restart(now)
        self._read(now)
        if now >= self._window.start_s + self._settings.window_s - 1e-6:
            self.close_window(now)
        self._show()

    def _read(self, now_s: float) -> None:
        self._last_beat_at = now_s
        for reading in self._sampler.beat():
            snapshot = reading.snapshot
            beat_s = self._settings.beat_s if snapshot.beat_s is None else min(snapshot.beat_s, self._settings.beat_s)
            self._window.add(reading, beat_s)
            self._beat_s = beat_s
            self._driver = snapshot.driver or self._driver
            self._models.update({gpu.uuid: gpu.model for gpu in snapshot.gpus})
            seen = [n for n in (self._expected, snapshot.count, len(self._models)) if n is not None]
            self._expected = max(seen) if self._models or snapshot.count is not None else self._expected

    def _missed(self, now_s: float) -> bool:
        """Whether the machine slept in this window for more than a beat, or nothing was read for longer than a window."""
        slept_s = self._clock.slept_s() - self._slept_s
        return slept_s > self._beat_s or now_s - self._last_beat_at > max(3 * self._beat_s, self._settings.window_s)

    def next_beat_in(self, now_s: float) -> float:
        """Seconds to the next beat; a beat falls on every window's end, so that a report holds its window and no more."""
        end = self._window.start_s + self._settings.window_s
        return max(0.0, min(self._last_beat_at + self._beat_s, end) - now_s)

    def close_window(self, end_s: float) -> None:
        """Make the report of [start, end) and hand it over; without an identity there is nobody to report for, and it is lost."""
        end_s = whole_ms(end_s)
        window, window_s = self._window, round(end_s - self._window.start_s, 3)
        counters = self._hosts.read()
        self._learn_identity()
        if LEAST_WINDOW_S <= window_s <= MOST_WINDOW_S:
            self.windows += 1
            report = self._make(window, window_s, end_s, counters)
            if report is None:
                self._log.warning("window lost", because="identity not known yet; see agent.toml: resource, metadata")
            else:
                self._report = report
                self._outbox.hand(report)
                answer = self._outbox.delivery().answer
                self._last_work.see(report, announced=answer is not None and answer.upcoming is not None)
        self._slept_s = self._clock.slept_s()
        self._before, self._before_at = counters, end_s
        self._window = OpenWindow(end_s, window.next_spans(), self._witness)

    def _restart(self, now_s: float) -> None:
        now_s = whole_ms(now_s)
        self._log.warning("beats were missed", for_s=round(now_s - self._window.start_s, 1), because="the machine slept or was frozen")
        self._window = OpenWindow(now_s, {uuid: Span() for uuid in self._models}, self._witness)
        self._before, self._before_at = self._hosts.read(), now_s

    def _make(self, window: OpenWindow, window_s: float, end_s: float, counters: HostReading) -> Optional[Report]:
        if self._identity is None:
            return None
        part, expected = self._sampler_part(window), self._expected_gpus()
        gpus = window.gpus(self._models, part.because if part.state != "ok" else None)
        report = Report(
            resource=self._identity.resource,
            boot_id=self._boot_id,
            up_s=end_s,
            seq=round(end_s * 1000),
            window_s=window_s,
            age_s=0.0,  # the sender's to say
            sampler=part,
            expected_gpus=expected,
            totals=totals(counters, gpus, expected),
            gpus=gpus,
            jobs=window.jobs(end_s),
            people=window.people(),
            presence=window.presence(end_s),
            links=window.links(),
            loader=window.loaders(window_s) if gpus else None,
            host=host(self._before, counters, end_s - self._before_at),
            disks=self._disks.read(self._clock.boot_s(), end_s) if self._disks is not None else None,
            keep=self._keeps.tell(self._identity.resource, end_s) if self._keeps is not None else None,
            lost=self._last_work.tell(self._identity.resource, round(end_s * 1000)),
        )
        encode(report)  # raises here, with a traceback of ours, rather than later in the sender
        return report

    def _sampler_part(self, window: OpenWindow) -> SamplerPart:
        version = words("%s/%s" % (self._version, self._driver) if self._driver is not None else self._version)
        stuck = self._sampler.stuck()
        if stuck is not None:
            return SamplerPart(STUCK, words(str(stuck)), self._beat_s, version)
        if window.last is None:
            return SamplerPart(FAILED, "no reading in this window", self._beat_s, version)
        snapshot = window.last.snapshot
        state, because = snapshot.state, snapshot.because
        if state == NO_GPU and self._expected_gpus():
            state, because = FAILED, "this machine had %d GPUs and shows none" % (self._expected_gpus() or 0)
        return SamplerPart(state, words(because), self._beat_s, version)

    def _expected_gpus(self) -> Optional[int]:
        known = [n for n in (self._expected, self._memory.gpus) if n is not None]
        return max(known) if known else None

    def _learn_identity(self) -> None:
        identity = self._who()
        if identity is None or identity == self._identity:
            return
        if not self._memory.fits(identity):
            moved = self._memory.resource != identity.resource
            self._log.warning("local state discarded", was=self._memory.resource, now=identity.resource, type=identity.instance_type)
            if moved:
                self._outbox.forget("another machine's")
            self._memory = Memory()
        self._identity = identity
        self._remember()

    def _remember(self) -> None:
        if self._identity is None:
            return
        kind = self._identity.instance_type or self._memory.instance_type
        # Only what the metadata service said may stand in for it later in this boot.
        boot = self._boot_id if self._identity.source != "config" else None
        memory = Memory(self._identity.resource, kind, boot, self._expected_gpus())
        if memory != self._memory and save_memory(self._settings.state_dir, memory, self._log):
            self._memory = memory

    def end(self, hand_over: bool) -> None:
        """Say goodbye in the status file; ``hand_over``: with a report of what was seen up to here, for the next start of this boot."""
        if hand_over:
            now = self._clock.boot_s()
            missed = self._missed(now)
            if not missed:
                self._read(now)  # what began since the last beat is work that a stop interrupts
            self.close_window(self._last_beat_at if missed else now)
            self._last_work.keep()
        self._stopped = True
        self._shown = (None, None)
        self._show()

    def _show(self) -> None:
        """Write the status file when a window closed or a delivery ended."""
        delivery = self._outbox.delivery()
        now = (self.windows, delivery)
        if now == self._shown:
            return
        self._shown = now
        self._last_work.taken(delivery.last_sent_seq)
        self._remember()
        write_json(self._status_file, self._status(delivery), self._log)

    def _status(self, delivery: Delivery) -> Mapping[str, Any]:
        answer = delivery.answer
        return {
            "v": 1,
            "agent": self._version,
            "pid": os.getpid(),
            "reaper": self._settings.reaper,
            "resource": self._identity.resource if self._identity is not None else None,
            "boot_id": self._boot_id,
            "written_boot_s": round(self._clock.boot_s(), 3),
            "written_at": rfc3339(self._clock.utc()),
            "window_s": self._settings.window_s,
            "report": as_dict(self._report) if self._report is not None else None,
            "sent": {"seq": delivery.last_sent_seq, "at": delivery.last_sent_at, "problem": delivery.problem},
            "answer": as_dict(answer) if answer is not None else None,
            "keeps": [kept.shown() for kept in self._keeps.all()] if self._keeps is not None else [],
            "spool": {"reports": delivery.spooled, "bytes": delivery.spooled_bytes, "dropped": delivery.dropped},
            "refused": delivery.refused,
            "stopped": self._stopped,
        }


def run_loop(
    settings: Settings,
    gpus: GpuSource,
    hosts: HostSource,
    stop: threading.Event,
    *,
    loaders: Optional[LoaderSource] = None,
    disks: Optional[DiskSource] = None,
    keeps: Optional[Keeps] = None,
    work: Optional[WorkSource] = None,
    who: Optional[Callable[[], Optional[Identity]]] = None,
    outbox: Optional[Outbox] = None,
    boot_id: Optional[str] = None,
    clock: Optional[Clock] = None,
    log: Optional[Log] = None,
    notify: Callable[[str], None] = lambda message: None,
    windows: Optional[int] = None,
    tidy: Callable[[int], object] = lambda windows: None,
) -> None:
    """
    Run one agent until ``stop`` is set, or for so many ``windows``. Keeps no state
    outside its arguments, installs no signal handler, and may run many times in one
    process, each with its own ``state_dir`` and ``spool_dir``.

    ``tidy`` is called after each window with the number of windows so far.
    ``who`` defaults to the settings' resource; ``outbox`` to a Sender to the settings'
    reaper; ``boot_id`` to the kernel's.
    """
    clock = clock if clock is not None else BootClock()
    log = log if log is not None else configured()
    boot_id = boot_id if boot_id is not None else read_boot_id()
    if who is None:
        named = Identity(settings.resource) if settings.resource is not None else None
        who = lambda: named  # noqa: E731  one word beats three lines
    if outbox is None:
        spool = Spool(settings.spool_dir, boot_id, settings.spool_reports, settings.spool_mib << 20, log)
        sender = Sender(Post(settings, clock), spool, clock, log, settings.window_s)
        sender.start()
        outbox = sender
    sampler = Sampler(gpus, loaders, clock, log, settings.beat_s, work)
    memory = load_memory(settings.state_dir, log)
    loop = Loop(settings, sampler, hosts, outbox, who, boot_id, clock, log, memory, disks, keeps)
    log.info("agent started", reaper=settings.reaper, window_s=settings.window_s, beat_s=settings.beat_s)
    notify("READY=1")
    try:
        while not stop.is_set() and (windows is None or loop.windows < windows):
            before = loop.windows
            loop.beat()
            notify(_WATCHDOG)
            if loop.windows != before:
                tidy(loop.windows)
            clock.wait(stop, loop.next_beat_in(clock.boot_s()))
    finally:
        notify("STOPPING=1")
        try:
            loop.end(hand_over=windows is None)
        finally:  # whatever went wrong: the driver's session is closed, and what was not sent is kept
            if not sampler.close():
                log.warning("driver call still outstanding at the end", call=gpus.doing)
            outbox.close()
    log.info("agent stopped")
