"""
Asks Google which of the permissions that this needs we have, by the one call that tells and does nothing.

It goes through the plain HTTP of `rest`, which can send nothing but reads and that question. A permission that is granted on
single machines or under a condition is not told by a project, and counts as missing here.
https://cloud.google.com/resource-manager/reference/rest/v3/projects/testIamPermissions
"""

from collections.abc import Callable
from typing import Any

from reaper.clouds.gcp.clients import Bounds
from reaper.clouds.gcp.cloud import NEEDS, GcpCloud
from reaper.clouds.gcp.pace import Pace
from reaper.clouds.gcp.permissions import ACTOR, FOLDERS, READER, SNAPSHOTS, TERMINATE, Permission
from reaper.clouds.gcp.prices import COMPUTE
from reaper.clouds.gcp.rest import BILLING
from reaper.errors import CloudError
from reaper.model import policy
from reaper.ports import Clock, Probed

SEARCHED_FOR_S = 300.0
"""A person waits for it, and it is done once."""


class GcpProber:
    """Implements ports.Prober. ``credentials``, ``bounds``, ``pace``: as of GcpCloud."""

    name = "gcp"

    def __init__(
        self, settings: policy.GcpCloud, *, clock: Clock, credentials: Callable[[str | None], Any] | None = None, bounds: Bounds | None = None,
        pace: Pace | None = None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._cloud = GcpCloud(settings, clock=clock, credentials=credentials, bounds=bounds, pace=pace)

    def probe(self, configuration: policy.Configuration) -> tuple[Probed, ...]:
        """Each permission on each project, those for folders on each folder. Never raises CloudError."""
        projects, unread = self._cloud.below.search(SEARCHED_FOR_S)
        found: list[Probed] = []
        for parent in self._settings.below:
            found += self._on(parent, FOLDERS)
        found += [Probed(folder, "", FOLDERS, None, f"the projects below it are not known: {why}") for folder, why in unread.items()]
        for project in projects:
            for role in _roles(configuration):
                found += self._on(f"projects/{project}", role)
        if self._settings.price_list:
            found.append(self._prices(projects[0] if projects else ""))
        return tuple(found)

    def _on(self, where: str, role: str) -> list[Probed]:
        account = where.removeprefix("projects/")
        needs = {need.permission: need for need in NEEDS if need.role == role and need.permission}
        here = tuple(sorted(name for name in needs if not _elsewhere(needs[name])))
        found = [
            Probed(account, name, role, None, f"it is needed where the key is, which a project does not tell: without it, {needs[name].why}")
            for name in sorted(needs.keys() - set(here))
        ]
        try:
            project = account if where.startswith("projects/") else ""
            allowed = self._cloud.rest.allowed(where, here, f"ask what we may do on {where}", project=project)
        except CloudError as error:
            return [*found, *(Probed(account, name, role, None, str(error)) for name in here)]
        return [*found, *(Probed(account, name, role, name in allowed, "allowed" if name in allowed else f"denied; without it, {needs[name].why}") for name in here)]

    def _prices(self, project: str) -> Probed:
        """It needs no permission, but the Cloud Billing API has to be on where the credentials come from."""
        told = "read the price list"
        try:
            self._cloud.rest.get(BILLING, f"v1/{COMPUTE}/skus", told, project=project, pageSize=1)
        except CloudError as error:
            return Probed(project or "?", told, READER, None, f"{error}; without it, prices are those of the configuration and of price_file")
        return Probed(project or "?", told, READER, True, "it answered")


def _elsewhere(need: Permission) -> bool:
    return need.permission.startswith("cloudkms.")


def _roles(configuration: policy.Configuration) -> tuple[str, ...]:
    verbs = set(configuration.scope.verbs)
    acting = {ACTOR: bool({"stop", "start"} & verbs), SNAPSHOTS: "snapshot" in verbs, TERMINATE: "terminate" in verbs}
    return (READER, *(role for role, wanted in acting.items() if wanted))
