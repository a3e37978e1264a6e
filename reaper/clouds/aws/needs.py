"""Every permission that this adapter may use, collected from beside the calls that use them."""

from collections.abc import Iterator

from reaper.clouds.aws import account, acts, commitments, disks, leftovers, nominated, prices, roles, spots, types
from reaper.clouds.aws.permissions import Permission

MODULES = (account, types, spots, disks, leftovers, nominated, commitments, prices, acts, roles)
"""A module that asks AWS something has NEEDS and stands here; the tests hold the one to the other."""


def needed(*documents: str) -> Iterator[Permission]:
    """Those of some documents, each action once, in the order of its name."""
    found = {p.action: p for module in MODULES for p in module.NEEDS if p.document in documents}
    yield from (found[action] for action in sorted(found))
