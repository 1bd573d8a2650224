"""What a third party's answer says of its limit, in all generations of headers."""

import email.utils
import re
from datetime import datetime
from typing import Callable, Dict, NamedTuple, Optional, Tuple

Header = Callable[[str], Optional[str]]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\d+(\.\d+)?")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")

_PAIRS = (
    ("ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-rate-limit-remaining", "x-rate-limit-reset"),
)


class Feedback(NamedTuple):
    """What to report. Times are in seconds from now; None is what was not said."""

    status: int
    retry_after: Optional[float] = None
    remaining: Optional[int] = None
    reset: Optional[float] = None

    @property
    def failed(self) -> bool:
        """Whether it pauses: a 429, or a 503 that says how long."""
        return self.status == 429 or (self.status == 503 and self.retry_after is not None)


def read_feedback(status: int, header: Header, wall: float) -> Feedback:
    """Read an answer's headers. ``header`` returns the value of a name in small letters, or None."""
    after: Optional[float] = None
    precise, text = header("retry-after-ms"), header("retry-after")
    if precise and _NUMBER.fullmatch(precise):
        after = float(precise) / 1000
    elif text:
        after = float(text) if _NUMBER.fullmatch(text) else _reset(text, wall)
    found = _rate_limit(header("ratelimit") or "")
    for remaining, reset in _PAIRS:
        if found is not None:
            break
        left, until = header(remaining), header(reset)
        seconds = _reset(until, wall) if until else None
        if left and left.isdigit() and seconds is not None:
            found = int(left), seconds
    if found is None:
        return Feedback(status, after)
    if status == 429 and after is None and found[0] == 0:
        after = found[1]  # it names no time, but when something is left again
    return Feedback(status, after, *found)


def _duration(text: str) -> Optional[float]:
    """``1s``, ``6m0s``, ``20ms``, or a number of seconds."""
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _reset(text: str, wall: float) -> Optional[float]:
    """A time until something: a duration, seconds or ms since 1970, or a date."""
    value = _duration(text)
    if value is None:
        at = _date(text)
        return None if at is None else max(0.0, at - wall)
    if value >= 1e12:
        return max(0.0, value / 1000 - wall)
    if value >= 1e9:
        return max(0.0, value - wall)
    return value


def _date(text: str) -> Optional[float]:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError):
        pass
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _rate_limit(text: str) -> Optional[Tuple[int, float]]:
    """The member of RateLimit with the least left: ``"a";r=50;t=30``, or of older drafts ``remaining=50, reset=30``."""
    least: Optional[Tuple[int, float]] = None
    for member in re.split(r',(?=\s*(?:"|[\w-]+;))', text):
        left = re.search(r"(?:;\s*r|remaining)=(\d+)", member)
        until = re.search(r"(?:;\s*t|reset)=(\d+)", member)
        if left and until and (least is None or int(left.group(1)) < least[0]):
            least = int(left.group(1)), float(until.group(1))
    return least


class Reports:
    """Which answers are worth a report: every failure, the first success behind one, and one in 10 s."""

    def __init__(self) -> None:
        self._known: Dict[object, Tuple[float, bool]] = {}

    def due(self, name: object, found: Feedback, now: float) -> bool:
        at, failed = self._known.get(name, (float("-inf"), False))
        due = found.failed or (found.status < 500 and (failed or now - at > 10.0))
        if due:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[name] = now, found.failed
        return due
