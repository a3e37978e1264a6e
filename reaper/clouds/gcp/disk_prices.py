"""
What disks, snapshots and reserved addresses cost a month, by the descriptions of Google's price list. Pure; see `prices`.

Disks are paid for by size and type, those in two zones dearer; some by what is provisioned besides. What is within a type's own
performance is not charged: https://cloud.google.com/compute/disks-image-pricing
"""

import re
from collections.abc import Mapping

HOURS = 730.0
"""In a month, as Google counts."""

UNITS = {"disk": "GiBy.mo", "iops": "mo", "mibs": "mo", "snapshot": "GiBy.mo", "address": "h"}

_PD = re.compile(r"^(?P<regional>Regional )?(?P<kind>Storage|Balanced|SSD backed|Extreme) PD (?P<what>Capacity|IOPS)(?: in .+)?$", re.I)
_KINDS = {"storage": "pd-standard", "balanced": "pd-balanced", "ssd backed": "pd-ssd", "extreme": "pd-extreme"}
_HYPER = re.compile(
    r"^Hyperdisk (?P<kind>Balanced High Availability|Balanced|Extreme|ML|Throughput) (?P<what>Throughput(?: Capacity)?|Capacity|IOPS)(?: in .+)?$", re.I
)
_WHATS = {"capacity": "disk", "iops": "iops", "throughput": "mibs", "throughput capacity": "mibs"}
_SNAPSHOT, _ADDRESS = re.compile(r"^Storage PD Snapshot(?: in .+)?$", re.I), re.compile(r"^Static Ip Charge(?: in .+)?$", re.I)

# (IOPS, MiB/s) that a type brings; None: what is provisioned of it is not charged
_BRINGS: Mapping[str, tuple[int | None, int | None]] = {
    "pd-standard": (None, None), "pd-balanced": (None, None), "pd-ssd": (None, None), "pd-extreme": (0, None),
    "hyperdisk-balanced": (3000, 140), "hyperdisk-balanced-high-availability": (3000, 140), "hyperdisk-extreme": (0, None),
    "hyperdisk-throughput": (None, 0), "hyperdisk-ml": (None, 0),
}  # fmt: skip

Rates = Mapping[tuple[str, str, str], float]


def part_of(description: str) -> str | None:
    """"disk pd-ssd", "disk regional pd-ssd", "iops pd-extreme", "snapshot standard", "address idle". None: none of these."""
    if "confidential" in description.lower():
        return None
    found = _PD.match(description)
    if found is not None:
        return f"{_WHATS[found['what'].lower()]} {'regional ' if found['regional'] else ''}{_KINDS[found['kind'].lower()]}"
    found = _HYPER.match(description)
    if found is not None:
        return f"{_WHATS[found['what'].lower()]} hyperdisk-{'-'.join(found['kind'].lower().split())}"
    return "snapshot standard" if _SNAPSHOT.match(description) else "address idle" if _ADDRESS.match(description) else None


def disk_price(rates: Rates, usage: str, region: str, type: str, size_gib: int | None, iops: int | None, mib_s: int | None, regional: bool) -> float | None:
    """Dollars a month. None where any part of it has no price, or its amount is not known."""
    brings = _BRINGS.get(type)
    if brings is None or size_gib is None:
        return None
    name = f"regional {type}" if regional and type.startswith("pd-") else type
    wanted: list[tuple[str, int]] = [(f"disk {name}", size_gib)]
    for part, amount, included in (("iops", iops, brings[0]), ("mibs", mib_s, brings[1])):
        if included is None:
            continue
        if amount is None:
            return None
        if amount > included:
            wanted.append((f"{part} {name}", amount - included))
    total = 0.0
    for part, amount in wanted:
        rate = rates.get((region, usage, part))
        if rate is None:
            return None
        total += rate * amount
    return round(total, 4)


def snapshot_price(rates: Rates, usage: str, location: str, stored_bytes: int) -> float | None:
    """Of what is stored of it in a region or a continent ("us"); of a chain of snapshots each has its own part."""
    rate = rates.get((location, usage, "snapshot standard"))
    return None if rate is None or stored_bytes <= 0 else rate * stored_bytes / 2**30


def address_price(rates: Rates, usage: str, region: str) -> float | None:
    rate = rates.get((region, usage, "address idle"))
    if rate is None:
        rate = rates.get(("global", usage, "address idle"))
    return None if rate is None else round(rate * HOURS, 4)
