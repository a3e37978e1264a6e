"""What goes through the store comes back the same: every type, every optional field, any text and any zone."""

from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from types import NoneType
from typing import get_args, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reaper.errors import StoreError
from reaper.model.audit import AuditEntry
from reaper.model.decision import Action
from reaper.model.mark import Mark
from reaper.model.plan import Approval, Attempt, Plan
from reaper.model.signal import Observation, Voice
from reaper.model.snooze import Snooze
from reaper.ports import KeptListing, Ledger, SeenProtection, Token
from reaper.store import open_store
from reaper.store.codec import Codec, in_utc, micros, moment
from tests.store.store_values import NOW, anything, attempt, entry, keep, mark, moments, voice, window

STORED = (
    Observation, Voice, Mark, Attempt, AuditEntry, Plan, Approval, Snooze, KeptListing, Ledger, SeenProtection, Token
)  # fmt: skip
EVER = datetime(1970, 1, 1, tzinfo=UTC)

many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def zones_of(value):
    """Every moment in a value."""
    if isinstance(value, datetime):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from zones_of(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from zones_of(getattr(value, field.name))


@given(moments)
def test_a_moment_is_kept_to_the_microsecond(at):
    assert moment(micros(at)).timestamp() == at.timestamp()
    assert moment(micros(at)).utcoffset() == timedelta(0)


@given(moments, moments)
def test_microseconds_order_as_moments_do(one, other):
    assert (micros(one) < micros(other)) == (one.astimezone(UTC) < other.astimezone(UTC))


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(StoreError, match=r"2026-03-01T12:00:00 has no time zone"):
        micros(NOW.replace(tzinfo=None))


def test_a_moment_without_a_zone_is_refused_however_deep():
    deep = attempt()
    deep = replace(deep, before=replace(deep.before, changed_at=NOW.replace(tzinfo=None)))

    with pytest.raises(StoreError, match="no time zone"):
        Codec("attempts", Attempt).encode(deep)


@pytest.mark.parametrize("stored", STORED, ids=lambda t: t.__name__)
@many
@given(data=st.data())
def test_every_stored_value_comes_back_the_same_and_in_utc(stored, data):
    value = data.draw(anything(stored))
    codec = Codec("table", stored)

    back = codec.decode(codec.encode(value), "key")

    assert back == in_utc(value)
    assert all(at.utcoffset() == timedelta(0) for at in zones_of(back))
    assert [at.timestamp() for at in zones_of(back)] == [at.timestamp() for at in zones_of(value)]


@pytest.mark.parametrize("stored", STORED, ids=lambda t: t.__name__)
def test_absent_can_stand_for_none_in_every_stored_type(stored):
    """The codec leaves nulls out, so an optional field must be required-free and default to None."""
    for field in fields(stored):
        optional = NoneType in get_args(get_type_hints(stored)[field.name])
        if optional:
            assert field.default in (None, MISSING)
            assert field.default is None, f"{stored.__name__}.{field.name}"


def test_a_text_that_looks_like_a_null_member_is_kept():
    tricky = 'a,"b":null,"c":null}'
    said = replace(entry(tricky), evidence={tricky: tricky, ',"x"': ":null,"})
    codec = Codec("audit", AuditEntry)

    assert codec.decode(codec.encode(said)) == said


def test_what_is_not_known_takes_no_room():
    assert "null" not in Codec("observations", Observation).encode(window())


def test_a_zone_with_seconds_keeps_its_moment():
    odd = NOW.astimezone(timezone(timedelta(minutes=53, seconds=28)))
    codec = Codec("marks", Mark)

    assert codec.decode(codec.encode(replace(mark(), nominated_at=odd))).nominated_at == NOW


@pytest.fixture(scope="module")
def shared():
    store = open_store(":memory:")
    yield store
    store.close()


@many
@given(said=anything(AuditEntry))
def test_entries_come_back_from_the_store(shared, said):
    shared.append_audit(said)

    (back,) = shared.audit(limit=1)

    assert replace(back, seq=said.seq) == in_utc(said)
    assert back.seq > 0


@many
@given(heard=anything(Observation))
def test_windows_come_back_from_the_store(shared, heard):
    keep_it = voice(heard.resource)
    if shared.add_observation(heard, keep_it):
        kept = [w for w in shared.observations(EVER, heard.resource) if (w.boot_id, w.seq) == (heard.boot_id, heard.seq)]

        assert kept == [in_utc(heard)]


@many
@given(marked=anything(Mark))
def test_marks_come_back_from_the_store(shared, marked):
    shared.save_marks([marked], [], [])

    assert shared.marks()[(marked.resource, marked.action)] == in_utc(marked)


@many
@given(tried=anything(Attempt, outcome=st.none()))
def test_attempts_come_back_from_the_store(shared, tried):
    if shared.attempt(tried.id) is None:
        lease = shared.acquire_lease("us", NOW, timedelta(minutes=1))
        shared.begin_attempt(tried, lease, NOW, entry(), lambda debits: None)

        assert shared.attempt(tried.id) == in_utc(tried)
        assert any(d.usd_per_hour == tried.usd_per_hour for d in shared.debits(Action(tried.action), EVER))


def test_a_row_as_the_first_version_wrote_it_is_read():
    """Kept for ever: a field that is renamed or becomes required would make every older store unreadable."""
    old = (
        '{"resource":{"cloud":"aws","account":"000012345678","place":"eu-west-1","kind":"instance","native":"i-01"},'
        '"boot_id":"boot-1","seq":60000,"up_s":60.0,"window_s":60.0,"started_at":"2026-03-01T11:59:00Z",'
        '"ended_at":"2026-03-01T12:00:00Z","received_at":"2026-03-01T12:00:00Z","verified":true,"sampler":"nvml",'
        '"gpus":[{"uuid":"GPU-1","peak":0.0,"covered_s":60.0}],"totals":{},"hook_installed":false}'
    )
    codec = Codec("observations", Observation)

    assert codec.decode(old) == window()
    assert codec.encode(window()) == old


def test_keep_answers_for_each(shared):
    first = window(boot="only here", seq=1)
    assert keep(shared, first, first) == [True, False]
