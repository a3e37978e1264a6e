"""Who works on a machine besides its GPUs, and to which others its GPU processes are connected, as its agent tells."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AtWork:
    """
    One session, kernel, editor or job. ``kind``: how it came ("ssh", "tmux", "kernel", ...). ``idle_s``: since somebody typed,
    at the window's end; ``cores`` and ``io_bytes_per_s`` of its tree over the window; ``busy``: a kernel's cell ran, ``busy_s`` for
    how long by then. None: not known, or no such thing.
    """

    kind: str
    user: str | None = None
    uid: int | None = None
    name: str | None = None
    idle_s: float | None = None
    cores: float | None = None
    io_bytes_per_s: float | None = None
    busy: bool | None = None
    busy_s: float | None = None


@dataclass(frozen=True, slots=True)
class Presence:
    """``unread``: what the agent could not see, in words. While there is any, nobody at work is not known."""

    at_work: tuple[AtWork, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Links:
    """
    Established connections of processes that hold GPUs. ``addresses`` are the machine's own, ``peers`` those at the other end.
    ``whole``: nothing was left out. ``ranks``, ``world_size`` and ``master`` as the job's launcher told them.
    """

    whole: bool
    addresses: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    world_size: int | None = None
    master: str | None = None

    @property
    def named(self) -> frozenset[str]:
        """All that it says of other machines: those it is connected to, and the master of its job."""
        return frozenset((*self.peers, *((self.master,) if self.master is not None else ()))) - frozenset(self.addresses)
