"""Builds the adapters and puts them together. The only place that knows which implementation stands behind which port."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from reaper.clock import SystemClock
from reaper.clouds.readonly import OnlyVerbs, ReadOnlyCloud
from reaper.errors import ConfigurationError, StoreError
from reaper.metrics import Metrics
from reaper.model.policy import Configuration, Mode
from reaper.ports import Brakes, Clock, Cloud, Notifier, Prober, Store
from reaper.service.announce import Announcer
from reaper.service.board import Board, SharedBoard
from reaper.service.brakes import FileBrake, SharedBrake
from reaper.service.cycle import Cycle
from reaper.service.ingest import Ingest
from reaper.service.lead import Leader
from reaper.service.shelves import ShelfWatch
from reaper.service.watch import Watch
from reaper.store import is_shared as store_is_shared
from reaper.store import open_store

STATE_FILE = "state.db"
HOW_TO_INSTALL_GOOGLE = "Google's client is not installed; install it with: pip install 'idle-reaper[gcp]'"


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything one process works with. ``ceiling``: observe hands out clouds whose verbs raise."""

    store: Store
    watch: Watch
    board: Board
    clock: Clock
    metrics: Metrics
    clouds: Mapping[str, Cloud]
    cycle: Cycle
    leader: Leader
    ingest: Ingest
    brakes: Brakes
    shelves: ShelfWatch
    ceiling: Mode
    where: str
    """The store, for people; without secrets."""


@dataclass(frozen=True, slots=True)
class Door:
    """What a process needs that takes reports and nothing else: no configuration, no cloud, no credentials."""

    store: Store
    clock: Clock
    metrics: Metrics
    ingest: Ingest
    where: str


def open_state(folder: Path, url: str | None = None, *, create: bool = True, check: bool = True) -> Store:
    """
    The store at ``url``, else the file in a state folder. ``check``: look for damage first, which a short command may leave out.
    Raises StoreError.
    """
    return open_store(url if url is not None else folder / STATE_FILE, create=create, check=check)


def is_shared(url: str | None) -> bool:
    """Whether processes on several machines can use this store, each in a role of its own."""
    return url is not None and store_is_shared(url)


def build_door(url: str, *, check: bool = True, clock: Clock | None = None) -> Door:
    """Over a shared store. What is in memory starts empty: the store is asked for what others heard. Raises StoreError."""
    clock = clock if clock is not None else SystemClock()
    metrics, store = Metrics(), open_store(url, check=check)
    ingest = Ingest(store, Watch(store), SharedBoard(store, clock), clock, metrics)
    return Door(store, clock, metrics, ingest, store.where)


def google_client_is_there() -> bool:
    """Without importing it, which takes seconds."""
    try:
        return find_spec("google.cloud.compute_v1") is not None
    except ModuleNotFoundError:
        return False


def build_clouds(configuration: Configuration, ceiling: Mode, clock: Clock, metrics: Metrics) -> dict[str, Cloud]:
    """
    One adapter a configured cloud. Dry run is structural: with the ceiling observe there is no object that can act, and a
    verb that [scope] does not name at start has none either, so adding one takes a restart.

    Raises ConfigurationError where Google Cloud is configured and its client is not installed.
    """
    from reaper.clouds.instrumented import InstrumentedCloud

    clouds: dict[str, Cloud] = {}
    if configuration.aws is not None:
        from reaper.clouds.aws import AwsCloud  # the SDK loads only where it is used

        clouds["aws"] = InstrumentedCloud(AwsCloud(configuration.aws, clock=clock), metrics)
    if configuration.gcp is not None:
        from reaper.clouds.gcp import GcpCloud

        if not google_client_is_there():
            raise ConfigurationError((f"{configuration.source}: clouds.gcp: {HOW_TO_INSTALL_GOOGLE}",))
        clouds["gcp"] = InstrumentedCloud(GcpCloud(configuration.gcp, clock=clock), metrics)
    if ceiling is Mode.OBSERVE:
        return {name: ReadOnlyCloud(cloud) for name, cloud in clouds.items()}
    return {name: OnlyVerbs(cloud, configuration.scope.verbs) for name, cloud in clouds.items()}


def build_probers(configuration: Configuration, clock: Clock) -> tuple[Prober, ...]:
    """One a configured cloud that can tell what we may do."""
    probers: list[Prober] = []
    if configuration.aws is not None:
        from reaper.clouds.aws.probe import AwsProber

        probers.append(AwsProber(configuration.aws, clock=clock))
    if configuration.gcp is not None:
        from reaper.clouds.gcp.probe import GcpProber

        probers.append(GcpProber(configuration.gcp, clock=clock))
    return tuple(probers)


def build_notifiers(configuration: Configuration) -> dict[str, Notifier]:
    from reaper.notify import LogNotifier, WebhookNotifier

    notifiers: dict[str, Notifier] = {"log": LogNotifier()}
    for name, channel in configuration.channels.items():
        notifiers[name] = WebhookNotifier(name, channel.url)
    return notifiers


def build(
    configuration: Configuration,
    state: Path,
    ceiling: Mode | None = None,
    *,
    url: str | None = None,
    check: bool = True,
    clock: Clock | None = None,
    clouds: Mapping[str, Cloud] | None = None,
) -> Parts:
    """
    All parts over the state folder ``state``, in which the kill switch is, and the store at ``url`` (None: the file in that folder).
    ``ceiling`` None: the configuration's own mode. ``check``: as in open_state.
    ``clock`` and ``clouds`` stand in for the real ones; the ceiling binds those clouds as well.

    Raises StoreError, or ConfigurationError when no cloud is configured.
    """
    limit = configuration.mode if ceiling is None else min(ceiling, configuration.mode, key=lambda mode: mode is Mode.ENFORCE)
    clock = clock if clock is not None else SystemClock()
    metrics = Metrics()
    store = open_store(url if url is not None else state / STATE_FILE, check=check)
    if clouds is None:
        try:
            clouds = build_clouds(configuration, limit, clock, metrics)
        except ConfigurationError:
            store.close()
            raise
    elif limit is Mode.OBSERVE:
        clouds = {name: ReadOnlyCloud(cloud) for name, cloud in clouds.items()}
    if not clouds:
        store.close()
        raise ConfigurationError((f"{configuration.source}: clouds: names no cloud; add [clouds.aws] or [clouds.gcp]",))
    watch = Watch(store)
    board, brakes = _between_processes(store, state, clock, is_shared(url))
    cycle = Cycle(store, watch, clouds, Announcer(build_notifiers(configuration), build_notifiers), board, clock, brakes)
    leader = Leader(store, clock, max(3 * configuration.cycle, timedelta(seconds=30)))
    ingest = Ingest(store, watch, board, clock, metrics)
    return Parts(store, watch, board, clock, metrics, clouds, cycle, leader, ingest, brakes, ShelfWatch(store, clouds.values(), clock), limit, store.where)


def _between_processes(store: Store, state: Path, clock: Clock, shared: bool) -> tuple[Board, Brakes]:
    """Where one process does everything, what the door tells and the kill switch need no store."""
    if not shared:
        return Board(), FileBrake(state)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        store.close()
        raise StoreError(f"the state folder {state} cannot be made: {error.strerror}; the kill switch belongs in it, name one with --state") from error
    return SharedBoard(store, clock), SharedBrake(FileBrake(state), store)
