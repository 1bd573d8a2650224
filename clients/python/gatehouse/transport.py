"""What stands before calls of somebody else's API: waits for a shared limit, and reports what that API answers.

    session = requests.Session()
    session.mount("https://api.example/", LimitedAdapter(requests.adapters.HTTPAdapter(), limiter))

    httpx.Client(transport=LimitedTransport(httpx.HTTPTransport(), limiter))
    httpx.AsyncClient(transport=AsyncLimitedTransport(httpx.AsyncHTTPTransport(), aio_limiter))

Neither library is imported here. One 429 pauses every process that goes by the same limiter.
"""

import time
from typing import Any, Callable, Optional, Union

from .errors import GatehouseError, Refused
from .feedback import Feedback, Reports, read_feedback

Choice = Union[Any, Callable[[Any], Any]]


class _Limited:
    """What all of them share. ``limiter`` is a Limiter, or a function of the request that returns one or None."""

    def __init__(
        self,
        inner: Any,
        limiter: Choice,
        *,
        max_wait: Optional[float] = None,
        fail_open: bool = False,
        on_error: Optional[Callable[[GatehouseError], None]] = None,
    ) -> None:
        self._inner, self._limiter = inner, limiter
        self._max_wait, self._fail_open, self._on_error = max_wait, fail_open, on_error
        self._reports = Reports()

    def _choose(self, request: Any) -> Any:
        # A limiter can be called too, as a decorator.
        return self._limiter if hasattr(self._limiter, "feedback") else self._limiter(request)

    def _undecided(self, error: GatehouseError) -> None:
        """Go on without a decision if that is allowed. Raises the error otherwise."""
        if not self._fail_open or isinstance(error, Refused):
            raise error
        self._tolerate(error)

    def _tolerate(self, error: GatehouseError) -> None:
        if self._on_error is not None:
            self._on_error(error)

    def _found(self, limiter: Any, status: int, headers: Any) -> Optional[Feedback]:
        found = read_feedback(status, headers.get, time.time())
        name = (limiter._options.kind, limiter._options.name)
        return found if self._reports.due(name, found, time.monotonic()) else None


class _Blocking(_Limited):
    def _wait(self, limiter: Any) -> None:
        try:
            limiter.acquire(max_wait=self._max_wait)
        except GatehouseError as error:
            self._undecided(error)

    def _report(self, limiter: Any, response: Any) -> None:
        found = self._found(limiter, response.status_code, response.headers)
        if found is not None:
            try:
                limiter.feedback(**found._asdict())
            except GatehouseError as error:
                self._tolerate(error)

    def close(self) -> None:
        self._inner.close()


class LimitedAdapter(_Blocking):
    """An adapter for ``requests.Session.mount``, around another one."""

    def send(self, request: Any, *args: Any, **how: Any) -> Any:
        limiter = self._choose(request)
        if limiter is None:
            return self._inner.send(request, *args, **how)
        self._wait(limiter)
        response = self._inner.send(request, *args, **how)
        self._report(limiter, response)
        return response


class LimitedTransport(_Blocking):
    """A transport for ``httpx.Client``, around another one."""

    def handle_request(self, request: Any) -> Any:
        limiter = self._choose(request)
        if limiter is None:
            return self._inner.handle_request(request)
        self._wait(limiter)
        response = self._inner.handle_request(request)
        self._report(limiter, response)
        return response

    def __enter__(self) -> "LimitedTransport":
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)


class AsyncLimitedTransport(_Limited):
    """A transport for ``httpx.AsyncClient``, around another one. Its limiter is one of ``gatehouse.aio``."""

    async def handle_async_request(self, request: Any) -> Any:
        limiter = self._choose(request)
        if limiter is None:
            return await self._inner.handle_async_request(request)
        try:
            await limiter.acquire(max_wait=self._max_wait)
        except GatehouseError as error:
            self._undecided(error)
        response = await self._inner.handle_async_request(request)
        found = self._found(limiter, response.status_code, response.headers)
        if found is not None:
            try:
                await limiter.feedback(**found._asdict())
            except GatehouseError as error:
                self._tolerate(error)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> "AsyncLimitedTransport":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)
