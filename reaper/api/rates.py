"""How often one sender may knock: token buckets by key, bounded in number. For one thread (the server's event loop)."""

from collections import OrderedDict


class Rates:
    """
    ``per_minute``: sustained; ``burst``: at once after a rest. Past ``most`` keys the one unused for longest is forgotten,
    which can only be generous to it.
    """

    def __init__(self, per_minute: float, burst: float, most: int = 20_000) -> None:
        self._per_s, self._burst, self._most = per_minute / 60.0, burst, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now_s: float) -> float:
        """0.0: go ahead, and one is used up. Else the seconds to wait for the next one; nothing is used up."""
        left = self._now(key, now_s)
        if left < 1.0:
            return (1.0 - left) / self._per_s
        self._left[key] = (left - 1.0, now_s)
        self._left.move_to_end(key)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return 0.0

    def wait(self, key: str, now_s: float) -> float:
        """What `take` would answer, without taking."""
        left = self._now(key, now_s)
        return 0.0 if left >= 1.0 else (1.0 - left) / self._per_s

    def _now(self, key: str, now_s: float) -> float:
        left, at = self._left.get(key, (self._burst, now_s))
        return min(self._burst, left + max(now_s - at, 0.0) * self._per_s)

    def __len__(self) -> int:
        return len(self._left)
