"""
What each call needs, declared beside the call and collected here.

Every module that asks Google something has a NEEDS of its own. The custom roles in deploy/iam/gcp are made of these, and
the tests hold them to the calls that really arrive at the fake server.
"""

from collections.abc import Iterable
from dataclasses import dataclass

READER, ACTOR = "reader", "actor"
"""The roles: what observing needs, and what stopping and starting need besides."""

_TITLES = {
    READER: ("Idle Reaper: reader", "Lists machines and reads one of them, its type and its operations. Changes nothing."),
    ACTOR: ("Idle Reaper: actor", "Stops machines and starts again what it stopped. Writes its own labels. Deletes nothing, lifts no protection."),
}


@dataclass(frozen=True, slots=True)
class Permission:
    """``permission`` as IAM writes it; ``method``: the call that needs it, by Google's own name; ``why``: what is lost without it."""

    permission: str
    method: str
    role: str
    why: str


def permissions(needs: Iterable[Permission], role: str) -> tuple[str, ...]:
    return tuple(sorted({need.permission for need in needs if need.role == role}))


def role_file(needs: Iterable[Permission], role: str) -> str:
    """A custom role as `gcloud iam roles create --file` takes it."""
    title, description = _TITLES[role]
    lines = [f'title: "{title}"', f'description: "{description}"', "stage: GA", "includedPermissions:"]
    return "\n".join([*lines, *(f"  - {permission}" for permission in permissions(needs, role))]) + "\n"
