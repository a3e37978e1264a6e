"""
The agent's settings: one TOML file and environment variables, checked all at once.

The file is /etc/reaper-agent/agent.toml, or what --config or REAPER_AGENT_CONFIG
names. Every key can be given as REAPER_AGENT_<KEY> instead, which wins. A problem is
reported with its place and a remedy, all problems together, none guessed around.
"""

from __future__ import annotations

import math
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from agent.report import is_resource_id

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_PATH = Path("/etc/reaper-agent/agent.toml")
ENV_PREFIX = "REAPER_AGENT_"
METADATA = "http://169.254.169.254"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h)$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TOKEN = re.compile(r"^[!-~]{8,512}$")

# Names of processes (the kernel's 15 characters of them) that are nobody's work, whether they hold a GPU or not, with all that
# they start: screens and the driver's own, GPU checks, backup and upkeep, other watchers, and what only looks at the machine.
NOBODYS_WORK = (
    "Xorg", "Xwayland", "gnome-shell", "nvidia-cuda-mps-server", "nvidia-cuda-mps-control", "nvidia-persistenced",
    "nv-hostengine", "dcgm", "dcgmi", "dcgm-exporter", "nvvs", "dcgmproftester",
    "reaper-agent",
    "restic", "borg", "rsnapshot", "duplicity", "bacula-fd", "rdiff-backup", "fstrim", "e2scrub", "e2scrub_all",
    "run-parts", "logrotate", "updatedb", "updatedb.mlocate", "updatedb.plocate", "mandb", "apt-get", "apt", "dpkg", "unattended-upgr", "dnf",
    "yum", "packagekitd", "snapd", "certbot", "sa1", "sadc", "debian-sa1", "popularity-cont", "freshclam", "clamscan", "rkhunter", "aide",
    "amazon-ssm-agen", "ssm-agent-worke", "google_guest_ag", "google_osconfig", "puppet", "chef-client", "salt-minion",
    "node_exporter", "telegraf", "collectd", "fluentd", "fluent-bit", "filebeat", "metricbeat", "promtail", "otelcol", "datadog-agent",
    "trace-agent", "process-agent",
    "watch", "top", "htop", "btop", "atop", "iotop", "nvtop", "nvitop", "gpustat", "nvidia-smi", "glances", "agetty", "getty",
)  # fmt: skip

# What people's work runs in: one such name would turn all of it into nobody's.
_TOO_WIDE = re.compile(
    r"(python|pypy|perl|ruby|lua|php|node|java|julia)[\d.]*|ipython\d?|R|Rscript|(ba|da|z|k|c|tc|fi|a)?sh|sshd(-session|-auth)?|login|su|sudo|tmux.*"
    r"|screen|SCREEN|docker|podman|containerd.*|(buildkit-)?runc|crun|conmon|rsession|marimo|jupyter.*|ipykernel.*|code.*|MainThread|torchrun|accelerate|deepspeed|mpirun|mpiexec|orted|ray.*"
    r"|slurm.*|srun|cron|crond|CRON|CROND|atd|systemd|init|make|sleep|train.*|main.*|vllm.*|triton.*|ssm-(session|document)-wor.*"
)


class ConfigError(Exception):
    """The settings cannot be used. ``problems``: one line each, with the place and the remedy."""

    def __init__(self, problems: List[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Settings:
    """
    What the operator chose. ``window_s`` 1..600 (60: the product's report period) and
    ``beat_s`` 0.1..60 (5: drains the driver's buffer before it wraps) are seconds.
    ``resource`` given here wins over the metadata service; None asks that service.
    """

    reaper: str
    token: Optional[str] = field(default=None, repr=False)
    token_file: Optional[Path] = None
    resource: Optional[str] = None
    state_dir: Path = Path("/var/lib/reaper-agent")
    spool_dir: Path = Path("/var/lib/reaper-agent/spool")
    window_s: float = 60.0
    beat_s: float = 5.0
    metadata: str = METADATA
    ca_file: Optional[Path] = None
    plain_http: bool = False  # True: the token may travel unencrypted to a host that is not this one
    spool_reports: int = 1500  # a day of minutes
    spool_mib: int = 16
    nobodys_work: Tuple[str, ...] = NOBODYS_WORK
    hook_socket: Optional[Path] = Path("/run/reaper-agent/hook.sock")  # where jobs tell of their waiting; None: nowhere
    metrics_listen: Optional[Tuple[str, int]] = None  # a loopback address and port for Prometheus; None: not served

    @property
    def keep_socket(self) -> Path:
        """Where people ask to keep the machine: beside the socket of jobs, else in the state folder."""
        return (self.hook_socket.parent if self.hook_socket is not None else self.state_dir) / "keep.sock"


class _Bad(Exception):
    pass


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Bad('must be text, such as key = "value"')
    return value.strip()


def _url(value: Any) -> str:
    text = _text(value).rstrip("/")
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  reading it is what checks it
    except ValueError as error:
        raise _Bad("is not an address (%s); write it as https://reaper.example.com" % error) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _Bad("is %r; write it as https://reaper.example.com" % text)
    if parts.username is not None or parts.query or parts.fragment:
        raise _Bad("must not carry a user, a query or a fragment; put the token into token_file")
    return text


def _resource(value: Any) -> str:
    text = _text(value)
    if not is_resource_id(text):
        raise _Bad("is %r; write it as aws:123456789012:eu-west-1:instance:i-0abc" % text)
    return text


def _token(value: Any) -> str:
    text = _text(value)
    if not _TOKEN.match(text):  # the value itself is never repeated
        raise _Bad("must be 8 to 512 printable characters without blanks; issue one with: reaper token issue RESOURCE")
    return text


def _path(value: Any) -> Path:
    path = Path(_text(value))
    if not path.is_absolute():
        raise _Bad("is %s; write the full path, from / on" % path)
    return path


def _socket(value: Any) -> Optional[Path]:
    return None if value == "off" else _path(value)


def _seconds(low: float, high: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        match = _DURATION.match(value) if isinstance(value, str) else None
        if match is None:
            raise _Bad('is %r; write a duration with its unit, such as "60s"' % (value,))
        seconds = float(match.group(1)) * _SECONDS[match.group(2)]
        if not math.isfinite(seconds) or not low <= seconds <= high:
            raise _Bad("is %r; it must lie between %gs and %gs" % (value, low, high))
        return seconds

    return read


def _count(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str) and value.isdigit():  # from the environment
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _Bad("is %r; it must be a whole number from %d to %d" % (value, low, high))
        return value

    return read


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value in ("true", "false"):  # from the environment
        return value == "true"
    if not isinstance(value, bool):
        raise _Bad("is %r; write true or false" % (value,))
    return value


def _loopback(value: Any) -> Tuple[str, int]:
    host, _, port = _text(value).rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if host not in ("127.0.0.1", "::1"):
        raise _Bad("is %r; it must be this machine's own, such as 127.0.0.1:9465: the page has no lock" % (value,))
    if not port.isdigit() or not 1 <= int(port) <= 65535:
        raise _Bad("is %r; write the port, 1 to 65535, behind the address: 127.0.0.1:9465" % (value,))
    return host, int(port)


def _names(value: Any) -> Tuple[str, ...]:
    """The whole list; or, where every name begins with +, what is added to the one that comes with the agent."""
    items = [v for v in value.split(",") if v.strip()] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(v, str) and v.strip(" +") for v in items):
        raise _Bad('must be a list of process names, such as ["Xorg"]')
    names = [v.strip() for v in items]
    added = [name for name in names if name.startswith("+")]
    if added and len(added) < len(names):
        raise _Bad("mixes names with and without +; write all with + to add to the shipped list, or all without to replace it")
    bare = tuple(name.lstrip("+").strip() for name in names)
    for name in bare:
        if any(c in name for c in "*?[]/ "):
            raise _Bad("has %r; write the exact name of one program, as `ps -o comm` shows it, no pattern, path or argument" % name)
        if _TOO_WIDE.fullmatch(name):
            raise _Bad("has %r, in which people's own work runs; name the one program that is nobody's (give it a name of its own)" % name)
    return (*NOBODYS_WORK, *bare) if added else bare


# key in the file -> (field of Settings, reader)
_KEYS: Mapping[str, Tuple[str, Callable[[Any], Any]]] = {
    "reaper": ("reaper", _url),
    "token": ("token", _token),
    "token_file": ("token_file", _path),
    "resource": ("resource", _resource),
    "state_dir": ("state_dir", _path),
    "spool_dir": ("spool_dir", _path),
    "window": ("window_s", _seconds(1.0, 600.0)),
    "beat": ("beat_s", _seconds(0.1, 60.0)),
    "metadata": ("metadata", _url),
    "ca_file": ("ca_file", _path),
    "plain_http": ("plain_http", _flag),
    "spool_reports": ("spool_reports", _count(1, 100_000)),
    "spool_mib": ("spool_mib", _count(1, 1024)),
    "nobodys_work": ("nobodys_work", _names),
    "hook_socket": ("hook_socket", _socket),
    "metrics_listen": ("metrics_listen", _loopback),
}


def _from_file(path: Path, required: bool, problems: List[str]) -> Dict[str, Any]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        if required:
            problems.append("%s: is not there; write it, or leave out --config" % path)
        return {}
    except OSError as error:
        problems.append("%s: cannot be read (%s); make it readable for the agent's user" % (path, error.strerror))
        return {}
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, ValueError) as error:
        problems.append('%s: is not TOML (%s); text values need quotes: reaper = "https://..."' % (path, error))
        return {}


def _gather(path: Path, required: bool, env: Mapping[str, str], problems: List[str]) -> Dict[str, Tuple[str, Any]]:
    found = {key: ("%s: %s" % (path, key), value) for key, value in _from_file(path, required, problems).items()}
    for name in sorted(env):
        if name.startswith(ENV_PREFIX) and name != ENV_PREFIX + "CONFIG":
            found[name[len(ENV_PREFIX) :].lower()] = (name, env[name])
    return found


def _together(values: Mapping[str, Any], places: Mapping[str, str], problems: List[str]) -> None:
    """Rules between keys. Those whose keys are missing or wrong say nothing: their own problem is already in the list."""
    reaper = values.get("reaper")
    local = reaper is not None and urlsplit(reaper).hostname in _LOOPBACK
    window, beat = values.get("window_s", Settings.window_s), values.get("beat_s", Settings.beat_s)
    if beat * 2 > window:
        problems.append(
            "%s: is %gs, more than half of the window of %gs; shorten the beat" % (places.get("beat", "beat"), beat, window)
        )
    if reaper is not None and not local:
        if reaper.startswith("http://") and not values.get("plain_http", False):
            problems.append(
                "%s: would send the token unencrypted; write https://, or plain_http = true if the network is trusted"
                % places["reaper"]
            )
        if window < 30.0 or beat < 1.0:
            problems.append(
                "%s: is shorter than 30s (beat 1s), which only a reaper on this machine takes; leave window and beat out"
                % places.get("window", places.get("beat", "window"))
            )
    if values.get("token") is not None and values.get("token_file") is not None:
        problems.append("%s: stands beside token_file; keep one, token_file rather" % places["token"])


def load(path: Optional[Path] = None, env: Optional[Mapping[str, str]] = None) -> Settings:
    """
    Read and check the settings. ``path`` None means REAPER_AGENT_CONFIG, else the
    default path, which need not exist. Raises ConfigError with every problem found.
    """
    env = os.environ if env is None else env
    named = path or (Path(env[ENV_PREFIX + "CONFIG"]) if env.get(ENV_PREFIX + "CONFIG") else None)
    problems: List[str] = []
    found = _gather(named or DEFAULT_PATH, named is not None, env, problems)
    values: Dict[str, Any] = {}
    for key, (place, value) in found.items():
        if key not in _KEYS:
            problems.append("%s: is not a setting; known are %s" % (place, ", ".join(sorted(_KEYS))))
            continue
        name, read = _KEYS[key]
        try:
            values[name] = read(value)
        except _Bad as bad:
            problems.append("%s: %s" % (place, bad))
    if "reaper" not in found:
        problems.append(
            '%s: reaper is missing; write reaper = "https://reaper.example.com" or set %sREAPER' % (named or DEFAULT_PATH, ENV_PREFIX)
        )
    if "state_dir" in values and "spool_dir" not in found:
        values["spool_dir"] = values["state_dir"] / "spool"
    _together(values, {key: place for key, (place, _) in found.items()}, problems)
    if problems:
        raise ConfigError(problems)
    return Settings(**values)


def read_token(settings: Settings) -> str:
    """
    The token to send. The file is read anew each time, so a rotated token needs no
    restart. Raises ConfigError; the message never holds the token.
    """
    if settings.token is not None:
        return settings.token
    if settings.token_file is None:
        raise ConfigError(["token_file: is missing; put the token of `reaper token issue RESOURCE` into a file and name it"])
    try:
        return _token(settings.token_file.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not plain text"
        raise ConfigError(
            ["token_file: %s cannot be read (%s); it must be readable for the agent's user" % (settings.token_file, why)]
        ) from error
    except _Bad as bad:
        raise ConfigError(["token_file: %s %s" % (settings.token_file, bad)]) from bad
