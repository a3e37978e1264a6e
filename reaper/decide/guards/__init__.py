"""
Rules that object: PROTECT (never) or HOLD (not now). Every one binds every action that takes a machine or its data away,
whatever cause nominated it. A new one is one file and one line here.
"""

from collections.abc import Callable
from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.guards import (
    blind,
    claimed,
    disk_copies,
    eligible,
    gang,
    hibernation,
    hours_unread,
    in_use,
    lifecycle_kind,
    local_data,
    on_host,
    orchestrator,
    owned,
    policies,
    protected,
    reserved,
    restart_risk,
    scarce,
    snoozed,
    starved,
    stop_protected,
    suspension,
    termination,
    transition,
    young,
)  # fmt: skip
from reaper.model.decision import Finding

Rule = Callable[[Facts, datetime], Finding | None]

GUARDS: tuple[tuple[str, Rule], ...] = (
    # not ours to touch
    (eligible.NAME, eligible.ineligible),
    (claimed.NAME, claimed.claimed_by_another),
    (protected.NAME, protected.protected),
    (policies.NAME, policies.two_policies),
    # not seen well enough to tell who works
    (blind.NAME, blind.blind),
    # somebody works
    (starved.NAME, starved.starved),
    (in_use.NAME, in_use.in_use),
    (gang.NAME, gang.gang),
    (orchestrator.NAME, orchestrator.orchestrator),
    (snoozed.NAME, snoozed.snoozed),
    # not now
    (transition.NAME, transition.in_transition),
    (young.NAME, young.too_young),
    # what a stop would break
    (owned.NAME, owned.managed_member),
    (local_data.NAME, local_data.local_data),
    (lifecycle_kind.NAME, lifecycle_kind.spot),
    (reserved.NAME, reserved.reserved),
    (on_host.NAME, on_host.on_host),
    (scarce.NAME, scarce.scarce),
    (restart_risk.NAME, restart_risk.restart_risk),
    (hibernation.NAME, hibernation.cannot_hibernate),
    (suspension.NAME, suspension.suspension),
    (disk_copies.NAME, disk_copies.disk_copies),
    (stop_protected.NAME, stop_protected.stop_protected),
    (termination.NAME, termination.termination_protected),
    # worth telling
    (hours_unread.NAME, hours_unread.hours_unread),
)
