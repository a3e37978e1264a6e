"""
What the agent remembers on disk: who it was, how many GPUs there were, and what `status` prints.

All of it belongs to one machine. A copied disk carries another machine's memory along,
so whatever does not fit the identity of now is thrown away.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional

from agent.identity import Identity
from agent.readings import Log
from agent.report import Value

MEMORY, STATUS = "memory.json", "status.json"


@dataclass(frozen=True, eq=False, repr=False)
class Memory(Value):
    """The last known identity, the boot it was learnt in, and the most GPUs ever seen on this machine as this type."""

    resource: Optional[str] = None
    instance_type: Optional[str] = None
    boot_id: Optional[str] = None
    gpus: Optional[int] = None

    def fits(self, identity: Identity) -> bool:
        """Whether this is the memory of that machine. A changed type is a resize: its GPU count says nothing any more."""
        if self.resource is not None and self.resource != identity.resource:
            return False
        types = (self.instance_type, identity.instance_type)
        return None in types or types[0] == types[1]

    def identity(self, boot_id: str) -> Optional[Identity]:
        """The identity learnt in this very boot, else None: another boot may be another machine."""
        if self.resource is None or self.boot_id != boot_id:
            return None
        return Identity(self.resource, self.instance_type, "cache")


def write_json(path: Path, document: Mapping[str, Any], log: Log) -> bool:
    """Write atomically, readable for all. A failure is logged and answered with False: no figure depends on it."""
    body = json.dumps(document, separators=(",", ":")).encode()
    new = "%s.new" % path
    try:
        try:
            _write(new, body)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _write(new, body)
        os.replace(new, path)
    except OSError as error:
        log.warning("state not written", file=str(path), because=error.strerror)
        return False
    return True


def _write(path: str, body: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(file, 0o644)  # whatever the umask
        if os.write(file, body) < len(body):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)


def load_memory(folder: Path, log: Log) -> Memory:
    """What was remembered; an empty memory when there is none or it cannot be read (logged)."""
    try:
        document = json.loads((folder / MEMORY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Memory()
    except (OSError, ValueError) as error:
        log.warning("memory not readable", file=str(folder / MEMORY), because=str(error))
        return Memory()
    if not isinstance(document, dict):
        return Memory()
    gpus = document.get("gpus")
    resource, kind, boot = (v if isinstance(v, str) else None for v in map(document.get, ("resource", "instance_type", "boot_id")))
    return Memory(
        resource,
        kind,
        boot,
        gpus if isinstance(gpus, int) and not isinstance(gpus, bool) and 0 <= gpus <= 1024 else None,
    )


def save_memory(folder: Path, memory: Memory, log: Log) -> bool:
    return write_json(folder / MEMORY, vars(memory), log)


def read_status(folder: Path) -> "dict[str, Any]":
    """The status file. Raises OSError when it is not there, ValueError when it is not one."""
    document = json.loads((folder / STATUS).read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document
