"""Which GPUs of a machine that works nobody uses, by its idle clock and under its policy's own terms."""

from reaper.decide.facts import Facts
from reaper.decide.waste import SHIPPED_LIMIT, SHIPPED_TERM, IdleGpus, idle_gpus
from reaper.service.watch import Watch


def unused_gpus(facts: Facts, watch: Watch, usd_per_hour: float | None) -> IdleGpus | None:
    """None: all of them are used, or that is not known."""
    idle = facts.policy.idle if facts.policy is not None else None
    limit, term = (idle.gpu_at_most, idle.idle_for) if idle is not None else (SHIPPED_LIMIT, SHIPPED_TERM)
    if facts.newest is None or len(facts.newest.gpus) < 2:
        return None
    return idle_gpus(facts.newest, watch.quiet_gpus(facts.instance.id, limit), facts.gpus, limit, term, usd_per_hour)
