"""Leases on shares of a capacity, for blocking programs: one thread asks for all resources of a client."""

import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._connection import Interrupt
from ._delivery import Delivery
from ._leases import Leases, Pacer, Share, check_wants
from ._wire import new_id
from .errors import GatehouseError, Refused

if TYPE_CHECKING:
    from .client import Client


class Resource:
    """A share of something. Nothing here asks a server, so nothing waits for one."""

    def __init__(self, owner: "Capacity", share: Share) -> None:
        self._owner, self._share = owner, share
        self._pacer = Pacer()

    @property
    def name(self) -> str:
        return self._share.name

    @property
    def capacity(self) -> float:
        """What may be used now; infinite is without limit."""
        with self._owner._changed:
            return 0.0 if self._owner._closed else self._share.capacity(time.monotonic())

    @property
    def leased(self) -> bool:
        """Whether a lease says so."""
        with self._owner._changed:
            return self._share.held(time.monotonic()) is not None

    def want(self, wants: float) -> None:
        """Ask for another amount from now on."""
        with self._owner._changed:
            self._share.wants = check_wants(wants)
            self._owner._changed.notify_all()

    def ready(self, timeout: Optional[float] = None) -> bool:
        """Wait for the first lease, and say whether there is one."""
        with self._owner._changed:
            self._owner._changed.wait_for(lambda: self._share.lease is not None or self._owner._closed, timeout)
            return self._share.lease is not None

    def wait(self, n: int = 1, max_wait: Optional[float] = None) -> None:
        """Wait until ``n`` may go, at ``capacity`` per second, evenly. Raises ``Refused``."""
        give_up = None if max_wait is None else time.monotonic() + max_wait
        with self._owner._changed:
            while True:
                now = time.monotonic()
                rate = 0.0 if self._owner._closed else self._share.capacity(now)
                at = self._pacer.when(rate, now)
                if at is not None and (give_up is None or at <= give_up):
                    self._pacer.take(n, rate, now)
                    break
                if self._owner._closed or at is not None or (give_up is not None and now >= give_up):
                    raise Refused(f"capacity/{self.name}: {n} not granted within {max_wait} s")
                self._owner._changed.wait(None if give_up is None else give_up - now)
        pause = at - time.monotonic()
        if pause > 0:
            time.sleep(pause)

    def release(self) -> None:
        """Give it back, so that others have it at once."""
        self._owner._release(self)


class Capacity:
    """A client of leases. ``client_id`` must be its own: two of one name have one lease."""

    def __init__(
        self,
        client: "Client",
        client_id: Optional[str] = None,
        *,
        on_error: Optional[Callable[[GatehouseError], None]] = None,
    ) -> None:
        self._client = client
        self._leases = Leases(client_id or new_id(), time.monotonic, time.time)
        self._on_error = on_error
        self._changed = threading.Condition()
        self._closed = False
        self._interrupt = Interrupt()
        self._thread = threading.Thread(target=self._keep, name="capacity", daemon=True)
        self._thread.start()

    def resource(self, name: str, wants: float, priority: int = 0) -> Resource:
        """Ask for a share of something from now on, until it is released."""
        with self._changed:
            if self._closed:
                raise ValueError("the client of leases is closed")
            share = self._leases.add(name, wants, priority)
            self._changed.notify_all()
        return Resource(self, share)

    def _keep(self) -> None:
        """The thread: ask when that is due."""
        while True:
            with self._changed:
                while not self._closed:
                    pause = self._leases.due() - time.monotonic()
                    if pause <= 0:
                        break
                    # An hour is for ever: only a new resource makes something due.
                    self._changed.wait(min(pause, 3600.0))
                if self._closed:
                    return
                call = self._leases.ask()
            self._ask(call)

    def _ask(self, call: Any) -> None:
        told = Delivery()
        try:
            response = self._client._send(call, told=told, interrupt=self._interrupt)
            with self._changed:
                self._leases.learn(response, call, told.sent_at)
                self._changed.notify_all()
        except InterruptedError:
            return
        except GatehouseError as error:
            with self._changed:
                self._leases.failed()
                self._client._servers.pass_over(self._client._servers.current)  # perhaps another is the master
            if self._on_error is not None:
                self._on_error(error)

    def _release(self, resource: Resource) -> None:
        with self._changed:
            if not self._leases.drop(resource._share):
                return
            self._changed.notify_all()
        self._give_back([resource.name])

    def _give_back(self, names: Any) -> None:
        try:
            self._client._send(self._leases.release(names))
        except GatehouseError:
            pass  # it ends by itself, with its lease

    def close(self) -> None:
        """Give everything back, and end the thread."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            names = list(self._leases.shares)
            self._changed.notify_all()
        self._interrupt.stop()
        self._thread.join()
        if names:
            self._give_back(names)

    def __enter__(self) -> "Capacity":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
