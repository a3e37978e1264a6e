"""
What a machine type brings: GPUs and local SSDs, read once for the process's life. Names of GPUs as drivers say them. Pure.

Of an accelerator-optimised type the GPUs stand in the type; of others they are attached, and stand in the instance.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """
    ``gpu_model``: the short name ("A100"), several joined by "+". ``accelerators``: Google's own names of them, with how many.
    ``tpu``: it is a host of TPUs. ``cpus``: those that are billed one by one, None also for a share of one. None: not known.
    """

    gpus: int | None = None
    gpu_model: str | None = None
    local_disks: int | None = None
    tpu: bool = False
    cpus: int | None = None
    memory_mb: int | None = None
    accelerators: tuple[tuple[str, int], ...] = ()


NOTHING_KNOWN = TypeFacts()

# A type of so many cores and so much memory: whatever else the machine has was attached to it.
_CUSTOM = re.compile(r"^([a-z0-9]+-)?custom-(\d+)-(\d+)(-ext)?$")
_NOISE = re.compile(r"^(nvidia|tesla|mega|vws|\d+gb)$")
_TPU = re.compile(r"^(ct\d|tpu)")


def by_name(type: str) -> TypeFacts | None:
    """What the name alone tells; None: it has to be asked for."""
    custom = _CUSTOM.match(type)
    if custom is not None:
        return TypeFacts(gpus=0, local_disks=0, cpus=int(custom[2]), memory_mb=int(custom[3]))
    return TypeFacts(gpus=0, tpu=True) if _TPU.match(type) else None


def parse_type(raw: Any) -> TypeFacts:
    """
    One MachineType message. A described type without accelerators has none.

    https://cloud.google.com/compute/docs/reference/rest/v1/machineTypes
    """
    accelerators = [(str(a.guest_accelerator_type), int(a.guest_accelerator_count)) for a in raw.accelerators]
    gpus = [(name, count) for name, count in accelerators if not _TPU.match(name)]
    count, model = gpus_of(gpus)
    return TypeFacts(
        count if gpus else 0, model, int(raw.bundled_local_ssds.partition_count), tpu=len(gpus) < len(accelerators),
        cpus=None if raw.is_shared_cpu else int(raw.guest_cpus) or None, memory_mb=int(raw.memory_mb) or None, accelerators=tuple(gpus),
    )  # fmt: skip


def gpus_of(accelerators: Sequence[tuple[str, int]]) -> tuple[int | None, str | None]:
    """How many, and which. An accelerator of which there is none is not an answer: not known."""
    count = sum(count for _, count in accelerators)
    known = bool(accelerators) and all(count > 0 for _, count in accelerators)
    return (count if known else None), "+".join(sorted({model(name) for name, _ in accelerators})) or None


@lru_cache(maxsize=256)
def model(accelerator: str) -> str:
    """
    "nvidia-tesla-a100" and "nvidia-h100-mega-80gb" as "A100" and "H100": the words that the driver's own name has, too.

    Memory is left out, since the driver says it for some models only; "vws" is a licence.
    """
    words = [word for word in accelerator.rpartition("/")[2].lower().split("-") if not _NOISE.match(word)]
    return " ".join(words).upper() or accelerator
