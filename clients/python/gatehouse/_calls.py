"""What the blocking client and that for asyncio ask for, without how it is sent. No I/O."""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from ._delivery import Config, Servers
from ._held import Held, HeldGrant, HeldName
from ._http1 import Response
from ._wire import (
    LIMITERS,
    Call,
    command,
    grant_body,
    grant_command,
    limit_parameters,
    milliseconds,
    name_path,
    new_id,
    owner_parameters,
    read_json,
)


class BaseClient:
    """Where the servers are, in whose name they are asked, and the calls of a client."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._servers = Servers(config.addresses or ("localhost:5505",), config.tls is not None)
        self._owner = owner_parameters(config.owner, config.host, config.purpose)

    def _command(self, kind: str, name: str, op: str, parameters: Mapping[str, Any]) -> Call:
        given = {key.replace("_", "-"): value for key, value in parameters.items()}
        if op in ("acquire", "wait"):
            given = {**self._owner, **given}
        return command(kind, name, op, given)

    def _held_name(
        self, kind: str, name: str, parameters: Mapping[str, Any], expires: float, key: Optional[str]
    ) -> Callable[[Optional[float]], Held]:
        """What makes each hold of a semaphore or a lock, by how long it may wait."""
        given = {**self._owner, **parameters, "expires": milliseconds(expires), "key": key}
        given = {name: value for name, value in given.items() if value is not None}
        return lambda wait: HeldName(kind, name, {**given, "maxwait": milliseconds(wait)})

    def _held_grant(self, want: Sequence[Mapping[str, Any]], **how: Any) -> Callable[[Optional[float]], Held]:
        """What makes each hold of several names, by how long it may wait."""
        owner = {"name" if key == "owner" else key: value for key, value in self._owner.items()}

        def held(wait: Optional[float]) -> Held:
            given: Dict[str, Any] = {**how, "id": how.get("id") or new_id()}
            body = grant_body(want, max_wait=wait, owner=owner, **given)
            return HeldGrant(grant_command(body), given["id"], how.get("id") is None)

        return held


def batch_call(commands: Sequence[Mapping[str, Any]]) -> Call:
    """Several commands in one request."""
    return Call("batch", "POST", "/v1/batch", {"commands": [dict(c) for c in commands]}, as_json=True)


def list_call(kind: str, name: str, what: str) -> Call:
    """The ``holders`` or ``waiters`` of a name."""
    return command(kind, name, what, {"limit": 1000})


def read_list(response: Response, what: str) -> List[Dict[str, Any]]:
    """The list that is one member of an answer."""
    return list(read_json(response)[what])


def delete_call(kind: str, name: str) -> Call:
    """The removal of a name."""
    return Call(f"{kind}/{name}: delete", "DELETE", name_path(kind, name), {})


def read_deleted(response: Response) -> bool:
    """Whether there was a name to remove."""
    if response.status == 404:
        return False
    read_json(response)
    return True


def feedback_parameters(
    status: int, retry_after: Optional[float], remaining: Optional[int], reset: Optional[float]
) -> Dict[str, Any]:
    """What a third party has answered, without what it did not say."""
    given: Dict[str, Any] = {"status": status}
    if retry_after is not None:
        given["retry_after"] = milliseconds(retry_after)
    if reset is not None:
        given.update(reset=milliseconds(reset), remaining=remaining)
    return given


class LimitOptions:
    """The parts of a limit, checked once."""

    def __init__(self, name: str, limit: Union[str, int, None] = None, per: Union[float, str, None] = None, *,
                 kind: str, burst: Optional[int] = None, zone: Optional[str] = None,
                 mode: Optional[str] = None) -> None:  # fmt: skip
        if kind not in LIMITERS:
            raise ValueError(f"{kind!r} is no kind of limiter, want one of {', '.join(LIMITERS)}")
        self.kind, self.name = kind, name
        self.parameters: Dict[str, Any] = dict(limit_parameters(limit, per, burst, zone))
        if mode is not None:
            self.parameters["mode"] = mode

    def estimate(self, cost: int, clip: bool) -> Dict[str, Any]:
        """The member of a grant that takes an estimate, which ``clip`` cuts to the limit."""
        member = {self.kind: self.name, "cost": cost, **self.parameters}
        if clip:
            member["fit"] = "clip"
        return member
