"""Machines with local disks: stopped when what is on them may go, and by the newest report only."""

from datetime import timedelta

import pytest

from reaper.model.audit import AuditKind
from reaper.model.mark import Stage
from reaper.model.resource import ResourceId
from reaper.model.signal import LocalDisk
from tests.builders import disk
from tests.scenarios.world import ACCOUNT, REGION, Life, World, configuration, policy

ID = ResourceId("aws", ACCOUNT, REGION, "instance", "i-it")
_SECONDS = timedelta(seconds=2)
SCRATCH = "/opt/dlami/nvme"
TERMS = policy(local_nvme="if-empty", local_scratch=(SCRATCH,))


def add(world: World, *disks: LocalDisk, count: int | None = 1, told: bool = True) -> Life:
    world.config = configuration(TERMS)
    return world.add("i-it", Life(ID, changes={"disks": disks} if told else {}), local_store=True, local_disks=count)


GONE = [
    ("empty", [disk()]),
    ("full of scratch", [disk(mount=SCRATCH, used=0.8)]),
    ("a volume over two disks, for scratch", [disk(n, use="member", mount=SCRATCH, used=0.8) for n in ("nvme1n1", "nvme2n1")]),
]


@pytest.mark.parametrize("disks", [row[1] for row in GONE], ids=[row[0] for row in GONE])
def test_idle_machine_whose_local_disks_may_go_is_stopped(world: World, disks: list[LocalDisk]) -> None:
    add(world, *disks, count=len(disks))

    world.run(60, lambda: world.stopped("i-it"))

    assert world.cloud.verbs() == [("stop", ID)]


HELD = [
    ("full", [disk(used=0.5)], 1, "50.0% used"),
    ("written to within the term", [disk(written_age_s=600.0)], 1, "written to within the last 30m"),
    ("not watched long enough", [disk(written_age_s=None)], 1, "not known yet"),
    ("not mounted", [disk(use="unmounted", mount=None, used=None)], 1, "unmounted"),
    ("member of a RAID that nobody mounted", [disk(use="member", mount=None, used=None)], 1, "member of RAID"),
    ("one of eight is not reported", [disk(f"nvme{n}n1") for n in range(1, 8)], 8, "7 of 8 reported"),
    ("looked, and none", [], None, "0 of at least 1 reported"),
]  # fmt: skip


@pytest.mark.parametrize(("disks", "count", "because"), [row[1:] for row in HELD], ids=[row[0] for row in HELD])
def test_idle_machine_whose_local_disks_hold_something_or_cannot_be_told_stays_up(
    world: World, disks: list[LocalDisk], count: int | None, because: str
) -> None:
    add(world, *disks, count=count)

    world.run(60)

    assert world.cloud.verbs() == []
    assert because in world.why("i-it")


def test_agent_too_old_to_tell_of_local_disks_holds_the_machine(world: World) -> None:
    add(world, told=False)

    world.run(60)

    assert world.cloud.verbs() == []
    assert "does not tell what is on them" in world.why("i-it")


def test_shipped_policy_never_stops_a_machine_with_local_disks(world: World) -> None:
    add(world, disk())
    world.config = configuration(policy())

    world.run(60)

    assert world.cloud.verbs() == []


@pytest.mark.parametrize("now", [disk(used=0.3), disk(written_age_s=20.0), disk(use="unmounted", mount=None, used=None)], ids=["filled", "written to", "unmounted"])
def test_disk_that_changes_after_the_warning_stops_the_countdown(world: World, now: LocalDisk) -> None:
    life = add(world, disk())
    world.run(60, lambda: world.mark("i-it") is not None)
    life.changes["disks"] = (now,)

    world.run(60)

    assert world.cloud.verbs() == []
    assert "paused" in world.story("i-it")


def test_disk_that_is_filled_in_the_very_last_report_holds_the_machine(world: World) -> None:
    """Between the plan and the call another process's door takes a report."""
    life = add(world, disk())
    world.run(60, lambda: (mark := world.mark("i-it")) is not None and mark.stage is Stage.DUE)
    done: list[bool] = []

    def before(method: str, resource: ResourceId | None) -> None:
        if method == "get" and not done:
            done.append(True)
            life.changes["disks"] = (disk(used=0.3),)
            world.clock.advance(_SECONDS)
            world.report(life, _SECONDS)

    world.cloud.before = before
    world.run(3)

    assert done
    assert world.cloud.verbs() == []
    assert any(e.kind is AuditKind.WITHHELD and "30.0% used" in e.because for e in world.store.audit(resource=ID))


def test_discard_stops_whatever_is_on_the_disks_and_nothing_that_is_being_written(world: World) -> None:
    life = add(world, disk(used=0.9, written_age_s=60.0))
    world.config = configuration(policy(local_nvme="discard"))
    world.run(60)
    while_written = world.cloud.verbs()
    life.changes["disks"] = (disk(used=0.9),)
    world.run(60)

    assert while_written == []
    assert world.cloud.verbs() == [("stop", ID)]
