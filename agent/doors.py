"""
By which door people and their jobs come to a machine, told by the names of processes (pure).

A door lets somebody in or keeps what others started: sshd, a console's login, tmux, screen, cron, a notebook server, the
keeper of a container. What stands right below one is the head of a tree of somebody's work. The kernel's names have 15
characters at most.
"""

from __future__ import annotations

import re
from typing import Mapping, Optional, Tuple

SSH, CONSOLE, DESKTOP, TMUX, SCREEN, CRON, SETUP = "ssh", "console", "desktop", "tmux", "screen", "cron", "setup"
NOTEBOOK, CONTAINER = "notebook", "container"
KERNEL, EDITOR, TERMINAL, BACKGROUND = "kernel", "editor", "terminal", "background"

_DOORS: Mapping[str, str] = {
    **dict.fromkeys(("sshd", "sshd-session", "sshd-auth", "dropbear", "mosh-server", "in.telnetd", "in.rshd", "ssm-session-wor"), SSH),
    "login": CONSOLE,
    **dict.fromkeys(("gdm-session-wor", "lightdm", "sddm-helper", "xrdp-sesman", "Xvnc", "Xtigervnc", "vncserver"), DESKTOP),
    **dict.fromkeys(("screen", "SCREEN", "zellij", "dtach", "abduco"), SCREEN),
    **dict.fromkeys(("cron", "crond", "CRON", "CROND", "fcron", "anacron", "atd", "ssm-document-wo"), CRON),
    **dict.fromkeys(("cloud-init", "google_metadata", "ec2-user-data"), SETUP),
    **dict.fromkeys(("conmon", "docker-init", "lxc-start"), CONTAINER),
}
_BEGINNINGS = (("tmux", TMUX), ("containerd-shim", CONTAINER), ("jupyter", NOTEBOOK), ("rstudio-server", NOTEBOOK), ("rserver", NOTEBOOK))
# They start containers on behalf of somebody who waits for them, and are not the containers' parents.
_CLIENTS = ("docker", "podman", "nerdctl", "docker-compose", "podman-compose", "finch", "ctr")
# Below these stands whatever lost its parent.
INITS = ("systemd", "(systemd)", "init", "(sd-pam)", "tini", "dumb-init", "catatonit", "docker-init", "s6-svscan", "runit")

# Programs that may be a notebook's kernel or an editor's server; which they are, only their command says.
_MAY_BE_EITHER = re.compile(r"^(python|pypy|ipython|ipykernel|xpython|node|MainThread|code|cursor|R$|Rscript|julia|jupyter|openvscode)")
_KERNELS = re.compile(r"(^|[/ .])(ipykernel|ipykernel_launcher|ipython-kernel|IRkernel|IJulia|xpython|xr|xcpp|bash_kernel|metakernel|julia_kernel|colab_kernel_launcher)\b")
_CONNECTED = re.compile(r"(^|/)kernel-[0-9A-Za-z._-]+\.json$|connection_file")
_EDITORS = re.compile(r"(vscode-server|code-server|cursor-server|windsurf-server|openvscode|/server-main\.js|--type=extensionHost|bootstrap-fork)")
_ON_THE_SPOT = re.compile(r"/run-[a-z]*[0-9a-f]+\.(service|scope)")
_SERVERS = re.compile(r"(^|/)(jupyter(hub)?([-_][a-z]+)?|jupyterlab|notebook)$")


def door(name: str) -> Optional[str]:
    """What comes in by it; None: it is no door."""
    kind = _DOORS.get(name)
    return kind if kind is not None else next((kind for begin, kind in _BEGINNINGS if name.startswith(begin)), None)


def starts_containers(name: str) -> bool:
    return name in _CLIENTS


def may_be_either(name: str) -> bool:
    return _MAY_BE_EITHER.match(name) is not None


def kind_of_command(words: Tuple[str, ...]) -> Optional[str]:
    """Whether a command runs a notebook's kernel, a notebook server or an editor's server. None: neither."""
    if any(_KERNELS.search(word) for word in words[:6]) or any(_CONNECTED.search(word) for word in words):
        return KERNEL
    if any(_EDITORS.search(word) for word in words[:8]):
        return EDITOR
    beginning = words[:4]
    return NOTEBOOK if any(_SERVERS.search(word) for word in beginning) else None


def is_left_by_somebody(group: str) -> bool:
    """Of a control group: a login's, or a unit that somebody made on the spot (`systemd-run`)."""
    return "/user.slice/" in group or _ON_THE_SPOT.search(group) is not None


def is_regular(uid: int) -> bool:
    """A person's number, and no service's: those of the distribution, of systemd's dynamic users, and nobody's."""
    return 1000 <= uid <= 60000 or uid > 65535
