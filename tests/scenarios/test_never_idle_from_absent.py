"""
A machine at work whose agent loses now this figure and now that: from its driver and /proc through the wire, the door and the
idle clock to the decision, it is never let go.
"""

import tempfile
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from agent.report import encode
from reaper.decide.correlate import state_of
from reaper.decide.engine import decide
from reaper.model.decision import Verdict
from reaper.model.policy import IdleTerms
from reaper.model.resource import ResourceId
from reaper.model.signal import Limits, State
from reaper.service.board import Board
from reaper.service.ingest import Ingest
from reaper.service.watch import Watch
from reaper.store import open_store
from tests.agent.doubles import RESOURCE
from tests.agent.test_never_zero_report import Machine, live, steps
from tests.builders import facts, instance, policy
from tests.service.door import OWN, START, ManualClock

MINUTE = timedelta(minutes=1)
ID = ResourceId.parse(RESOURCE)
TERMS = IdleTerms(idle_for=MINUTE, gpu_at_most=0.05, held_for=MINUTE)  # so short that every quiet window would nominate
LIMITS = Limits(gpu=0.05, cpu=0.2, disk_bytes_per_s=5 * 2**20, net_bytes_per_s=5 * 2**20, wait=0.3)


def told(life, waiting):
    """The reports of such a life, and the boot clock's begin."""
    kept = psutil.PROCFS_PATH
    with tempfile.TemporaryDirectory() as root:
        psutil.PROCFS_PATH = root + "/proc"
        try:
            machine = Machine(Path(root), waiting)
            live(machine, life)
        finally:
            psutil.PROCFS_PATH = kept
    return machine.out.reports


@pytest.mark.parametrize("waiting", [False, True], ids=["computes", "waits_for_data"])
@given(life=steps)
@settings(max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
def test_machine_at_work_is_never_let_go_whatever_its_agent_loses(waiting, life):
    reports = told(life, waiting)
    clock, store, watch = ManualClock(), open_store(":memory:"), Watch()
    door = Ingest(store, watch, Board(), clock)
    for report in reports:
        clock.at = START + timedelta(seconds=report.up_s)
        door.accept(encode(report), OWN)
        newest, now = watch.newest(ID), clock.now() + timedelta(seconds=5)
        quiet = watch.quiet(ID, LIMITS, (TERMS.idle_for, TERMS.held_for))
        for count in (2, None):
            known = facts(
                instance=instance(gpus=count, gpu_model=None), listed_at=now, newest=newest, quiet=quiet,
                policies=(policy(idle=TERMS, orchestrator="ignore"),), running_since=START - timedelta(days=1),
            )  # fmt: skip

            assert decide(known, now).verdict is not Verdict.ACT, report
            assert waiting or state_of(known, now) is not State.IDLE, report

    working = State.STARVED if waiting else State.WORKING
    assert state_of(known, now) is working
