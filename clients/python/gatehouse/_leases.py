"""What one client knows of its leases on capacity. No I/O; the clocks are parameters."""

import dataclasses
import email.utils
import math
import random
from typing import Any, Callable, Dict, List, Optional

from ._http1 import Response
from ._wire import Call, read_json
from .errors import Unavailable

_FIRST_PAUSE = 1.3
_LONGEST_PAUSE = 60.0
_COARSE = 2.0  # by how many seconds the header Date may be behind: whole seconds, renewed each second


@dataclasses.dataclass
class Lease:
    """So much, until an instant of the monotonic clock. ``claim`` is what the server gave, to be shown to it."""

    capacity: float
    ends: float
    refresh_at: float
    claim: Dict[str, Any]


@dataclasses.dataclass
class Share:
    """One resource of a client."""

    name: str
    wants: float
    priority: int = 0
    lease: Optional[Lease] = None
    safe: float = 0.0  # when no lease holds; -1 is without limit
    asked: Optional[float] = None  # what the last answered request wanted

    def held(self, now: float) -> Optional[Lease]:
        """The lease, unless it has ended."""
        return self.lease if self.lease is not None and now < self.lease.ends else None

    def capacity(self, now: float) -> float:
        """What may be used now; infinite is without limit."""
        lease = self.held(now)
        if lease is not None:
            return lease.capacity
        return math.inf if self.safe < 0 else self.safe


class Leases:
    """All resources of one client, asked for in one request."""

    def __init__(self, client_id: str, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self.client_id = client_id
        self.shares: Dict[str, Share] = {}
        self._clock, self._wall = clock, wall
        self._next_ask = 0.0
        self._failures = 0

    def add(self, name: str, wants: float, priority: int) -> Share:
        if name in self.shares:
            raise ValueError(f"resource {name!r} is there already")
        share = Share(name, check_wants(wants), priority)
        self.shares[name] = share
        return share

    def due(self) -> float:
        """When to ask next."""
        if not self.shares:
            return math.inf
        fresh = any(share.asked != share.wants for share in self.shares.values())
        return 0.0 if fresh and not self._failures else self._next_ask

    def ask(self) -> Call:
        """The request for all of them."""
        now = self._clock()
        resources: List[Dict[str, Any]] = []
        for share in self.shares.values():
            resource: Dict[str, Any] = {"resource_id": share.name, "wants": share.wants}
            if share.priority:
                resource["priority"] = share.priority
            lease = share.held(now)
            if lease is not None:
                resource["has"] = lease.claim
            resources.append(resource)
        body = {"client_id": self.client_id, "resource": resources}
        return Call("capacity: get", "POST", "/v1/capacity/get", body, safe=True, as_json=True)

    def drop(self, share: Share) -> bool:
        """Ask for it no more, and say whether it was asked for."""
        if self.shares.pop(share.name, None) is None:
            return False
        share.lease, share.safe = None, 0.0
        return True

    def release(self, names: List[str]) -> Call:
        body = {"client_id": self.client_id, "resource_id": names}
        return Call("capacity: release", "POST", "/v1/capacity/release", body, safe=True, as_json=True)

    def learn(self, response: Response, asked: Call, sent_at: float) -> None:
        """Take an answer into account."""
        found = read_json(response)
        if "response" not in found:
            raise Unavailable("the server is not the master of capacity, and no other address was")
        told = email.utils.parsedate_to_datetime(response.headers["date"]) if "date" in response.headers else None
        wanted = {r["resource_id"]: r["wants"] for r in asked.parameters["resource"]}
        soonest = math.inf
        for answer in found["response"]:
            share = self.shares.get(answer["resource_id"])
            if share is None:
                continue
            gets = answer["gets"]
            # What is left by the server's clock, from before the request was sent: clocks need not agree.
            now = self._wall() if told is None else told.timestamp() + _COARSE
            left = min(max(0.0, gets["expiry_time"] - now), 3600.0)
            refresh = min(max(1.0, gets["refresh_interval"]), max(1.0, left * 0.8))
            refresh *= 1 + random.random() / 10 if refresh < left * 0.7 else 1  # so that clients spread
            share.lease = Lease(gets["capacity"], sent_at + left, sent_at + refresh, gets)
            share.safe = answer.get("safe_capacity", 0.0)
            share.asked = wanted[share.name]
            soonest = min(soonest, share.lease.refresh_at)
        self._failures = 0
        self._next_ask = soonest if soonest < math.inf else self._clock() + _FIRST_PAUSE

    def failed(self) -> None:
        """No server answered: ask again later, and before long while a lease holds."""
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 1.3 ** min(self._failures, 20))
        self._failures += 1
        now = self._clock()
        held = [share.held(now) for share in self.shares.values()]
        left = [lease.ends - now for lease in held if lease is not None]
        if left:
            pause = max(0.2, min(pause, min(left) / 4))
        self._next_ask = now + pause * (1 - random.random() / 2)


class Pacer:
    """Lets so many per second through, evenly, in order of arrival."""

    def __init__(self) -> None:
        self._next = 0.0

    def when(self, rate: float, now: float) -> Optional[float]:
        """When the next may go; None while nothing may."""
        if rate <= 0:
            return None
        return now if rate == math.inf else max(self._next, now)

    def take(self, n: float, rate: float, now: float) -> None:
        """Let these go next, at the instant of ``when``."""
        # After a pause a hundredth of a second's worth may go at once.
        self._next = max(self._next, now - 0.01) + n / rate


def check_wants(wants: float) -> float:
    if not 0 <= wants <= 1e15:
        raise ValueError(f"wants {wants}: want 0 to 1e15")
    return wants
