"""Disks as they are listed and remembered: what fails keeps what was known, and what is not said is not taken for gone."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reaper.decide.shelves import EVERY
from reaper.errors import CloudError, Denied
from reaper.model.kinds.disk import Disk, DiskState, Leftover
from reaper.model.resource import Place, ResourceId
from reaper.ports import Shelf
from reaper.service.shelves import ShelfWatch, kept
from reaper.store import open_store
from tests.builders import HOUR, NOW
from tests.fakes.clock import ManualClock

HERE, THERE = Place("aws", "111122223333", "eu-west-1"), Place("aws", "111122223333", "us-east-1")


class Answers:
    name = "aws"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def shelves(self):
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, CloudError):
            raise answer
        return answer


def disk(native, place=HERE, state=DiskState.AVAILABLE):
    return Disk(ResourceId("aws", place.account, place.name, "disk", native), state, size_gib=8)


def snapshot(native, place=HERE):
    return Leftover(ResourceId("aws", place.account, place.name, "snapshot", native), "snapshot", "its disk is gone", size_gib=8)


def shelf(*natives, place=HERE, leftovers=(), **changes):
    return Shelf(place, tuple(disk(native, place) for native in natives), tuple(snapshot(n, place) for n in leftovers), **changes)


@pytest.fixture
def store():
    with_store = open_store(":memory:")
    yield with_store
    with_store.close()


@pytest.fixture
def clock():
    return ManualClock(NOW)


def over(store, clock, *answers, every=EVERY):
    """The rooms after each answer."""
    watch = ShelfWatch(store, (Answers(*answers),), clock)
    rooms = []
    for _ in answers:
        rooms.append(watch.look())
        assert kept(store).disks == rooms[-1].disks
        assert kept(store).shelves == rooms[-1].shelves
        assert kept(store).leftovers == rooms[-1].leftovers
        clock.advance(every)
    return rooms


def natives(room):
    return sorted(id.native for id in room.disks)


def ages(room):
    return {one.disk.id.native: one.unattached_for(room.shelves[HERE].listed_at) for one in room.disks.values()}


def test_disks_grow_older_while_they_are_looked_at(store, clock):
    *_, last = over(store, clock, *[(shelf("vol-1"),)] * 5)

    assert ages(last) == {"vol-1": 4 * EVERY}


def test_a_place_that_fails_keeps_its_disks_and_adds_no_age_and_hides_no_other(store, clock):
    failed = Shelf(HERE, failed="throttled")
    first, broken, again = over(
        store, clock, (shelf("vol-1"), shelf("vol-2", place=THERE)), (failed, shelf("vol-2", place=THERE)), (shelf("vol-1"), shelf("vol-2", place=THERE)), every=HOUR
    )

    assert natives(broken) == ["vol-1", "vol-2"]
    assert (broken.shelves[HERE].failed, broken.shelves[HERE].listed_at) == ("throttled", first.shelves[HERE].listed_at)
    assert broken.shelves[THERE].failed is None
    assert ages(again)["vol-1"] == timedelta(0)
    assert again.disks[disk("vol-1").id].unattached_since == NOW


def test_a_cloud_that_cannot_be_asked_fails_all_its_places_and_forgets_nothing(store, clock):
    first, broken = over(store, clock, (shelf("vol-1"),), Denied("no credentials", "x"))

    assert natives(broken) == natives(first)
    assert broken.problems == ("aws: no credentials",)
    assert "no credentials" in (broken.shelves[HERE].failed or "")


def test_an_empty_answer_where_there_were_disks_is_believed_the_second_time(store, clock):
    _, once, twice, later = over(store, clock, (shelf("vol-1"),), *[(shelf(),)] * 2, (shelf(),), every=25 * HOUR)

    assert natives(once) == ["vol-1"]
    assert "answered with nothing" in (once.shelves[HERE].failed or "")
    assert natives(twice) == []
    assert later.shelves[HERE].failed is None


def test_a_disk_that_one_page_left_out_is_remembered(store, clock):
    rooms = over(store, clock, (shelf("vol-1", "vol-2"),), (shelf("vol-2"),), (shelf("vol-1", "vol-2"),))

    assert [natives(room) for room in rooms] == [["vol-1", "vol-2"]] * 3
    assert rooms[1].disks[disk("vol-1").id].missing_since == NOW
    assert ages(rooms[2]) == {"vol-1": 2 * EVERY, "vol-2": 2 * EVERY}


def test_leftovers_go_with_the_listing_that_does_not_show_them_and_stay_while_they_cannot_be_read(store, clock):
    _, unread, gone = over(
        store, clock, (shelf("vol-1", leftovers=("snap-1",)),), (shelf("vol-1", unread=("snapshots: not allowed",)),), (shelf("vol-1"),)
    )

    assert [id.native for id in unread.leftovers] == ["snap-1"]
    assert unread.shelves[HERE].unread == ("snapshots: not allowed",)
    assert gone.leftovers == {}


def test_leftovers_of_one_kind_that_cannot_be_read_keep_none_of_another(store, clock):
    address = Leftover(ResourceId("aws", HERE.account, HERE.name, "address", "eipalloc-1"), "address", "tied to nothing")
    both = replace(shelf("vol-1", leftovers=("snap-1",)), leftovers=(snapshot("snap-1"), address))
    _, later = over(store, clock, (both,), (shelf("vol-1", unread=("addresses: not allowed", "images: not allowed")),))

    assert [id.native for id in later.leftovers] == ["eipalloc-1"]


def test_a_place_that_nobody_tells_of_any_more_is_held_for_a_day_and_forgotten_with_its_disks(store, clock):
    both = (shelf("vol-1", leftovers=("snap-1",)), shelf("vol-2", place=THERE))
    _, held, gone = over(store, clock, both, (shelf("vol-2", place=THERE),), (shelf("vol-2", place=THERE),), every=13 * HOUR)

    assert natives(held) == ["vol-1", "vol-2"]
    assert "no longer listed" in (held.shelves[HERE].failed or "")
    assert (natives(gone), list(gone.shelves), gone.leftovers) == (["vol-2"], [THERE], {})


def test_disks_of_a_cloud_that_is_not_watched_any_more_are_forgotten_after_a_day(store, clock):
    over(store, clock, (shelf("vol-1"),))
    elsewhere = Answers((), ())
    elsewhere.name = "gcp"
    watch = ShelfWatch(store, (elsewhere,), clock)
    held = watch.look()
    clock.advance(25 * HOUR)

    assert natives(held) == ["vol-1"]
    assert natives(watch.look()) == []


def test_disks_are_listed_four_times_an_hour_and_not_in_every_cycle(store, clock):
    cloud = Answers(*[(shelf("vol-1"),)] * 3)
    watch = ShelfWatch(store, (cloud,), clock)
    looked = []
    for _ in range(31):
        looked.append(watch.step() is not None)
        clock.advance(timedelta(minutes=1))

    assert cloud.asked == sum(looked) == 3
    assert ShelfWatch(store, (), clock).step() is None


def test_what_did_not_change_is_not_written_again(store, clock):
    over(store, clock, *[(shelf("vol-1", leftovers=("snap-1",)),)] * 2)
    written = []
    save = store.save_shelves
    store.save_shelves = lambda shelves, disks, leftovers, gone=(): (written.append((len(shelves), len(disks), len(leftovers))), save(shelves, disks, leftovers, gone))
    over(store, clock, (shelf("vol-1", leftovers=("snap-1",)),))

    assert written == [(1, 0, 0)]


def test_a_disk_that_moved_into_use_is_no_longer_unattached(store, clock):
    used = replace(shelf("vol-1"), disks=(disk("vol-1", state=DiskState.IN_USE),))
    *_, last = over(store, clock, (shelf("vol-1"),), (used,))

    assert ages(last) == {"vol-1": None}
