"""Which action a cause nominates for a machine: what its policy says, as far as the machine can."""

from reaper.model.decision import Action
from reaper.model.kinds.instance import Instance
from reaper.model.policy import Policy

ACTIONS = {
    "stop": Action.STOP,
    "suspend": Action.SUSPEND,
    "hibernate": Action.HIBERNATE,
    "stop-and-snapshot": Action.STOP_AND_SNAPSHOT,
    "terminate": Action.TERMINATE,
}
"""What a policy may say beside "report", which nominates nothing."""


def wanted(policy: Policy, instance: Instance) -> Action | None:
    """
    None: the policy only reports. A machine that was not launched for hibernation, or that its cloud does not suspend, is stopped,
    or held where the policy says so: then it is nominated all the same, and the guards `cannot-hibernate` and `suspension` say
    why nothing happens.
    """
    action = ACTIONS.get(policy.action)
    if action is Action.HIBERNATE and instance.hibernation is not True and policy.hibernate_else == "stop":
        return Action.STOP
    if action is Action.SUSPEND and instance.suspends is not True and policy.suspend_else == "stop":
        return Action.STOP
    return action
