"""Whether a machine may be started again: only what we stopped ourselves and nobody touched since."""

from datetime import timedelta

from reaper.model.decision import Action
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX
from reaper.model.plan import Attempt, Outcome


def refuse_start(attempt: Attempt, current: Instance) -> str | None:
    """Why ``attempt`` (a stop of ours) must not be undone by a start now; None when it may be."""
    if not attempt.action.stops:
        return f"it was not a stop but {attempt.action}"
    if attempt.outcome is not Outcome.DONE or attempt.after is None:
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
    if _foreign(current) != _foreign(was):
        return "its tags were changed"
    if _moved(attempt.after, current):
        return "it was started and stopped again by somebody else"
    return None


def _foreign(instance: Instance) -> dict[str, str]:
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
