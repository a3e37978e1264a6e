"""A job that waits for its data is work, and a data path that cannot be read may be one."""

from reaper.decide.guards.starved import starved
from tests.builders import facts, gpu, loader, observation, policy
from tests.decide.tables import check, rows

NAN = float("nan")


def seen(*trees, processes=1, **changes):
    return facts(newest=observation(gpus=(gpu(processes=processes),), loaders=trees, **changes))


@rows([
    ("nothing on the GPU and no tree", seen(processes=0), None),
    ("a process with a quiet data path", seen(loader(wait=0.29)), None),
    ("waiting at the policy's ratio", seen(loader(wait=0.30)), "waited for data 30%"),
    ("one of two trees waits", seen(loader("a"), loader("b", wait=0.9)), "b waited"),
    ("waiting without a process on a GPU", seen(loader(wait=0.5), processes=0), "waited for data"),
    ("the wait of a tree is missing", seen(loader(wait=None)), "not readable"),
    ("the wait of one of two is missing", seen(loader("a"), loader("b", wait=None)), "b not readable"),
    ("the wait is not a number", seen(loader(wait=NAN)), "not readable"),
    ("the wait is below zero", seen(loader(wait=-0.1)), "not readable"),
    ("a process and no tree at all", seen(), "may hold a GPU"),
    ("a process and no look at trees", facts(newest=observation(gpus=(gpu(processes=1),), loaders=None)), "may hold a GPU"),
    ("processes unknown and no tree", seen(processes=None), "may hold a GPU"),
    ("processes unknown and no look at trees", facts(newest=observation(gpus=(gpu(processes=None),), loaders=None)), "may hold a GPU"),
    ("a tree on one GPU and the other's processes unknown", facts(newest=observation(gpus=(gpu(processes=1), gpu("GPU-1", processes=None)), loaders=(loader(),))), "who holds GPU-1"),
    ("one without a GPU, and who holds the GPU unknown", seen(loader(wait=None, exact=0.0, off_gpu=True), processes=None), "may hold a GPU"),
    ("a GPU's tree and one without, and who holds another unknown", facts(newest=observation(gpus=(gpu(processes=1), gpu("GPU-1", processes=None)), loaders=(loader(), loader("b", wait=None, exact=0.0, off_gpu=True)))), "who holds GPU-1"),
    ("no process and no look at trees", facts(newest=observation(loaders=None)), None),
    ("a policy of its own limit", facts(newest=observation(loaders=(loader(wait=0.2),)), policies=(policy(starved_above=0.2),)), "waited"),
    ("the job says that it waits, and we saw nothing", seen(loader(wait=0.0, exact=0.4)), "40% of the window, as the job itself measured"),
    ("we saw a wait, and the job says it has none", seen(loader(wait=0.4, exact=0.0)), "waited for data 40% of the window"),
    ("the job says it has none, and we could not look", seen(loader(wait=None, exact=0.0)), "not readable"),
    ("what the job says is not a number", seen(loader(exact=NAN)), "no share"),
    ("a process without a GPU says that it waits", seen(loader(wait=None, exact=0.5, off_gpu=True), processes=0), "50% of the window"),
    ("a process without a GPU says it has none", seen(loader(wait=None, cpu_cores=None, exact=0.0, off_gpu=True), processes=0), None),
    ("one without a GPU does not stand for the one that has", seen(loader(wait=None, exact=0.0, off_gpu=True)), "may hold a GPU"),
    ("no report is another guard's matter", facts(newest=None), None),
    ("no policy is another guard's matter", facts(policies=()), None),
])  # fmt: skip
def test_waiting_for_data_holds(given, expected):
    check(starved, given, expected)
