"""
What Google has beside Compute Engine, as far as a reaper asks: the price list, projects below folders, permissions, keys.

In Google's own JSON. https://cloud.google.com/billing/docs/reference/rest, https://cloud.google.com/resource-manager/reference/rest/v3
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_KEY = "/v1/projects/{project}/locations/{location}/keyRings/{ring}/cryptoKeys/{key}"
ROUTES = (
    ("GET", "/v1/services/{service}/skus", "cloudbilling.services.skus.list"),
    ("GET", "/v3/projects", "cloudresourcemanager.projects.list"),
    ("GET", "/v3/folders", "cloudresourcemanager.folders.list"),
    *(("POST", f"/v3/{kind}/{{name}}:testIamPermissions", f"cloudresourcemanager.{kind}.testIamPermissions") for kind in ("projects", "folders", "organizations")),
    ("GET", _KEY, "cloudkms.projects.locations.keyRings.cryptoKeys.get"),
)


@dataclass
class Beside:
    """
    ``skus``: the price list. ``folders`` and ``projects``: by parent ("folders/1"). ``closed``: parents that may not be read.
    ``granted``: permissions we have, None: all that are asked about. ``keys``: the state of each key's primary version, by its
    whole name. ``page``: how many a page holds.
    """

    skus: list[Json] = field(default_factory=list)
    folders: dict[str, list[Json]] = field(default_factory=dict)
    projects: dict[str, list[Json]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    granted: set[str] | None = None
    keys: dict[str, str] = field(default_factory=dict)
    page: int = 5000

    def add_folder(self, number: str, parent: str, state: str = "ACTIVE") -> str:
        name = f"folders/{number}"
        self.folders.setdefault(parent, []).append({"name": name, "parent": parent, "displayName": f"folder {number}", "state": state})
        return name

    def add_project(self, id: str, parent: str, state: str = "ACTIVE") -> None:
        number = 100_000_000_000 + sum(map(len, self.projects.values()))
        self.projects.setdefault(parent, []).append({"name": f"projects/{number}", "projectId": id, "parent": parent, "displayName": id, "state": state})

    def add_sku(self, description: str, group: str, usd: float, *regions: str, usage: str = "OnDemand", unit: str | None = None) -> None:
        rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": str(int(usd)), "nanos": round((usd - int(usd)) * 1e9)}}
        expression = {"usageUnit": unit or ("GiBy.h" if group == "RAM" else "h"), "displayQuantity": 1, "tieredRates": [rate]}
        number = f"{len(self.skus):04X}-0000-0000"
        self.skus.append({
            "name": f"services/6F81-5844-456A/skus/{number}", "skuId": number, "description": description, "serviceRegions": list(regions),
            "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "resourceGroup": group, "usageType": usage},
            "pricingInfo": [{"summary": "", "pricingExpression": expression}], "serviceProviderName": "Google",
        })  # fmt: skip

    # --- what it answers ----------------------------------------------------------------------------------------------

    def answer(self, method: str, parts: Mapping[str, str], query: Mapping[str, str], body: Json | None, path: str) -> Json:
        """Raises PermissionError, LookupError."""
        kind = method.split(".")[1]
        if method == "cloudbilling.services.skus.list":
            return self._paged("skus", self.skus, query)
        if method.endswith(".testIamPermissions"):
            asked = list((body or {}).get("permissions", ()))
            return {"permissions": [name for name in asked if self.granted is None or name in self.granted]}
        if method.endswith("cryptoKeys.get"):
            name = path.removeprefix("/v1/")
            if name not in self.keys:
                raise LookupError(f"CryptoKey {name} not found.")
            return {"name": name, "purpose": "ENCRYPT_DECRYPT", "primary": {"name": f"{name}/cryptoKeyVersions/1", "state": self.keys[name]}}
        parent = query.get("parent", "")
        if parent in self.closed:
            raise PermissionError(f"The caller does not have permission on {parent}")
        return self._paged(kind, (self.projects if kind == "projects" else self.folders).get(parent, []), query)

    def _paged(self, word: str, rows: list[Json], query: Mapping[str, str]) -> Json:
        start, size = int(query.get("pageToken") or 0), min(int(query.get("pageSize") or self.page), self.page)
        more = {"nextPageToken": str(start + size)} if start + size < len(rows) else {}
        return {word: rows[start : start + size], **more}
