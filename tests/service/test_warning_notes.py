"""What the rules noted of a machine is in its warning, beside the reason."""

from reaper.model.audit import AuditKind
from reaper.model.decision import Finding, FindingKind
from reaper.model.kinds.instance import Protections
from reaper.notify.webhook import as_json
from reaper.service.announce import warning
from tests.builders import NOW, finding, instance, mark, policy
from tests.scenarios.world import World


def test_notes_are_told_and_objections_are_not():
    noted = Finding("restart-risk", FindingKind.NOTE, "its public address 198.51.100.7 changes with the next start")

    told = warning(mark(), instance(), policy(), None, NOW, None, (finding(), noted, finding("gang", FindingKind.HOLD)))

    assert told.notes == (noted.because,)
    assert "Note: its public address 198.51.100.7 changes with the next start." in as_json(told)["text"]


def test_the_cycle_warns_with_them(tmp_path):
    world = World(tmp_path)
    world.add("i-a", public_address="198.51.100.7", address_kept=False)

    world.run(60, until=lambda: any(message.event == "warned" for message in world.channel.messages))

    warned = next(message for message in world.channel.messages if message.event == "warned")
    assert warned.notes == ("its public address 198.51.100.7 changes with the next start",)


def test_the_record_of_a_countdown_keeps_what_was_noted(tmp_path):
    """`reaper why` asks no cloud, and shows it from there."""
    world = World(tmp_path)
    world.cloud.protections = lambda resource: Protections(False, covered="2 reserved p3.2xlarge are paid for")
    world.add("i-a")

    world.run(60, until=lambda: any(message.event == "warned" for message in world.channel.messages))

    kept = {entry.kind: entry.evidence.get("noted") for entry in world.store.audit(limit=50)}
    told = "a stop saves nothing as long as 2 reserved p3.2xlarge are paid for"
    assert kept[AuditKind.NOMINATED] == kept[AuditKind.WARNED] == told
