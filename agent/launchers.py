"""
Who could start the next process of a job: a sweep's shell, torchrun, accelerate, ray, a step of slurm.

A launcher is a living ancestor or a living member of the job's group that is not an interactive shell at its prompt,
tmux, screen, sshd or init. Where that cannot be told of one of them, the answer is "not known", never "none".

A container's first process is no exception: a shell that loops over a job is its launcher between two runs as well, whatever
keeps the container alive by itself (`sleep infinity`, a shell whose command only sleeps, or one that nobody types into) is none.
"""

from __future__ import annotations

import os
import re
from typing import Callable, FrozenSet, Iterable, List, NamedTuple, Optional, Tuple

from agent.doors import CONTAINER, door
from agent.procs import Procs, Stat

# They open the door to somebody or keep what others started: what they run stands beside them and is looked at itself.
DOORS: FrozenSet[str] = frozenset(
    ("init", "systemd", "(systemd)", "(sd-pam)", "sshd", "sshd-session", "sshd-auth", "dropbear", "mosh-server", "tailscaled", "teleport",
     "ttyd", "gotty", "cockpit-session", "cockpit-bridge", "login", "su", "sudo", "doas",
     "runuser", "screen", "SCREEN", "zellij", "dtach", "abduco", "containerd-shim", "conmon", "docker-init", "tini", "dumb-init", "catatonit", "pause")
)  # fmt: skip
# They start nothing. As the first process of a container, or where nobody waits for their end who does, they only keep it alive.
_KEEPERS = ("sleep", "tail", "cat")
# What a shell's command may consist of that only keeps a container alive, and the words that may stand before such.
_KEEPING = frozenset((*_KEEPERS, "wait", "trap", "true", "false", ":", "echo", "printf", "date", "exit", "break", "continue"))
_BEFORE = frozenset(("while", "until", "do", "done", "if", "then", "else", "fi", "!", "{", "}", "exec"))
_CONTAINERS_INITS = ("docker-init", "tini", "dumb-init", "catatonit")
SHELLS = ("sh", "bash", "rbash", "zsh", "fish", "dash", "ash", "ksh", "ksh93", "mksh", "csh", "tcsh")
_TAKE_A_VALUE = ("--rcfile", "--init-file", "-o", "+o", "-O", "+O")
_MOST_ANCESTORS = 64
_MOST_LOOKED_AT = 1024
_KTHREADD = 2


class Ancestors(NamedTuple):
    """(pid, born) from the parent upwards. ``whole``: every one of them could be seen."""

    chain: Tuple[Tuple[int, int], ...]
    whole: bool


class Found(NamedTuple):
    """``name`` of a living launcher, None: none was found; ``known``: nothing was left out on the way to that answer."""

    name: Optional[str]
    known: bool


class Launchers:
    """``nobodys``: processes that are nobody's work, by pid. ``inits``: further names of what only keeps others."""

    def __init__(self, procs: Procs, nobodys: Callable[[int], bool] = lambda pid: False, inits: Tuple[str, ...] = ()) -> None:
        self._procs, self._nobodys = procs, nobodys
        self._doors = DOORS | frozenset(inits)
        self._us = os.getpid()
        self._machine = procs.on_the_machine()

    def ancestors(self, pid: int) -> Ancestors:
        """Taken while the process lives: afterwards nobody can tell who its parents were."""
        chain: List[Tuple[int, int]] = []
        stat = self._procs.stat(pid)
        while stat is not None and len(chain) < _MOST_ANCESTORS:
            parent = stat.parent
            if parent == 0:  # init, or the first of a container that is not ours
                return Ancestors(tuple(chain), True)
            above = self._procs.stat(parent)
            if above is None:
                # Either it ended just now and the child has a new parent, or it is hidden.
                again = self._procs.stat(pid)
                if again is None or again.parent == parent:
                    return Ancestors(tuple(chain), False)
                stat = again
                continue
            chain.append((parent, above.born))
            pid, stat = parent, above
        return Ancestors(tuple(chain), False)

    def contained(self, ancestors: Ancestors) -> bool:
        """Whether a keeper of containers is among them."""
        stats = (self._procs.stat(pid) for pid, _ in ancestors.chain)
        return any(door(stat.name) == CONTAINER for stat in stats if stat is not None)

    def look(self, ancestors: Iterable[Tuple[int, int]], members: Optional[Iterable[int]]) -> Found:
        """Among the living of ``ancestors`` and ``members``; ``members`` None: the group could not be listed."""
        known = members is not None
        asked: List[Tuple[int, Optional[int]]] = [*ancestors, *((pid, None) for pid in members or ())]
        for looked, (pid, born) in enumerate(asked):
            if looked >= _MOST_LOOKED_AT:
                return Found(None, False)
            stat = self._procs.stat(pid)
            if stat is None or not stat.lives or born not in (None, stat.born):
                continue  # it ended; its number may be another's by now
            starts = self._starts(pid, stat)
            if starts:
                return Found(stat.name or "?", True)
            known = known and starts is not None
        return Found(None, known)

    def _starts(self, pid: int, stat: Stat) -> Optional[bool]:
        """Whether this process may start another one by itself. None: that cannot be told."""
        name = stat.name
        if pid == self._us or _KTHREADD in (pid, stat.parent) or (pid == 1 and self._machine):
            return False
        if self._is_door(name) or self._nobodys(pid):
            return False
        if name in _KEEPERS:
            return not (self._is_first(pid) or self._only_keeps(stat.parent))
        return self._shell_works(pid, stat) if name in SHELLS else True

    def _is_door(self, name: str) -> bool:
        return name in self._doors or name.startswith(("tmux", "containerd-shim"))

    def _is_first(self, pid: int) -> bool:
        return pid == 1 or self._procs.first_of_its_namespace(pid)

    def _only_keeps(self, pid: int) -> bool:
        """Of a parent: whether nothing follows in it when its child ends. False as well where that cannot be seen."""
        stat = self._procs.stat(pid)
        if stat is None:
            return False
        return self._is_door(stat.name) or (stat.name in SHELLS and only_keeps(self._procs.arguments(pid) or ()))

    def _shell_works(self, pid: int, stat: Stat) -> Optional[bool]:
        """
        False for an interactive shell that waits at its prompt: no script, a terminal, itself in its foreground, asleep. And for
        one that keeps a container: by a command that does nothing else, or with no script, no terminal and nothing below it.
        """
        arguments = self._procs.arguments(pid)
        if arguments and only_keeps(arguments):
            return False  # whatever it does at this moment
        if stat.state != "S":
            return True
        if stat.terminal == 0:
            return not (arguments and self._waits_in_a_container(pid, stat, arguments))
        if stat.foreground != stat.group:
            return True
        if arguments is None:
            return None
        if runs_a_script(arguments):
            return True
        interactive = self._procs.reads_from_terminal(pid)
        return None if interactive is None else not interactive

    def _waits_in_a_container(self, pid: int, stat: Stat, arguments: Tuple[str, ...]) -> bool:
        """Whether a shell without a terminal is what a container was started with, to type into, and nothing is below it."""
        above = self._procs.stat(stat.parent)
        first = self._is_first(pid) or (above is not None and above.name in _CONTAINERS_INITS)  # `docker run --init`: the second
        return first and not runs_a_script(arguments) and self._procs.children_of_thread(pid, pid) == []


def runs_a_script(arguments: Tuple[str, ...]) -> bool:
    """Whether a shell was started with something to run: a file or -c. `bash --init-file FILE -i` was not."""
    rest = list(arguments[1:])
    while rest:
        word = rest.pop(0)
        if word in _TAKE_A_VALUE:
            rest = rest[1:]
        elif word.startswith("--"):
            if word.startswith("--command") or (word == "--" and rest):
                return True
        elif not word.startswith(("-", "+")) or (word.startswith("-") and "c" in word.lower()[1:]):
            return True
    return False


def only_keeps(arguments: Tuple[str, ...]) -> bool:
    """
    Whether a shell was started with a command (-c) that only keeps a container alive: it sleeps, waits, and says so. False of whatever
    else there is in it, and of all that we do not understand.
    """
    text = _command(arguments)
    if text is None or "$(" in text or "`" in text:
        return False
    found = False
    for part in re.split(r"[;&|()\n]+", re.sub(r"\d*>&\d", "", text)):
        words = [word.strip("'\"") for word in part.split()]
        if words == ["exec", "$@"]:  # a devcontainer's: nothing, unless it was given something
            if len(arguments) > arguments.index(text) + 2:
                return False
            continue
        while words and words[0] in _BEFORE:
            words.pop(0)
        if words[:1] == ["trap"]:
            words.pop(0)
            if words and (words[0] in ("", "-", "kill") or not words[1:]):
                continue
        if words and words[0] not in _KEEPING:
            return False
        found = found or bool(words)
    return found


def _command(arguments: Tuple[str, ...]) -> Optional[str]:
    """The text behind -c; None: none, or options before it that we do not know."""
    rest = list(arguments[1:])
    while rest:
        word = rest.pop(0)
        if word in _TAKE_A_VALUE:
            rest = rest[1:]
        elif word.startswith("-") and not word.startswith("--") and "c" in word[1:]:
            rest = rest[1:] if rest[:1] == ["--"] else rest
            return rest[0] if rest else None
        elif not word.startswith(("-", "+")) or word == "--":
            return None
    return None
