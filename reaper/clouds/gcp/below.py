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
        self._searching, self._done = threading.Lock(), threading.Event()
        self._done.set()
        self._found: dict[str, tuple[str, ...]] = {}
        self._failed: dict[str, str] = {}
        self._not_before = 0.0
        self._said: set[str] = set()

    def known(self) -> tuple[str, ...]:
        """As last found, the written ones first. Asks nobody."""
        return tuple(dict.fromkeys((*self._written, *(project for parent in self._parents for project in self._found.get(parent, ())))))

    def sure(self) -> bool:
        """Whether every project that is to be watched is known. Not before the first search, nor after one that failed somewhere."""
        return not self._failed and all(parent in self._found for parent in self._parents)

    def search(self, within_s: float) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """
        The projects, and why which parent (or folder below it) is not known. Looked for in a thread of its own when it is time,
        and waited for so long: a search that takes longer is told by a later call. Never raises CloudError.
        """
        if self._parents and self._clock.monotonic() >= self._not_before and not self._searching.locked():
            self._done.clear()
            threading.Thread(target=self._search, name="gcp-projects", daemon=True).start()
        if self._parents:
            self._done.wait(within_s)
        never = {parent: "the search for projects below it is not done yet" for parent in self._parents if parent not in self._found}
        return self.known(), {**never, **self._failed}

    def _search(self) -> None:
        with self._searching:
            failed: dict[str, str] = {}
            try:
                for parent in self._parents:
                    self._look(parent, failed)
            except Exception as error:  # noqa: BLE001 - one that is not understood is told where the others are
                failed.update(dict.fromkeys(self._parents, f"not understood: {type(error).__name__}: {error}"))
                _LOG.error("search for projects not understood", error=f"{type(error).__name__}: {error}")
            self._failed = failed
            self._not_before = self._clock.monotonic() + (AGAIN_AFTER if failed else GOOD_FOR).total_seconds()
            self._done.set()

    def _look(self, parent: str, failed: dict[str, str]) -> None:
        projects: list[str] = []
        waiting, seen = [parent], {parent}
        while waiting:
            folder = waiting.pop(0)
            try:
                projects += self._children(folder, "projects")
                for below in self._children(folder, "folders"):
                    if below in seen:
                        continue
                    if len(seen) >= MOST_FOLDERS:
                        failed[parent] = f"it holds more than {MOST_FOLDERS} folders; name some below it in clouds.gcp.below instead"
                        break
                    seen.add(below)
                    waiting.append(below)
            except CloudError as error:
                failed[folder] = str(error)
                if folder not in self._said:
                    self._said.add(folder)
                    _LOG.warning("folder not readable; the projects below it are not known", folder=folder, because=str(error))
        before = self._found.get(parent, ()) if any(folder in failed for folder in seen) else ()
        self._found[parent] = tuple(dict.fromkeys((*before, *sorted(projects))))
        self._said -= seen - failed.keys()

    def _children(self, folder: str, kind: str) -> list[str]:
        """Project ids, or names of folders. Anything but plainly ACTIVE is on its way out, or not there yet."""
        found = []
        key = "projectId" if kind == "projects" else "name"
        for page in self._rest.pages(PROJECTS, f"v3/{kind}", f"list {kind} below {folder}", parent=folder, pageSize=300):
            found += [str(raw[key]) for raw in page.get(kind) or () if raw.get(key) and raw.get("state", "ACTIVE") == "ACTIVE"]
        return found
