"""A stop that first saves local disks is under way for hours, and is neither a failure nor somebody else's."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reaper.model.decision import Action
from reaper.model.kinds.instance import Hindrance, InstanceState
from reaper.model.plan import Outcome
from reaper.service.settle import end_of
from tests.builders import NOW, attempt, instance

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("saves", "after", "expected"),
    [(True, HOUR, None), (True, 7 * HOUR, Outcome.FAILED), (None, HOUR, Outcome.FAILED), (None, timedelta(minutes=5), None)],
    ids=["saving", "saving_for_too_long", "stuck", "under_way"],
)
def test_how_long_a_machine_may_be_stopping(saves: bool | None, after: timedelta, expected: Outcome | None) -> None:
    begun = replace(attempt(), intent_at=NOW, before=instance(stop_saves_local=saves))

    assert end_of(begun, instance(state=InstanceState.STOPPING), NOW + after)[0] is expected


@pytest.mark.parametrize(("saves", "expected"), [(True, Outcome.DONE), (None, Outcome.FAILED)])
def test_one_that_ended_after_an_hour_is_ours_where_it_had_disks_to_save(saves: bool | None, expected: Outcome) -> None:
    begun = replace(attempt(), intent_at=NOW, before=instance(stop_saves_local=saves))
    stopped = instance(state=InstanceState.STOPPED, changed_at=NOW + HOUR)

    assert end_of(begun, stopped, NOW + HOUR)[0] is expected


def test_a_start_saves_nothing() -> None:
    begun = replace(attempt(), action=Action.START, intent_at=NOW, before=instance(stop_saves_local=True))

    assert end_of(begun, instance(state=InstanceState.PENDING), NOW + HOUR)[0] is Outcome.FAILED


def test_what_the_cloud_said_of_it_is_told_where_a_call_did_not_take_effect() -> None:
    begun = replace(attempt(), action=Action.START, intent_at=NOW, before=instance(state=InstanceState.STOPPED))
    sold_out = instance(state=InstanceState.STOPPED, state_reason="no L4 left in us-central1-a")

    assert end_of(begun, sold_out, NOW + HOUR) == (Outcome.FAILED, "still stopped: the call did not take effect (no L4 left in us-central1-a)")


BOUNCED = {"state": InstanceState.STOPPED, "state_reason": "Client.InternalError", "fell_back": Hindrance.KEY}


@pytest.mark.parametrize(
    ("before", "changed_at", "expected"),
    [
        pytest.param({"state_reason": "Client.UserInitiatedShutdown"}, None, Outcome.FAILED, id="another reason than before: it fell back"),
        pytest.param(BOUNCED, None, None, id="the same reason, of no known moment: a read may lag behind"),
        pytest.param(BOUNCED, NOW - HOUR, None, id="the fall of an earlier try"),
        pytest.param(BOUNCED, NOW + timedelta(seconds=9), Outcome.FAILED, id="the fall of this one"),
    ],
)
def test_the_fall_of_an_earlier_start_is_not_taken_for_that_of_this_one(
    before: dict[str, object], changed_at: datetime | None, expected: Outcome | None
) -> None:
    begun = replace(attempt(), action=Action.START, intent_at=NOW, before=instance(**{"state": InstanceState.STOPPED, **before}))

    assert end_of(begun, instance(**BOUNCED, changed_at=changed_at), NOW + timedelta(seconds=20))[0] is expected


def test_one_that_stays_as_it_fell_is_a_failure_in_the_end() -> None:
    begun = replace(attempt(), action=Action.START, intent_at=NOW, before=instance(**BOUNCED))

    assert end_of(begun, instance(**BOUNCED), NOW + timedelta(minutes=3))[0] is Outcome.FAILED


def test_a_start_that_fell_back_for_want_of_capacity_names_type_and_zone() -> None:
    begun = replace(attempt(), action=Action.START, intent_at=NOW, before=instance(state=InstanceState.STOPPED))
    fell = instance(state=InstanceState.STOPPED, state_reason="Server.InsufficientInstanceCapacity", fell_back=Hindrance.CAPACITY, zone="eu-west-1b", type="p4d.24xlarge")

    assert "no p4d.24xlarge in eu-west-1b" in end_of(begun, fell, NOW + timedelta(seconds=20))[1]
