"""That snapshots are of single disks is told wherever there will be some."""

import pytest

from reaper.decide.guards.disk_copies import disk_copies
from reaper.model.decision import FindingKind
from tests.builders import NOW, facts, instance, policy


@pytest.mark.parametrize("action", ["stop-and-snapshot", "terminate"])
def test_snapshots_are_said_to_be_per_disk(action):
    told = disk_copies(facts(instance=instance(volumes=("a", "b"), local_store=True), policies=(policy(action=action),)), NOW)

    assert told is not None
    assert told.kind is FindingKind.NOTE
    assert "each of its 2 disks" in told.because
    assert "local disks" in told.because


def test_nothing_is_said_where_there_will_be_none():
    assert disk_copies(facts(), NOW) is None
