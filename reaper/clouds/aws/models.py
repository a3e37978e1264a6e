"""
botocore's description of EC2, cut down to the operations that we have a call for.

The whole has seven hundred of them, and every client of every account and region pays for it in memory and time; what is left
of it is a twentieth. An operation that nobody declared is then not there at all.
"""

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import msgspec

_EC2 = ("ec2", "service-2")


class TrimmedLoader:
    """Stands in for botocore's data loader, shared by all sessions. Everything but EC2's operations is handed through."""

    def __init__(self, inner: Any, operations: frozenset[str]) -> None:
        self._inner = inner
        self._operations = operations
        self._lock = threading.Lock()
        self._trimmed: dict[str | None, dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        if (service_name, type_name) != _EC2:
            return self._inner.load_service_model(service_name, type_name, api_version)
        with self._lock:
            if api_version not in self._trimmed:
                self._trimmed[api_version] = trimmed(self._read(api_version), self._operations)
            return self._trimmed[api_version]

    def _read(self, api_version: str | None) -> bytes:
        """The file itself, as botocore would find it: it would turn all of it into objects first, 30 MB of them."""
        version = api_version or self._inner.determine_latest_version(*_EC2)
        for folder in self._inner.search_paths:
            beside = Path(folder, _EC2[0], version)
            if (beside / f"{_EC2[1]}.json").is_file():
                return (beside / f"{_EC2[1]}.json").read_bytes()
            if (beside / f"{_EC2[1]}.json.gz").is_file():
                return gzip.decompress((beside / f"{_EC2[1]}.json.gz").read_bytes())
        return json.dumps(self._inner.load_service_model(*_EC2, api_version)).encode()


def trimmed(model: bytes, operations: frozenset[str]) -> dict[str, Any]:
    """With these operations, and the shapes that they reach. An operation that the model does not know is left out."""
    parts = msgspec.json.decode(model, type=dict[str, msgspec.Raw])
    all_operations, all_shapes = (msgspec.json.decode(parts.pop(key), type=dict[str, msgspec.Raw]) for key in ("operations", "shapes"))
    kept = {name: msgspec.json.decode(one) for name, one in all_operations.items() if name in operations}
    shapes: dict[str, Any] = {}
    waiting = [part["shape"] for one in kept.values() for part in (one.get("input"), one.get("output"), *one.get("errors", ())) if part]
    while waiting:
        name = waiting.pop()
        if name in shapes:
            continue
        shape = shapes[name] = {key: value for key, value in msgspec.json.decode(all_shapes[name]).items() if key != "documentation"}
        waiting += [member["shape"] for member in shape.get("members", {}).values()]
        waiting += [shape[part]["shape"] for part in ("member", "key", "value") if part in shape]
    rest = {key: msgspec.json.decode(value) for key, value in parts.items() if key != "documentation"}
    return {**rest, "operations": kept, "shapes": shapes}
