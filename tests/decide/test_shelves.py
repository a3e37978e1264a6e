"""How long a disk has been attached to nothing: as far as somebody looked, and from our own sight of it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reaper.decide.shelves import ADDS, BREAKS, EVERY, left_out, seen
from reaper.model.kinds.disk import Attachment, Disk, DiskState, KeptDisk
from reaper.model.resource import ResourceId
from tests.builders import DAY, HOUR, MINUTE, NOW

ID = ResourceId("aws", "111122223333", "eu-west-1", "disk", "vol-1")
FREE = Disk(ID, DiskState.AVAILABLE, size_gib=100, created_at=NOW - 1000 * DAY)
USED = replace(FREE, state=DiskState.IN_USE, attachments=(Attachment("i-1", NOW - DAY),))


def story(*sights, before=None):
    """Each a disk and how long after the last one it was seen. The record, and the moment of the last sight."""
    now, last, kept = NOW, None, before
    for disk, after in sights:
        now += after
        kept = seen(kept, disk, last, now)
        last = now
    return kept, now


def age(*sights):
    kept, now = story(*sights)
    return kept.unattached_for(now)


def looks(disk, count, every=EVERY):
    return [(disk, every)] * count


def test_a_three_year_old_disk_that_was_detached_a_minute_ago_is_a_minute_unattached():
    assert age(*looks(USED, 10), (FREE, MINUTE), (FREE, MINUTE)) == MINUTE


def test_a_disk_that_was_free_at_our_first_sight_begins_to_count_then():
    assert age((FREE, MINUTE)) == timedelta(0)
    assert age(*looks(FREE, 97)) == DAY


@pytest.mark.parametrize(("gap", "whole"), [
    (ADDS, 2 * HOUR + ADDS), (ADDS + MINUTE, 2 * HOUR), (BREAKS, 2 * HOUR), (BREAKS + MINUTE, HOUR), (30 * DAY, HOUR),
], ids=["a late look counts", "a longer gap adds nothing", "six hours too", "after more it begins anew", "and after weeks"])  # fmt: skip
def test_time_in_which_nobody_looked_adds_nothing_and_more_than_six_hours_of_it_begins_anew(gap, whole):
    sights = [*looks(FREE, 5), (FREE, gap), *looks(FREE, 4)]

    assert age(*sights) == whole


def test_an_attach_in_between_begins_anew_and_is_remembered():
    kept, now = story(*looks(FREE, 20), (USED, EVERY), *looks(FREE, 5))

    assert kept.unattached_for(now) == 4 * EVERY
    assert (kept.last_on, kept.attached_until) == (("i-1",), now - 5 * EVERY)
    assert story(*looks(FREE, 20), (USED, EVERY))[0].unattached_for(now) is None


@pytest.mark.parametrize("word", ["attached_at", "detached_at"])
def test_an_attach_that_only_the_cloud_saw_begins_anew(word):
    between = NOW + 20 * EVERY + MINUTE
    told = replace(FREE, **{word: between})

    assert age(*looks(FREE, 20), *looks(told, 3)) == 2 * EVERY
    assert age(*looks(replace(FREE, **{word: NOW - DAY}), 20)) == 19 * EVERY


@pytest.mark.parametrize("state", [state for state in DiskState if state is not DiskState.AVAILABLE])
def test_only_a_plainly_free_disk_counts_as_unattached(state):
    assert age(*looks(FREE, 20), (replace(FREE, state=state), EVERY)) is None
    assert age(*looks(FREE, 20), (replace(FREE, attachments=(Attachment("i-9"),)), EVERY)) is None


def test_a_disk_that_a_listing_leaves_out_is_remembered_for_a_day_and_its_gap_counts_as_one():
    kept, now = story(*looks(FREE, 20))
    missed = left_out(kept, now, now + EVERY)
    later = left_out(missed, now + EVERY, now + 5 * HOUR)

    assert left_out(later, now + DAY, now + DAY + MINUTE) is None
    back = seen(later, FREE, now + 5 * HOUR, now + 5 * HOUR + EVERY)
    assert back.unattached_for(now + 5 * HOUR + EVERY) == 19 * EVERY
    assert seen(later, FREE, now + 7 * HOUR, now + 7 * HOUR + EVERY).unattached_for(now + 7 * HOUR + EVERY) == timedelta(0)


@given(st.lists(st.tuples(st.sampled_from([FREE, FREE, FREE, USED]), st.integers(1, 600).map(lambda n: n * MINUTE)), min_size=1, max_size=60))
def test_the_age_is_what_a_second_reading_of_the_story_says(sights):
    """Over the looks backwards: up to the last attach or long gap, what is between two looks close enough to each other."""
    expected = timedelta(0) if sights[-1][0] is FREE else None
    if expected is not None:
        for (before, _), (_, gap) in zip(reversed(sights[:-1]), reversed(sights[1:]), strict=True):
            if before is not FREE or gap > BREAKS:
                break
            expected += gap if gap <= ADDS else timedelta(0)

    assert age(*sights) == expected


def test_the_record_of_a_disk_that_just_lies_there_does_not_change():
    first, now = story(*looks(FREE, 2))

    assert isinstance(first, KeptDisk)
    assert seen(first, FREE, now, now + EVERY) == first
