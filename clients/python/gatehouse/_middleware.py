"""What the middlewares of WSGI and ASGI share."""

import json
import math
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ._wire import Decision
from .errors import GatehouseError

Headers = List[Tuple[str, str]]
_QUOTA = "https://iana.org/assignments/http-problem-types#quota-exceeded"


class Rule:
    """Under which name a request counts, how much, and what to do when there is no decision."""

    def __init__(
        self,
        client: Any,
        name: Callable[[Any], Optional[str]],
        limit: Union[str, int, None] = None,
        *,
        kind: str = "gcra",
        cost: Callable[[Any], int] = lambda request: 1,
        budget: float = 0.25,
        fail_open: bool = True,
        on_error: Optional[Callable[[GatehouseError], None]] = None,
    ) -> None:
        self.client, self.name, self.limit, self.kind, self.cost = client, name, limit, kind, cost
        self.budget, self.fail_open, self.on_error = budget, fail_open, on_error

    def ask(self, request: Any) -> Any:
        """What to be decided, or None where a request has no name and is not limited."""
        name = self.name(request)
        if name is None:
            return None
        limiter = self.client.limiter(name, self.limit, kind=self.kind)
        return limiter.try_acquire(self.cost(request), timeout=self.budget)

    def failed(self, error: GatehouseError) -> Optional["Refusal"]:
        """What to answer when there is no decision: None to go on."""
        if self.on_error is not None:
            self.on_error(error)
        if self.fail_open:
            return None
        return Refusal("503 Service Unavailable", "unavailable", None, [("Retry-After", "1")])


class Refusal:
    """An answer that is given in place of the application's."""

    def __init__(self, status: str, code: str, retry_after: Optional[float], headers: Headers) -> None:
        number, _, title = status.partition(" ")
        problem: Dict[str, Any] = {"type": "about:blank", "title": title, "status": int(number), "code": code}
        if number == "429":
            problem["type"] = _QUOTA
        if retry_after is not None:
            problem["retry_after_ms"] = math.ceil(retry_after * 1000)
        self.status, self.number = status, int(number)
        self.body = json.dumps(problem).encode()
        self.headers = [
            *headers,
            ("Content-Type", "application/problem+json"),
            ("Content-Length", str(len(self.body))),
        ]


def limit_headers(decision: Decision) -> Headers:
    """The headers that tell of the limit."""
    names = (("RateLimit", "ratelimit"), ("RateLimit-Policy", "ratelimit-policy"))
    return [(name, decision.headers[low]) for name, low in names if low in decision.headers]


def judge(decision: Optional[Decision]) -> Tuple[Optional[Refusal], Headers]:
    """The 429 if it was refused, or None and the headers to add. A request without a decision is not limited."""
    if decision is None:
        return None, []
    headers = limit_headers(decision)
    if decision:
        return None, headers
    if decision.retry_after is not None:
        headers.append(("Retry-After", str(math.ceil(decision.retry_after))))
    return Refusal("429 Too Many Requests", "refused", decision.retry_after, headers), []
