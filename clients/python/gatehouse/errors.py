"""What can go wrong, by the codes of the server."""

from typing import Optional, Type


class GatehouseError(Exception):
    """The base of all errors of this package.

    ``code`` is one word that does not change, such as ``conflict``; ``detail`` is a sentence for people.
    ``status`` is the HTTP status, or 0 where no server answered. ``retry_after`` is in seconds, or None
    where nobody knows.
    """

    code = "internal"

    def __init__(
        self, detail: str, *, code: str = "", status: int = 0, retry_after: Optional[float] = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.status = status
        self.retry_after = retry_after


class Refused(GatehouseError):
    """Not now, or not within the time that the caller would wait."""

    code = "refused"


class Conflict(GatehouseError):
    """The state does not allow it, such as a release of what is not held."""

    code = "conflict"


class Deleted(Conflict):
    """The name was deleted while the request waited."""

    code = "deleted"


class Missing(GatehouseError):
    """There is no such name."""

    code = "missing"


class Invalid(GatehouseError):
    """The request makes no sense, now or later."""

    code = "invalid"


class Unavailable(GatehouseError):
    """No server answered, or the one that did could not decide.

    ``maybe_done`` is True where the request may have taken effect all the same.
    """

    code = "unavailable"

    def __init__(
        self,
        detail: str,
        *,
        code: str = "",
        status: int = 0,
        retry_after: Optional[float] = None,
        maybe_done: bool = False,
    ) -> None:
        super().__init__(detail, code=code, status=status, retry_after=retry_after)
        self.maybe_done = maybe_done


class HoldLost(GatehouseError):
    """What was held is held no more, or will not be in a moment: stop working."""

    code = "lost"


_BY_CODE = {
    "refused": Refused,
    "conflict": Conflict,
    "deleted": Deleted,
    "missing": Missing,
    "invalid": Invalid,
    "exhausted": Unavailable,
    "unavailable": Unavailable,
    "timeout": Unavailable,
}


def error_for(code: str, detail: str, status: int, retry_after: Optional[float]) -> GatehouseError:
    """Return the error of a code; one that is not known is a plain GatehouseError."""
    if code in ("unavailable", "timeout"):  # nobody knows whether it took effect
        return Unavailable(detail, code=code, status=status, retry_after=retry_after, maybe_done=True)
    kind: Type[GatehouseError] = _BY_CODE.get(code, GatehouseError)
    return kind(detail, code=code, status=status, retry_after=retry_after)
