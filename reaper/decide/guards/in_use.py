"""
Hold a host that works without its GPUs: people and their jobs, CPU, disk, network, or the process that owns a GPU.

The idle clock counts such windows as busy; this is the second line, and it holds where a
figure that every agent sends is missing for more than a tenth of the term.
"""

from dataclasses import replace
from datetime import datetime

from reaper.decide.at_work import unreadable
from reaper.decide.correlate import busy_sign, figure
from reaper.decide.facts import Facts
from reaper.decide.findings import hold, span_text
from reaper.decide.guards.blind import COVERAGE
from reaper.model.decision import Finding
from reaper.model.policy import AFTER_HOURS

NAME = "in-use"


def in_use(facts: Facts, now: datetime) -> Finding | None:
    newest, quiet, span = facts.newest, facts.quiet, facts.span
    if newest is None:
        return None  # without a report `blind` holds
    sign = busy_sign(facts, newest)
    if sign is not None and not sign.startswith("data wait"):
        finding = hold(NAME, sign, age=now - newest.ended_at, change="a quiet window")
        # A schedule that says if_busy = "stop" takes work away by the clock, and only that cause does.
        return replace(finding, exempts=(AFTER_HOURS,)) if facts.stops_at_work else finding
    unseen = unreadable(newest)
    if unseen is not None:
        return hold(NAME, f"whether somebody works there cannot be seen: {unseen}", change="the agent's rights; `reaper-agent doctor` there says which")
    missing = [
        name
        for name, value in (
            ("CPU", newest.cpu_ratio),
            ("disk", newest.disk_bytes_per_s),
            ("network", newest.net_bytes_per_s),
            *(("the CPU of a GPU's owner", tree.cpu_cores) for tree in newest.loaders or () if not tree.off_gpu),
        )
        if figure(value) is None
    ]
    if missing:
        return hold(NAME, f"{' and '.join(missing)} not readable in the newest report", change="an agent that can read them")
    if quiet is not None and span is not None and quiet.quiet_for >= span:
        share, signal = quiet.host_covered.get(span, (0.0, "nothing"))
        if not share >= COVERAGE:  # written so that NaN is not enough
            return hold(NAME, f"{signal} readable for {share:.0%} of the last {span_text(span)}", value=f"{share:.0%}", limit=f"{COVERAGE:.0%}")
    return None
