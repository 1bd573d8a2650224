"""What one holds, in a blocking program: renewed by a thread of its own until it is released or lost."""

import threading
import time
import types
import uuid
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Type

from ._connection import Interrupt
from ._delivery import Delivery
from ._term import Term
from ._wire import Call, Decision, command, grant_call, granted, milliseconds, read_decision, read_grant
from .errors import Conflict, GatehouseError, HoldLost, Missing, Unavailable

if TYPE_CHECKING:
    from .client import Client

RELEASE_TIMEOUT = 5.0
GIVE_UP_TIMEOUT = 1.0  # to take back what was perhaps granted to a call that was given up


class Held:
    """How what is held is named on the wire: by kind, name and key, or as a grant by its id."""

    def __init__(self, subject: str, acquire: Call, key: str, ours: bool) -> None:
        self.subject = subject
        self.ours = ours  # the key was made here, so that nobody else can hold with it
        self.acquire = acquire
        self.key = key
        self.fence = 0

    def read(self, response: Any) -> Decision:
        raise NotImplementedError

    def renew(self) -> Call:
        raise NotImplementedError

    def release(self, costs: Optional[Mapping[str, int]] = None) -> Call:
        raise NotImplementedError


def may_be_granted(held: Held, error: BaseException, told: Delivery) -> bool:
    """Whether a call that was given up may have been granted all the same, to nobody but itself."""
    sent = error.maybe_done if isinstance(error, Unavailable) else told.sent
    return held.ours and sent


class HeldName(Held):
    """A semaphore or a lock."""

    def __init__(self, kind: str, name: str, parameters: Mapping[str, Any]) -> None:
        given = dict(parameters)
        ours = "key" not in given
        key = str(given.setdefault("key", str(uuid.uuid4())))
        super().__init__(f"{kind}/{name}", command(kind, name, "acquire", given), key, ours)
        self._kind, self._name = kind, name

    def read(self, response: Any) -> Decision:
        return read_decision(response)

    def renew(self) -> Call:
        return command(self._kind, self._name, "renew", {"key": self.key, "fence": self.fence or None})

    def release(self, costs: Optional[Mapping[str, int]] = None) -> Call:
        return command(self._kind, self._name, "release", {"key": self.key, "fence": self.fence or None})


class HeldGrant(Held):
    """A grant over several names."""

    def __init__(self, acquire: Call, id: str, ours: bool) -> None:
        super().__init__(f"grant/{id}", acquire, id, ours)

    @property
    def _fenced(self) -> Dict[str, int]:
        return {"fence": self.fence} if self.fence else {}

    def read(self, response: Any) -> Decision:
        return read_grant(response)

    def renew(self) -> Call:
        return grant_call(self.key, "renew", {**self._fenced})

    def release(self, costs: Optional[Mapping[str, int]] = None) -> Call:
        return grant_call(self.key, "release", {**(costs or {}), **self._fenced})


class Hold:
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
        self._client = client
        self._held = held
        self.decision = decision
        self._term = Term(sent_at, decision.expires_after)
        self._mu = threading.Lock()
        self._reason: Optional[str] = None
        self._released = False
        self._on_lost = on_lost
        self._interrupt = Interrupt()
        self._thread: Optional[threading.Thread] = None

    @property
    def key(self) -> str:
        """The key, or the id of a grant."""
        return self._held.key

    @property
    def fence(self) -> int:
        """The fencing token: send it with every write, and refuse those with a smaller one."""
        return self._held.fence

    @property
    def lost(self) -> bool:
        """Whether it is held no more, by the clock and by what servers have answered."""
        with self._mu:
            return self._reason is not None or (
                not self._released and time.monotonic() >= self._term.ends
            )

    @property
    def remaining(self) -> float:
        """For how many seconds it is held for sure, without another renewal."""
        with self._mu:
            if self._reason is not None or self._released:
                return 0.0
            return max(0.0, self._term.ends - time.monotonic())

    def check(self) -> None:
        """Raise ``HoldLost`` if it is held no more. Call it before each step that matters."""
        if self.lost:
            raise self._error()

    def _error(self) -> HoldLost:
        with self._mu:
            reason = self._reason or "its term is over, and no renewal was answered"
            self._reason = reason
        return HoldLost(f"{self._held.subject} is lost: {reason}")

    def _begin(self) -> "Hold":
        """Have it renewed from now on."""
        if self._term.lasts is None:
            return self
        if time.monotonic() >= self._term.renew_at:
            # The answer took so long, perhaps in line, that its term may be over: nobody knows when it began.
            self._renew_before_use()
        self._thread = threading.Thread(target=self._keep, name=f"renew {self._held.subject}", daemon=True)
        self._thread.start()
        return self

    def _renew_before_use(self) -> None:
        told = Delivery()
        response = self._client._send(self._held.renew(), told=told, interrupt=None)
        try:
            answer = self._held.read(response)
        except (Conflict, Missing) as error:
            raise HoldLost(f"{self._held.subject} was lost before it was used: {error.detail}") from None
        with self._mu:
            self._term.start(told.sent_at, answer.expires_after)

    def _keep(self) -> None:
        """The thread: renew, until it is released or lost."""
        due = self._term.renew_at
        while not self._interrupt.stopped.wait(max(0.0, min(due, self._term.ends) - time.monotonic())):
            now = time.monotonic()
            if now >= self._term.ends:
                self._lose("its term is over, and no renewal was answered")
                return
            if now < due:
                continue
            try:
                due = self._renew_once(now)
            except InterruptedError:
                return
            except (Conflict, Missing) as error:
                self._lose(error.detail)
                return
            except GatehouseError:  # one missed beat does no harm
                due = time.monotonic() + self._term.pause

    def _renew_once(self, now: float) -> float:
        told = Delivery()
        patience = max(0.001, min(self._term.patience, self._term.ends - now))
        response = self._client._send(self._held.renew(), patience, told, self._interrupt)
        answer = self._held.read(response)
        with self._mu:
            self._term.start(told.sent_at, answer.expires_after)
        return self._term.renew_at

    def _lose(self, reason: str) -> None:
        with self._mu:
            if self._released or self._reason is not None:
                return
            self._reason = reason
        if self._on_lost is not None:
            self._on_lost(self)

    def _stop(self) -> None:
        self._interrupt.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def release(self, costs: Optional[Mapping[str, int]] = None) -> bool:
        """Give it back, and say whether a server was told: if none answers it ends by itself.

        Raises ``HoldLost`` if it was lost. To release twice does no harm.
        """
        with self._mu:
            again, self._released = self._released, True
            over = self._reason is not None or time.monotonic() >= self._term.ends
        self._stop()
        if again:
            return True
        if over:
            self._tell_release(costs)  # it may be held still, for the margin of the clock
            raise self._error()
        return self._tell_release(costs, raises=True)

    def _tell_release(self, costs: Optional[Mapping[str, int]] = None, raises: bool = False) -> bool:
        told = Delivery()
        timeout = RELEASE_TIMEOUT if raises else min(RELEASE_TIMEOUT, self._term.patience)
        try:
            self._held.read(self._client._send(self._held.release(costs), timeout, told))
        except Unavailable:
            return False
        except (Conflict, Missing) as error:
            if told.maybe_done:  # by an earlier try, whose answer was lost
                return True
            if raises:
                self._reason = error.detail
                raise self._error() from None
            return False
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

    def _final_costs(self) -> Optional[Mapping[str, int]]:
        return None


class Grant(Hold):
    """A grant over several names: slots and locks that are held, and tokens that are settled later."""

    @property
    def id(self) -> str:
        return self.key

    @property
    def want(self) -> Any:
        """The members as the server has answered them."""
        return self.decision.raw.get("want", [])

    def settle(self, costs: Mapping[str, int]) -> Decision:
        """Say what each name has cost so far, such as ``{"gcra/tokens": 250}``. The last figure counts."""
        return self._call("settle", costs)

    def top_up(self, costs: Mapping[str, int], max_wait: Optional[float] = 0) -> Decision:
        """Take more of its limiters, all or nothing. Raises ``Refused``. It is never sent twice."""
        body: Dict[str, Any] = {**costs, "maxwait": milliseconds(max_wait)}
        return granted(self._call("topup", body))

    def _call(self, op: str, body: Mapping[str, Any]) -> Decision:
        self.check()
        call = grant_call(self.key, op, {**body, "fence": self.fence})
        return read_grant(self._client._send(call))


class Reservation(Grant):
    """Some of a budget: taken by an estimate, and settled by what was spent."""

    _member = ""
    _spent: Optional[int] = None

    def settle(self, spent: Any) -> Decision:
        """Say what was spent so far, all together. It may be said again; the last figure counts."""
        self._spent = int(spent)
        return super().settle({self._member: self._spent})

    def top_up(self, more: Any, max_wait: Optional[float] = 0) -> Decision:
        """Take so much more before it is spent. Raises ``Refused``."""
        return super().top_up({self._member: int(more)}, max_wait)

    def _final_costs(self) -> Optional[Mapping[str, int]]:
        return None if self._spent is None else {self._member: self._spent}
