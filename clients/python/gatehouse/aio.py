"""The client for asyncio. It has what the blocking one has, to be awaited.

    gh = gatehouse.aio.Client("http://localhost:5505")
    async with gh.semaphore("gpu", 4) as hold:
        await train(hold)

If a hold is lost, the task whose block it is in is cancelled, and the block raises ``HoldLost``. A task that
is cancelled while it waits closes its connection, and the server frees its place in line.
"""

import asyncio
import contextlib
import functools
import ssl
from typing import (
    Any,
    Awaitable,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from . import _streams
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
from ._delivery import Config, Delivery, deliver
from ._held import (
    GIVE_UP_TIMEOUT,
    NO_RENEWAL,
    NOT_HELD,
    RELEASE_TIMEOUT,
    BaseGrant,
    BaseGuard,
    BaseHold,
    BaseReservation,
    Held,
    may_be_granted,
)
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
from .aio_capacity import Capacity, Resource
from .errors import GatehouseError, HoldLost, Refused, Unavailable

H = TypeVar("H", bound="Hold")
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
Lost = Optional[Callable[["Hold"], None]]


def _clock() -> float:
    return asyncio.get_running_loop().time()


class Hold(BaseHold):
    """Something that is held, renewed by a task of its own. See ``gatehouse.Hold``.

    As a block it cancels the block's task when it is lost, and raises ``HoldLost`` in its place.
    """

    def __init__(self, client: "Client", held: Held, decision: Decision, sent_at: float, on_lost: Lost) -> None:
        super().__init__(held, decision, sent_at, _clock, contextlib.nullcontext())  # one thread needs no lock
        self._client, self._on_lost = client, on_lost
        self._keeper: Optional["asyncio.Task[None]"] = None
        self._expiry: Optional[asyncio.TimerHandle] = None
        self._block: Optional["asyncio.Task[Any]"] = None
        self._cancelled_block = False
        self._gone = asyncio.Event()

    async def wait_lost(self) -> None:
        """Wait until it is lost. It does not return when it is released."""
        await self._gone.wait()

    async def _begin(self) -> None:
        if self._term.lasts is None:
            return
        if _clock() >= self._term.renew_at:
            # The answer took so long, perhaps in line, that its term may be over: nobody knows when it began.
            try:
                await self._renew_once(None)
            except NOT_HELD as error:
                raise self._lost_before_use(error) from None
        self._watch()
        self._keeper = asyncio.ensure_future(self._keep())

    def _watch(self) -> None:
        """Know of the end at its instant, whatever a renewal is waiting for just then."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_at(self._term.ends, self._expire)

    def _expire(self) -> None:
        if _clock() < self._term.ends:  # a timer may come early, by the loop's resolution
            self._watch()
        else:
            self._lose(NO_RENEWAL)

    async def _keep(self) -> None:
        """The task: renew, until it is released or lost."""
        due = self._term.renew_at
        while True:
            await asyncio.sleep(self._term.pause_until(due, _clock()))
            now = _clock()
            if now >= self._term.ends:
                return self._lose(NO_RENEWAL)
            if now < due:
                continue
            try:
                await self._renew_once(self._term.patience_at(now))
                if self._reason is not None:
                    return  # it came too late
                self._watch()
                due = self._term.renew_at
            except NOT_HELD as error:
                return self._lose(error.detail)
            except GatehouseError:  # one missed beat does no harm
                due = _clock() + self._term.pause

    async def _renew_once(self, patience: Optional[float]) -> None:
        told = Delivery()
        self._note_renewal(await self._client._send(self._held.renew(), patience, told), told)

    def _lose(self, reason: str) -> None:
        if not self._note_loss(reason):
            return
        self._gone.set()
        if self._block is not None and not self._block.done():
            self._cancelled_block = True
            self._block.cancel()
        if self._on_lost is not None:
            self._on_lost(self)

    async def release(self, costs: Optional[Mapping[str, int]] = None) -> bool:
        """Give it back, and say whether a server was told: if none answers it ends by itself.

        Raises ``HoldLost`` if it was lost. To release twice does no harm.
        """
        again, over = self._note_release()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        if again:
            return True
        if over:
            await self._tell_release(costs)
            raise self._error()
        return await self._tell_release(costs, raises=True)

    async def _tell_release(self, costs: Optional[Mapping[str, int]], raises: bool = False) -> bool:
        told = Delivery()
        timeout = RELEASE_TIMEOUT if raises else self._term.patience
        try:
            self._held.read(await self._client._send(self._held.release(costs), timeout, told))
        except (Unavailable, *NOT_HELD) as error:
            return self._release_failed(error, told, raises)
        return True

    async def __aenter__(self: H) -> H:
        self._block = asyncio.current_task()
        if self._reason is not None:  # lost before the block began
            raise self._error()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _: Any) -> None:
        block, self._block = self._block, None
        others = False
        if self._cancelled_block:
            others = await _take_back_cancel(block, error)
        try:
            await self.release(self._final_costs())
        except HoldLost as lost:
            if others:  # somebody else has cancelled the task too, and waits for its end
                raise asyncio.CancelledError() from lost
            if error is None or isinstance(error, (HoldLost, asyncio.CancelledError)):
                if isinstance(error, asyncio.CancelledError) and not self._cancelled_block:
                    return
                raise
            if isinstance(error, Exception):
                raise lost from error


async def _take_back_cancel(task: Optional["asyncio.Task[Any]"], error: Optional[BaseException]) -> bool:
    """Take back the cancellation of a lost hold, and say whether there is another one."""
    if not isinstance(error, asyncio.CancelledError):
        try:
            await asyncio.sleep(0)  # where it is delivered if it was not yet
        except asyncio.CancelledError:
            pass
    if task is not None and hasattr(task, "uncancel"):  # from 3.11 on
        return bool(task.uncancel() > 0)
    return False


class Grant(BaseGrant, Hold):
    """A grant over several names. See ``gatehouse.Grant``."""

    async def settle(self, costs: Any) -> Decision:
        """Say what each name has cost so far. The last figure counts."""
        return await self._call("settle", costs)

    async def top_up(self, costs: Any, max_wait: Optional[float] = 0) -> Decision:
        """Take more of its limiters, all or nothing. Raises ``Refused``. It is never sent twice."""
        return granted(await self._call("topup", {**costs, "maxwait": milliseconds(max_wait)}))

    async def _call(self, op: str, body: Mapping[str, Any]) -> Decision:
        return read_grant(await self._client._send(self._grant_call(op, body)))


class Reservation(BaseReservation, Grant):
    """Some of a budget. See ``gatehouse.Reservation``."""

    async def settle(self, costs: Any) -> Decision:
        """Say what was spent so far, all together."""
        self._spent = int(costs)
        return await super().settle(self._cost(costs))

    async def top_up(self, costs: Any, max_wait: Optional[float] = 0) -> Decision:
        """Take so much more before it is spent. Raises ``Refused``."""
        return await super().top_up(self._cost(costs), max_wait)


class Guard(BaseGuard[H]):
    """Something that can be held, by a block, a decorator, or ``acquire``; also by many tasks at once."""

    def __init__(self, client: "Client", kind: Type[H], held: Callable[[Optional[float]], Held],
                 max_wait: Optional[float], on_lost: Lost) -> None:  # fmt: skip
        super().__init__(client, kind, held, max_wait, on_lost)
        self._blocks: Dict[Any, List[H]] = {}

    async def acquire(self, max_wait: Union[float, None, Tuple[()]] = ()) -> H:
        """Take it, and wait for it as long as the guard says, or ``max_wait``. Raises ``Refused``."""
        held = self._ask(max_wait)
        told = Delivery()
        try:
            response = await self._client._send(held.acquire, told=told)
        except BaseException as error:
            if may_be_granted(held, error, told):
                await self._give_up(held)
            raise
        hold = self._take(held, response, told)
        try:
            await hold._begin()
        except BaseException:
            await hold._tell_release(None)
            raise
        return hold

    async def _give_up(self, held: Held) -> None:
        try:
            await self._client._send(held.release(), GIVE_UP_TIMEOUT)
        except GatehouseError:
            pass

    async def try_acquire(self) -> Optional[H]:
        """Take it if that is possible at once."""
        try:
            return await self.acquire(0)
        except Refused:
            return None

    async def __aenter__(self) -> H:
        hold = await self.acquire()
        await hold.__aenter__()
        self._blocks.setdefault(asyncio.current_task(), []).append(hold)
        return hold

    async def __aexit__(self, *error: Any) -> None:
        task = asyncio.current_task()
        holds = self._blocks[task]
        hold = holds.pop()
        if not holds:
            del self._blocks[task]
        await hold.__aexit__(*error)

    def __call__(self, function: F) -> F:
        """As a decorator: each call of the function is a hold of its own."""

        @functools.wraps(function)
        async def guarded(*args: Any, **named: Any) -> Any:
            async with await self.acquire():
                return await function(*args, **named)

        return guarded  # type: ignore[return-value]


class Client(BaseClient):
    """A client of one or several servers, for one event loop at a time. See ``gatehouse.Client``."""

    def __init__(self, *addresses: str, timeout: float = 5.0, connect_timeout: float = 2.0, owner: str = "",
                 host: str = "", purpose: str = "", tls: Optional[ssl.SSLContext] = None,
                 token: Optional[str] = None) -> None:  # fmt: skip
        super().__init__(Config(addresses, timeout, connect_timeout, owner, host, purpose, tls, token))
        self._pool = _streams.Pool(tls)

    async def close(self) -> None:
        """Close connections that are idle."""
        await self._pool.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _send(
        self, call: Call, timeout: Optional[float] = None, told: Optional[Delivery] = None
    ) -> Response:
        return await self._pool.run(deliver(self._servers, call, self._config, _clock, timeout, told))

    async def do(
        self, kind: str, name: str, op: str, *, timeout: Optional[float] = None, **parameters: Any
    ) -> Decision:
        """One call, with the parameters of the HTTP API: times in milliseconds."""
        return read_decision(await self._send(self._command(kind, name, op, parameters), timeout))

    async def do_grant(self, body: Mapping[str, Any]) -> Decision:
        """Ask for a grant, with the body of the HTTP API. It is not renewed."""
        return read_grant(await self._send(grant_command(body)))

    async def call_grant(self, id: str, op: str, body: Optional[Mapping[str, Any]] = None) -> Decision:
        """``renew``, ``topup``, ``settle``, ``release`` or ``peek`` of a grant."""
        return read_grant(await self._send(grant_call(id, op, body or {})))

    async def batch(self, commands: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
        """Up to 1,000 commands, each judged apart."""
        return read_list(await self._send(batch_call(commands)), "answers")

    async def stats(self, kind: str, name: str) -> Dict[str, Any]:
        """The figures of one name. Raises ``Missing``."""
        return read_json(await self._send(command(kind, name, "stats", {})))

    async def holders(self, kind: str, name: str) -> List[Dict[str, Any]]:
        """Who holds a semaphore or a lock, the eldest first, at most 1,000."""
        return read_list(await self._send(list_call(kind, name, "holders")), "holders")

    async def waiters(self, kind: str, name: str) -> List[Dict[str, Any]]:
        """Who waits at a name, by place in line, at most 1,000."""
        return read_list(await self._send(list_call(kind, name, "waiters")), "waiters")

    async def delete(self, kind: str, name: str) -> bool:
        """Forget a name, and say whether there was one."""
        return read_deleted(await self._send(delete_call(kind, name)))

    def semaphore(self, name: str, size: Optional[int] = None, *, cost: int = 1, **how: Any) -> Guard[Hold]:
        """At most ``size`` at once. ``max_wait``, ``expires``, ``on_lost`` and ``key`` as in the blocking one."""
        return self._guard("semaphore", name, {"size": size, "cost": cost}, **how)

    def lock(self, name: str, **how: Any) -> Guard[Hold]:
        """One at a time."""
        return self._guard("lock", name, {}, **how)

    def _guard(self, kind: str, name: str, parameters: Mapping[str, Any], *, max_wait: Optional[float] = None,
               expires: float = 60.0, on_lost: Lost = None, key: Optional[str] = None) -> Guard[Hold]:  # fmt: skip
        held = self._held_name(kind, name, parameters, expires, key)
        return Guard(self, Hold, held, max_wait, on_lost)

    def grant(self, *want: Mapping[str, Any], max_wait: Optional[float] = None, expires: float = 60.0,
              on_lost: Lost = None, id: Optional[str] = None, overrun: Optional[str] = None,
              on_expiry: Optional[str] = None) -> Guard[Grant]:  # fmt: skip
        """Several names at once, all or nothing."""
        held = self._held_grant(want, expires=expires, id=id, overrun=overrun, on_expiry=on_expiry)
        return Guard(self, Grant, held, max_wait, on_lost)

    def limiter(self, name: str, *limit: Any, kind: str = "gcra", **how: Any) -> "Limiter":
        """So many per interval: ``limiter("api", "5/1s")`` or ``limiter("api", 5, 1)``."""
        return Limiter(self, name, *limit, kind=kind, **how)

    def budget(self, name: str, *limit: Any, kind: str = "slidinglog", **how: Any) -> "Budget":
        """So much per interval of what is known only afterwards."""
        return Budget(self, name, *limit, kind=kind, **how)

    def event(self, name: str) -> "Event":
        """Something that happens once."""
        return Event(self, name)

    def barrier(self, name: str, size: int = 2) -> "Barrier":
        """All are there."""
        return Barrier(self, name, size)

    def watchdog(self, name: str, expires: float = 60.0) -> "Watchdog":
        """Something that must not fall silent."""
        return Watchdog(self, name, expires)

    def counter(self, name: str) -> "Counter":
        """A number that many add to."""
        return Counter(self, name)

    def capacity(self, client_id: Optional[str] = None, **how: Any) -> Capacity:
        """Leases on shares of a capacity, kept by one task. Close it when done."""
        return Capacity(self, client_id, **how)


class Limiter:
    """So many per interval. See ``gatehouse.Limiter``."""

    def __init__(self, client: Client, name: str, *limit: Any, **how: Any) -> None:
        self._client, self._options = client, LimitOptions(name, *limit, **how)

    async def _do(self, op: str, timeout: Optional[float] = None, limited: bool = True, **given: Any) -> Decision:
        parameters = {**(self._options.parameters if limited else {}), **given}
        return await self._client.do(self._options.kind, self._options.name, op, timeout=timeout, **parameters)

    async def acquire(self, cost: int = 1, max_wait: Optional[float] = None) -> Decision:
        """Take so many, and wait for them. Raises ``Refused``. It is sent once."""
        return granted(await self._do("acquire", cost=cost, maxwait=milliseconds(max_wait)))

    async def wait(self, n: int = 1, max_wait: Optional[float] = None) -> None:
        """As ``acquire``, for whoever only wants to wait."""
        await self.acquire(n, max_wait)

    async def try_acquire(self, cost: int = 1, *, timeout: Optional[float] = None) -> Decision:
        """Take so many if they are there. The decision is true if they were."""
        return await self._do("acquire", timeout, cost=cost, maxwait=0)

    async def peek(self, cost: int = 1) -> Decision:
        """What an acquire would be answered now."""
        return await self._do("peek", cost=cost)

    async def delay(self, cost: int = 1) -> Optional[float]:
        """How long it is until so many could be taken."""
        return (await self._do("delay", cost=cost)).delay

    async def reserve(self, cost: int = 1, key: Optional[str] = None) -> float:
        """Take the earliest place, and say how long it is until then. Raises ``Refused``."""
        return granted(await self._do("reserve", cost=cost, key=key)).delay or 0.0

    async def cancel(self, key: str) -> None:
        """Give back the place that was reserved with this key."""
        await self._do("cancel", limited=False, key=key)

    async def refund(self, cost: int = 1) -> Decision:
        """Give back what was taken."""
        return await self._do("refund", limited=False, cost=cost)

    async def charge(self, cost: int = 1) -> Decision:
        """Take what was spent already. It is sent once."""
        return await self._do("charge", cost=cost)

    async def reset(self) -> None:
        """Forget all that was taken and reserved."""
        await self._do("reset", limited=False)

    async def feedback(self, status: int, *, retry_after: Optional[float] = None,
                       remaining: Optional[int] = None, reset: Optional[float] = None) -> None:  # fmt: skip
        """Tell what a third party has answered. A 429 pauses the limiter for everybody."""
        await self._do("feedback", **feedback_parameters(status, retry_after, remaining, reset))

    def __call__(self, function: F) -> F:
        """As a decorator: each call of the function takes one, and waits for it."""

        @functools.wraps(function)
        async def limited(*args: Any, **named: Any) -> Any:
            await self.acquire()
            return await function(*args, **named)

        return limited  # type: ignore[return-value]


class Budget:
    """So much per interval of what is known only afterwards. See ``gatehouse.Budget``."""

    def __init__(self, client: Client, name: str, *limit: Any, **how: Any) -> None:
        self._client, self._options = client, LimitOptions(name, *limit, **how)

    def reserve(self, estimate: int, *, max_wait: Optional[float] = None, expires: float = 60.0,
                clip: bool = False, overrun: Optional[str] = None, on_expiry: Optional[str] = None,
                on_lost: Lost = None) -> Guard[Reservation]:  # fmt: skip
        """Take an estimate before the call; ``settle`` says what it was."""
        want = [self._options.estimate(estimate, clip)]
        held = self._client._held_grant(want, expires=expires, overrun=overrun, on_expiry=on_expiry)
        return Guard(self._client, Reservation, held, max_wait, on_lost)


class _Named:
    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name


class Event(_Named):
    """Something that happens once."""

    async def send(self, message: str = "") -> None:
        """Say that it has happened. Raises ``Conflict`` if that was said before. It is sent once."""
        await self._client.do("event", self.name, "send", message=message)

    async def wait(self, max_wait: Optional[float] = None) -> str:
        """Wait for it, and return its message. Raises ``Refused``."""
        return granted(await self._client.do("event", self.name, "wait", maxwait=milliseconds(max_wait))).message


class Barrier(_Named):
    """All are there."""

    def __init__(self, client: Client, name: str, size: int) -> None:
        super().__init__(client, name)
        self.size = size

    async def wait(self, max_wait: Optional[float] = None) -> None:
        """Come, and wait for the others. Raises ``Refused``, or ``Conflict`` if it has opened already."""
        wait = milliseconds(max_wait)
        granted(await self._client.do("barrier", self.name, "wait", size=self.size, maxwait=wait))


class Counter(_Named):
    """A number that many add to."""

    async def count(self, amount: int = 1) -> int:
        """Add, and return the new value. It is sent once."""
        return (await self._client.do("counter", self.name, "count", amount=amount)).value or 0

    async def value(self) -> int:
        """The value."""
        return (await self._client.do("counter", self.name, "value")).value or 0

    async def reset(self, value: int = 0) -> None:
        """Set the value."""
        await self._client.do("counter", self.name, "reset", value=value)


class Watchdog(_Named):
    """Something that must not fall silent. As a block it is kicked by a task until the block ends well."""

    def __init__(self, client: Client, name: str, expires: float) -> None:
        super().__init__(client, name)
        self.expires = expires
        self._keeper: Optional["asyncio.Task[None]"] = None

    async def kick(self, expires: Optional[float] = None) -> None:
        """Say that all is well, for ``expires`` seconds."""
        term = milliseconds(self.expires if expires is None else expires)
        await self._client.do("watchdog", self.name, "kick", expires=term)

    async def wait(self, max_wait: Optional[float] = None) -> None:
        """Wait until it has fallen silent. Raises ``Refused`` if it has not within ``max_wait``."""
        granted(await self._client.do("watchdog", self.name, "wait", maxwait=milliseconds(max_wait)))

    async def __aenter__(self) -> "Watchdog":
        if self._keeper is not None:
            raise RuntimeError(f"watchdog {self.name!r} is kicked by a block already")
        await self.kick()
        self._keeper = asyncio.ensure_future(self._keep())
        return self

    async def _keep(self) -> None:
        term = Term(_clock(), self.expires)
        kick = command("watchdog", self.name, "kick", {"expires": milliseconds(self.expires)})
        pause = self.expires / 3
        while True:
            await asyncio.sleep(pause)
            pause = self.expires / 3
            try:
                await self._client._send(kick, term.patience)
            except GatehouseError:
                pause = term.pause

    async def __aexit__(self, kind: Optional[Type[BaseException]], *_: Any) -> None:
        assert self._keeper is not None
        keeper, self._keeper = self._keeper, None
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        if kind is None:
            await self._client.delete("watchdog", self.name)


__all__ = [
    "Barrier", "Budget", "Capacity", "Client", "Counter", "Event", "Grant", "Guard", "Hold", "Limiter",
    "Reservation", "Resource", "Watchdog",
]  # fmt: skip
