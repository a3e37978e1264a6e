"""Inputs for the door's tests: a clock that is turned by hand, and reports as an agent would encode them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agent.report import Gpu, Host, Report, Sampler, encode
from reaper.errors import StoreError
from reaper.model.resource import ResourceId
from reaper.model.signal import Limits
from reaper.ports import Token

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOST = ResourceId.parse("aws:123456789012:eu-west-1:instance:i-0abc")
OTHER = ResourceId.parse("aws:123456789012:eu-west-1:instance:i-0def")
LIMITS = Limits(gpu=0.05, cpu=0.2, disk_bytes_per_s=5 * 2**20, net_bytes_per_s=5 * 2**20, wait=0.3)
OWN = Token("own", bytes(32), START, HOST)
SHARED = Token("shared", bytes(32), START)


class ManualClock:
    def __init__(self, at=START):
        self.at, self.boot = at, 1000.0

    def now(self):
        return self.at

    def monotonic(self):
        return self.boot

    def turn(self, **by):
        self.at += timedelta(**by)
        self.boot += timedelta(**by).total_seconds()


def report(minute=1, resource=HOST, boot="boot-a", age_s=0.0, peak=0.0, offset_s=0.0, **changes):
    """The window that ended ``minute`` minutes after an hour of uptime; ``offset_s`` shifts it on the boot clock."""
    up_s = 3600.0 + 60.0 * minute + offset_s
    made = Report(
        resource=str(resource),
        boot_id=boot,
        up_s=up_s,
        seq=round(up_s * 1000),
        window_s=60.0,
        age_s=age_s,
        sampler=Sampler("ok", version="0.1.0"),
        gpus=(Gpu("GPU-0", peak_ratio=peak, mean_ratio=peak, covered_s=60.0, samples=12, mem_used_bytes=0, processes=0),),
        host=Host(cpu_ratio=0.01, cpus=8, disk_bytes_per_s=0.0, net_bytes_per_s=0.0, orchestrators=()),
    )
    return replace(made, **changes)


def body(*args, **kwargs):
    return encode(report(*args, **kwargs))


class Flaky:
    """The store, failing while ``down``; optionally only in the named methods."""

    def __init__(self, store, *names):
        self._store, self._names, self.down = store, names, False

    def __getattr__(self, name):
        if self.down and (not self._names or name in self._names):

            def fail(*_, **__):
                raise StoreError("the disk is full")

            return fail
        return getattr(self._store, name)


class Counts:
    """What the metrics would count."""

    def __init__(self):
        self.results = []

    def report_accepted(self):
        self.results.append("accepted")

    def report_duplicate(self):
        self.results.append("duplicate")

    def report_refused(self, reason):
        self.results.append(str(reason))
