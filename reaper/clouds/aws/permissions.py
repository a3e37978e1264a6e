"""
What each call needs, declared beside the call and collected here.

Every module that asks AWS something has a NEEDS of its own. The documents in deploy/iam/aws are made of these, the tests
hold them to the calls in the code, and `reaper check` tries them.
"""

from dataclasses import dataclass

READER, ACTOR, SNAPSHOTS, TERMINATE, HUB = "reader", "actor", "snapshots", "terminate", "hub"
"""
The documents: what observing needs; what stopping and starting need; what a snapshot after a stop needs; what ending a
machine needs; and what the process's own credentials need where accounts are reached by roles.
"""


EVERYTHING = (READER, ACTOR, SNAPSHOTS, TERMINATE, HUB)


@dataclass(frozen=True, slots=True)
class Permission:
    """
    ``action`` as IAM writes it. ``on``: the resource it is limited to, "*" where AWS knows no finer one. ``probe``: the EC2
    operation to try with DryRun; None: EC2's DryRun does not know it (`probe` then asks it where it is a read). ``optional``:
    without it something is not told, and nothing else changes. ``money``: it is asked only where AWS may be asked about money.
    """

    action: str
    document: str
    why: str
    on: str = "*"
    probe: str | None = None
    optional: bool = False
    money: bool = False
