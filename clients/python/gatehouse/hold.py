"""What one holds, in a blocking program: renewed by a thread of its own until it is released or lost."""

import threading
import time
import types
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Type

from ._connection import Interrupt
from ._delivery import Delivery
from ._held import NO_RENEWAL, NOT_HELD, RELEASE_TIMEOUT, BaseGrant, BaseHold, BaseReservation, Held
from ._wire import Decision, granted, milliseconds, read_grant
from .errors import GatehouseError, HoldLost, Unavailable

if TYPE_CHECKING:
    from .client import Client


class Hold(BaseHold):
    """Something that is held. Leave it by its block, or by ``release``.

    A thread renews it after each third of its term. If it is lost, ``lost`` is True, ``on_lost`` was called
    with it from that thread, and ``check`` and the end of the block raise ``HoldLost``; all that before
    anybody else can be granted what was held.
    """

    def __init__(
        self,
        client: "Client",
        held: Held,
        decision: Decision,
        sent_at: float,
        on_lost: Optional[Callable[["Hold"], None]] = None,
    ) -> None:
        super().__init__(held, decision, sent_at, time.monotonic, threading.Lock())
        self._client = client
        self._on_lost = on_lost
        self._interrupt = Interrupt()
        self._thread: Optional[threading.Thread] = None

    def _begin(self) -> None:
        """Have it renewed from now on."""
        if self._term.lasts is None:
            return
        if time.monotonic() >= self._term.renew_at:
            # The answer took so long, perhaps in line, that its term may be over: nobody knows when it began.
            try:
                self._renew_once(None)
            except NOT_HELD as error:
                raise self._lost_before_use(error) from None
        self._thread = threading.Thread(target=self._keep, name=f"renew {self._held.subject}", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        """The thread: renew, until it is released or lost."""
        due = self._term.renew_at
        while not self._interrupt.stopped.wait(self._term.pause_until(due, time.monotonic())):
            now = time.monotonic()
            if now >= self._term.ends:
                self._lose(NO_RENEWAL)
                return
            if now < due:
                continue
            try:
                self._renew_once(self._term.patience_at(now))
                due = self._term.renew_at
            except InterruptedError:
                return
            except NOT_HELD as error:
                self._lose(error.detail)
                return
            except GatehouseError:  # one missed beat does no harm
                due = time.monotonic() + self._term.pause

    def _renew_once(self, patience: Optional[float]) -> None:
        told = Delivery()
        self._note_renewal(self._client._send(self._held.renew(), patience, told, self._interrupt), told)

    def _lose(self, reason: str) -> None:
        if self._note_loss(reason) and self._on_lost is not None:
            self._on_lost(self)

    def _stop(self) -> None:
        self._interrupt.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def release(self, costs: Optional[Mapping[str, int]] = None) -> bool:
        """Give it back, and say whether a server was told: if none answers it ends by itself.

        Raises ``HoldLost`` if it was lost. To release twice does no harm.
        """
        again, over = self._note_release()
        self._stop()
        if again:
            return True
        if over:
            self._tell_release(costs)  # it may be held still, for the margin of the clock
            raise self._error()
        return self._tell_release(costs, raises=True)

    def _tell_release(self, costs: Optional[Mapping[str, int]] = None, raises: bool = False) -> bool:
        told = Delivery()
        timeout = RELEASE_TIMEOUT if raises else self._term.patience
        try:
            self._held.read(self._client._send(self._held.release(costs), timeout, told))
        except (Unavailable, *NOT_HELD) as error:
            return self._release_failed(error, told, raises)
        return True

    def __enter__(self) -> "Hold":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        try:
            self.release(self._final_costs())
        except HoldLost as lost:
            if error is None or isinstance(error, HoldLost):
                raise
            if isinstance(error, Exception):
                raise lost from error


class Grant(BaseGrant, Hold):
    """A grant over several names: slots and locks that are held, and tokens that are settled later."""

    def settle(self, costs: Mapping[str, int]) -> Decision:
        """Say what each name has cost so far, such as ``{"gcra/tokens": 250}``. The last figure counts."""
        return self._call("settle", costs)

    def top_up(self, costs: Mapping[str, int], max_wait: Optional[float] = 0) -> Decision:
        """Take more of its limiters, all or nothing. Raises ``Refused``. It is never sent twice."""
        return granted(self._call("topup", {**costs, "maxwait": milliseconds(max_wait)}))

    def _call(self, op: str, body: Mapping[str, Any]) -> Decision:
        return read_grant(self._client._send(self._grant_call(op, body)))


class Reservation(BaseReservation, Grant):
    """Some of a budget: taken by an estimate, and settled by what was spent."""

    def settle(self, spent: Any) -> Decision:
        """Say what was spent so far, all together. It may be said again; the last figure counts."""
        self._spent = int(spent)
        return super().settle(self._cost(spent))

    def top_up(self, more: Any, max_wait: Optional[float] = 0) -> Decision:
        """Take so much more before it is spent. Raises ``Refused``."""
        return super().top_up(self._cost(more), max_wait)
