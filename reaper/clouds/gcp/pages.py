"""
The pages of an aggregated listing as zones, each whole or not known.

Every page speaks of every scope; one without a result on that page says so with a warning, which is all that an empty
zone is. Any other warning, and every scope among the unreachable ones, means that machines may be missing there:
https://cloud.google.com/compute/docs/reference/rest/v1/instances/aggregatedList. Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from reaper.errors import CloudError

T = TypeVar("T")

EMPTY = "NO_RESULTS_ON_PAGE"

MOST_PAGES = 1000
"""Half a million machines of one project. A listing that is longer does not end."""


@dataclass(slots=True)
class Zones(Generic[T]):
    """``machines``: zone to what is in it (of other listings a region, too). ``failed``: zone to why it is not whole. ``all_failed``: why none is."""

    machines: dict[str, list[T]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    failed_regions: dict[str, str] = field(default_factory=dict)
    all_failed: str | None = None

    def why_not(self, zone: str) -> str | None:
        """Why the zone is not known; None: all of its machines are here. One of which no page spoke is not known."""
        if self.all_failed is not None:
            return self.all_failed
        region = next((why for name, why in self.failed_regions.items() if zone.startswith(f"{name}-")), None)
        silent = None if zone in self.machines else "no page of the listing speaks of it"
        return self.failed.get(zone) or region or silent


def messages(pages: Iterable[Any], doing: str) -> Iterator[Any]:
    """The library's pages as bare messages. Raises CloudError where a listing leads back to where it was, or does not end."""
    seen: set[str] = set()
    for page in pages:
        raw = type(page).pb(page)
        if raw.next_page_token and (raw.next_page_token in seen or len(seen) >= MOST_PAGES):
            raise CloudError(f"{doing}: the listing does not end, or leads back to a page that was read")
        seen.add(raw.next_page_token)
        yield raw


def zones_of(
    pages: Iterable[Any], read: Callable[[str, Iterable[Any]], Iterable[T]], held: str = "instances", kinds: tuple[str, ...] = ("zones",)
) -> Zones[T]:
    """
    From the messages of an aggregated list, in order, each of which can be dropped before the next one comes. ``read``: makes
    ours of the messages of one zone; a ValueError of it makes the zone unknown. ``held``: what the listing is of; ``kinds``: where
    that is ("zones", "regions", "global").
    """
    found: Zones[T] = Zones()
    for page in pages:
        for scope, scoped in page.items.items():
            _scope(found, scope, scoped, read, held, kinds)
        for scope in page.unreachables:
            _lost(found, scope, "Google cannot reach it at the moment", kinds)
        if page.HasField("warning") and page.warning.code not in ("", EMPTY):
            named = [item.value for item in page.warning.data if item.key in ("scope", "zone")]
            for scope in named or [""]:
                _lost(found, scope, f"Google warns: {page.warning.code}", kinds)
    return found


def _scope(
    found: Zones[T], scope: str, scoped: Any, read: Callable[[str, Iterable[Any]], Iterable[T]], held: str, kinds: tuple[str, ...]
) -> None:  # fmt: skip
    kind, _, zone = scope.partition("/")
    if kind not in kinds:
        return
    zone = zone or kind
    known = found.machines.setdefault(zone, [])
    try:
        known += read(zone, getattr(scoped, held))
    except (ValueError, TypeError) as error:
        found.failed[zone] = f"the listing is not understood: {error}"
    if scoped.HasField("warning") and scoped.warning.code != EMPTY:
        found.failed[zone] = f"Google warns: {scoped.warning.code or 'without saying of what'}"


def _lost(found: Zones[T], scope: str, why: str, kinds: tuple[str, ...]) -> None:
    """"zones/us-east1-b", with or without a project before it; a region is all of its zones; anything else is everything."""
    kind, name = ("", *scope.split("/"))[-2:]
    if kind == "zones" or (kind == "regions" and kind in kinds) or (name == "global" and name in kinds):
        found.failed[name] = why
        found.machines.setdefault(name, [])
    if kind == "regions":
        found.failed_regions[name] = why
    elif kind != "zones" and not (name == "global" and name in kinds):
        found.all_failed = f"{why} ({scope})" if scope else why
