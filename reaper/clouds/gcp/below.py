"""
Which projects are watched: those that are written, and those below folders or an organisation, where we may look there.

A project that is about to be deleted is left out. A folder that cannot be read is said, and what was found below it before
stays: a refusal is no evidence that projects went.
https://cloud.google.com/resource-manager/reference/rest/v3/projects/list
"""

import threading
from collections.abc import Mapping
from datetime import timedelta

from reaper import log
from reaper.clouds.gcp.permissions import FOLDERS, Permission
from reaper.clouds.gcp.rest import PROJECTS, Rest
from reaper.errors import CloudError
from reaper.ports import Clock

NEEDS = (
    Permission("resourcemanager.projects.list", "cloudresourcemanager.projects.list", FOLDERS, "no project below a folder is found"),
    Permission("resourcemanager.folders.list", "cloudresourcemanager.folders.list", FOLDERS, "no folder below a folder is found"),
)

GOOD_FOR = timedelta(minutes=15)
"""How long a search is good. A new project has no machines in its first minutes."""

AGAIN_AFTER = timedelta(minutes=2)
"""After a search that failed somewhere."""

MOST_FOLDERS = 2000

_LOG = log.get(__name__)


class Below:
    """``parents``: "folders/1", "organizations/1". Thread-safe."""

    def __init__(self, written: tuple[str, ...], parents: tuple[str, ...], rest: Rest, clock: Clock) -> None:
        self._written, self._parents, self._rest, self._clock = written, parents, rest, clock
        self._lock = threading.Lock()
        self._found: dict[str, tuple[str, ...]] = {}
        self._failed: dict[str, str] = {}
        self._not_before = 0.0
        self._said: set[str] = set()

    def known(self) -> tuple[str, ...]:
        """As last found, the written ones first. Asks nobody."""
        return tuple(dict.fromkeys((*self._written, *(project for parent in self._parents for project in self._found.get(parent, ())))))

    def search(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """The projects, and why which parent (or folder below it) could not be read. Never raises CloudError."""
        with self._lock:
            now = self._clock.monotonic()
            if self._parents and now >= self._not_before:
                self._failed = {}
                for parent in self._parents:
                    self._look(parent)
                self._not_before = now + (AGAIN_AFTER if self._failed else GOOD_FOR).total_seconds()
            return self.known(), dict(self._failed)

    def _look(self, parent: str) -> None:
        projects: list[str] = []
        waiting, seen = [parent], {parent}
        while waiting:
            folder = waiting.pop(0)
            try:
                projects += self._children(folder, "projects")
                for below in self._children(folder, "folders"):
                    if below not in seen and len(seen) < MOST_FOLDERS:
                        seen.add(below)
                        waiting.append(below)
            except CloudError as error:
                self._failed[folder] = str(error)
                if folder not in self._said:
                    self._said.add(folder)
                    _LOG.warning("folder not readable; the projects below it are not known", folder=folder, because=str(error))
        before = self._found.get(parent, ()) if any(folder in self._failed for folder in seen) else ()
        self._found[parent] = tuple(dict.fromkeys((*before, *sorted(projects))))
        self._said -= seen - self._failed.keys()

    def _children(self, folder: str, kind: str) -> list[str]:
        """Project ids, or names of folders. Anything but plainly ACTIVE is on its way out, or not there yet."""
        found = []
        key = "projectId" if kind == "projects" else "name"
        for page in self._rest.pages(PROJECTS, f"v3/{kind}", f"list {kind} below {folder}", parent=folder, pageSize=300):
            found += [str(raw[key]) for raw in page.get(kind) or () if raw.get(key) and raw.get("state", "ACTIVE") == "ACTIVE"]
        return found
