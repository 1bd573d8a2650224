"""How a call reaches a server: which address, when again, and when no more. No I/O and no clock.

``deliver`` is a generator: it yields what to do, ``Send`` or ``Pause``, and is sent what became of it. The
blocking client and that of asyncio both drive it.
"""

import dataclasses
import os
import ssl
from typing import Callable, Generator, List, Optional, Sequence, Union

from ._http1 import Address, Request, Response, parse_address
from ._wire import Call
from .errors import Unavailable


@dataclasses.dataclass
class Config:
    """Where servers are, and how long a client tries."""

    addresses: Sequence[str]
    timeout: float = 5.0  # for an answer, beyond what the call itself waits; and for tries after a failure
    connect_timeout: float = 2.0
    owner: str = ""
    host: str = ""
    purpose: str = ""
    tls: Optional[ssl.SSLContext] = None  # without a scheme, an address is then one of https
    token: Optional[str] = dataclasses.field(default=None, repr=False)  # None is that of the environment

    def __post_init__(self) -> None:
        if self.token is None:
            self.token = os.environ.get("GATEHOUSE_TOKEN", "")
        # The text is not shown: it is a secret, and most of it may be right.
        if not all("!" <= letter <= "~" for letter in self.token):
            raise ValueError("token has a character that no token has, want printable ASCII without blanks")


class Servers:
    """The addresses, and which of them answered last."""

    def __init__(self, addresses: Sequence[str], secure: bool = False) -> None:
        if not addresses:
            raise ValueError("no address of a server, want at least one")
        self._all: List[Address] = [parse_address(text, secure) for text in addresses]
        self._current = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> Address:
        return self._all[self._current]

    def pass_over(self, address: Address) -> None:
        """Go on to the next one, unless another call has done that already."""
        if self.current == address:
            self._current = (self._current + 1) % len(self._all)


@dataclasses.dataclass(frozen=True)
class Send:
    """Send a request, and have the answer by an instant; None is whenever it comes."""

    address: Address
    request: Request
    deadline: Optional[float]
    connect_deadline: float
    token: str = dataclasses.field(default="", repr=False)

    def encode(self) -> bytes:
        return self.request.encode(self.address, self.token)


@dataclasses.dataclass(frozen=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class Failure:
    """There was no answer. ``sent`` is whether the request may have arrived."""

    reason: str
    sent: bool


Step = Union[Send, Pause]
Outcome = Union[Response, Failure, None]

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


class Delivery:
    """What became of the tries of one call, for whoever must judge the answer."""

    sent = False  # a request may be under way, or have arrived
    maybe_done = False  # an earlier try may have taken effect
    sent_at = 0.0  # when the try that was answered was sent


def deliver(
    servers: Servers,
    call: Call,
    config: Config,
    clock: Callable[[], float],
    timeout: Optional[float] = None,
    told: Optional[Delivery] = None,
) -> Generator[Step, Outcome, Response]:
    """Send a call until it is answered, as often as is safe. ``timeout`` bounds all of it, its wait apart."""
    told = told or Delivery()
    began = clock()
    patience = config.timeout if timeout is None else timeout
    # When to give up. A call that waits has no such time while nothing fails: its maxwait bounds it.
    give_up = began + patience if call.max_wait == 0 else None
    each = patience / len(servers) if call.safe else patience  # so that one that hangs leaves time for others
    failures = 0
    while True:
        now = clock()
        told.sent, told.sent_at = True, now
        wait = call.max_wait
        left = None if wait is None else max(0.0, wait - (now - began))
        limit = each if give_up is None else max(0.001, min(each, give_up - now))
        deadline = None if left is None else now + left + limit
        address = servers.current
        connect = now + min(config.connect_timeout, limit)
        outcome = yield Send(address, call.request(now - began), deadline, connect, config.token or "")
        if isinstance(outcome, Response) and not _asks_for_another(outcome):
            return outcome
        failed_at = clock()
        if give_up is None or (call.max_wait != 0 and failed_at - now > patience):  # all was well until now
            give_up = failed_at + patience
            failures = 0
        if isinstance(outcome, Failure):
            told.maybe_done |= outcome.sent
            if outcome.sent and not call.safe:
                raise _unanswered(call, address, outcome)
        elif isinstance(outcome, Response) and not call.safe:
            return outcome
        servers.pass_over(address)
        failures += 1
        # Every address has a turn at once; only a round in vain is followed by a pause.
        pause = 0.0
        if failures % len(servers) == 0:
            rounds = failures // len(servers)
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(rounds - 1, 10))
        if failed_at + pause >= give_up:
            if isinstance(outcome, Response):
                return outcome
            assert isinstance(outcome, Failure)
            raise _unanswered(call, address, outcome)
        if pause:
            yield Pause(pause)


def _asks_for_another(response: Response) -> bool:
    """Whether the server could not decide: another one may, or the same one soon."""
    return response.status in (502, 503, 504)


def _unanswered(call: Call, address: Address, failure: Failure) -> Unavailable:
    text = f"{call.subject} was not answered by {address}: {failure.reason}"
    if failure.sent and not call.safe:
        text += "; it may have taken effect, and is not sent again"
    return Unavailable(text, maybe_done=failure.sent)
