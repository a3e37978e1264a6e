"""
Hold a host whose jobs are waiting for data.

Low GPU use with a busy loader is a slow job, not an idle machine. The idle clock counts
such a window as busy; this is the second line, and it holds where the figure is missing.
"""

from dataclasses import replace
from datetime import datetime

from reaper.decide.correlate import figure
from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding
from reaper.model.policy import AFTER_HOURS

NAME = "starved"


def starved(facts: Facts, now: datetime) -> Finding | None:
    """Hold while a process tree waited for at least the policy's ratio (0 to 1) of the newest window, or when that cannot be read."""
    policy, newest = facts.policy, facts.newest
    if policy is None or newest is None:
        return None  # without a report `blind` holds
    age = now - newest.ended_at
    owned = any(gpu.processes != 0 for gpu in newest.gpus)
    if owned and all(tree.off_gpu for tree in newest.loaders or ()):
        return hold(NAME, "a process may hold a GPU and its data wait is not readable", age=age, change="rights to read /proc/PID/io")
    unlisted = next((gpu.uuid for gpu in newest.gpus if gpu.processes is None), None) if newest.loaders else None
    if unlisted is not None:
        return hold(NAME, f"who holds {unlisted} is not readable, and the data wait seen may be another GPU's", age=age, change="a process list of every GPU")
    for tree in newest.loaders or ():
        wait = tree.waited
        if wait is not None and wait >= policy.starved_above:
            by = ", as the job itself measured" if tree.exact is not None and tree.exact >= wait else ""
            told = f"{tree.id} waited for data {wait:.0%} of the window{by}"
            finding = hold(NAME, told, value=f"{wait:.0%}", limit=f"{policy.starved_above:.0%}", age=age)
            # A job that waits for data is at work: as for the guard `in-use`, a schedule that says so stops it all the same.
            return replace(finding, exempts=(AFTER_HOURS,)) if facts.stops_at_work else finding
        if tree.exact is not None and figure(tree.exact) is None:
            return hold(NAME, f"what {tree.id} says of its own wait is no share", age=age, change="the agent's and the hook's versions")
        if figure(tree.wait) is None and not tree.off_gpu:  # what a job says of itself does not stand in for our own look
            return hold(NAME, f"data wait of {tree.id} not readable", age=age, change="rights to read /proc/PID/io")
    return None
