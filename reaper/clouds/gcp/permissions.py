"""
What each call needs, declared beside the call and collected here.

Every module that asks Google something has a NEEDS of its own. The custom roles in deploy/iam/gcp are made of these, and
the tests hold them to the calls that really arrive at the fake server.
"""

from collections.abc import Iterable
from dataclasses import dataclass

READER, ACTOR, SNAPSHOTS, TERMINATE, FOLDERS = "reader", "actor", "snapshots", "terminate", "folders"
"""
The roles: what observing needs; what stopping and starting need besides, what snapshots after a stop, and what ending a machine;
and what finding projects below a folder needs, which is granted on the folder.
"""

EVERYTHING = (READER, ACTOR, SNAPSHOTS, TERMINATE, FOLDERS)

_TITLES = {
    READER: ("Idle Reaper: reader", "Lists machines, disks, snapshots and addresses, and reads one machine, its type and its operations. Changes nothing."),
    ACTOR: ("Idle Reaper: actor", "Stops and suspends machines and starts again what it stopped. Writes its own labels. Deletes nothing, lifts no protection."),
    SNAPSHOTS: ("Idle Reaper: snapshots", "Snapshots the disks of machines that it stopped. Deletes no snapshot."),
    TERMINATE: ("Idle Reaper: terminate", "Ends machines whose disks have verified snapshots. Deletes no disk and no snapshot by itself."),
    FOLDERS: ("Idle Reaper: folders", "Finds the projects below a folder or an organisation. To be granted there."),
}


@dataclass(frozen=True, slots=True)
class Permission:
    """``permission`` as IAM writes it, "" for a call that needs none; ``method``: the call that needs it, by Google's own name; ``why``: what is lost without it."""

    permission: str
    method: str
    role: str
    why: str


def permissions(needs: Iterable[Permission], role: str) -> tuple[str, ...]:
    return tuple(sorted({need.permission for need in needs if need.role == role and need.permission}))


def role_file(needs: Iterable[Permission], role: str) -> str:
    """A custom role as `gcloud iam roles create --file` takes it."""
    title, description = _TITLES[role]
    lines = [f'title: "{title}"', f'description: "{description}"', "stage: GA", "includedPermissions:"]
    return "\n".join([*lines, *(f"  - {permission}" for permission in permissions(needs, role))]) + "\n"
