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

SSHDS = ("sshd", "sshd-session", "dropbear")
_DOORS: Mapping[str, str] = {
    **dict.fromkeys((*SSHDS, "sshd-auth", "mosh-server", "in.telnetd", "in.rshd", "ssm-session-wor"), SSH),
    **dict.fromkeys(("tailscaled", "teleport", "ttyd", "gotty", "shellinaboxd", "cockpit-session", "cockpit-bridge"), SSH),
    "login": CONSOLE,
    **dict.fromkeys(("gdm-session-wor", "lightdm", "sddm-helper", "xrdp-sesman", "Xvnc", "Xtigervnc", "vncserver"), DESKTOP),
    **dict.fromkeys(("screen", "SCREEN", "zellij", "dtach", "abduco"), SCREEN),
    **dict.fromkeys(("cron", "crond", "CRON", "CROND", "fcron", "anacron", "atd", "ssm-document-wo"), CRON),
    **dict.fromkeys(("cloud-init", "google_metadata", "ec2-user-data"), SETUP),
    # runc stands above what it runs while an image is built; where a container is only begun, it is gone in a moment.
    **dict.fromkeys(("conmon", "docker-init", "lxc-start", "systemd-nspawn", "runc", "buildkit-runc", "crun"), CONTAINER),
}
_BEGINNINGS = (("tmux", TMUX), ("containerd-shim", CONTAINER), ("jupyter", NOTEBOOK), ("rstudio-server", NOTEBOOK), ("rserver", NOTEBOOK))
# They start containers on behalf of somebody who waits for them, and are not the containers' parents.
_CLIENTS = ("docker", "podman", "nerdctl", "docker-compose", "podman-compose", "finch", "ctr")
# Below these stands whatever lost its parent.
INITS = ("systemd", "(systemd)", "init", "(sd-pam)", "tini", "dumb-init", "catatonit", "docker-init", "s6-svscan", "runit")

# Programs that may be a notebook's kernel or an editor's server; which they are, only their command says.
_MAY_BEGIN = (
    "python", "pypy", "ipython", "ipykernel", "xpython", "node", "MainThread", "code", "cursor", "Rscript", "julia", "jupyter", "openvscode",
    "remote-dev-serv", "pycharm", "idea", "rsession", "marimo", "zed",
)  # fmt: skip
_KERNELS = re.compile(r"(^|[/ .])(ipykernel|ipykernel_launcher|ipython-kernel|IRkernel|IJulia|xpython|xr|xcpp|bash_kernel|metakernel|julia_kernel|colab_kernel_launcher)\b")
_CONNECTED = re.compile(r"(^|/)kernel-[0-9A-Za-z._-]+\.json$|connection_file")
# What somebody types into them moves little CPU, and no terminal: VS Code and its kin, JetBrains' and Zed's remote ends, RStudio's sessions, marimo.
_EDITORS = (
    "vscode-server", "code-server", "cursor-server", "windsurf-server", "positron-server", "openvscode", "/server-main.js", "--type=extensionHost",
    "bootstrap-fork", "/JetBrains/RemoteDev/", "remote-dev-server", "com.intellij.idea", "zed-remote-server",
)  # fmt: skip
_EDITING = ("rsession", "marimo")
# Units in which only what somebody left there outlives its parent, and those that somebody made on the spot.
_LEFT_IN = re.compile(
    r"/(run-[a-z]*[0-9a-f]+\.(service|scope)|(sshd?(@[^/]*)?|crond?|atd|cloud-(init|config|final)|google-startup-scripts|(snap\.)?amazon-ssm-agent[^/]*)\.service)"
)
_SERVERS = re.compile(r"(^|/)(jupyter(hub)?([-_][a-z]+)?|jupyterlab|notebook)$")


def door(name: str) -> Optional[str]:
    """What comes in by it; None: it is no door."""
    kind = _DOORS.get(name)
    return kind if kind is not None else next((kind for begin, kind in _BEGINNINGS if name.startswith(begin)), None)


def starts_containers(name: str) -> bool:
    return name in _CLIENTS


def may_be_either(name: str) -> bool:
    return name.startswith(_MAY_BEGIN) or name in ("R", "java")


def kind_of_command(words: Tuple[str, ...]) -> Optional[str]:
    """Whether a command runs a notebook's kernel, a notebook server or an editor's server. None: neither."""
    if any(_KERNELS.search(word) for word in words[:6]) or any(_CONNECTED.search(word) for word in words):
        return KERNEL
    if any(part in word for word in words[:8] for part in _EDITORS) or any(word.rpartition("/")[2] in _EDITING for word in words[:8]):
        return EDITOR
    beginning = words[:4]
    return NOTEBOOK if any(_SERVERS.search(word) for word in beginning) else None


def is_left_by_somebody(group: str) -> bool:
    """Of a control group: a login's, a door's own, or a unit that somebody made on the spot (`systemd-run`)."""
    return "/user.slice/" in group or _LEFT_IN.search(group) is not None


def is_regular(uid: int) -> bool:
    """A person's number, and no service's: those of the distribution, of systemd's dynamic users, and nobody's."""
    return 1000 <= uid <= 60000 or uid > 65535
