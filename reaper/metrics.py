"""
What the reaper tells a Prometheus server about itself, in a registry of its own.

Label values come from closed sets of the code or the operator's configuration; a machine's id is a label only while it
is near its reap, and no text that a person wrote is one. What describes the fleet is replaced whole by every cycle,
so a machine that went away leaves no series behind.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import ClassVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST
NEAR_AT_MOST = 200
"""Series of machines near their reap in one scrape: the nearest. ``reaper_near_reaps`` counts all of them."""

_REASONS_AT_MOST = 32
_REASON = re.compile(r"^[a-z][a-z0-9-]{0,39}$")


@dataclass(frozen=True, slots=True)
class NearReap:
    """A machine that was warned and is not due yet. ``seconds``: of the wait still to be served, at least."""

    resource: str
    policy: str
    mode: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Starved:
    """A machine whose jobs wait for their data. ``usd_per_day``: what the waiting costs; None: no price is known."""

    policy: str
    usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class Unused:
    """GPUs that nobody uses on a machine that works. ``usd_per_day``: their part of its price; None: no price is known."""

    policy: str
    gpus: int
    usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """
    What one cycle found. Whatever is not known is left out, never 0.

    ``machines``: how many by (activity state, decision verdict), e.g. ("idle", "act"). ``report_ages``: seconds since
    the newest report, one per machine that has an agent. ``budget_left``: by (action, window), e.g. ("stop", "hour");
    unlimited ones left out; in the window's own unit (actions, or dollars an hour for "usd"). ``breaker_blocked``:
    machines that the breaker holds; ``breaker_open``: whether it is open. ``owed_starts``: machines that were asked for and are
    not back, and of them those that are late.
    """

    machines: Mapping[tuple[str, str], int] = field(default_factory=dict)
    near: Sequence[NearReap] = ()
    report_ages: Sequence[float] = ()
    budget_left: Mapping[tuple[str, str], float] = field(default_factory=dict)
    breaker_open: bool | None = None
    breaker_blocked: int | None = None
    starved: Sequence[Starved] = ()
    owed_starts: tuple[int, int] | None = None
    unused: Sequence[Unused] = ()


class Metrics:
    """One per process, thread-safe. Methods are named for what happened; ``render`` is the whole page."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._reasons: set[str] = set()
        self._fleet = _FleetCollector()
        self._states = _StateCollector()
        self.registry.register(self._fleet)
        self.registry.register(self._states)
        ProcessCollector(registry=self.registry)
        self._actions = self._counter("reaper_actions", "Actions by how they ended.", "action", "outcome")
        self._reports = self._counter("reaper_reports", "Agents' reports by what became of them.", "result", "reason")
        self._messages = self._counter("reaper_messages", "Messages to people by channel and result.", "channel", "result")
        self._work_lost = self._counter("reaper_work_lost", "Stops of ours that interrupted work on GPUs, as the machine's next boot told.")
        self._cycles = Histogram(
            "reaper_cycle_seconds", "Length of whole cycles.", buckets=(0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300), registry=self.registry
        )
        self._cycles_failed = self._counter("reaper_cycles_failed", "Cycles that broke off.")
        self._calls = self._counter("reaper_cloud_calls", "Calls of a cloud, retries not counted.", "cloud", "method")
        self._errors = self._counter("reaper_cloud_errors", "Calls of a cloud that failed, by kind of error.", "cloud", "method", "kind")
        self._call_seconds = Histogram(
            "reaper_cloud_call_seconds",
            "Length of a cloud's calls, retries and pages included.",
            ("cloud", "method"),
            buckets=(0.05, 0.25, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
        self._places = self._gauge("reaper_places", "Accounts by region that the last listing asked.", "cloud")
        self._places_failed = self._gauge("reaper_places_failed", "Those of them that could not be read.", "cloud")

    def render(self) -> bytes:
        """The page of /metrics, in the format that CONTENT_TYPE names."""
        return generate_latest(self.registry)

    # --- cycles -------------------------------------------------------------------------------------------------------

    def cycle_finished(self, *, seconds: float, at: datetime, fleet: FleetSummary) -> None:
        """A whole cycle ended at ``at``. Its summary replaces the one before."""
        self._fleet.replace(fleet)
        self._cycles.observe(seconds)
        self._states.set("reaper_last_cycle_timestamp_seconds", at.timestamp())

    def cycle_failed(self) -> None:
        """A cycle broke off. The fleet's series vanish: what they said may no longer be so."""
        self._cycles_failed.inc()
        self._fleet.replace(None)

    def fleet_unknown(self) -> None:
        """This process no longer makes cycles (another one leads): it stops speaking of the fleet."""
        self._fleet.replace(None)

    def action_ended(self, action: str, outcome: str) -> None:
        """``action`` and ``outcome``: the values of model.decision.Action and model.plan.Outcome."""
        self._actions.labels(action, outcome).inc()

    def work_lost(self) -> None:
        """A stop of ours turned out to have interrupted work."""
        self._work_lost.inc()

    # --- reports and people -------------------------------------------------------------------------------------------

    def report_accepted(self) -> None:
        self._reports.labels("accepted", "").inc()

    def report_duplicate(self) -> None:
        self._reports.labels("duplicate", "").inc()

    def report_refused(self, reason: str) -> None:
        """``reason``: one of the code's own words ("bad-token", "too-large"); anything else is counted as "other"."""
        self._reports.labels("refused", self._bounded(reason)).inc()

    def message_sent(self, channel: str) -> None:
        self._messages.labels(channel, "accepted").inc()

    def message_failed(self, channel: str) -> None:
        self._messages.labels(channel, "failed").inc()

    # --- clouds -------------------------------------------------------------------------------------------------------

    def cloud_called(self, cloud: str, method: str, *, seconds: float, error: str | None = None) -> None:
        """``error``: the name of our error's class; None: it went well."""
        self._calls.labels(cloud, method).inc()
        self._call_seconds.labels(cloud, method).observe(seconds)
        if error is not None:
            self._errors.labels(cloud, method, error.lower()).inc()

    def places_listed(self, cloud: str, *, listed: int, failed: int) -> None:
        self._places.labels(cloud).set(listed)
        self._places_failed.labels(cloud).set(failed)

    def places_unknown(self, cloud: str) -> None:
        """Not even the places could be asked for: how many failed is not a number."""
        self._places.labels(cloud).set(math.nan)
        self._places_failed.labels(cloud).set(math.nan)

    # --- states -------------------------------------------------------------------------------------------------------

    def kill_switch(self, engaged: bool) -> None:
        self._states.set("reaper_kill_switch", engaged)

    def leading(self, leads: bool) -> None:
        self._states.set("reaper_leader", leads)

    def configuration_refused(self, refused: bool) -> None:
        self._states.set("reaper_configuration_refused", refused)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _bounded(self, reason: str) -> str:
        if reason in self._reasons:
            return reason
        if _REASON.match(reason) is None or len(self._reasons) >= _REASONS_AT_MOST:
            return "other"
        self._reasons.add(reason)
        return reason


class _StateCollector(Collector):
    """Single figures that are absent until they are known: a fresh gauge's 0 would say "no"."""

    _TEXTS: ClassVar = {
        "reaper_last_cycle_timestamp_seconds": "When the last whole cycle ended, Unix time.",
        "reaper_kill_switch": "1 while the kill switch is engaged.",
        "reaper_leader": "1 while this process leads.",
        "reaper_configuration_refused": "1 while the newest configuration is refused.",
    }

    def __init__(self) -> None:
        self._known: dict[str, float] = {}

    def set(self, name: str, value: float) -> None:
        self._known = {**self._known, name: value}

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        for name, value in self._known.items():
            yield GaugeMetricFamily(name, self._TEXTS[name], value=value)


class _FleetCollector(Collector):
    """Makes the fleet's series from the newest summary at every scrape; without one there are none."""

    def __init__(self) -> None:
        self._fleet: FleetSummary | None = None

    def replace(self, fleet: FleetSummary | None) -> None:
        self._fleet = fleet

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        fleet = self._fleet
        if fleet is None:
            return
        machines = GaugeMetricFamily("reaper_machines", "Machines by what they do and what was decided.", labels=("state", "verdict"))
        for (state, verdict), count in fleet.machines.items():
            machines.add_metric((state, verdict), count)
        yield machines
        yield GaugeMetricFamily("reaper_near_reaps", "Machines that were warned and are not due yet.", value=len(fleet.near))
        near = GaugeMetricFamily(
            "reaper_near_reap_seconds",
            f"Seconds of the wait left, for the {NEAR_AT_MOST} machines nearest to their reap.",
            labels=("resource", "policy", "mode"),
        )
        for one in sorted(fleet.near, key=lambda n: (n.seconds, n.resource))[:NEAR_AT_MOST]:
            near.add_metric((one.resource, one.policy, one.mode), one.seconds)
        yield near
        if fleet.report_ages:  # without an agent there is no age, and 0 would mean fresh
            yield GaugeMetricFamily("reaper_report_age_max_seconds", "Age of the most silent agent's newest report.", value=max(fleet.report_ages))
            yield GaugeMetricFamily("reaper_report_age_median_seconds", "Median age of the agents' newest reports.", value=median(fleet.report_ages))
        yield from _starved(fleet.starved)
        if fleet.owed_starts is not None:
            yield GaugeMetricFamily("reaper_owed_starts", "Machines of ours that were asked for and are not back.", value=fleet.owed_starts[0])
            yield GaugeMetricFamily("reaper_late_starts", "Those of them that are late.", value=fleet.owed_starts[1])
        yield from _unused(fleet.unused)
        budget = GaugeMetricFamily("reaper_budget_left", "What is left of each limited budget.", labels=("action", "window"))
        for (action, window), left in fleet.budget_left.items():
            budget.add_metric((action, window), left)
        yield budget
        if fleet.breaker_open is not None:
            yield GaugeMetricFamily("reaper_breaker_open", "1 while the fleet breaker is open.", value=fleet.breaker_open)
        if fleet.breaker_blocked is not None:
            yield GaugeMetricFamily("reaper_breaker_blocked_machines", "Machines that the breaker holds.", value=fleet.breaker_blocked)


def _starved(starved: Sequence[Starved]) -> Iterator[Metric]:
    """By policy, and the empty one for machines under none: names of the configuration, never of a machine."""
    machines = GaugeMetricFamily("reaper_starved_machines", "Machines whose jobs wait for their data.", labels=("policy",))
    cost = GaugeMetricFamily("reaper_starved_usd_per_day", "What their waiting costs, of those with a known price.", labels=("policy",))
    unpriced = GaugeMetricFamily("reaper_starved_unpriced_machines", "Those of them without a known price.", labels=("policy",))
    for policy in sorted({one.policy for one in starved}):
        prices = [one.usd_per_day for one in starved if one.policy == policy]
        known = [price for price in prices if price is not None]
        machines.add_metric((policy,), len(prices))
        unpriced.add_metric((policy,), len(prices) - len(known))
        if known:
            cost.add_metric((policy,), sum(known))
    yield from (machines, cost, unpriced)


def _unused(unused: Sequence[Unused]) -> Iterator[Metric]:
    """By policy, as the starved ones."""
    gpus = GaugeMetricFamily("reaper_idle_gpus", "GPUs that nobody uses, on machines that work on others.", labels=("policy",))
    machines = GaugeMetricFamily("reaper_idle_gpu_machines", "Machines that work on some of their GPUs only.", labels=("policy",))
    cost = GaugeMetricFamily("reaper_idle_gpu_usd_per_day", "What those GPUs cost, of machines with a known price.", labels=("policy",))
    unpriced = GaugeMetricFamily("reaper_idle_gpu_unpriced_machines", "Those of the machines without a known price.", labels=("policy",))
    for policy in sorted({one.policy for one in unused}):
        those = [one for one in unused if one.policy == policy]
        known = [one.usd_per_day for one in those if one.usd_per_day is not None]
        gpus.add_metric((policy,), sum(one.gpus for one in those))
        machines.add_metric((policy,), len(those))
        unpriced.add_metric((policy,), len(those) - len(known))
        if known:
            cost.add_metric((policy,), sum(known))
    yield from (gpus, machines, cost, unpriced)
