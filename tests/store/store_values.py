"""Values of every stored type, naming only what a test cares about, and strategies for all there can be."""

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from types import NoneType
from typing import get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action
from reaper.model.kinds.disk import Disk, DiskState, KeptDisk
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.mark import Mark, Stage
from reaper.model.plan import Approval, Attempt, Plan, PlannedAction
from reaper.model.policy import Mode
from reaper.model.resource import Place, ResourceId
from reaper.model.signal import GpuWindow, Observation, Voice
from reaper.model.snooze import Snooze
from reaper.ports import KeptListing, KeptShelf, Ledger

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def resource(native="i-0a"):
    return ResourceId("aws", "000012345678", "eu-west-1", "instance", native)


ONE, TWO = resource("i-01"), resource("i-02")
HERE = Place("aws", "000012345678", "eu-west-1")


def window(of=ONE, boot="boot-1", seq=60_000, ended_at=NOW, received_at=None, **more):
    fields = {
        "resource": of,
        "boot_id": boot,
        "seq": seq,
        "up_s": 60.0,
        "window_s": 60.0,
        "started_at": ended_at - MINUTE,
        "ended_at": ended_at,
        "received_at": received_at or ended_at,
        "verified": True,
        "sampler": "nvml",
        "gpus": (GpuWindow("GPU-1", peak=0.0, covered_s=60.0),),
    }
    return Observation(**(fields | more))


def voice(of=ONE, boot="boot-1", at=NOW):
    return Voice(of, boot, first_at=at, boot_since=at, last_at=at)


def keep(store, *windows):
    return [store.add_observation(w, voice(w.resource, w.boot_id, w.received_at)) for w in windows]


def entry(because="because", of=ONE, at=NOW, kind=AuditKind.INTENT):
    return AuditEntry(at, kind, "reaper", because, resource=of)


def machine(of=ONE, **more):
    return Instance(of, "g5.xlarge", InstanceState.RUNNING, tags={"Name": "träner"}, launched_at=NOW - HOUR, **more)


def mark(of=ONE, action=Action.STOP, stage=Stage.NOMINATED):
    return Mark(of, action, "gpu-idle", "training", "d1", stage, nominated_at=NOW, counted_at=NOW)


def attempt(id="a1", of=ONE, action=Action.STOP, intent_at=NOW, **more):
    return Attempt(id, of, action, "gpu-idle", "training", "idle for 2 h", intent_at, machine(of), **more)


def snooze(id="s1", until=NOW + HOUR):
    return Snooze(id, ONE, until, "ada", "demo", NOW)


def plan(id="p1"):
    action = PlannedAction(ONE, "träner", Action.STOP, "gpu-idle", "training", "idle", usd_per_hour=1.5)
    return Plan(id, NOW, Mode.ENFORCE, "digest", actions=(action,), notes=("nothing else",))


def approval(id="ok1", at=NOW):
    return Approval(id, "p1", "ada", at, resources=(ONE,))


# --- all there can be -------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
parts = st.text("abcXYZ019._-", min_size=1, max_size=12)
resources = st.builds(ResourceId, parts, parts, parts, parts, parts)
zones = st.one_of(
    st.just(UTC), st.timezones(), st.integers(-86_399, 86_399).map(lambda s: timezone(timedelta(seconds=s)))
)
moments = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=zones)  # noqa: DTZ001
spans = st.timedeltas(timedelta(0), timedelta(days=4000))
floats = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**63 - 1)


def maybe(strategy):
    return st.none() | strategy


def anything(type_, **known):
    """Any value of a stored type: every optional field as None and as a value. ``known``: strategies for some fields."""
    hints = get_type_hints(type_)
    rest = {f.name: _strategy(f.name, hints[f.name]) for f in fields(type_) if f.name not in known}
    return st.builds(type_, **rest, **known)


def _strategy(name, hint):
    plain = {str: texts, int: counts, float: floats, bool: st.booleans(), bytes: st.binary(max_size=40), datetime: moments, timedelta: spans}
    parts_ = get_args(hint)
    if NoneType in parts_:
        return maybe(_strategy(name, next(p for p in parts_ if p is not NoneType)))
    if hint in plain:
        return plain[hint]
    if get_origin(hint) is tuple:
        return st.lists(_strategy(name, parts_[0]), max_size=2).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(texts, texts, max_size=3)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    if hint is ResourceId:
        return resources
    if is_dataclass(hint):
        return anything(hint)
    raise AssertionError(f"no strategy for {name}: {hint}")


# --- a store with something of everything ---

EVER = NOW - timedelta(days=400)


def fill(store):
    keep(store, window(), window(of=TWO))
    store.distrust(TWO, EVER)
    store.save_marks([mark()], [], [entry("nominated")])
    store.add_snooze(snooze(), entry("snoozed"))
    store.save_plan(plan())
    store.save_listings([KeptListing(HERE, (machine(),), NOW)], [Ledger(ONE, NOW, NOW)])
    store.save_shelves([KeptShelf(HERE, NOW)], [KeptDisk(Disk(ResourceId("aws", "1", "eu-west-1", "disk", "vol-1"), DiskState.AVAILABLE), NOW)], [])
    store.begin_attempt(attempt(), store.acquire_lease("us", NOW, MINUTE), NOW, entry("intent"), lambda debits: None)
    store.set_facts({"mode": "observe"})


def everything(store):
    return (
        list(store.observations(EVER)), store.voices(), store.marks(), store.snoozes(NOW), store.plan(),
        store.listings(), store.ledgers(), store.shelves(), store.disks(), store.attempts(), store.audit(), store.fact("mode"),
    )  # fmt: skip


def bytes_of(path):
    return path.read_bytes()
