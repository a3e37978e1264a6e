"""`reaper-agent keep`: ask the agent of this machine to keep it, or take that back."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Dict, Optional

from agent.config import Settings
from agent.exits import DONE, FAILED, USAGE
from agent.keeps import LEAST_S, MOST_REASON, MOST_S, asked

_SPAN = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?", re.ASCII)


def seconds(text: str) -> Optional[float]:
    """A span such as 30m, 4h, 1h30m or 2d. None: it is none."""
    match = _SPAN.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups())
    return days * 86400.0 + hours * 3600.0 + minutes * 60.0


def keep(settings: Settings, span: Optional[str], reason: Optional[str], off: bool, as_json: bool) -> int:
    """0: kept, or taken back. 1: no agent listens, or it refuses. 2: what was asked makes no sense."""
    if off == (span is not None):
        return _usage("say how long, as in: reaper-agent keep 4h --reason TEXT; or --off alone to take it back")
    request: Dict[str, Any] = {"off": True}
    if span is not None:
        for_s = seconds(span)
        if for_s is None or not LEAST_S <= for_s <= MOST_S:
            return _usage("%r is no span from 1m to 30d; write it as 30m, 4h, 1h30m or 2d" % span)
        reason = " ".join((reason or "").split())
        if not reason or len(reason) > MOST_REASON or not reason.isprintable():
            return _usage("--reason must be 1 to %d printable characters; say why the machine is needed" % MOST_REASON)
        request = {"for_s": for_s, "reason": reason}
    path = settings.keep_socket
    try:
        answer = asked(path, request)
    except (OSError, ValueError) as error:
        print("reaper-agent: no agent answers at %s (%s); is it running? systemctl status reaper-agent; else: reaper snooze" % (path, error), file=sys.stderr)
        return FAILED
    if "error" in answer:
        print("reaper-agent: not taken: %s" % answer["error"], file=sys.stderr)
        return FAILED
    if as_json:
        print(json.dumps(answer, separators=(",", ":")))
    else:
        print(_told(answer, settings.window_s))
    return DONE


def _told(answer: Dict[str, Any], window_s: float) -> str:
    hears = "The reaper hears of it with the next report, within %.0f seconds; reaper-agent status then shows" % window_s
    kept = answer.get("kept")
    if kept is not None:
        return "kept until %s for %s: %s\n%s until when it holds (its operator's cap counts)." % (kept["until"], kept["who"], kept["reason"], hears)
    if not answer.get("ended"):
        out = "nothing of yours was kept"
    else:
        out = "\n".join("no longer kept for %s: %s" % (one["who"], one["reason"]) for one in answer["ended"]) + "\n" + hears + " what else holds."
    return out + "".join("\nstill kept until %s for %s: %s" % (one["until"], one["who"], one["reason"]) for one in answer.get("keeps", []))


def _usage(problem: str) -> int:
    print("reaper-agent: " + problem, file=sys.stderr)
    return USAGE
