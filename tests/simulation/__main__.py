"""
Machines with true lives, an untrustworthy world, and judges: does the reaper ever take work away, and is it of any use?

  python -m tests.simulation --seeds 200                 seeds 0 to 199; the last line is a JSON object
  python -m tests.simulation --first 4711 --seeds 1 --story   one seed, told whole
  python -m tests.simulation --planted                   plant faults into the reaper, one by one; each has to be found
  python -m tests.simulation --planted "last look off"   one of them
  python -m tests.simulation --planted --part 3/10       the third tenth of them
  python -m tests.simulation --list                      what is planted
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.simulation.planted import BY_NAME, FAULTS, DoesNotFit, Fault, planted
from tests.simulation.pool import WORKERS, Task, each, workers

FIRST_PLANTED = 1000
LATE_AT_MOST = 0.03
"""Share of all actions that may meet work begun after the last look. More of it than chance explains is a broken last look."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=None, metavar="N", help="how many seeds (default 40); with --planted: at most, for each fault")
    parser.add_argument("--first", type=int, default=None, metavar="K", help="the first seed (default 0)")
    parser.add_argument("--json", action="store_true", help="nothing but the JSON line on standard output")
    parser.add_argument("--planted", nargs="?", const="", default=None, metavar="NAME", help="find planted faults, or the one with this name")
    parser.add_argument("--part", default=None, metavar="I/N", help="with --planted: every N-th fault, beginning with the I-th")
    parser.add_argument("--focus", default="", metavar="WORDS", help="draw these lives and misfortunes more often (as planted faults do)")
    parser.add_argument("--list", action="store_true", help="list the planted faults")
    parser.add_argument("--story", action="store_true", help="tell the story of every seed, not only of those that fail")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="W")
    given = parser.parse_args(arguments)
    if given.list:
        for fault in FAULTS:
            print(f"{fault.name:60} {' '.join(sorted(fault.focus))}")
        return 0
    if given.planted is not None:
        return find(_chosen(parser, given.planted, given.part), given.seeds, given.first, given.workers)
    return live(given)


def _chosen(parser: argparse.ArgumentParser, name: str, part: str | None) -> tuple[Fault, ...]:
    if name:
        if name not in BY_NAME:
            parser.error(f"there is no planted fault {name!r}; --list names them")
        return (BY_NAME[name],)
    if part is None:
        return FAULTS
    index, _, of = part.partition("/")
    if not (index.isdigit() and of.isdigit() and 1 <= int(index) <= int(of)):
        parser.error("--part is I/N, such as 3/10")
    return FAULTS[int(index) - 1 :: int(of)]


# --- as it is -------------------------------------------------------------------------------------------------------------


def live(given: argparse.Namespace) -> int:
    first, count = given.first or 0, given.seeds if given.seeds is not None else 40
    focus = frozenset(given.focus.split())
    began = time.monotonic()
    total = Total()
    with workers(given.workers) as pool:
        for outcome in each(pool, [Task(seed, focus, story=given.story) for seed in range(first, first + count)]):
            total.add(outcome)
            words = f"seed {outcome['seed']} {outcome['weather']}: {outcome['machine_days']:.0f} machine days, {outcome['actions']} actions"
            print(f"{words}, {len(outcome['violations'])} violations, {outcome['took_s']:.1f} s", file=sys.stderr, flush=True)
            if outcome["story"] and not given.json:
                _tell(outcome, given.focus)
    result = total.plain(time.monotonic() - began)
    print(json.dumps(result))
    return 1 if result["violations"] else 0


def _tell(outcome: dict[str, Any], focus: str) -> None:
    print(f"--- seed {outcome['seed']} ({outcome['weather']})")
    print("\n".join(outcome["story"]))
    for violation in outcome["violations"]:
        print(f"    {violation['at']} {violation['rule']}: {violation['text']}")
    again = f' --focus "{focus}"' if focus else ""
    print(f"    again: python -m tests.simulation --first {outcome['seed']} --seeds 1 --story{again}")


class Total:
    def __init__(self) -> None:
        self.seeds = self.actions = self.late = 0
        self.days = 0.0
        self.hours: dict[str, list[float]] = {"calm": [0.0, 0.0], "hiccups": [0.0, 0.0]}
        self.violations: list[dict[str, Any]] = []
        self.faults: Counter[str] = Counter()
        self.mornings = [0, 0, 0]
        self.by_its_words = 0

    def add(self, outcome: dict[str, Any]) -> None:
        self.seeds += 1
        self.actions += outcome["actions"]
        self.late += outcome["late_work"]
        self.days += outcome["machine_days"]
        if outcome["weather"] in self.hours:
            self.hours[outcome["weather"]][0] += outcome["saved"]
            self.hours[outcome["weather"]][1] += outcome["wasted"]
        self.violations += [{"seed": outcome["seed"], **violation} for violation in outcome["violations"]]
        self.faults.update(outcome["faults"])
        self.mornings = [sum(pair) for pair in zip(self.mornings, outcome["mornings"], strict=True)]
        self.by_its_words += outcome["by_its_words"]

    def plain(self, took: float) -> dict[str, Any]:
        calm, hiccups = (_share(*self.hours[weather]) for weather in ("calm", "hiccups"))
        violations = list(self.violations)
        if self.actions >= 500 and self.late > LATE_AT_MOST * self.actions:
            violations.append({"seed": None, "rule": "late_work_bounded", "text": f"{self.late} of {self.actions} actions met late work", "at": ""})
        for weather, share, least in (("calm", calm, 0.95), ("hiccups", hiccups, 0.80)):
            if share is not None and sum(self.hours[weather]) >= 100 and share < least:
                violations.append({"seed": None, "rule": "useful", "text": f"{share:.1%} recovered in {weather} weather", "at": ""})
        return {
            "seeds": self.seeds, "machine_days": round(self.days, 1), "actions": self.actions, "violations": violations,
            "recovered": None if calm is None else round(calm, 4), "recovered_with_hiccups": None if hiccups is None else round(hiccups, 4),
            "late_work": self.late, "mornings": dict(zip(("owed", "made", "late"), self.mornings, strict=True)), "by_its_words": self.by_its_words,
            "faults": dict(sorted(self.faults.items())), "took_s": round(took, 1),
        }  # fmt: skip


def _share(saved: float, wasted: float) -> float | None:
    return saved / (saved + wasted) if saved + wasted > 0 else None


# --- with a fault in it ---------------------------------------------------------------------------------------------------


def find(faults: Sequence[Fault], most: int | None, first: int | None, count: int) -> int:
    """Prints a table fault -> seeds it took. 0 only when every one was found."""
    start, found = first if first is not None else FIRST_PLANTED, 0
    for fault in faults:  # all have to fit before the first is looked for
        try:
            with planted(fault):
                pass
        except DoesNotFit as error:
            print(f"{fault.name}: DOES NOT FIT any more: {error}")
            return 1
    with workers(count) as pool:
        for fault in faults:
            began, seeds = time.monotonic(), most if most is not None else fault.seeds
            taken, how = 0, ""
            for outcome in each(pool, [Task(seed, fault.focus, fault.name, one_is_enough=True) for seed in range(start, start + seeds)]):
                taken += 1
                if outcome["violations"]:
                    how = f"{outcome['violations'][0]['rule']}: {outcome['violations'][0]['text'][:100]}"
                    break
            found += bool(how)
            words = f"{taken} seed{'s' * (taken > 1)}" if how else f"NOT FOUND in {taken} seeds"
            print(f"{fault.name:58} {words:24} {time.monotonic() - began:5.0f} s  {how}", flush=True)
    print(f"{found} of {len(faults)} planted faults found")
    return 0 if found == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
