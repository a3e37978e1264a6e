"""What an operator should look at in a configuration that is not wrong."""

from collections.abc import Iterator
from datetime import datetime
from itertools import permutations

from reaper.decide.schedule import Spell, spell
from reaper.model.policy import Configuration, CountBudget, Mode, Policy, Selector
from reaper.model.schedule import HOURS_TAG

GENEROUS_GPU = 0.20
"""Above this a machine that computes steadily can count as idle."""


def remarks(configuration: Configuration, now: datetime) -> tuple[str, ...]:
    """One sentence each, most important first; empty when there is nothing to say."""
    return (
        *_modes(configuration),
        *_policies(configuration),
        *_shadowed(configuration),
        *_budgets(configuration),
        *_protections(configuration, now),
        *_hours(configuration, now),
        *_cloud(configuration),
        *_google(configuration),
    )


def enforced(configuration: Configuration) -> tuple[Policy, ...]:
    """The policies under which something can be stopped."""
    if configuration.mode is not Mode.ENFORCE:
        return ()
    return tuple(p for p in configuration.policies if p.mode is Mode.ENFORCE and p.action != "report")


def _modes(configuration: Configuration) -> Iterator[str]:
    if not configuration.policies:
        yield "no policy is written: machines are only reported; add [policy.NAME]"
    enforcing = [p.name for p in configuration.policies if p.mode is Mode.ENFORCE]
    if configuration.mode is Mode.ENFORCE and configuration.policies and not enforced(configuration):
        yield "mode is enforce, but no policy enforces a stop: nothing will be stopped"
    if configuration.mode is Mode.OBSERVE and enforcing:
        yield f"mode is observe: {_names(enforcing)} will not act, whatever the policy says"


def _policies(configuration: Configuration) -> Iterator[str]:
    acting = enforced(configuration)
    alone = [p.name for p in acting if set(p.warn.via) == {"log"}]
    if alone:
        yield f"{_names(alone)} enforces with the log alone: owners may never read the warning; add a channel to warn.via"
    stubborn = [p.name for p in acting if p.orchestrator == "ignore"]
    if stubborn:
        yield f"{_names(stubborn)} ignores a living slurmd, kubelet, raylet or nomad on the host"
    ending = [p.name for p in acting if p.action == "terminate"]
    if ending:
        yield f"{_names(ending)} ends machines for good, once their disks are snapshotted; nothing can undo that"
    wiped = [p.name for p in configuration.policies if p.local_nvme == "discard"]
    if wiped:
        yield f'{_names(wiped)}: local_nvme = "discard" stops machines whatever is on their local disks, and a stop wipes those'
    unused = [p.name for p in configuration.policies if p.local_scratch and p.local_nvme == "hold"]
    if unused:
        yield f'{_names(unused)}: local_scratch means nothing under local_nvme = "hold"; write "if-empty"'
    for policy in configuration.policies:
        if policy.job_ended is not None and policy.job_ended.ended_for >= policy.idle.idle_for:
            yield f"policy.{policy.name}: job_ended.for is not shorter than idle.for, so an ended job is first warned about as an idle machine and then once more"
        if policy.idle.gpu_at_most > GENEROUS_GPU:
            yield f"policy.{policy.name} calls a machine idle that computes at up to {policy.idle.gpu_at_most:.0%}"


def _shadowed(configuration: Configuration) -> Iterator[str]:
    for wide, narrow in permutations(configuration.policies, 2):
        if _covers(wide.when, narrow.when):
            yield (
                f"every machine of policy.{narrow.name} also matches policy.{wide.name}, and two policies hold a machine: "
                f"policy.{narrow.name} will never act"
            )


def _covers(wide: Selector, narrow: Selector) -> bool:
    """Whether whatever ``narrow`` matches, ``wide`` is bound to match too."""
    if any(not set(narrow.tags.get(key, ("",))) <= set(values) for key, values in wide.tags.items()):
        return False
    if wide.types and not (narrow.types and set(narrow.types) <= set(wide.types)):
        return False
    return not wide.ids or bool(narrow.ids and set(narrow.ids) <= set(wide.ids))


def _budgets(configuration: Configuration) -> Iterator[str]:
    stops, acting = configuration.budgets.stops, bool(enforced(configuration))
    if configuration.budgets.breaker is None:
        yield "the fleet breaker is off: a broken meter on every machine at once would look like an idle fleet"
    if acting and stops.per_hour is None and stops.per_day is None and stops.share_per_hour is None:
        yield "stops have no limit by hour, day or share"
    for verb in ("stops", "starts", "snapshots", "deletes"):
        if _blocked(getattr(configuration.budgets, verb)):
            yield f"budget.{verb} holds a limit of 0: none will happen"


def _blocked(budget: CountBudget) -> bool:
    return 0 in (budget.per_minute, budget.per_hour, budget.per_day, budget.per_cycle)


def _hours(configuration: Configuration, now: datetime) -> Iterator[str]:
    used = {policy.hours.name for policy in configuration.policies if policy.hours is not None}
    for hours in configuration.hours:
        schedule = hours.schedule
        if hours.if_busy == "stop":
            yield f'hours.{hours.name}: if_busy = "stop" stops machines at work, and their work is lost'
        if hours.no_agent == "warn-and-stop":
            yield f'hours.{hours.name}: no_agent = "warn-and-stop" stops machines of which nobody knows whether they work'
        if schedule.starts and enforced(configuration) and "start" not in configuration.scope.verbs:
            yield f'hours.{hours.name}: nothing is started in the morning, because [scope] verbs do not name start; add it, or write only = "stop"'
        long = next((interval for interval in schedule.on if interval.days > 1), None)
        if long is not None and (schedule.holidays or schedule.days_off):
            yield f"hours.{hours.name}: {long} belongs to the day on which it begins, so a holiday within it changes nothing; write one interval a day"
        if not any(schedule.also_on) and spell(schedule, now) == Spell(False, None, None):
            yield f"hours.{hours.name} is never on: what is stopped under it stays stopped"
        if hours.name not in used:
            yield f"hours.{hours.name} is named by no policy: only machines whose tag {HOURS_TAG} names it are under it"


def _protections(configuration: Configuration, now: datetime) -> Iterator[str]:
    for protection in configuration.protections:
        if protection.until is not None and protection.until <= now:
            yield (
                f"protect.{protection.name} ended at {protection.until:%Y-%m-%d %H:%M} UTC ({protection.reason}): "
                "it protects nothing any more; remove it or write a later until"
            )


def _cloud(configuration: Configuration) -> Iterator[str]:
    if configuration.aws is None:
        return
    if configuration.aws.endpoint is not None:
        yield f"every AWS call goes to {configuration.aws.endpoint}"
    elif not configuration.aws.accounts and enforced(configuration):
        yield "clouds.aws.accounts is not written: whatever account the credentials belong to is acted in"


def _google(configuration: Configuration) -> Iterator[str]:
    google = configuration.gcp
    if google is None:
        return
    if google.endpoint is not None:
        yield f"every Google Cloud call goes to {google.endpoint}"
    if google.local_ssd == "discard":
        yield 'clouds.gcp: local_ssd = "discard" has a stop wipe local SSDs, where a policy lets machines with some be stopped'
    if configuration.aws is not None:
        return  # the same words may be tags there
    selectors = [("scope", configuration.scope.what), *((f"policy.{p.name}.when", p.when) for p in configuration.policies)]
    selectors += [(f"protect.{p.name}", p.what) for p in configuration.protections]
    for path, selector in selectors:
        for key, values in selector.tags.items():
            odd = next((word for word in (key, *values) if not _label(word)), None)
            if odd is not None:
                yield f"{path} asks for {odd!r}, which no label of Google's can be (lower case, digits, - and _, at most 63): it selects nothing"


def _label(word: str) -> bool:
    return len(word) <= 63 and all(c in "-_" or (c.isalnum() and c == c.lower()) for c in word)


def _names(names: list[str]) -> str:
    return ", ".join(f"policy.{name}" for name in names)
