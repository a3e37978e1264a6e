"""Whether a machine may be started again: only what we stopped ourselves and nobody touched since."""

from datetime import timedelta

from reaper.model.decision import Action
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX
from reaper.model.plan import Attempt, Outcome

_SECONDS = timedelta(seconds=2)
"""Clouds tell moments to a second."""

_OUR_STOP = timedelta(minutes=20)
"""How long after our call a stop can still be that of our call."""


def refuse_start(attempt: Attempt, current: Instance) -> str | None:
    """Why ``attempt`` (a stop of ours) must not be undone by a start now; None when it may be."""
    if not attempt.action.stops and not left_stopped(attempt):
        return f"it was not a stop but {attempt.action}"
    if attempt.after is None or not left_stopped(attempt):
        return "the stop was not carried out"
    before = attempt.before.launched_at
    if before is not None and attempt.after.launched_at is not None and before != attempt.after.launched_at:
        return "it was started again by somebody else before the end of our stop was read"
    left = InstanceState.SUSPENDED if attempt.action is Action.SUSPEND else InstanceState.STOPPED
    if current.state is not left:
        gone = current.state is InstanceState.STOPPED and attempt.action is Action.SUSPEND
        return "it is stopped and not suspended any more: by somebody, or by the cloud after too long a time" if gone else f"the machine is {current.state}"
    was = attempt.before  # what we never change ourselves; whoever touched it before our stop was read back touched it as well
    if current.type != was.type:
        return f"its type was changed from {was.type} to {current.type}"
    if current.volumes != was.volumes:
        return "its disks were changed"
    if current.interfaces != was.interfaces:
        return "its network interfaces were changed"
    if foreign_tags(current) != foreign_tags(was):
        return "its tags were changed"
    if _moved(attempt.after, current):
        return "it was started and stopped again by somebody else"
    return None


def left_stopped(attempt: Attempt) -> bool:
    """
    Whether the machine lay stopped by this attempt when it ended: its stop was carried out, whatever became of later steps
    (snapshots that failed, an end that a snooze kept from happening). Of one that failed only where the cloud tells the moment
    of the stop, and that is the moment of ours.
    """
    if attempt.after is None:
        return False
    if attempt.outcome is Outcome.DONE:
        return attempt.action.stops
    if attempt.outcome not in (Outcome.FAILED, Outcome.REFUSED) or attempt.action not in (Action.STOP_AND_SNAPSHOT, Action.TERMINATE):
        return False
    at = attempt.after.changed_at
    return attempt.after.state is InstanceState.STOPPED and at is not None and -_SECONDS <= at - attempt.intent_at <= _OUR_STOP


def foreign_tags(instance: Instance) -> dict[str, str]:
    """What others wrote on it."""
    return {key: value for key, value in instance.tags.items() if not key.startswith(OWN_TAG_PREFIX)}


def _moved(was: Instance, current: Instance) -> bool:
    """
    A different launch, or another transition than ours. Where the cloud told neither time, only the state can speak; one
    that came or went since is not ours.
    """
    if was.launched_at != current.launched_at:
        return True
    if was.changed_at is None or current.changed_at is None:
        return was.changed_at is not current.changed_at
    return abs(current.changed_at - was.changed_at) > timedelta(seconds=2)
