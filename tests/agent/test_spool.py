"""The spool: bounded, of this boot only, and nothing in it can break the agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import List

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agent.report import Report, Sampler, encode
from agent.spool import Spool
from tests.agent.doubles import BOOT, RESOURCE, Lines


def report(seq: int, boot_id: str = BOOT) -> Report:
    return Report(RESOURCE, boot_id, seq / 1000, seq, 60.0, 0.0, Sampler("ok"))


def spool(folder: Path, log: Lines, most: int = 100, most_bytes: int = 1 << 20, boot_id: str = BOOT) -> Spool:
    return Spool(folder, boot_id, most, most_bytes, log)


def seqs(spooled: Spool, most: int = 100, newest_first: bool = False) -> List[int]:
    return [r.seq for _, r in spooled.batch(most, newest_first)]


def test_reports_come_back_oldest_first_or_the_newest_before_them(tmp_path: Path, log: Lines) -> None:
    kept = spool(tmp_path, log)
    for seq in (3000, 1000, 2000):
        kept.put(report(seq))

    assert seqs(kept) == [1000, 2000, 3000]
    assert seqs(kept, newest_first=True) == [3000, 1000, 2000]
    assert seqs(kept, most=2) == [1000, 2000]


def test_full_spool_drops_the_oldest_and_counts_it(tmp_path: Path, log: Lines) -> None:
    kept = spool(tmp_path, log, most=3)
    for seq in range(1000, 6000, 1000):
        kept.put(report(seq))

    assert (seqs(kept), kept.dropped, len(list(tmp_path.iterdir()))) == ([3000, 4000, 5000], 2, 3)


def test_bytes_are_bounded_too(tmp_path: Path, log: Lines) -> None:
    size = len(encode(report(1000)))
    kept = spool(tmp_path, log, most_bytes=2 * size + 1)
    for seq in range(1000, 5000, 1000):
        kept.put(report(seq))

    assert (seqs(kept), kept.dropped) == ([3000, 4000], 2)
    assert kept.size_bytes == 2 * size


def test_spool_survives_a_restart_in_the_same_boot(tmp_path: Path, log: Lines) -> None:
    spool(tmp_path, log).put(report(1000))

    assert seqs(spool(tmp_path, log)) == [1000]


def test_reports_of_another_boot_are_dropped_unsent(tmp_path: Path, log: Lines) -> None:
    """Their ages are by a clock that is gone."""
    spool(tmp_path, log).put(report(1000))
    later = spool(tmp_path, log, boot_id="another-boot")

    assert (len(later), seqs(later), later.dropped, list(tmp_path.iterdir())) == (0, [], 1, [])


def test_report_that_claims_another_boot_under_our_name_is_dropped(tmp_path: Path, log: Lines) -> None:
    kept = spool(tmp_path, log)
    kept.put(replace(report(1000), boot_id="another-boot"))

    assert (seqs(kept), kept.dropped) == ([], 1)


def test_file_that_was_cut_off_is_dropped_and_the_rest_is_kept(tmp_path: Path, log: Lines) -> None:
    kept = spool(tmp_path, log)
    kept.put(report(1000))
    kept.put(report(2000))
    first = sorted(tmp_path.iterdir())[0]
    first.write_bytes(first.read_bytes()[:20])

    assert (seqs(kept), kept.dropped) == ([2000], 1)


def test_half_written_file_of_a_crash_is_swept_away(tmp_path: Path, log: Lines) -> None:
    (tmp_path / "x.new").write_text("{")

    assert (len(spool(tmp_path, log)), list(tmp_path.iterdir())) == (0, [])


def test_disk_that_fails_loses_the_report_and_nothing_else(tmp_path: Path, log: Lines) -> None:
    (tmp_path / "file").write_text("")
    kept = spool(tmp_path / "file" / "below", log)
    kept.put(report(1000))

    assert (len(kept), kept.dropped) == (0, 1)
    assert "report lost" in log.events()


def test_spool_of_another_machine_is_cleared(tmp_path: Path, log: Lines) -> None:
    kept = spool(tmp_path, log)
    kept.put(report(1000))
    kept.clear("another machine's")

    assert (len(kept), kept.dropped, list(tmp_path.iterdir())) == (0, 1, [])


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50)), max_size=40), st.integers(1, 6))
@hypothesis_settings(max_examples=60, deadline=None)
def test_spool_is_bounded_and_keeps_the_newest(tmp_path_factory: pytest.TempPathFactory, steps: "List[tuple[bool, int]]", most: int) -> None:
    folder = tmp_path_factory.mktemp("spool")
    kept, expected = spool(folder, Lines(), most=most), set()
    for put, seq in steps:
        if put:
            kept.put(report(seq))
            if seq not in expected and len(expected) >= most:
                expected.remove(min(expected))
            expected.add(seq)
        elif expected:
            _, oldest = kept.batch(1)[0]
            kept.remove(oldest.seq)
            expected.remove(oldest.seq)

        assert len(kept) <= most
        assert kept.size_bytes == sum(file.stat().st_size for file in folder.iterdir())
        assert set(seqs(kept)) == expected
