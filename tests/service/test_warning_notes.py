"""What the rules noted of a machine is in its warning, beside the reason."""

from reaper.model.decision import Finding, FindingKind
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
