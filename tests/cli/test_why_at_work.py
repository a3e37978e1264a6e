"""What `why` and `plan` tell of people at work, of connected machines and of GPUs that nobody uses."""

import pytest

from reaper.model.presence import AtWork, Links, Presence
from reaper.model.signal import GpuWindow
from tests import builders as make
from tests.cli.conftest import Room

PEOPLE = Presence(
    (
        AtWork("kernel", "ada", 1000, "python3", cores=0.0, busy=True, busy_s=5400.0),
        AtWork("tmux", "mia", 1001, "htop", idle_s=7200.0, cores=0.03, io_bytes_per_s=2.5 * (1 << 20)),
    ),
    ("when somebody typed into containers' terminals",),
)


def test_who_is_at_work_is_explained(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report(presence=PEOPLE)
    answer, told = room.reaper("why", "trainer"), room.reaper("why", "trainer", "--json").json

    assert (told["state"], told["verdict"]) == ("working", "keep")
    assert [(one["kind"], one["user"], one["busy"], one["idle_s"]) for one in told["at_work"]] == [("kernel", "ada", True, None), ("tmux", "mia", None, 7200.0)]
    assert told["at_work_unread"] == ["when somebody typed into containers' terminals"]
    assert "at work: kernel (python3) of ada, runs a cell for 1h 30m, 0 cores" in answer.out
    assert "at work: tmux (htop) of mia, typed 2h before the report's end, 0.03 cores, 2.5 MiB/s" in answer.out
    assert "at work: cannot be seen: when somebody typed into containers' terminals" in answer.out
    assert "people at work: ada's kernel (python3) runs a cell" in answer.out


def test_agent_that_does_not_look_is_no_empty_list(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report()
    told = room.reaper("why", "trainer", "--json").json

    assert (told["at_work"], told["at_work_unread"], told["links"], told["idle_gpus"]) == (None, None, None, None)


def test_connected_machines_are_explained_as_one_job(room: Room) -> None:
    room.machine()
    room.machine("i-02", "other")
    room.list_all()
    room.report(links=Links(True, ("10.0.0.1",), ("10.0.0.2",), (0, 1), 4, "10.0.0.1"), presence=Presence())
    room.report("i-02", links=Links(False, ("10.0.0.2",), ("10.0.0.1",)), presence=Presence(), gpus=(make.gpu(peak=0.9),))
    answer, told = room.reaper("why", "trainer"), room.reaper("why", "trainer", "--json").json

    assert told["gang"] == f"connected={make.resource()}"
    assert told["links"] == {"whole": True, "addresses": ["10.0.0.1"], "peers": ["10.0.0.2"], "ranks": [0, 1], "world_size": 4, "master": "10.0.0.1"}
    assert "other of the same job is working" in answer.out
    assert "its GPU processes are connected to 10.0.0.2" in answer.out
    assert "rank 0, 1 of 4, master 10.0.0.1" in answer.out
    assert "not all connections of its GPU processes can be seen" in room.reaper("why", "other").out


def test_gpus_that_nobody_uses_are_priced_in_why_and_plan_and_nothing_is_done(room: Room) -> None:
    room.machine()
    room.list_all()
    gpus: tuple[GpuWindow, ...] = (make.gpu(peak=0.9), *(make.gpu(f"GPU-{n}") for n in range(1, 4)))
    room.report(gpus=gpus)
    why, plan = room.reaper("why", "trainer"), room.reaper("plan")
    told, planned = room.reaper("why", "trainer", "--json").json, room.reaper("plan", "--json").json

    assert told["idle_gpus"] == {"idle": 3, "of": 4, "idle_for_s": 900, "held": 0, "usd_per_day": pytest.approx(27.0)}
    assert planned["machines"][0]["idle_gpus"] == told["idle_gpus"]
    assert (planned["actions"], planned["summary"]["idle_gpus"], planned["summary"]["idle_gpu_machines"]) == ([], 3, 1)
    assert planned["summary"]["idle_gpu_usd_per_day"] == pytest.approx(27.0)
    assert "3 of 4 GPUs idle for 15m while others work, costs $27.00 a day; nothing is done about it" in why.out
    assert "3 GPUs idle on 1 machines that work on others, which cost $27.00 a day; nothing is ever stopped for that" in plan.out


def test_a_machine_all_of_whose_gpus_work_wastes_none(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report(gpus=(make.gpu(peak=0.9), make.gpu("GPU-1", peak=0.9)))

    assert room.reaper("why", "trainer", "--json").json["idle_gpus"] is None
    assert room.reaper("plan", "--json").json["summary"]["idle_gpus"] == 0
