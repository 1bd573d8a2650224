"""The blocking client, and what it is asked for: limits, holds, events, counters, budgets."""

import functools
import ssl
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import capacity
from ._calls import (
    BaseClient,
    LimitOptions,
    batch_call,
    delete_call,
    feedback_parameters,
    list_call,
    read_deleted,
    read_list,
)
from ._connection import Interrupt, Pool
from ._delivery import Config, Delivery, deliver
from ._held import GIVE_UP_TIMEOUT, BaseGuard, Held, may_be_granted
from ._http1 import Response
from ._term import Term
from ._wire import (
    Call,
    Decision,
    command,
    grant_call,
    grant_command,
    granted,
    milliseconds,
    read_decision,
    read_grant,
    read_json,
)
from .errors import GatehouseError, Refused
from .hold import Grant, Hold, Reservation

H = TypeVar("H", bound=Hold)
F = TypeVar("F", bound=Callable[..., Any])
Lost = Optional[Callable[[Hold], None]]


class Client(BaseClient):
    """A client of one or several servers. It is safe for concurrent use; make one for a process.

    ``addresses`` are tried in turn when one fails. ``timeout`` bounds each answer in seconds, beyond what a
    call itself waits, and how long a call is tried again after a failure. ``owner``, ``host`` and ``purpose``
    are shown to people who look at who holds and who waits. ``tls`` is for certificates that are not the
    system's: ``ssl.create_default_context(cafile=...)``. ``token`` says to servers with users who asks; without
    it, that of the environment variable GATEHOUSE_TOKEN does. All times are in seconds.
    """

    def __init__(
        self,
        *addresses: str,
        timeout: float = 5.0,
        connect_timeout: float = 2.0,
        owner: str = "",
        host: str = "",
        purpose: str = "",
        tls: Optional[ssl.SSLContext] = None,
        token: Optional[str] = None,
    ) -> None:
        super().__init__(Config(addresses, timeout, connect_timeout, owner, host, purpose, tls, token))
        self._pool = Pool(tls)

    def close(self) -> None:
        """Close connections that are idle. What is held stays held until it is released."""
        self._pool.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _send(
        self,
        call: Call,
        timeout: Optional[float] = None,
        told: Optional[Delivery] = None,
        interrupt: Optional[Interrupt] = None,
    ) -> Response:
        steps = deliver(self._servers, call, self._config, time.monotonic, timeout, told)
        return self._pool.run(steps, interrupt)

    # The wire as it is.

    def do(self, kind: str, name: str, op: str, *, timeout: Optional[float] = None, **parameters: Any) -> Decision:
        """One call, with the parameters of the HTTP API: times in milliseconds.

        A refusal is a decision; all else that is not granted raises a GatehouseError. A ``-`` in the name of a
        parameter is written as ``_``.
        """
        return read_decision(self._send(self._command(kind, name, op, parameters), timeout))

    def do_grant(self, body: Mapping[str, Any]) -> Decision:
        """Ask for a grant, with the body of the HTTP API. It is not renewed."""
        return read_grant(self._send(grant_command(body)))

    def call_grant(self, id: str, op: str, body: Optional[Mapping[str, Any]] = None) -> Decision:
        """``renew``, ``topup``, ``settle``, ``release`` or ``peek`` of a grant, with the body of the HTTP API."""
        return read_grant(self._send(grant_call(id, op, body or {})))

    def batch(self, commands: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
        """Up to 1,000 commands, each judged apart; the answers are as the HTTP API has them."""
        return read_list(self._send(batch_call(commands)), "answers")

    def stats(self, kind: str, name: str) -> Dict[str, Any]:
        """The figures of one name. Raises ``Missing``."""
        return read_json(self._send(command(kind, name, "stats", {})))

    def holders(self, kind: str, name: str) -> List[Dict[str, Any]]:
        """Who holds a semaphore or a lock, the eldest first, at most 1,000."""
        return read_list(self._send(list_call(kind, name, "holders")), "holders")

    def waiters(self, kind: str, name: str) -> List[Dict[str, Any]]:
        """Who waits at a name, by place in line, at most 1,000."""
        return read_list(self._send(list_call(kind, name, "waiters")), "waiters")

    def delete(self, kind: str, name: str) -> bool:
        """Forget a name, and say whether there was one. Who waits at it gets ``Deleted``."""
        return read_deleted(self._send(delete_call(kind, name)))

    # What is held.

    def semaphore(self, name: str, size: Optional[int] = None, *, cost: int = 1, **how: Any) -> "Guard[Hold]":
        """At most ``size`` at once. Without one the size in force stays.

        ``max_wait``: seconds in line, None without limit, 0 not at all. ``expires``: the term in seconds,
        which is renewed. ``on_lost``: called with the hold, from its thread. ``key``: of your own.
        """
        return self._guard("semaphore", name, {"size": size, "cost": cost}, **how)

    def lock(self, name: str, **how: Any) -> "Guard[Hold]":
        """One at a time. See ``semaphore``."""
        return self._guard("lock", name, {}, **how)

    def _guard(
        self,
        kind: str,
        name: str,
        parameters: Mapping[str, Any],
        *,
        max_wait: Optional[float] = None,
        expires: float = 60.0,
        on_lost: Lost = None,
        key: Optional[str] = None,
    ) -> "Guard[Hold]":
        held = self._held_name(kind, name, parameters, expires, key)
        return Guard(self, Hold, held, max_wait, on_lost)

    def grant(
        self,
        *want: Mapping[str, Any],
        max_wait: Optional[float] = None,
        expires: float = 60.0,
        on_lost: Lost = None,
        id: Optional[str] = None,
        overrun: Optional[str] = None,
        on_expiry: Optional[str] = None,
    ) -> "Guard[Grant]":
        """Several names at once, all or nothing, as ``{"lock": "repo"}, {"gcra": "api", "limits": "5/1s"}``."""
        held = self._held_grant(want, expires=expires, id=id, overrun=overrun, on_expiry=on_expiry)
        return Guard(self, Grant, held, max_wait, on_lost)

    def limiter(
        self,
        name: str,
        limit: Union[str, int, None] = None,
        per: Union[float, str, None] = None,
        *,
        kind: str = "gcra",
        burst: Optional[int] = None,
        zone: Optional[str] = None,
        mode: Optional[str] = None,
    ) -> "Limiter":
        """So many per interval: ``limiter("api", "5/1s,1000/day")``, or ``limiter("api", 5, per=1)``.

        Without a limit that in force counts, which somebody else has stated.
        """
        return Limiter(self, name, limit, per, kind=kind, burst=burst, zone=zone, mode=mode)

    def budget(self, name: str, limit: Union[str, int, None] = None, per: Union[float, str, None] = None,
               *, kind: str = "slidinglog", **how: Any) -> "Budget":  # fmt: skip
        """So much per interval of what is known only afterwards, such as the tokens of a model."""
        return Budget(self, name, limit, per, kind=kind, **how)

    def event(self, name: str) -> "Event":
        """Something that happens once."""
        return Event(self, name)

    def barrier(self, name: str, size: int = 2) -> "Barrier":
        """All are there."""
        return Barrier(self, name, size)

    def watchdog(self, name: str, expires: float = 60.0) -> "Watchdog":
        """Something that must not fall silent for ``expires`` seconds."""
        return Watchdog(self, name, expires)

    def counter(self, name: str) -> "Counter":
        """A number that many add to."""
        return Counter(self, name)

    def capacity(self, client_id: Optional[str] = None, **how: Any) -> "capacity.Capacity":
        """Leases on shares of a capacity, kept by one thread. Close it when done."""
        return capacity.Capacity(self, client_id, **how)


class Guard(BaseGuard[H]):
    """Something that can be held, by a block, a decorator, or ``acquire``. It may be used again and again,
    also by several threads at once: each time it is a hold of its own."""

    def __init__(
        self,
        client: Client,
        kind: Type[H],
        held: Callable[[Optional[float]], Held],
        max_wait: Optional[float],
        on_lost: Lost,
    ) -> None:
        super().__init__(client, kind, held, max_wait, on_lost)
        self._blocks = threading.local()

    def acquire(self, max_wait: Union[float, None, Tuple[()]] = ()) -> H:
        """Take it, and wait for it as long as the guard says, or ``max_wait``. Raises ``Refused``."""
        held = self._ask(max_wait)
        told = Delivery()
        try:
            response = self._client._send(held.acquire, told=told)
        except BaseException as error:
            if may_be_granted(held, error, told):
                self._give_up(held)
            raise
        hold = self._take(held, response, told)
        try:
            hold._begin()
        except BaseException:
            hold._tell_release()
            raise
        return hold

    def _give_up(self, held: Held) -> None:
        try:
            self._client._send(held.release(), GIVE_UP_TIMEOUT)
        except GatehouseError:
            pass

    def try_acquire(self) -> Optional[H]:
        """Take it if that is possible at once."""
        try:
            return self.acquire(0)
        except Refused:
            return None

    def __enter__(self) -> H:
        hold = self.acquire()
        self._stack().append(hold)
        return hold

    def __exit__(self, *error: Any) -> None:
        self._stack().pop().__exit__(*error)

    def _stack(self) -> List[H]:
        # Blocks of one thread end in the reverse order of their beginning.
        if not hasattr(self._blocks, "holds"):
            self._blocks.holds = []
        holds: List[H] = self._blocks.holds
        return holds

    def __call__(self, function: F) -> F:
        """As a decorator: each call of the function is a hold of its own."""

        @functools.wraps(function)
        def guarded(*args: Any, **named: Any) -> Any:
            with self.acquire():
                return function(*args, **named)

        return guarded  # type: ignore[return-value]


class Limiter:
    """So many per interval."""

    def __init__(self, client: Client, name: str, *limit: Any, **how: Any) -> None:
        self._client = client
        self._options = LimitOptions(name, *limit, **how)

    def _do(self, op: str, timeout: Optional[float] = None, limited: bool = True, **parameters: Any) -> Decision:
        given = {**(self._options.parameters if limited else {}), **parameters}
        return self._client.do(self._options.kind, self._options.name, op, timeout=timeout, **given)

    def acquire(self, cost: int = 1, max_wait: Optional[float] = None) -> Decision:
        """Take so many, and wait for them. Raises ``Refused`` if that is not within ``max_wait`` seconds.

        It is sent once: when a connection breaks nobody knows whether it was taken.
        """
        return granted(self._do("acquire", cost=cost, maxwait=milliseconds(max_wait)))

    def wait(self, n: int = 1, max_wait: Optional[float] = None) -> None:
        """As ``acquire``, for whoever only wants to wait."""
        self.acquire(n, max_wait)

    def try_acquire(self, cost: int = 1, *, timeout: Optional[float] = None) -> Decision:
        """Take so many if they are there. The decision is true if they were."""
        return self._do("acquire", timeout, cost=cost, maxwait=0)

    def peek(self, cost: int = 1) -> Decision:
        """What an acquire would be answered now."""
        return self._do("peek", cost=cost)

    def delay(self, cost: int = 1) -> Optional[float]:
        """How long it is until so many could be taken; None if that is never as things are."""
        return self._do("delay", cost=cost).delay

    def reserve(self, cost: int = 1, key: Optional[str] = None) -> float:
        """Take the earliest place, and say how long it is until then. Raises ``Refused``."""
        return granted(self._do("reserve", cost=cost, key=key)).delay or 0.0

    def cancel(self, key: str) -> None:
        """Give back the place that was reserved with this key. Raises ``Conflict`` if none lies ahead."""
        self._do("cancel", limited=False, key=key)

    def refund(self, cost: int = 1) -> Decision:
        """Give back what was taken."""
        return self._do("refund", limited=False, cost=cost)

    def charge(self, cost: int = 1) -> Decision:
        """Take what was spent already. It is sent once."""
        return self._do("charge", cost=cost)

    def reset(self) -> None:
        """Forget all that was taken and reserved."""
        self._do("reset", limited=False)

    def feedback(self, status: int, *, retry_after: Optional[float] = None, remaining: Optional[int] = None,
                 reset: Optional[float] = None) -> None:  # fmt: skip
        """Tell what a third party has answered. A 429 pauses the limiter for everybody. It is sent once."""
        self._do("feedback", **feedback_parameters(status, retry_after, remaining, reset))

    def __call__(self, function: F) -> F:
        """As a decorator: each call of the function takes one, and waits for it."""

        @functools.wraps(function)
        def limited(*args: Any, **named: Any) -> Any:
            self.acquire()
            return function(*args, **named)

        return limited  # type: ignore[return-value]


class Budget:
    """So much per interval of what is known only afterwards."""

    def __init__(self, client: Client, name: str, *limit: Any, **how: Any) -> None:
        self._client = client
        self._options = LimitOptions(name, *limit, **how)

    def reserve(
        self,
        estimate: int,
        *,
        max_wait: Optional[float] = None,
        expires: float = 60.0,
        clip: bool = False,
        overrun: Optional[str] = None,
        on_expiry: Optional[str] = None,
        on_lost: Lost = None,
    ) -> Guard[Reservation]:
        """Take an estimate before the call; ``settle`` says what it was, also several times, also more.

        With ``clip`` an estimate above the limit is cut to it. ``overrun`` is ``debt`` or ``cap``, and
        ``on_expiry`` is ``estimate``, ``last`` or ``zero``: what counts if this program dies.
        """
        want = [self._options.estimate(estimate, clip)]
        held = self._client._held_grant(want, expires=expires, overrun=overrun, on_expiry=on_expiry)
        return Guard(self._client, Reservation, held, max_wait, on_lost)


class _Named:
    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name


class Event(_Named):
    """Something that happens once; who waits for it is told, also later."""

    def send(self, message: str = "") -> None:
        """Say that it has happened. Raises ``Conflict`` if that was said before. It is sent once."""
        self._client.do("event", self.name, "send", message=message)

    def wait(self, max_wait: Optional[float] = None) -> str:
        """Wait for it, and return its message. Raises ``Refused``."""
        return granted(self._client.do("event", self.name, "wait", maxwait=milliseconds(max_wait))).message


class Barrier(_Named):
    """All are there."""

    def __init__(self, client: Client, name: str, size: int) -> None:
        super().__init__(client, name)
        self.size = size

    def wait(self, max_wait: Optional[float] = None) -> None:
        """Come, and wait for the others. Raises ``Refused``, or ``Conflict`` if it has opened already."""
        wait = milliseconds(max_wait)
        granted(self._client.do("barrier", self.name, "wait", size=self.size, maxwait=wait))


class Counter(_Named):
    """A number that many add to."""

    def count(self, amount: int = 1) -> int:
        """Add, and return the new value. It is sent once, so that nothing is counted twice."""
        return self._client.do("counter", self.name, "count", amount=amount).value or 0

    def value(self) -> int:
        """The value."""
        return self._client.do("counter", self.name, "value").value or 0

    def reset(self, value: int = 0) -> None:
        """Set the value."""
        self._client.do("counter", self.name, "reset", value=value)


class Watchdog(_Named):
    """Something that must not fall silent. As a block it is kicked by a thread until the block ends well.

    A block that ends by an error leaves it alone, so that it fires; one that ends well deletes it, and who
    waits gets ``Deleted`` in place of an alarm.
    """

    def __init__(self, client: Client, name: str, expires: float) -> None:
        super().__init__(client, name)
        self.expires = expires
        self._interrupt: Optional[Interrupt] = None
        self._thread: Optional[threading.Thread] = None

    def kick(self, expires: Optional[float] = None, timeout: Optional[float] = None) -> None:
        """Say that all is well, for ``expires`` seconds."""
        term = milliseconds(self.expires if expires is None else expires)
        self._client.do("watchdog", self.name, "kick", expires=term, timeout=timeout)

    def wait(self, max_wait: Optional[float] = None) -> None:
        """Wait until it has fallen silent. Raises ``Refused`` if it has not within ``max_wait``."""
        granted(self._client.do("watchdog", self.name, "wait", maxwait=milliseconds(max_wait)))

    def __enter__(self) -> "Watchdog":
        if self._thread is not None:
            raise RuntimeError(f"watchdog {self.name!r} is kicked by a block already")
        self.kick()
        self._interrupt = Interrupt()
        arguments = (self._interrupt,)
        self._thread = threading.Thread(target=self._keep, args=arguments, name=f"kick {self.name}", daemon=True)
        self._thread.start()
        return self

    def _keep(self, interrupt: Interrupt) -> None:
        term = Term(time.monotonic(), self.expires)
        pause = self.expires / 3
        kick = command("watchdog", self.name, "kick", {"expires": milliseconds(self.expires)})
        while not interrupt.stopped.wait(pause):
            pause = self.expires / 3
            try:
                self._client._send(kick, term.patience, interrupt=interrupt)
            except InterruptedError:
                return
            except GatehouseError:
                pause = term.pause

    def __exit__(self, kind: Optional[Type[BaseException]], *_: Any) -> None:
        assert self._interrupt is not None and self._thread is not None
        self._interrupt.stop()
        self._thread.join()
        self._thread = None
        if kind is None:
            self._client.delete("watchdog", self.name)


__all__ = [
    "Barrier", "Budget", "Client", "Counter", "Event", "Guard", "Limiter", "Watchdog",
]  # fmt: skip
