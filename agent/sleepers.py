"""
Whether some thread of a tree sleeps in the kernel for a disk or a mount, where nothing else of it moves.

A process shows only its main thread's state, and a FUSE mount's readers are not in state D at all: they sleep as one does
who waits for a person. Where a thread sleeps (`wchan`) tells them apart. Asking every thread is dear, so it is asked only of
a tree whose GPUs stand low and that shows no other sign, and then only now and then; the answer holds until the next time.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, Sequence, Tuple

from agent.procs import PROC, Procs

ASK_EVERY = 6  # looks
MOST_THREADS = 512

# Functions of the kernel in which one sleeps for FUSE, NFS, a distributed file system, a page or a block device; a pipe, a
# socket or a poll is none: there idle programs sleep as well.
_FOR_DATA = re.compile(
    r"request_wait_answer|fuse_|rpc_wait|nfs\d?_|cifs_|smb2?_|wait_for_response|ceph_|netfs_|cl_sync_io_wait|cl_lock|osc_|ll_|gpfs|p9_"
    r"|(folio|page)_(wait|lock)|wait_on_(page|folio|bit_io|buffer)|lock_page|io_schedule|submit_bio_wait|blk_|jbd2_|xfs_|ext4_|btrfs_|dio_|iomap_dio"
)


class Sleepers:
    """Remembers of each tree what the last asking found."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = str(proc)
        self._procs = Procs(proc)
        self._found: Dict[str, Tuple[bool, int]] = {}  # by tree: what was found, and how many looks it still holds

    def sleeps(self, tree: str, members: Sequence[int]) -> bool:
        found, holds = self._found.get(tree, (False, 0))
        if holds <= 0:
            found, holds = self._ask(members), ASK_EVERY
        self._found[tree] = (found, holds - 1)
        return found

    def keep_only(self, trees: Sequence[str]) -> None:
        """Forget the others: those that are gone, and those that showed that they move."""
        self._found = {name: self._found[name] for name in trees if name in self._found}

    def _ask(self, members: Sequence[int]) -> bool:
        left = MOST_THREADS
        for pid in members:
            try:
                threads = os.listdir("%s/%d/task" % (self._proc, pid))
            except OSError:
                continue
            for thread in threads[:left]:
                where = self._procs.text("%d/task/%s/wchan" % (pid, thread))
                if where and _FOR_DATA.match(where):
                    return True
            left -= len(threads)
            if left <= 0:
                break
        return False
