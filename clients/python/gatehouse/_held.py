"""What the holds of the blocking client and of that for asyncio share: their calls and their state. No I/O."""

from typing import Any, Callable, ContextManager, Dict, Generic, Mapping, Optional, Tuple, TypeVar, Union

from ._delivery import Delivery
from ._http1 import Response
from ._term import Term
from ._wire import (
    Call,
    Decision,
    command,
    grant_call,
    granted,
    names_of,
    new_id,
    read_decision,
    read_grant,
)
from .errors import Conflict, GatehouseError, HoldLost, Missing, Unavailable

RELEASE_TIMEOUT = 5.0
GIVE_UP_TIMEOUT = 1.0  # to take back what was perhaps granted to a call that was given up
NO_RENEWAL = "its term is over, and no renewal was answered"
NOT_HELD = (Conflict, Missing)  # errors by which a server says that a hold is held no more


class Held:
    """How what is held is named on the wire: by kind, name and key, or as a grant by its id."""

    def __init__(self, subject: str, acquire: Call, key: str, ours: bool) -> None:
        self.subject = subject
        self.ours = ours  # the key was made here, so that nobody else can hold with it
        self.acquire = acquire
        self.key = key
        self.fence = 0

    def read(self, response: Response) -> Decision:
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
        key = str(given.setdefault("key", new_id()))
        super().__init__(f"{kind}/{name}", command(kind, name, "acquire", given), key, ours)
        self._kind, self._name = kind, name

    def read(self, response: Response) -> Decision:
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

    def read(self, response: Response) -> Decision:
        return read_grant(response)

    def renew(self) -> Call:
        return grant_call(self.key, "renew", {**self._fenced})

    def release(self, costs: Optional[Mapping[str, int]] = None) -> Call:
        return grant_call(self.key, "release", {**(costs or {}), **self._fenced})


class BaseHold:
    """What is held, and until when. How it is renewed is up to the hold of each client."""

    def __init__(
        self,
        held: Held,
        decision: Decision,
        sent_at: float,
        clock: Callable[[], float],
        mu: ContextManager[Any],
    ) -> None:
        self._held = held
        self.decision = decision
        self._term = Term(sent_at, decision.expires_after)
        self._clock = clock
        self._mu = mu  # of the term, the reason and whether it was released
        self._reason: Optional[str] = None
        self._released = False

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
            return self._reason is not None or (not self._released and self._clock() >= self._term.ends)

    @property
    def remaining(self) -> float:
        """For how many seconds it is held for sure, without another renewal."""
        with self._mu:
            if self._reason is not None or self._released:
                return 0.0
            return max(0.0, self._term.ends - self._clock())

    def check(self) -> None:
        """Raise ``HoldLost`` if it is held no more. Call it before each step that matters."""
        if self.lost:
            raise self._error()

    def _error(self) -> HoldLost:
        with self._mu:
            self._reason = self._reason or NO_RENEWAL
            return HoldLost(f"{self._held.subject} is lost: {self._reason}")

    def _lost_before_use(self, error: GatehouseError) -> HoldLost:
        return HoldLost(f"{self._held.subject} was lost before it was used: {error.detail}")

    def _note_renewal(self, response: Response, told: Delivery) -> None:
        """Begin the term anew by the answer of a renewal. Raises what that says."""
        answer = self._held.read(response)
        with self._mu:
            self._term.start(told.sent_at, answer.expires_after)

    def _note_loss(self, reason: str) -> bool:
        """Remember why it is lost, and say whether that is new."""
        with self._mu:
            if self._released or self._reason is not None:
                return False
            self._reason = reason
            return True

    def _note_release(self) -> Tuple[bool, bool]:
        """Remember that it is given back, and say whether it was before, and whether its term is over."""
        with self._mu:
            again, self._released = self._released, True
            return again, self._reason is not None or self._clock() >= self._term.ends

    def _release_failed(self, error: GatehouseError, told: Delivery, raises: bool) -> bool:
        """Whether a release that has failed was told to a server all the same. Raises ``HoldLost`` if it may."""
        if isinstance(error, Unavailable):
            return False
        if told.maybe_done:  # by an earlier try, whose answer was lost
            return True
        if raises:
            self._reason = error.detail
            raise self._error() from None
        return False

    def _final_costs(self) -> Optional[Mapping[str, int]]:
        return None


class BaseGrant(BaseHold):
    """A grant over several names."""

    @property
    def id(self) -> str:
        return self.key

    @property
    def want(self) -> Any:
        """The members as the server has answered them."""
        return self.decision.raw.get("want", [])

    def _grant_call(self, op: str, body: Mapping[str, Any]) -> Call:
        self.check()
        return grant_call(self.key, op, {**body, "fence": self.fence})


class BaseReservation(BaseGrant):
    """Some of a budget, as a grant of one member."""

    _spent: Optional[int] = None

    def _cost(self, amount: Any) -> Dict[str, int]:
        (member,) = names_of(self._held.acquire.parameters["want"])
        return {member: int(amount)}

    def _final_costs(self) -> Optional[Mapping[str, int]]:
        return None if self._spent is None else self._cost(self._spent)


H = TypeVar("H", bound=BaseHold)


class BaseGuard(Generic[H]):
    """Something that can be held, again and again: each time it is a hold of its own."""

    def __init__(
        self,
        client: Any,
        kind: Callable[..., H],
        held: Callable[[Optional[float]], Held],
        max_wait: Optional[float],
        on_lost: Optional[Callable[[Any], None]],
    ) -> None:
        self._client, self._kind, self._held = client, kind, held
        self._max_wait, self._on_lost = max_wait, on_lost

    def _ask(self, max_wait: Union[float, None, Tuple[()]]) -> Held:
        return self._held(self._max_wait if isinstance(max_wait, tuple) else max_wait)

    def _take(self, held: Held, response: Response, told: Delivery) -> H:
        """The hold that was granted. Raises ``Refused``."""
        decision = granted(held.read(response))
        held.fence = decision.fence
        return self._kind(self._client, held, decision, told.sent_at, self._on_lost)
