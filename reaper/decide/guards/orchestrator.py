"""Hold a host whose orchestrator lives: slurmd, kubelet, raylet or nomad may place work on it at any moment."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "orchestrator"


def orchestrator(facts: Facts, now: datetime) -> Finding | None:
    policy, newest = facts.policy, facts.newest
    if policy is None or newest is None or policy.orchestrator == "ignore":
        return None
    if newest.orchestrators is None:
        return hold(NAME, "whether an orchestrator runs on the host is not readable", change="an agent that can read process names")
    if newest.orchestrators:
        return hold(NAME, f"{', '.join(newest.orchestrators)} runs on the host", change='orchestrator = "ignore" in its policy')
    return None
