"""
Who plays in the demo: machines, what each does, what happens to it, and how it must end.

Types without local disks are used where a machine is to be idle, since a stop would wipe such disks and so is never
made: of EC2's GPU types those are the g5g family, of Google's most. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum


class Act(StrEnum):
    """What runs on a machine's GPUs at the moment."""

    TRAINING = "training"
    STARVED = "starved"  # a job is alive, its GPUs wait for data
    NOTEBOOK = "notebook"  # memory is taken, nothing runs
    NOTHING = "nothing"
    ONE_WORKS = "one works"  # the last GPU computes, the others stand idle
    ONE_LOST = "one lost"  # nothing runs, and the last GPU does not answer any more


class Twist(StrEnum):
    """What happens to a machine while we watch. `director` says when."""

    JOB_ENDS = "job ends"
    GPU_FALLS_OFF = "gpu falls off"
    AGENT_DIES = "agent dies"  # in the middle of its countdown
    LAUNCHED = "launched"  # it is not there at first


@dataclass(frozen=True, slots=True)
class Chip:
    """A machine type's GPUs. ``model``: as NVML names it, which has to fit the type or the agent is not believed."""

    model: str
    count: int
    mem_bytes: int


CHIPS: Mapping[str, Chip] = {
    "g5g.xlarge": Chip("NVIDIA T4G", 1, 16 << 30),
    "g5g.8xlarge": Chip("NVIDIA T4G", 1, 16 << 30),
    "g5g.16xlarge": Chip("NVIDIA T4G", 2, 16 << 30),
    "p4d.24xlarge": Chip("NVIDIA A100-SXM4-40GB", 8, 40 << 30),
    "g2-standard-8": Chip("NVIDIA L4", 1, 24 << 30),
    "a2-highgpu-1g": Chip("NVIDIA A100-SXM4-40GB", 1, 40 << 30),
}

STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Machine:
    """
    One machine. ``life``: for people. ``act`` None: no agent was ever installed. ``ends``: "stopped", or the word that
    spares it: a guard's name, or its state where nothing nominates it. ``age``: how long it has run when we meet it.
    """

    name: str
    type: str
    life: str
    act: Act | None
    ends: str
    age: timedelta = timedelta(hours=30)
    twist: Twist | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    cloud: str = "aws"

    @property
    def stops(self) -> bool:
        return self.ends == STOPPED


STORY: tuple[Machine, ...] = (
    Machine("train-resnet", "g5g.8xlarge", "trains hard", Act.TRAINING, "working"),
    Machine("train-video", "g5g.8xlarge", "its loader is starved: waits for data", Act.STARVED, "starved"),
    Machine("notebook-ana", "g5g.xlarge", "notebook held open for hours", Act.NOTEBOOK, "held"),
    Machine("eval-nightly", "g5g.8xlarge", "works, then its job ends", Act.TRAINING, STOPPED, twist=Twist.JOB_ENDS),
    Machine("box-forgotten", "g5g.xlarge", "forgotten: nothing has run for hours", Act.NOTHING, STOPPED),
    Machine("sweep-1", "g5g.16xlarge", "job of two, both idle", Act.NOTHING, STOPPED, tags={"job": "sweep"}),
    Machine("sweep-2", "g5g.16xlarge", "job of two, both idle", Act.NOTHING, STOPPED, tags={"job": "sweep"}),
    Machine("llm-1", "g5g.16xlarge", "job of two: idle, the other works", Act.NOTHING, "gang", tags={"job": "llm"}),
    Machine("llm-2", "g5g.16xlarge", "job of two: works", Act.TRAINING, "working", tags={"job": "llm"}),
    Machine("eight-gpus", "p4d.24xlarge", "one GPU of eight works", Act.ONE_WORKS, "working"),
    Machine("lost-gpu", "g5g.16xlarge", "idle, and one of two GPUs is lost", Act.NOTHING, "blind", twist=Twist.GPU_FALLS_OFF),
    Machine("gone-silent", "g5g.xlarge", "its agent dies in the countdown", Act.NOTHING, "blind", twist=Twist.AGENT_DIES),
    Machine("no-agent", "g5g.xlarge", "never had an agent", None, "blind"),
    Machine("paper-box", "g5g.xlarge", "idle, protected by its tag", Act.NOTHING, "protected", tags={"reserved": "paper"}),
    Machine("other-team", "g5g.xlarge", "idle, claimed by another reaper", Act.NOTHING, "claimed-by-another", tags={"reaper": "vision"}),
    Machine("just-launched", "g5g.xlarge", "idle, launched late in the demo", Act.NOTHING, "too-young", timedelta(0), Twist.LAUNCHED),
)

ON_GOOGLE: Mapping[str, str] = {
    "train-resnet": "a2-highgpu-1g",
    "notebook-ana": "g2-standard-8",
    "box-forgotten": "g2-standard-8",
    "paper-box": "g2-standard-8",
}
"""Who lives on Google Cloud, and as what, where Google's client is installed."""


def told(google: bool) -> tuple[Machine, ...]:
    """The story. ``google``: some of its machines are on Google Cloud."""
    return tuple(replace(m, type=ON_GOOGLE[m.name], cloud="gcp") if google and m.name in ON_GOOGLE else m for m in STORY)


COMMON_TAGS: Mapping[str, str] = {"team": "ml", "reaper": "demo", "owner": "ana"}


def tags_of(machine: Machine) -> dict[str, str]:
    return {"Name": machine.name, **COMMON_TAGS, **machine.tags}
