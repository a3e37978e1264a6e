"""Starting again what was stopped, by its entry in the record."""

from reaper.decide.undo import left_stopped
from reaper.errors import UsageError
from reaper.model.plan import Attempt
from reaper.ports import Store

APPROVAL_PREFIX = "undo:"
"""An approval whose plan begins like this asks the leader to undo that attempt."""


def find_stop(store: Store, entry: str) -> Attempt:
    """The stop that ``entry`` names: an attempt ("a-…") or the number of its line in the audit. Raises UsageError."""
    if entry.isdigit():
        lines = store.audit(after_seq=int(entry) - 1, limit=1_000_000)
        found = next((line for line in lines if line.seq == int(entry)), None)
        if found is None or found.attempt is None:
            raise UsageError(f"audit line {entry} is no action; `reaper audit` shows the lines that name an attempt")
        entry = found.attempt
    attempt = store.attempt(entry)
    if attempt is None:
        raise UsageError(f"there is no attempt {entry}; `reaper audit` lists them")
    if not attempt.action.stops and not left_stopped(attempt):
        raise UsageError(f"{entry} was no stop but a {attempt.action}; only stops can be undone")
    return attempt
