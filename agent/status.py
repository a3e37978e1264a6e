"""`reaper-agent status`: what the running agent last wrote down about itself."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Optional

from agent.clock import BootClock, boot_id
from agent.config import Settings
from agent.exits import DONE, FAILED
from agent.state import read_status


def status(settings: Settings, as_json: bool) -> int:
    """Print the status file. 0: the agent runs; 1: it does not, or not on this boot."""
    try:
        seen = read_status(settings.state_dir)
    except (OSError, ValueError) as error:
        print("reaper-agent: nothing to show in %s (%s); is the agent running? systemctl status reaper-agent" % (settings.state_dir, error), file=sys.stderr)
        return FAILED
    seen["running"] = alive(seen, BootClock().boot_s(), _boot_or_none())
    if as_json:
        print(json.dumps(seen, separators=(",", ":")))
    else:
        print("\n".join(lines(seen)))
    return DONE if seen["running"] else FAILED


def _boot_or_none() -> Optional[str]:
    try:
        return boot_id()
    except OSError:
        return None


def alive(seen: Dict[str, Any], now_s: float, boot: Optional[str]) -> bool:
    """Whether the file was written in this boot and within the last three windows."""
    written, window = seen.get("written_boot_s"), seen.get("window_s")
    if not isinstance(written, (int, float)) or not isinstance(window, (int, float)):
        return False
    return not seen.get("stopped") and seen.get("boot_id") == boot and 0 <= now_s - written + 1.0 <= 3 * window + 1.0


def lines(seen: Dict[str, Any]) -> List[str]:
    """The status for people."""
    report, answer = seen.get("report") or {}, seen.get("answer") or {}
    sent, spool = seen.get("sent") or {}, seen.get("spool") or {}
    sampler = report.get("sampler") or {}
    out = [
        "agent      %s%s" % (seen.get("agent", "?"), "" if seen["running"] else "   NOT RUNNING (last seen %s)" % seen.get("written_at", "?")),
        "machine    %s" % (seen.get("resource") or "not known yet"),
        "reaper     %s" % seen.get("reaper", "?"),
        "gpus       %s of %s, sampler %s%s"
        % (len(report.get("gpus") or []), _or_dash(report.get("expected_gpus")), sampler.get("state", "?"), _because(sampler)),
    ]
    out += ["  " + _gpu_line(gpu) for gpu in report.get("gpus") or []]
    out += [
        "sent       %s%s" % (sent.get("at") or "never", "; trouble: %s" % sent["problem"] if sent.get("problem") else ""),
        "spool      %s reports, %s bytes, %s dropped" % (spool.get("reports", "?"), spool.get("bytes", "?"), spool.get("dropped", "?")),
    ]
    upcoming = answer.get("upcoming")
    if upcoming:
        out.append("upcoming   %s at %s: %s" % (upcoming.get("action"), upcoming.get("due_at") or "?", upcoming.get("because")))
    elif answer:
        out.append("upcoming   nothing")
    out += ["kept       until %s for %s: %s" % (one.get("until"), one.get("who"), one.get("reason")) for one in seen.get("keeps") or []]
    if answer.get("snoozed_until"):
        out.append("snoozed    until %s" % answer["snoozed_until"])
    return out


def _gpu_line(gpu: Dict[str, Any]) -> str:
    peak, used, total = gpu.get("peak_ratio"), gpu.get("mem_used_bytes"), gpu.get("mem_total_bytes")
    parts = [
        gpu.get("uuid", "?"),
        gpu.get("model", ""),
        "peak %s" % ("-" if peak is None else "%.0f%%" % (100 * peak)),
        "memory %s of %s MiB" % tuple(_or_dash(None if v is None else v >> 20) for v in (used, total)),
        "processes %s" % _or_dash(gpu.get("processes")),
        "(%s)" % gpu["trouble"] if gpu.get("trouble") else "",
    ]
    return "  ".join(part for part in parts if part)


def _or_dash(value: Any) -> str:
    return "-" if value is None else str(value)


def _because(sampler: Dict[str, Any]) -> str:
    return ": %s" % sampler["because"] if sampler.get("because") else ""
