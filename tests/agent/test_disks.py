"""What a stop would wipe is told as it is; what cannot be told is never told as empty."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from agent.disks import LocalDisks, look
from agent.report import Disk, Report, Sampler, decode, encode
from tests.agent.trees import EBS, EC2, Disks


@pytest.fixture
def tree(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def only(tree: Disks) -> Disk:
    found = tree.source().read(1000.0, 1000.0)
    assert found is not None
    (disk,) = found
    return disk


def told(disk: Disk) -> Any:
    return disk.use, disk.mount, disk.used_ratio


# --- which disks are local ---


@pytest.mark.parametrize(
    ("name", "model", "local"),
    [
        pytest.param("nvme1n1", EC2, True, id="instance store"),
        pytest.param("nvme0n1", EBS, False, id="a network volume of EC2"),
        pytest.param("nvme0n1", "nvme_card", True, id="local SSD of Google"),
        pytest.param("nvme0n1", "nvme_card0", True, id="local SSD of Google, numbered"),
        pytest.param("nvme0n1", "nvme_card-pd", False, id="persistent disk of Google"),
        pytest.param("sdb", "EphemeralDisk", True, id="local SSD of Google on SCSI"),
        pytest.param("sda", "PersistentDisk", False, id="persistent disk of Google on SCSI"),
        pytest.param("nvme0n1", "SAMSUNG MZQLB1T9HAJR", True, id="a model nobody told us of counts as local"),
        pytest.param("vda", None, False, id="a disk without a model"),
    ],
)
def test_local_disks_are_told_from_network_disks_by_their_model(tree: Disks, name: str, model: Optional[str], local: bool) -> None:
    tree.disk(name, model)

    found = tree.source().read(1000.0, 1000.0)

    assert [disk.device for disk in found or ()] == ([name] if local else [])


def test_no_local_disk_is_looked_and_none(tree: Disks) -> None:
    tree.disk("nvme0n1", EBS)

    assert tree.source().read(1000.0, 1000.0) == ()


def test_no_list_of_disks_is_could_not_look(tree: Disks) -> None:
    shutil.rmtree(tree.sys / "block")

    assert tree.source().read(1000.0, 1000.0) is None


def test_nvme_disk_without_a_readable_model_may_be_local_and_is_unknown(tree: Disks) -> None:
    tree.disk(model=None)

    assert told(only(tree)) == ("unknown", None, None)


def test_links_of_google_name_a_local_disk_whatever_its_model(tree: Disks) -> None:
    tree.disk("sdb", "whatever")
    (tree.dev / "disk" / "by-id").mkdir(parents=True)
    (tree.dev / "disk" / "by-id" / "google-local-ssd-0").symlink_to("../../sdb")

    assert only(tree).device == "sdb"


def test_disk_over_a_fabric_and_a_hidden_path_are_not_local(tree: Disks) -> None:
    tree.disk("nvme3n1", "NetApp ONTAP Controller")
    (tree.sys / "block" / "nvme3n1" / "device" / "transport").write_text("tcp\n")
    tree.disk("nvme0c0n1", EC2)
    (tree.sys / "block" / "nvme0c0n1" / "hidden").write_text("1\n")

    assert tree.source().read(1000.0, 1000.0) == ()


def test_disk_that_went_away_is_unknown_from_then_on(tree: Disks) -> None:
    tree.disk()
    source = tree.source()
    source.read(1000.0, 1000.0)
    shutil.rmtree(tree.sys / "block" / "nvme1n1")

    assert source.read(1060.0, 1060.0) == (Disk("nvme1n1", "unknown"),)


# --- how they are used ---


def mounted(tree: Disks) -> None:
    tree.mount(tree.disk(), "/data", "/dev/nvme1n1", "xfs")


def in_a_partition(tree: Disks) -> None:
    tree.disk(partitions=(899,))
    tree.mount(tree.number("nvme1n1/nvme1n1p1"), "/data", "/dev/nvme1n1p1")


def with_a_space_in_its_path(tree: Disks) -> None:
    tree.mount(tree.disk(), "/my\\040data", "/dev/nvme1n1")


def by_a_number_of_its_own(tree: Disks) -> None:
    tree.disk()
    tree.mount("0:45", "/data", "/dev/nvme1n1", "btrfs")


def logical_volume(tree: Disks) -> None:
    """As the deep learning images of EC2 set theirs up."""
    for name in ("nvme1n1", "nvme2n1"):
        tree.disk(name)
    (tree.dev / "mapper").mkdir()
    number = tree.stack("dm-0", "nvme1n1", "nvme2n1", gib=1799)
    (tree.dev / "mapper" / "vg.01-lv_ephemeral").symlink_to("../dm-0")
    tree.mount(number, "/opt/dlami/nvme", "/dev/mapper/vg.01-lv_ephemeral")


def raid_with_an_encrypted_volume(tree: Disks) -> None:
    for name in ("nvme1n1", "nvme2n1"):
        tree.disk(name, partitions=(899,))
    tree.stack("md0", "nvme1n1/nvme1n1p1", "nvme2n1/nvme2n1p1", gib=1798)
    tree.mount(tree.stack("dm-0", "md0", gib=1797), "/raid", "/dev/mapper/x")


@pytest.mark.parametrize(
    ("make", "use", "path"),
    [
        (mounted, "mounted", "/data"),
        (in_a_partition, "mounted", "/data"),
        (with_a_space_in_its_path, "mounted", "/my data"),
        (by_a_number_of_its_own, "mounted", "/data"),
        (logical_volume, "member", "/opt/dlami/nvme"),
        (raid_with_an_encrypted_volume, "member", "/raid"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_disk_that_is_mounted_whole_is_told_with_its_place_and_fullness(tree: Disks, make: Callable[[Disks], None], use: str, path: str) -> None:
    make(tree)

    found = tree.source().read(1000.0, 1000.0) or ()

    assert {told(disk) for disk in found} == {(use, path, 0.004)}
    assert set(tree.asked) == {path}


def not_mounted(tree: Disks) -> None:
    tree.disk()


def one_partition_not_mounted(tree: Disks) -> None:
    tree.disk(partitions=(450, 450))
    tree.mount(tree.number("nvme1n1/nvme1n1p1"), "/data", "/dev/nvme1n1p1")


def most_of_it_in_no_partition(tree: Disks) -> None:
    tree.disk(partitions=(100,))
    tree.mount(tree.number("nvme1n1/nvme1n1p1"), "/data", "/dev/nvme1n1p1")


def swapped_to(tree: Disks) -> None:
    tree.disk()
    tree.swaps("nvme1n1")


def swapped_to_a_partition_beside_a_mount(tree: Disks) -> None:
    tree.disk(partitions=(450, 450))
    tree.mount(tree.number("nvme1n1/nvme1n1p1"), "/data", "/dev/nvme1n1p1")
    tree.swaps("nvme1n1p2")


def member_of_raid_not_mounted(tree: Disks) -> None:
    tree.disk()
    tree.stack("md0", "nvme1n1")


def member_with_one_volume_not_mounted(tree: Disks) -> None:
    tree.disk()
    tree.mount(tree.stack("dm-0", "nvme1n1", gib=450), "/data", "/dev/dm-0")
    tree.stack("dm-1", "nvme1n1", gib=450)


def member_with_an_inactive_volume(tree: Disks) -> None:
    """A volume that is not active has no device: only the missing size shows that there is one."""
    tree.disk()
    tree.mount(tree.stack("dm-0", "nvme1n1", gib=450), "/opt/dlami/nvme", "/dev/dm-0")


def holders_not_readable(tree: Disks) -> None:
    mounted(tree)
    shutil.rmtree(tree.sys / "block" / "nvme1n1" / "holders")


def size_not_readable(tree: Disks) -> None:
    mounted(tree)
    (tree.sys / "block" / "nvme1n1" / "size").unlink()


def mounts_not_readable(tree: Disks) -> None:
    mounted(tree)
    (tree.proc / "self" / "mountinfo").unlink()


def holder_of_an_unknown_kind(tree: Disks) -> None:
    mounted(tree)
    (tree.sys / "block" / "nvme1n1" / "holders" / "bcache0").mkdir()


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (not_mounted, "unmounted"),
        (one_partition_not_mounted, "unmounted"),
        (most_of_it_in_no_partition, "unmounted"),
        (swapped_to, "member"),
        (swapped_to_a_partition_beside_a_mount, "member"),
        (member_of_raid_not_mounted, "member"),
        (member_with_one_volume_not_mounted, "member"),
        (member_with_an_inactive_volume, "member"),
        (holders_not_readable, "unknown"),
        (size_not_readable, "unknown"),
        (mounts_not_readable, "unknown"),
        (holder_of_an_unknown_kind, "unknown"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_disk_that_is_not_seen_whole_has_no_place_and_no_fullness(tree: Disks, make: Callable[[Disks], None], use: str) -> None:
    make(tree)

    assert told(only(tree)) == (use, None, None)
    assert tree.asked == []


def test_fullest_of_several_parts_is_told_and_no_single_place(tree: Disks) -> None:
    tree.disk(partitions=(450, 450))
    for part, path, full in (("nvme1n1p1", "/a", 0.001), ("nvme1n1p2", "/b", 0.7)):
        number = tree.number("nvme1n1/" + part)
        tree.mount(number, path, "/dev/" + part)
        tree.full[number] = full

    assert told(only(tree)) == ("mounted", None, 0.7)


def test_disk_seen_at_two_places_has_no_single_place(tree: Disks) -> None:
    number = tree.disk()
    tree.mount(number, "/data", "/dev/nvme1n1")
    tree.mount(number, "/scratch", "/dev/nvme1n1")

    assert told(only(tree)) == ("mounted", None, 0.004)


def test_folder_of_it_that_is_mounted_elsewhere_is_not_its_place(tree: Disks) -> None:
    number = tree.disk()
    tree.mount(number, "/data", "/dev/nvme1n1")
    tree.mount(number, "/scratch", "/dev/nvme1n1", root="/cache")

    assert told(only(tree)) == ("mounted", "/data", 0.004)


def test_fullness_is_rounded_up(tree: Disks) -> None:
    number = tree.disk()
    tree.mount(number, "/data", "/dev/nvme1n1")
    tree.full[number] = 0.020000001

    assert only(tree).used_ratio == 0.0201


# --- what is never asked ---


def fuse(tree: Disks) -> None:
    tree.mount(tree.disk(), "/data", "/dev/nvme1n1", "fuseblk")


def below_a_network_mount(tree: Disks) -> None:
    tree.mount("0:50", "/net", "filer:/export", "nfs4")
    tree.mount(tree.disk(), "/net/scratch", "/dev/nvme1n1")


def below_a_folder_that_mounts_on_demand(tree: Disks) -> None:
    tree.mount("0:51", "/data", "systemd-1", "autofs")
    tree.mount(tree.disk(), "/data/scratch", "/dev/nvme1n1")


def covered_by_a_network_mount(tree: Disks) -> None:
    tree.mount(tree.disk(), "/data", "/dev/nvme1n1")
    tree.mount("0:50", "/data", "filer:/export", "nfs4")


def covered_by_a_network_mount_above(tree: Disks) -> None:
    tree.mount(tree.disk(), "/mnt/data", "/dev/nvme1n1")
    tree.mount("0:50", "/mnt", "s3fs", "fuse.s3fs")


@pytest.mark.parametrize(
    "make",
    [fuse, below_a_network_mount, below_a_folder_that_mounts_on_demand, covered_by_a_network_mount, covered_by_a_network_mount_above],
    ids=lambda value: value.__name__,
)
def test_mount_that_could_block_is_never_asked(tree: Disks, make: Callable[[Disks], None]) -> None:
    make(tree)

    assert told(only(tree))[::2] == ("mounted", None)
    assert tree.asked == []


def test_network_mounts_elsewhere_are_left_alone(tree: Disks) -> None:
    tree.mount("0:50", "/net", "filer:/export", "nfs4")
    mounted(tree)

    only(tree)

    assert tree.asked == ["/data"]


def test_network_disk_is_never_asked(tree: Disks) -> None:
    tree.mount(tree.disk("nvme0n1", EBS), "/big", "/dev/nvme0n1")

    tree.source().read(1000.0, 1000.0)

    assert tree.asked == []


def test_fullness_of_a_real_mount_is_the_used_share_and_another_device_is_not_asked(tmp_path: Path) -> None:
    number = os.stat(tmp_path).st_dev
    ratio = look(str(tmp_path), "%d:%d" % (os.major(number), os.minor(number)))

    assert ratio is not None
    assert 0.0 <= ratio <= 1.0
    assert look(str(tmp_path), "259:99") is None
    assert look(str(tmp_path / "gone"), "259:99") is None


# --- when they were written to ---


def test_age_of_the_last_write_is_unknown_until_watched_and_then_at_least_so_long(tree: Disks) -> None:
    mounted(tree)
    source = tree.source()

    def age(now_s: float) -> Optional[float]:
        (disk,) = source.read(now_s, now_s) or ()
        return disk.written_age_s

    ages = [age(1000.0), age(1060.0), age(1120.5)]
    tree.written("nvme1n1", 11, 88)
    ages += [age(1180.0), age(1240.0)]
    tree.written("nvme1n1", 11, 90)
    ages.append(age(1300.0))

    assert ages == [None, 60.0, 120.0, 0.0, 60.0, 0.0]


def test_counters_that_ran_backwards_are_a_write(tree: Disks) -> None:
    mounted(tree)
    source = tree.source()
    source.read(1000.0, 1000.0)
    tree.written("nvme1n1", 1, 8)

    assert [disk.written_age_s for disk in source.read(1060.0, 1060.0) or ()] == [0.0]


def test_write_in_a_hole_counts_as_written_at_its_end(tree: Disks) -> None:
    """The window ended at 1030, the machine slept, and the disk is looked at on waking."""
    mounted(tree)
    source = tree.source()
    source.read(1000.0, 1000.0)
    tree.written("nvme1n1", 11, 88)
    first = source.read(9000.0, 1030.0) or ()
    second = source.read(9060.0, 9060.0) or ()

    assert [disk.written_age_s for disk in (*first, *second)] == [0.0, 60.0]


@pytest.mark.parametrize(
    ("file", "text"),
    [("queue/iostats", "0\n"), ("stat", "1 2 3\n"), ("stat", "1 2 3 4 -5 6 7 8\n"), ("stat", "")],
    ids=["not counted", "too short", "no number", "empty"],
)
def test_counters_that_mean_nothing_are_no_age(tree: Disks, file: str, text: str) -> None:
    mounted(tree)
    source = tree.source()
    source.read(1000.0, 1000.0)
    (tree.sys / "block" / "nvme1n1" / file).write_text(text)

    found = source.read(1060.0, 1060.0) or ()

    assert [disk.written_age_s for disk in found] == [None]


# --- all of it ---


def test_eight_disks_fit_the_wire_and_come_back_as_sent(tree: Disks) -> None:
    for i in range(1, 9):
        tree.mount(tree.disk("nvme%dn1" % i), "/mnt/scratch%d" % i, "/dev/nvme%dn1" % i)
    source = tree.source()
    source.read(1000.0, 1000.0)
    disks = source.read(1060.0, 1060.0)
    report = Report("aws:1:r:instance:i-0abc", "boot", 1060.0, 1060000, 60.0, 0.0, Sampler("ok"), disks=disks)

    body = encode(report)

    assert decode(body).disks == disks
    assert len(body) < 1200


def test_this_machine_can_be_looked_at() -> None:
    found = LocalDisks().read(1000.0, 1000.0)

    assert found is None or all(disk.use in ("mounted", "unmounted", "member", "unknown") for disk in found)


@pytest.mark.parametrize("seed", range(40))
def test_no_missing_file_makes_a_disk_look_emptier(tmp_path: Path, seed: int) -> None:
    """Of a tree whose disk is full and written to, any single file or folder is taken away: it never looks empty."""
    tree = Disks(tmp_path)
    logical_volume(tree)
    tree.full["259:3"] = 0.9
    source = tree.source()
    source.read(1000.0, 1000.0)
    for name in ("nvme1n1", "nvme2n1"):
        tree.written(name, 99, 999)
    paths = sorted(path for root in (tree.sys, tree.proc, tree.dev) for path in root.rglob("*"))
    path = paths[seed * len(paths) // 40]
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    found = source.read(1060.0, 1060.0)

    for disk in found or ():
        assert disk.use != "mounted" or (disk.used_ratio or 1.0) > 0.5
        assert disk.written_age_s is None or disk.written_age_s == 0.0
    assert found is None or len(found) == 2
