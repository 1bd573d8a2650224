"""Calls and what they are answered: requests as the server reads them, decisions, and errors. No I/O."""

import dataclasses
import json
import math
import urllib.parse
import uuid
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._http1 import Request, Response
from .errors import GatehouseError, Refused, Unavailable, error_for

LIMITERS = ("tokenbucket", "gcra", "fixedwindow", "slidingwindow", "slidinglog", "pace")
HELD = ("semaphore", "lock")

# What may be sent twice without doing it twice; of what is held it takes a key besides.
_REPEATABLE = {
    "acquire", "renew", "release", "peek", "delay", "stats", "value", "holders", "waiters", "kick",
}  # fmt: skip

Parameter = Union[str, int, bool]


def milliseconds(seconds: Optional[float]) -> int:
    """A length of time as the server takes it; None is without limit."""
    if seconds is None or seconds == math.inf:
        return -1
    if not seconds >= 0:
        raise ValueError(f"a time of {seconds} s: want 0 or more")
    return math.ceil(seconds * 1000)


def seconds_of(value: Any) -> Optional[float]:
    """A length of time as the server tells it; None where only another request can change it."""
    return None if value is None or value < 0 else value / 1000


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: what is asked, and what may be done when there is no answer."""

    subject: str  # for sentences
    method: str
    path: str
    parameters: Mapping[str, Any]
    waits: bool = False  # it has a maxwait
    safe: bool = False  # it may be sent again
    as_json: bool = False

    @property
    def max_wait(self) -> Optional[float]:
        """How long the server may take its time, in seconds; None is without limit."""
        if not self.waits:
            return 0.0
        given = int(self.parameters.get("maxwait", -1))
        return None if given < 0 else given / 1000

    def request(self, elapsed: float) -> Request:
        """The request, with as much of its maxwait as is left."""
        parameters = dict(self.parameters)
        wait = self.max_wait
        if self.waits and wait is not None:
            parameters["maxwait"] = max(0, math.ceil((wait - elapsed) * 1000))
        if self.as_json:
            body = json.dumps(parameters).encode() if self.method != "GET" else b""
            return Request(self.method, self.path, body, "application/json")
        query = urllib.parse.urlencode({name: _text(value) for name, value in parameters.items()})
        if self.method == "POST":
            return Request("POST", self.path, query.encode("ascii"))
        return Request(self.method, self.path + ("?" + query if query else ""))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def new_id() -> str:
    """An id that nobody else has."""
    return str(uuid.uuid4())


def name_path(kind: str, name: str, *rest: str) -> str:
    """The path of a name."""
    return "/".join(["/v1", kind, urllib.parse.quote(name, safe=""), *rest])


def command(kind: str, name: str, op: str, parameters: Mapping[str, Any]) -> Call:
    """A call on one name, with the parameters that it has on the wire: times in milliseconds."""
    given = {key: value for key, value in parameters.items() if value is not None}
    given["details"] = True
    waits = op == "wait" or (op == "acquire" and "maxwait" not in given) or given.get("maxwait", 0) != 0
    if kind in HELD:
        if op == "acquire":
            given.setdefault("key", new_id())  # so that it can be asked for again
        safe = op in _REPEATABLE
    elif kind in LIMITERS:
        safe = op in ("peek", "delay", "stats")
    elif kind == "event" or kind == "watchdog":
        safe = op in ("wait", "kick", "stats")
    else:
        safe = op in ("value", "stats")
    method = "GET" if op in ("stats", "holders", "waiters") else "POST"
    if op in ("stats", "holders", "waiters"):
        del given["details"]
    return Call(f"{kind}/{name}: {op}", method, name_path(kind, name, op), given, waits, safe)


def grant_command(body: Mapping[str, Any]) -> Call:
    """An acquire of a grant. With an id it may be repeated."""
    waits = body.get("maxwait", -1) != 0
    return Call("grant", "POST", "/v1/grants", body, waits, "id" in body, as_json=True)


def grant_call(id: str, op: str, body: Mapping[str, Any]) -> Call:
    """A call on a grant that there is."""
    path = f"/v1/grants/{urllib.parse.quote(id, safe='')}"
    if op == "peek":
        return Call(f"grant/{id}: peek", "GET", path, {}, safe=True, as_json=True)
    # A top-up that is sent twice is taken twice; what is settled is the whole figure.
    waits = op == "topup" and body.get("maxwait", 0) != 0
    safe = op in ("renew", "settle", "release")
    return Call(f"grant/{id}: {op}", "POST", f"{path}/{op}", body, waits, safe, as_json=True)


@dataclasses.dataclass(frozen=True)
class Decision:
    """What was decided. It is true if it was granted. Times are in seconds."""

    granted: bool
    limit: Optional[int] = None
    remaining: Optional[int] = None
    retry_after: Optional[float] = None  # None where only another request can change it
    reset_after: Optional[float] = None
    delay: Optional[float] = None
    key: str = ""
    fence: int = 0
    expires_after: Optional[float] = None
    value: Optional[int] = None
    message: str = ""
    detail: str = ""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return self.granted


def read_json(response: Response) -> Dict[str, Any]:
    """The object that an answer holds, if it has been granted."""
    try:
        found = json.loads(response.body) if response.body else {}
    except ValueError:
        found = None
    if response.status < 300 and isinstance(found, dict):
        return found
    raise read_error(response, found)


def read_error(response: Response, found: Any) -> GatehouseError:
    """The error that an answer tells."""
    if not isinstance(found, dict) or "code" not in found:
        text = response.body[:200].decode("utf-8", "replace")
        detail = f"the answer has status {response.status} and says {text!r}"
        if response.status in (502, 503, 504):  # of a proxy, perhaps
            return Unavailable(detail, status=response.status, maybe_done=True)
        return GatehouseError(detail, code="internal", status=response.status)
    after = seconds_of(found.get("retry_after_ms"))
    return error_for(found["code"], found.get("detail", ""), response.status, after)


def read_decision(response: Response) -> Decision:
    """The decision that an answer tells. A refusal is one; all else that is not granted is an error."""
    found = read_json(response)
    outcome = found.get("outcome")
    if outcome not in ("granted", "refused"):
        raise error_for(str(outcome), found.get("detail", ""), response.status, None)
    return Decision(
        granted=outcome == "granted",
        limit=found.get("limit"),
        remaining=found.get("remaining"),
        retry_after=seconds_of(found.get("retry_after")),
        reset_after=seconds_of(found.get("reset_after")),
        delay=seconds_of(found.get("delay")),
        key=found.get("key", ""),
        fence=found.get("fence", 0),
        expires_after=seconds_of(found.get("expires_after")),
        value=found.get("value"),
        message=found.get("message", ""),
        detail=found.get("detail", ""),
        headers=response.headers,
        raw=found,
    )


def read_grant(response: Response) -> Decision:
    """The decision over several names that an answer tells; its members are in ``raw["want"]``."""
    if response.status == 429:
        found = json.loads(response.body)
        after = seconds_of(found.get("retry_after_ms"))
        return Decision(
            False, retry_after=after, detail=found.get("detail", ""), headers=response.headers, raw=found
        )
    found = read_json(response)
    return Decision(
        granted=True,
        key=found.get("id", ""),
        fence=found.get("fence", 0),
        expires_after=seconds_of(found.get("expires_in")),
        headers=response.headers,
        raw=found,
    )


def granted(decision: Decision) -> Decision:
    """The decision if it was granted. Raises ``Refused``."""
    if not decision:
        raise Refused(decision.detail, retry_after=decision.retry_after)
    return decision


def limit_parameters(
    limit: Union[str, int, None], per: Union[float, str, None], burst: Optional[int], zone: Optional[str]
) -> Dict[str, Parameter]:
    """A limit as parameters: ``"10/1s,200/1m"``, or a number and how many seconds its interval has."""
    found: Dict[str, Parameter] = {}
    if isinstance(limit, str):
        if per is not None or burst is not None:
            raise ValueError(f"a limit of {limit!r} has its intervals in itself, want neither per nor burst")
        found["limits"] = limit
    elif limit is not None:
        found["size"] = limit
        if per is not None:
            found["interval"] = per if isinstance(per, str) else milliseconds(per)
        if burst is not None:
            found["burst"] = burst
    elif per is not None or burst is not None:
        raise ValueError("per and burst are parts of a limit, want its number too")
    if zone is not None:
        found["zone"] = zone
    return found


def grant_body(
    want: Sequence[Mapping[str, Any]],
    *,
    max_wait: Optional[float] = None,
    expires: Optional[float] = None,
    id: Optional[str] = None,
    owner: Optional[Mapping[str, str]] = None,
    overrun: Optional[str] = None,
    on_expiry: Optional[str] = None,
) -> Dict[str, Any]:
    """The body of an acquire of a grant."""
    body: Dict[str, Any] = {"want": [dict(member) for member in want]}
    if max_wait is not None:
        body["maxwait"] = milliseconds(max_wait)
    if expires is not None:
        body["expires"] = milliseconds(expires)
    others = (("id", id), ("owner", owner), ("overrun", overrun), ("on-expiry", on_expiry))
    body.update({name: value for name, value in others if value})
    return body


def owner_parameters(owner: str, host: str, purpose: str) -> Dict[str, str]:
    """Who asks, as parameters, without what is not known."""
    found = {"owner": owner, "host": host, "purpose": purpose}
    return {name: value for name, value in found.items() if value}


def names_of(want: Sequence[Mapping[str, Any]]) -> List[str]:
    """The names of members, as a settle has them."""
    kinds = (*LIMITERS, *HELD)
    return [f"{kind}/{member[kind]}" for member in want for kind in kinds if kind in member]
