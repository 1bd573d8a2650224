"""Leases on shares of a capacity, for asyncio: one task asks for all resources of a client."""

import asyncio
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._delivery import Delivery
from ._leases import Leases, Pacer, Share, check_wants
from ._wire import new_id
from .errors import GatehouseError, Refused

if TYPE_CHECKING:
    from .aio import Client


class Resource:
    """A share of something. See ``gatehouse.Resource``."""

    def __init__(self, owner: "Capacity", share: Share) -> None:
        self._owner, self._share, self._pacer = owner, share, Pacer()

    @property
    def name(self) -> str:
        return self._share.name

    @property
    def capacity(self) -> float:
        """What may be used now; infinite is without limit."""
        return 0.0 if self._owner._closed else self._share.capacity(self._owner._loop.time())

    @property
    def leased(self) -> bool:
        """Whether a lease says so."""
        return self._share.held(self._owner._loop.time()) is not None

    def want(self, wants: float) -> None:
        """Ask for another amount from now on."""
        self._share.wants = check_wants(wants)
        self._owner._wake()

    async def ready(self, timeout: Optional[float] = None) -> bool:
        """Wait for the first lease, and say whether there is one."""
        deadline = None if timeout is None else self._owner._loop.time() + timeout
        while self._share.lease is None and not self._owner._closed:
            if not await self._owner._change(deadline):
                break
        return self._share.lease is not None

    async def wait(self, n: int = 1, max_wait: Optional[float] = None) -> None:
        """Wait until ``n`` may go, at ``capacity`` per second, evenly. Raises ``Refused``."""
        loop = self._owner._loop
        give_up = None if max_wait is None else loop.time() + max_wait
        while True:
            rate, now = self.capacity, loop.time()
            at = self._pacer.when(rate, now)
            if at is not None and (give_up is None or at <= give_up):
                self._pacer.take(n, rate, now)
                break
            if at is not None or self._owner._closed or not await self._owner._change(give_up):
                raise Refused(f"capacity/{self.name}: {n} not granted within {max_wait} s")
        await asyncio.sleep(max(0.0, at - loop.time()))

    async def release(self) -> None:
        """Give it back, so that others have it at once."""
        await self._owner._release(self)


class Capacity:
    """A client of leases. ``client_id`` must be its own: two of one name have one lease."""

    def __init__(self, client: "Client", client_id: Optional[str] = None, *,
                 on_error: Optional[Callable[[GatehouseError], None]] = None) -> None:  # fmt: skip
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._leases = Leases(client_id or new_id(), self._loop.time, time.time)
        self._on_error = on_error
        self._closed = False
        self._changed: "asyncio.Future[None]" = self._loop.create_future()
        self._keeper = asyncio.ensure_future(self._keep())

    def resource(self, name: str, wants: float, priority: int = 0) -> Resource:
        """Ask for a share of something from now on, until it is released."""
        if self._closed:
            raise ValueError("the client of leases is closed")
        share = self._leases.add(name, wants, priority)
        self._wake()
        return Resource(self, share)

    def _wake(self) -> None:
        changed, self._changed = self._changed, self._loop.create_future()
        if not changed.done():
            changed.set_result(None)

    async def _change(self, deadline: Optional[float]) -> bool:
        """Wait for the next change, and say whether it came before the deadline."""
        timeout = None if deadline is None else max(0.0, deadline - self._loop.time())
        done, _ = await asyncio.wait([self._changed], timeout=timeout)
        return bool(done)

    async def _keep(self) -> None:
        """The task: ask when that is due."""
        while True:
            if self._leases.due() > self._loop.time():
                # An hour is for ever: only a new resource makes something due.
                await self._change(min(self._leases.due(), self._loop.time() + 3600.0))
                continue
            call, told = self._leases.ask(), Delivery()
            try:
                self._leases.learn(await self._client._send(call, told=told), call, told.sent_at)
            except GatehouseError as error:
                self._leases.failed()
                self._client._servers.pass_over(self._client._servers.current)  # perhaps another is the master
                if self._on_error is not None:
                    self._on_error(error)
            self._wake()

    async def _release(self, resource: Resource) -> None:
        if not self._leases.drop(resource._share):
            return
        self._wake()
        await self._give_back([resource.name])

    async def _give_back(self, names: Any) -> None:
        try:
            await self._client._send(self._leases.release(names))
        except GatehouseError:
            pass  # it ends by itself, with its lease

    async def close(self) -> None:
        """Give everything back, and end the task."""
        if self._closed:
            return
        self._closed = True
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        self._wake()
        if self._leases.shares:
            await self._give_back(list(self._leases.shares))

    async def __aenter__(self) -> "Capacity":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
