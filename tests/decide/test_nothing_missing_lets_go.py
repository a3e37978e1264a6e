"""
Of a machine that would be stopped, every single figure is taken away, emptied, aged, set ahead or made no number, one at a
time. None of that may let it go, but for the fields of the table below, each with its reason.
"""

from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import pytest

from reaper.decide.causes import CAUSES
from reaper.decide.engine import decide
from reaper.decide.guards import GUARDS
from reaper.model.decision import Verdict
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.signal import Activity
from tests.builders import DAY, NOW, facts, held_facts, local_facts

NAN = float("nan")
NONE, EMPTY, OLD, AHEAD, NO_NUMBER, NEGATIVE = "none", "empty", "old", "ahead", "no number", "negative"

SHOWN = "is only shown to people"
NO_SUCH_THING = "is the answer of a cloud that has no such thing"
KEPT_ASIDE = "is no evidence: for showing, undoing or deciding elsewhere"
NOTHING_THERE = "empty is the answer that nothing of the kind is there"
LENGTHS = "the idle clock has already turned it into since, until and coverage"

# What people are shown beside a tree's wait. The wait was decided by it already, by the agent.
EVIDENCE = (
    "exact_s", "batches", "blocked", "read_bytes", "read_calls", "called_bytes", "write_bytes", "worker_cpu_cores", "delayed", "io_pressure",
    "host_io_pressure", "host_received_bytes_per_s",
)  # fmt: skip

ALLOWED = {
    # who it is
    ("instance", "id"): "never optional; an empty one has no policy, ledger or report",
    ("instance", "type"): "what the type brings (GPUs, local disks) is read apart, and unknown there",
    ("instance", "name"): SHOWN,
    ("instance", "tags"): "policy, scope, claim and protections are joined beforehand, see test_gather",
    ("instance", "launched_at"): "running_since is the figure that counts",
    ("instance", "changed_at"): KEPT_ASIDE,
    ("instance", "state_reason"): SHOWN,
    ("instance", "gpus"): "the agent's own memory of the count stands in",
    ("instance", "gpu_model"): "where the inventory does not tell the type, the count alone has to fit",
    ("instance", "managed_by"): NOTHING_THERE + "; who owns it is told by tags of the listing itself",
    ("instance", "placement_group"): "the gang is joined beforehand, see test_gather",
    ("instance", "local_store", EMPTY): "its agent shows a disk all the same, which is looked at",
    ("instance", "local_disks"): "at least one has to be reported, and every reported one is looked at",
    ("instance", "spot_stops"): "asked of spot machines only, which are held unless it is so",
    ("instance", "stop_saves_local"): KEPT_ASIDE,
    ("instance", "volumes"): KEPT_ASIDE,
    ("instance", "interfaces"): KEPT_ASIDE,
    ("instance", "managed_instead"): SHOWN,
    ("instance", "zone"): SHOWN,
    ("instance", "root"): NO_SUCH_THING,
    ("instance", "hibernation"): NO_SUCH_THING,
    ("instance", "tenancy"): NO_SUCH_THING,
    ("instance", "host"): NO_SUCH_THING,
    ("instance", "reservation"): NO_SUCH_THING,
    ("instance", "reserved_only"): SHOWN,
    ("instance", "public_address"): SHOWN,
    ("instance", "address_kept"): SHOWN,
    ("instance", "hourly_usd"): "prices are the planner's",
    ("instance", "given"): SHOWN,
    ("instance", "fell_back"): "is of a stopped machine",
    ("instance", "suspends"): "asked under the action suspend, where not known is no; see its table",
    ("instance", "suspends_not"): SHOWN,
    ("instance", "private_addresses"): "gangs are joined beforehand, see test_links; what agents tell of themselves stands in",
    # the facts
    ("facts", "place_failed"): NOTHING_THERE,
    ("facts", "running_since", OLD): "older is older",
    ("facts", "stale_after", AHEAD): "a longer bound on the listing's age",
    ("facts", "ineligible"): NOTHING_THERE,
    ("facts", "shields"): NOTHING_THERE + "; one that vanished is a shield for a day",
    ("facts", "claimed_by"): NOTHING_THERE,
    ("facts", "agent_seen"): "there is a report, which is more",
    ("facts", "distrust"): NOTHING_THERE,
    ("facts", "snoozes"): NOTHING_THERE,
    ("facts", "gang"): NOTHING_THERE,
    ("facts", "members"): NOTHING_THERE + "; an incomplete listing is said apart",
    ("facts", "gang_incomplete"): NOTHING_THERE,
    ("facts", "attempt_open"): NOTHING_THERE,
    ("facts", "back_off_until"): NOTHING_THERE,
    ("facts", "back_off_because"): SHOWN,
    ("facts", "closing"): "a machine under no schedule, or within its hours",
    ("facts", "hours_unread"): SHOWN,
    ("facts", "morning"): "starts take nothing away",
    ("protections", "because"): SHOWN,
    ("protections", "termination_protected"): "bars ending a machine, not stopping it",
    ("protections", "managed_by"): NOTHING_THERE + "; an owner that could not be asked for is said apart",
    ("protections", "managed_instead"): SHOWN,
    ("protections", "owner_unread"): NOTHING_THERE,
    ("protections", "keys"): "keys are a risk that is told; one known to be unusable holds",
    ("protections", "keys_because"): SHOWN,
    ("protections", "covered"): SHOWN,
    ("protections", "committed"): SHOWN,
    # the clock's answer
    ("quiet", "since", OLD): "quiet for longer",
    ("quiet", "unheld_since", OLD): "quiet for longer",
    ("quiet", "unheld_since", AHEAD): "the machine counts as held, and has been quiet for that term too",
    ("quiet", "began_at"): SHOWN,
    ("quiet", "period", AHEAD): "a longer period; the clock bounds it by a minute",
    ("quiet", "last_busy"): SHOWN,
    # the newest window
    ("newest", "resource"): LENGTHS,
    ("newest", "boot_id"): LENGTHS,
    ("newest", "seq"): LENGTHS,
    ("newest", "up_s"): LENGTHS,
    ("newest", "window_s"): LENGTHS,
    ("newest", "started_at"): "asked by the last look",
    ("newest", "received_at"): "ended_at is the figure that counts",
    ("newest", "because"): SHOWN,
    ("newest", "agent"): SHOWN,
    ("newest", "expected_gpus"): "the cloud's count wins",
    ("newest", "loaders"): "no process holds a GPU, so there is no data path to read",
    ("newest", "totals"): "asked over holes, by the idle clock",
    ("newest", "cpus"): "asked over holes, by the idle clock",
    ("newest", "orchestrators", EMPTY): NOTHING_THERE,
    ("newest", "jobs"): "the end of a job is a cause of its own, which declines; see its table for the rest",
    ("newest", "people"): SHOWN,
    ("newest", "presence"): "an agent of an earlier version does not look; one that looks and cannot see says so, which holds: see test_at_work",
    ("newest", "links"): "gangs are joined beforehand, see test_links",
    ("newest", "disks"): "the type has no local disks; see the table of local_data for one that has",
    ("newest", "hook_installed"): "asked by the last look",
    ("newest", "hook_outcome"): "asked by the last look",
    ("gpu", "uuid"): "never optional; it names the track of the clock",
    ("gpu", "model", NONE): "not told is no misfit: the count fits",
    ("gpu", "processes", NEGATIVE): "the wire takes none below zero",
    ("gpu", "mean"): "the peak is the figure that counts",
    ("gpu", "mem_used_bytes"): "no process is on it; GPUs with unified memory never tell, and the term is the longer one if one is",
    ("gpu", "mem_total_bytes"): SHOWN,
    ("gpu", "power_w"): "a hint over holes only",
    ("gpu", "energy_j"): "a hint over holes only",
    ("gpu", "trouble"): SHOWN,
    ("gpu", "holders"): SHOWN,
    ("loader", "id"): SHOWN,
    ("loader", "exact", NONE): "a job need not tell of itself; the agent's own look stands",
    ("loader", "off_gpu", NONE): "it holds a GPU, and the agent looked at it",
    **{("loader", name): SHOWN for name in EVIDENCE},
    ("disk", "device"): "never optional; it names the disk",
    ("disk", "mount"): "how full it is was read",
    # what is zero anyway
    ("disk", "used", EMPTY): "zero is the figure of an empty disk",
    ("gpu", "peak", EMPTY): "zero is the figure of an idle GPU",
    ("gpu", "processes", EMPTY): "zero is the figure of an idle GPU",
    ("newest", "cpu_ratio", EMPTY): "zero is the figure of an idle host",
    ("newest", "disk_bytes_per_s", EMPTY): "zero is the figure of an idle host",
    ("newest", "net_bytes_per_s", EMPTY): "zero is the figure of an idle host",
    ("loader", "wait", EMPTY): "zero is the figure of a quiet data path",
    ("loader", "cpu_cores", EMPTY): "zero is the figure of a quiet data path",
}  # fmt: skip


def parts(base):
    """Every value object of some facts, with its name and how to put another one in its place."""
    newest = base.newest
    yield "facts", base, lambda other: other
    yield "instance", base.instance, lambda other: replace(base, instance=other)
    yield "protections", base.protections, lambda other: replace(base, protections=other)
    yield "quiet", base.quiet, lambda other: replace(base, quiet=other)
    yield "newest", newest, lambda other: replace(base, newest=other)
    for n, one in enumerate(newest.gpus):
        yield "gpu", one, lambda other, n=n: replace(base, newest=replace(newest, gpus=(*newest.gpus[:n], other, *newest.gpus[n + 1 :])))
    for n, one in enumerate(newest.disks or ()):
        yield "disk", one, lambda other, n=n: replace(base, newest=replace(newest, disks=(*newest.disks[:n], other, *newest.disks[n + 1 :])))
    for n, one in enumerate(newest.loaders):
        yield "loader", one, lambda other, n=n: replace(base, newest=replace(newest, loaders=(*newest.loaders[:n], other, *newest.loaders[n + 1 :])))


def unknowns(value):
    """What a figure may be when it is not known, by what it is when it is."""
    match value:
        case Instance():
            return  # there is no decision without one
        case StrEnum():
            yield from ((str(other), other) for other in type(value) if other is not value)
            if not isinstance(value, InstanceState):
                yield NONE, None
            return
    yield NONE, None
    match value:
        case bool():
            if value:
                yield EMPTY, False
        case datetime():
            yield OLD, value - 30 * DAY
            yield AHEAD, NOW + DAY
        case timedelta():
            yield EMPTY, timedelta(0)
            yield NEGATIVE, -value
            yield AHEAD, 30 * DAY
        case int() | float():
            yield EMPTY, 0
            yield NEGATIVE, -1
            if isinstance(value, float):
                yield NO_NUMBER, NAN
        case str():
            yield EMPTY, ""
            yield "blank", " "
            yield "look-alike", "rᴜnning"
        case tuple():
            yield EMPTY, ()
        case dict():
            yield EMPTY, {}
            if value and all(isinstance(v, tuple) for v in value.values()):
                yield NO_NUMBER, dict.fromkeys(value, (NAN, "gpu"))
                yield NEGATIVE, dict.fromkeys(value, (-1.0, "gpu"))


def cases():
    for name, base in (("idle", facts()), ("held", held_facts()), ("local", local_facts())):
        for part, value, put in parts(base):
            for field in fields(value):
                for kind, unknown in unknowns(getattr(value, field.name)):
                    if is_dataclass(getattr(value, field.name)) and kind != NONE:
                        continue
                    yield pytest.param(part, field.name, kind, put(replace(value, **{field.name: unknown})), id=f"{name}: {part}.{field.name} {kind}")


CASES = list(cases())


@pytest.mark.parametrize(("part", "field", "kind", "given"), CASES)
def test_a_figure_that_is_not_known_never_lets_a_machine_go(part, field, kind, given):
    if (part, field) in ALLOWED or (part, field, kind) in ALLOWED:
        return  # the reason stands in the table
    assert decide(given, NOW).verdict is not Verdict.ACT


def test_the_table_of_allowances_holds_no_entry_that_nothing_needs():
    """Of the entries for one kind of missing: without it that case would fail."""
    acting = {(p.values[0], p.values[1], p.values[2]) for p in CASES if decide(p.values[3], NOW).verdict is Verdict.ACT}
    idle_for_nothing = {key for key in ALLOWED if len(key) == 3 and key not in acting}
    idle_for_nothing |= {key for key in ALLOWED if len(key) == 2 and key not in {acted[:2] for acted in acting}}

    assert idle_for_nothing == set()


@pytest.mark.parametrize(("part", "field", "kind", "given"), CASES)
def test_what_is_shown_as_unknown_is_never_acted_on(part, field, kind, given):
    decided = decide(given, NOW)

    assert decided.verdict is not Verdict.ACT or decided.state.activity is Activity.IDLE


def test_every_rule_has_a_table_of_its_own():
    here = Path(__file__).parent
    homes = {"causes": CAUSES, "guards": GUARDS}
    missing = [
        f"{folder}/{rule.__module__.rpartition('.')[2]}"
        for folder, rules in homes.items()
        for _, rule in rules
        if not (here / folder / f"test_{rule.__module__.rpartition('.')[2]}.py").is_file()
    ]

    assert missing == []
