"""Documents that are right, to be changed by the tests."""

from typing import Any


def full() -> dict[str, Any]:
    """Every table and key that can be written."""
    return {
        "schema": 1,
        "name": "ml-platform",
        "mode": "enforce",
        "cycle": "2m",
        "clouds": {"aws": {"accounts": ["012345678901"], "regions": ["us-east-1", "eu-central-1"]}},
        "gang": {"same": ["tag:job-group", "placement-group"]},
        "scope": {"tags": {"team": ["ml"]}, "verbs": ["stop", "start"], "claim": "reaper=ml-platform"},
        "protect": {"run": {"ids": ["i-0abc"], "reason": "pre-training run", "until": "2027-01-15"}},
        "budget": {
            "stops": {"per_hour": 4, "usd_per_hour": 400, "share_per_hour": "5%", "at_least": 2, "zone": "Europe/Berlin"},
            "starts": {"per_minute": 3},
            "breaker": {"turned_idle": "30%", "within": "20m", "at_least": 4},
        },
        "defaults": {
            "warn": {"for": "1h", "quiet": "20:00-08:00 Europe/Berlin", "via": ["log", "team"]},
            "busy": {"cpu": "10%"},
            "min_age": "45m",
            "local_nvme": "if-empty",
            "local_scratch": ["/opt/dlami/nvme"],
            "no_agent": "report",
            "unknown_phase": "report",
            "snooze": {"up_to": "3d"},
            "owner": ["tag:owner", "label:owner"],
        },
        "policy": {
            "exploration": {
                "when": {"tags": {"phase": ["exploration"]}},
                "mode": "enforce",
                "idle": {"for": "2h", "gpu_at_most": "4%", "held_for": "12h"},
            },
            "training": {
                "when": {"tags": {"phase": ["training"]}, "types": ["p5.48xlarge"]},
                "idle": {"for": "6h", "held_for": "48h"},
                "warn": {"for": "30m", "quiet": "ignore"},
                "busy": {"disk_mib_s": 7.5},
                "job_ended": {"for": "45m", "warn": "20m", "quiet": "ignore"},
                "starved_above": "40%",
                "orchestrator": "ignore",
                "scarce": {"types": ["p5.48xlarge"], "action": "report"},
            },
            "serving": {"when": {"ids": ["i-0def"]}, "action": "report"},
        },
        "hours": {
            "office": {
                "zone": "Europe/Berlin",
                "on": ["mon-thu 08:00-19:00", "fri 08:00-17:00"],
                "holidays": ["DE-BE", "2026-12-24"],
                "also_on": ["2026-12-05 09:00-17:00"],
                "also_off": ["2026-12-28 to 2026-12-30"],
                "warn": {"for": "30m", "quiet": "ignore"},
                "idle_for": "15m",
                "held_for": "1h",
                "if_busy": "hold",
                "if_unknown": "hold",
                "no_agent": "warn-and-stop",
                "start_also": True,
                "start_order": "tag:rank",
            },
            "night": {"zone": "America/New_York", "on": ["fri 22:00-06:00"], "only": "stop"},
        },
        "channels": {"team": {"webhook": "https://chat.example.com/hooks/sesame"}},
        "prices": {"g5.xlarge": 1.006},
    }


def minimal() -> dict[str, Any]:
    return {"schema": 1, "policy": {"all": {"idle": {"for": "2h"}}}}
