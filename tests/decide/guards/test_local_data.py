"""A stop wipes local disks."""

import pytest

from reaper.decide.guards.local_data import local_data
from tests.builders import DAY, HOUR, MINUTE, NOW, disk, facts, instance, local_facts, observation, policy, quiet
from tests.decide.tables import check, rows


def with_disks(count, *disks, **changes):
    """A machine whose type brings ``count`` disks and whose agent reports these."""
    return local_facts(*disks, instance=instance(local_store=True, local_disks=count), **changes)


SCRATCH = "/opt/dlami/nvme"


@rows([
    ("no local disks", facts(), None),
    ("local disks", facts(instance=instance(local_store=True)), "that a stop wipes"),
    ("not known", facts(instance=instance(local_store=None)), "is not known"),
    ("not known, whatever the policy says", facts(instance=instance(local_store=None), policies=(policy(local_nvme="discard"),)), "is not known"),
    ("a disk where the type has none", facts(newest=observation(disks=(disk(),))), "that a stop wipes"),
    ("looked, and none where the type has none", facts(newest=observation(disks=())), None),
])  # fmt: skip
def test_local_disks_hold(given, expected):
    check(local_data, given, expected)


@rows([
    ("empty and mounted", local_facts(), None),
    ("used up to the limit", local_facts(disk(used=0.02)), None),
    ("one step over the limit", local_facts(disk(used=0.0201)), "2.0% used, more than 2%"),
    ("full", local_facts(disk(used=1.0)), "100.0% used"),
    ("how full is not known", local_facts(disk(used=None)), "how full nvme1n1 is cannot be read"),
    ("a fullness below nothing", local_facts(disk(used=-0.5)), "cannot be read"),
    ("a fullness that is no number", local_facts(disk(used=float("nan"))), "cannot be read"),
    ("not mounted", local_facts(disk(use="unmounted", mount=None, used=None)), "not known: unmounted"),
    ("not mounted, and called empty", local_facts(disk(use="unmounted", mount=None, used=0.0)), "not known: unmounted"),
    ("member of RAID, LVM or a swap", local_facts(disk(use="member", mount=None, used=None)), "member of RAID"),
    ("member, mounted and empty", local_facts(disk(use="member", mount="/raid", used=0.0)), "member of RAID"),
    ("use not known", local_facts(disk(use="unknown", mount=None, used=None)), "not known: unknown"),
    ("a word of a newer agent", local_facts(disk(use="encrypted")), "not known: encrypted"),
    ("second of two is full", with_disks(2, disk(), disk("nvme2n1", used=0.4)), "nvme2n1 is 40.0% used"),
])  # fmt: skip
def test_only_what_is_empty_may_go(given, expected):
    check(local_data, given, expected)


@rows([
    ("full, in scratch", local_facts(disk(mount=SCRATCH, used=0.9)), None),
    ("below scratch", local_facts(disk(mount=f"{SCRATCH}/a", used=0.9)), None),
    ("member seen in scratch", local_facts(disk(use="member", mount=SCRATCH, used=0.9)), None),
    ("fullness not known, in scratch", local_facts(disk(mount=SCRATCH, used=None)), None),
    ("a neighbour with scratch's beginning", local_facts(disk(mount=f"{SCRATCH}-home", used=0.9)), "90.0% used"),
    ("above scratch", local_facts(disk(mount="/opt/dlami", used=0.9)), "90.0% used"),
    ("a path that leads out of scratch", local_facts(disk(mount=f"{SCRATCH}/../../home", used=0.9)), "90.0% used"),
    ("a path that does not begin at the root", local_facts(disk(mount=SCRATCH[1:], used=0.9)), "90.0% used"),
    ("unmounted, and said to be in scratch", local_facts(disk(use="unmounted", mount=SCRATCH, used=0.9)), "not known: unmounted"),
    ("scratch written with a stroke at its end", local_facts(
        disk(mount="/scratch", used=0.9), policies=(policy(local_nvme="if-empty", local_scratch=("/scratch/",)),)), None),
    ("scratch that is the whole machine", local_facts(
        disk(mount="/data", used=0.9), policies=(policy(local_nvme="if-empty", local_scratch=("/",)),)), "90.0% used"),
])  # fmt: skip
def test_content_of_scratch_may_go(given, expected):
    check(local_data, given, expected)


@rows([
    ("written within the term", local_facts(disk(written_age_s=7199.0)), "written to within the last 2h"),
    ("written before the term", local_facts(disk(written_age_s=7200.0)), None),
    ("not watched yet", local_facts(disk(written_age_s=None)), "not known yet"),
    ("an age below nothing", local_facts(disk(written_age_s=-1.0)), "not known yet"),
    ("scratch written within the term", local_facts(disk(mount=SCRATCH, written_age_s=60.0)), "written to within"),
    ("held: the longer term counts", local_facts(disk(written_age_s=9 * 3600.0), quiet=quiet(12 * HOUR, unheld_for=MINUTE)), "within the last 10h"),
    ("held, and quiet for the longer term", local_facts(disk(written_age_s=10 * 3600.0), quiet=quiet(12 * HOUR, unheld_for=MINUTE)), None),
])  # fmt: skip
def test_a_write_within_the_term_is_use(given, expected):
    check(local_data, given, expected)


@rows([
    ("fewer than the type brings", with_disks(2, disk()), "1 of 2 reported"),
    ("one disk named twice is one", with_disks(2, disk(), disk()), "1 of 2 reported"),
    ("as many as the type brings", with_disks(2, disk(), disk("nvme2n1")), None),
    ("more than the type brings, all empty", with_disks(1, disk(), disk("nvme2n1")), None),
    ("number not known, one reported", with_disks(None, disk()), None),
    ("looked, and none where the number is not known", with_disks(None, newest=observation(disks=())), "0 of at least 1 reported"),
    ("looked, and none", with_disks(1, newest=observation(disks=())), "0 of 1 reported"),
    ("a type said to have disks, and none of them", with_disks(0, newest=observation(disks=())), "0 of 1 reported"),
    ("an agent too old to tell", local_facts(newest=observation()), "does not tell what is on them"),
    ("no report", local_facts(newest=None), "no report tells"),
    ("a stale report", local_facts(newest=observation(4 * MINUTE, disks=(disk(),))), "ended 4m ago"),
    ("a stale report and no idle clock", local_facts(newest=observation(HOUR, disks=(disk(),)), quiet=None), "ended 1h ago"),
    ("a report of the future", local_facts(newest=observation(-DAY, disks=(disk(),))), "in the future"),
    ("an unverified voice", local_facts(newest=observation(disks=(disk(),), verified=False)), "unverified"),
])  # fmt: skip
def test_what_is_not_told_in_full_is_not_empty(given, expected):
    check(local_data, given, expected)


def under(word, *disks, **changes):
    return local_facts(policies=(policy(local_nvme=word),), newest=observation(disks=disks or None), **changes)


@rows([
    ("hold, empty", under("hold", disk()), "that a stop wipes"),
    ("a word of a newer version", under("ask", disk()), "that a stop wipes"),
    ("discard, full", under("discard", disk(used=0.9)), None),
    ("discard, nothing told", under("discard"), None),
    ("discard, written within the term", under("discard", disk(written_age_s=60.0)), "written to within"),
    ("discard, not watched yet", under("discard", disk(written_age_s=None)), None),
])  # fmt: skip
def test_the_policys_word_is_honoured(given, expected):
    check(local_data, given, expected)


def test_without_a_policy_it_holds():
    answer = local_data(local_facts(policies=()), NOW)

    assert answer is not None
    assert "that a stop wipes" in answer.because


@pytest.mark.parametrize("count", [1, None])
def test_shipped_policy_holds_what_has_local_disks(count):
    check(local_data, with_disks(count, disk(), policies=(policy(),)), "that a stop wipes")
