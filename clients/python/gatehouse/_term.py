"""Until when something is held, by the clock of the holder alone."""

from typing import Optional

_MARGIN = 0.1  # of the term
_MOST = 1.0  # seconds


class Term:
    """The term of a hold.

    The server counts a term from when it got the request. The holder counts it from before it was sent, on its
    monotonic clock, and a tenth less, at most a second: so it knows of a loss before anybody else can be
    granted, also where its own timer is late or its clock a little slow. A term of None has no end.
    """

    def __init__(self, sent_at: float, lasts: Optional[float]) -> None:
        self.start(sent_at, lasts)

    def start(self, sent_at: float, lasts: Optional[float]) -> None:
        """Begin anew, by a request that was sent at that time."""
        self.began = sent_at
        self.lasts = lasts
        self.margin = 0.0 if lasts is None else min(lasts * _MARGIN, _MOST)

    @property
    def ends(self) -> float:
        """From when on it must be taken for lost."""
        if self.lasts is None:
            return float("inf")
        return self.began + self.lasts - 0.001 - self.margin  # the server rounds up to a ms

    @property
    def renew_at(self) -> float:
        """When the next renewal is due: after a third, so that one may fail."""
        return float("inf") if self.lasts is None else self.began + self.lasts / 3

    def pause_until(self, due: float, now: float) -> float:
        """How long it is until the next renewal, or until the end if that comes first."""
        return max(0.0, min(due, self.ends) - now)

    @property
    def patience(self) -> float:
        """How long one beat may take, at all addresses together."""
        return 5.0 if self.lasts is None else min(5.0, self.lasts / 3)

    def patience_at(self, now: float) -> float:
        """How long a beat that begins now may take: no longer than the term lasts."""
        return max(0.001, min(self.patience, self.ends - now))

    @property
    def pause(self) -> float:
        """How long to wait after a renewal that failed."""
        return 1.0 if self.lasts is None else min(1.0, self.lasts / 30)
