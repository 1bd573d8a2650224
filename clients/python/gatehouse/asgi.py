"""Middleware for ASGI: 429 with a problem, or on with RateLimit headers.

    app = gatehouse.asgi.RateLimit(app, gh, lambda scope: "ip/" + scope["client"][0], "10/1s")

The client is one of ``gatehouse.aio``.
"""

from typing import Any, Callable, List, Tuple

from ._middleware import Headers, Rule, judge
from .errors import GatehouseError


class RateLimit:
    """Takes one of a limiter for each HTTP request, of the name that ``name`` returns for its scope, or None.

    ``budget`` is how many seconds a decision may take. ``fail_open`` is whether a request goes on when there
    was none; otherwise it gets 503.
    """

    def __init__(self, app: Any, client: Any, name: Callable[[Any], Any], limit: Any = None, **how: Any) -> None:
        self._app, self._rule = app, Rule(client, name, limit, **how)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            asked = self._rule.ask(scope)
            refusal, headers = judge(None if asked is None else await asked)
        except GatehouseError as error:
            refusal, headers = self._rule.failed(error), []
        if refusal is not None:
            start = {"type": "http.response.start", "status": refusal.number, "headers": _encode(refusal.headers)}
            await send(start)
            await send({"type": "http.response.body", "body": refusal.body})
            return

        async def send_on(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_encode(headers)]}
            await send(message)

        await self._app(scope, receive, send_on)


def _encode(headers: Headers) -> List[Tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
