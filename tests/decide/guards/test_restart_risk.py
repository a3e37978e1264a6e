"""How it may come back is told, held where the policy says so, and a key that cannot be used always holds."""

import pytest

from reaper.decide.guards.restart_risk import restart_risk
from reaper.model.decision import FindingKind
from reaper.model.kinds.instance import DiskKey, Lifecycle, Protections
from tests.builders import NOW, facts, gpu, instance, observation, policy, quiet
from tests.decide.tables import check

KEY = "arn:aws:kms:eu-west-1:1:key/k"
EIGHT = {"newest": observation(gpus=tuple(gpu(f"GPU-{n}") for n in range(8))), "quiet": quiet(devices=8)}


def keyed(**key):
    return {"protections": Protections(False, keys=(DiskKey(KEY, **key),))}


RISKY = [
    ("address", {"instance": instance(public_address="198.51.100.7", address_kept=False)}, "198.51.100.7 changes"),
    ("capacity", {"instance": instance(type="g5.48xlarge", gpus=8, zone="eu-west-1a"), **EIGHT}, "no g5.48xlarge in eu-west-1a"),
    ("capacity", {"instance": instance(type="g2-standard-8", lifecycle=Lifecycle.SPOT, spot_stops=True)}, "a spot g2-standard-8 starts again only where"),
    ("placement", {"instance": instance(placement_group="train")}, "room in placement group train"),
    ("key", keyed(state="Enabled", ours=True), f"needs kms:CreateGrant on {KEY}"),
    ("key", keyed(because="denied"), "is not readable: denied"),
    ("key", {"protections": Protections(False, keys_because="denied")}, "not readable: denied"),
]


@pytest.mark.parametrize(("word", "changes", "text"), RISKY, ids=str)
def test_a_risk_is_told_and_held_only_where_the_policy_names_it(word, changes, text):
    others = tuple({"address", "capacity", "placement", "key"} - {word})

    told = restart_risk(facts(**changes), NOW)

    assert told.kind is FindingKind.NOTE
    assert text in told.because
    assert restart_risk(facts(policies=(policy(restart_hold=others),), **changes), NOW).kind is FindingKind.NOTE
    check(restart_risk, facts(policies=(policy(restart_hold=(word,)),), **changes), text)


@pytest.mark.parametrize("changes", [
    {}, {"instance": instance(public_address="198.51.100.7", address_kept=True)}, {"instance": instance(public_address="198.51.100.7")},
    keyed(state="Enabled", ours=False), {"protections": Protections(False, keys=())}, {"protections": None},
], ids=str)  # fmt: skip
def test_what_is_no_risk_is_not_told(changes):
    assert restart_risk(facts(**changes), NOW) is None


@pytest.mark.parametrize("state", ["Disabled", "PendingDeletion", "Unavailable", "a new word"])
def test_a_key_that_cannot_be_used_holds_whatever_the_policy(state):
    check(restart_risk, facts(**keyed(state=state, ours=True)), f"which is {state}")


def test_all_risks_are_told_at_once():
    told = restart_risk(facts(instance=instance(public_address="198.51.100.7", address_kept=False, placement_group="train")), NOW)

    assert told.because.count(";") == 1
