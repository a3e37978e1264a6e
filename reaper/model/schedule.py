"""Times of day as the operator writes them: a daily interval in a named zone, half-open, that may cross midnight."""

from dataclasses import dataclass
from datetime import datetime, time
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class DailyHours:
    """From ``start`` (included) to ``end`` (excluded) each day in ``zone`` (an IANA name). ``start > end`` crosses midnight."""

    start: time
    end: time
    zone: str

    def contains(self, moment: datetime) -> bool:
        """Converts first, then compares: the local time decides, through every clock change."""
        local = moment.astimezone(ZoneInfo(self.zone)).time().replace(tzinfo=None)
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M} {self.zone}"
