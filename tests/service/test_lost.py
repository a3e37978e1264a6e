"""An agent tells that a boot ended with work on its GPUs: whose stop it was, what follows, and what a lie can do."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reaper.errors import StoreError
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.plan import Attempt, Outcome
from reaper.model.policy import IdleTerms, Mode
from reaper.model.signal import Voice
from reaper.service import lost
from reaper.service.announce import Announcer
from reaper.store import open_store
from tests.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    attempt,
    configuration,
    entry,
    observation,
    policy,
    resource,
    stopped,
)
from tests.fakes.notifier import FakeNotifier

STOPPED_AT = NOW - 2 * HOUR
BOOTED = 10 * MINUTE  # before NOW


@pytest.fixture
def store():
    made = open_store(":memory:")
    yield made
    made.close()


def tried(store, at: datetime = STOPPED_AT, outcome: Outcome | None = Outcome.DONE, native: str = "i-01", **changes) -> Attempt:
    """A stop that was asked for ``at``."""
    made = replace(attempt(outcome, native), **({"intent_at": at, "outcome_at": at + MINUTE if outcome else None} | changes))
    lease = store.acquire_lease("then", at, MINUTE)
    store.begin_attempt(replace(made, outcome=None, outcome_at=None, after=None), lease, at, entry(made), lambda _: None)
    if outcome is not None:
        store.end_attempt(made, entry(made))
    store.release_lease(lease)
    return made


def voice(boot: str = "boot-1", since: datetime = NOW - DAY, last: datetime = STOPPED_AT + MINUTE) -> Voice:
    return Voice(resource(), boot, first_at=NOW - 30 * DAY, boot_since=since, last_at=last)


def woken(**changes):
    """The first window of the boot that began BOOTED ago."""
    return observation(boot_id="boot-2", up_s=BOOTED.total_seconds(), ended_at=NOW, **changes)


def told(store, seen=None, boot="boot-1", before=None, peak=0.9, because="1 of 1 GPUs computed, GPU-0 at 90%"):
    return lost.record(store, seen or woken(), boot, peak, because, voice() if before is None else before, NOW)


def test_work_that_our_stop_ended_is_written_down_once(store):
    tried(store)

    assert told(store) is True
    assert told(store) is False
    assert "interrupted work (1 of 1 GPUs computed" in (lost.put_back(policy(), store) or "")


@pytest.mark.parametrize(("changes", "before", "boot", "seen"), [
    pytest.param({"outcome": Outcome.REFUSED}, voice(), "boot-1", woken(), id="the cloud refused our stop"),
    pytest.param({"outcome": Outcome.ABANDONED}, voice(), "boot-1", woken(), id="our call was never made"),
    pytest.param({}, voice(last=STOPPED_AT + 21 * MINUTE), "boot-1", woken(), id="it was heard long after our stop"),
    pytest.param({}, voice(since=STOPPED_AT + MINUTE, last=NOW - HOUR), "boot-1", woken(), id="the boot began after our stop"),
    pytest.param({}, voice("boot-0"), "boot-1", woken(), id="another boot was the last"),
    pytest.param({}, voice("boot-2"), "boot-1", woken(), id="the new boot is known already"),
    pytest.param({}, voice(), "boot-1", observation(boot_id="boot-1"), id="the same boot speaks on"),
    pytest.param({"at": NOW - MINUTE}, voice(last=NOW - MINUTE), "boot-1", woken(), id="our stop came after this boot began"),
    pytest.param({"native": "i-02", "resource": resource("i-02")}, voice(), "boot-1", woken(), id="it was another machine's stop"),
])  # fmt: skip
def test_what_our_stop_did_not_end_is_nobodys_loss(store, changes, before, boot, seen):
    tried(store, **changes)

    assert told(store, seen, boot, before) is False
    assert lost.put_back(policy(), store) is None


def test_a_machine_that_was_never_heard_or_never_stopped_has_lost_nothing(store):
    never_stopped = told(store)
    tried(store)
    never_heard = lost.record(store, woken(), "boot-1", 0.9, "x", None, NOW)

    assert (never_stopped, never_heard) == (False, False)


@pytest.mark.parametrize("outcome", [None, Outcome.DONE, Outcome.FAILED])
def test_a_stop_whose_end_is_not_known_may_have_been_it(store, outcome):
    tried(store, outcome=outcome)

    assert told(store) is True


def test_a_start_of_ours_in_between_does_not_hide_the_stop(store):
    from reaper.model.decision import Action

    tried(store)
    tried(store, at=NOW - HOUR, id="a-start", action=Action.START)

    assert told(store) is True


def run(store, *policies, refusing=False):
    channel = FakeNotifier()
    channel.refusing = refusing
    found = lost.step(store, configuration(*policies), Announcer({"log": channel}), NOW)
    return found, channel.told("work-lost")


def kinds(store):
    return [one.kind for one in store.audit() if one.kind is AuditKind.LOST]


def test_alarm_is_raised_once_and_the_policy_goes_back_to_observe(store):
    its = tried(store)
    told(store)
    first, messages = run(store, policy())
    second, more = run(store, policy())
    after = lost.in_effect(configuration(policy(), policy("other")), store)

    assert [one.attempt for one in first] == [its.id]
    assert [(m.resource, m.policy, m.action) for m in messages] == [(resource(), "training", "stop")]
    assert (second, more) == ((), [])
    assert len(kinds(store)) == 1
    assert [(p.name, p.mode) for p in after.policies] == [("training", Mode.OBSERVE), ("other", Mode.ENFORCE)]
    assert after.policies[0].digest != policy().digest


def test_it_is_in_effect_before_the_leader_has_seen_it(store):
    tried(store)
    told(store)

    assert lost.in_effect(configuration(policy()), store).policies[0].mode is Mode.OBSERVE


def test_edit_of_the_policy_lifts_it_and_says_so_once(store):
    tried(store)
    told(store)
    run(store, policy())
    edited = policy(digest="training-2")
    run(store, edited)
    run(store, edited)

    assert lost.put_back(edited, store) is None
    assert lost.put_back(policy(), store) is None  # an edit that was taken back is still a person's word
    assert len(kinds(store)) == 2


def test_edit_of_another_policy_lifts_nothing(store):
    tried(store)
    told(store)
    run(store, policy(), policy("other"))
    run(store, policy(), policy("other", digest="other-2"))

    assert lost.put_back(policy(), store) is not None


def test_next_loss_puts_a_lifted_policy_back_again(store):
    tried(store)
    told(store)
    run(store, policy())
    edited = policy(digest="training-2")
    run(store, edited)
    tried(store, at=STOPPED_AT + MINUTE, id="a-next")
    told(store, before=voice(last=STOPPED_AT + 2 * MINUTE))

    before_the_cycle = lost.put_back(edited, store)
    found, messages = run(store, edited)

    assert before_the_cycle is not None
    assert [one.attempt for one in found] == ["a-next"]
    assert len(messages) == 1
    assert lost.put_back(edited, store) is not None


@pytest.mark.parametrize(("peak", "counts"), [(0.05, False), (0.051, True), (0.0, False), (None, True)])
def test_what_the_policy_calls_idle_was_no_work(store, peak, counts):
    tried(store)
    told(store, peak=peak)
    found, messages = run(store, policy())

    assert (bool(found), bool(messages), bool(kinds(store)), lost.put_back(policy(), store) is not None) == (counts,) * 4


def test_the_limit_is_the_policys_own(store):
    tried(store)
    told(store, peak=0.15)

    assert lost.put_back(policy(idle=IdleTerms(gpu_at_most=0.20)), store) is None


def test_message_that_no_channel_took_is_sent_again_and_the_alarm_is_not_raised_twice(store):
    tried(store)
    told(store)
    first, nothing = run(store, policy(), refusing=True)
    second, messages = run(store, policy())
    _, no_more = run(store, policy())

    assert (len(first), nothing) == (1, [])
    assert (second, len(messages), no_more) == ((), 1, [])
    assert len(kinds(store)) == 1


def test_whole_gang_of_losses_is_told_one_by_one(store):
    for n in ("1", "2", "3"):
        tried(store, id=f"a-{n}", at=STOPPED_AT + int(n) * SECOND)
        told(store)

    found, messages = run(store, policy())

    assert [one.attempt for one in found] == ["a-1", "a-2", "a-3"]
    assert len(messages) == 3


def test_unverified_voice_is_said_to_be_one_and_blames_each_stop_once(store):
    tried(store)
    first = told(store, seen=replace(woken(), verified=False))
    again = told(store, seen=replace(woken(), verified=False, boot_id="boot-3"))
    run(store, policy())

    assert (first, again) == (True, False)
    assert store.audit()[-1].evidence["told by"] == "an unverified voice"


@pytest.mark.parametrize("kept", ["", "{", "[1]", '[{"attempt": "a"}]', "null"])
def test_record_that_cannot_be_read_is_an_error_and_no_permission(store, kept):
    store.set_facts({"work-lost:training": kept})

    with pytest.raises(StoreError, match="cannot be read"):
        lost.put_back(policy(), store)


def test_policy_that_observes_anyway_is_left_as_it_is(store):
    tried(store)
    told(store)
    written = configuration(policy(mode=Mode.OBSERVE))

    assert lost.in_effect(written, store) is written
    assert lost.notes(written, store) == ()
    assert len(lost.notes(configuration(policy()), store)) == 1


def test_entry_names_the_stop_its_figures_and_the_machine(store):
    its = tried(store, before=replace(stopped(), name="trainer"))
    told(store)
    run(store, policy())
    (one,) = [e for e in store.audit() if e.kind is AuditKind.LOST]

    assert isinstance(one, AuditEntry)
    assert (one.attempt, one.resource) == (its.id, resource())
    assert one.evidence == {"policy": "training", "told by": "its agent", "value": "90%", "limit": "5%"}
    assert "edit the policy, which lifts this" in one.because


def test_a_long_stop_is_still_ours(store):
    """A machine that is started weeks later: no report of the old boot is kept any more, its voice is."""
    tried(store, at=NOW - 30 * DAY)

    assert told(store, before=voice(since=NOW - 31 * DAY, last=NOW - 30 * DAY + timedelta(minutes=1))) is True
