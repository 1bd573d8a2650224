"""Middleware for WSGI: 429 with a problem, or on with RateLimit headers.

    app = gatehouse.wsgi.RateLimit(app, gh, lambda environ: "ip/" + environ["REMOTE_ADDR"], "10/1s")
"""

from typing import Any, Callable, Iterable

from ._middleware import Rule, judge
from .errors import GatehouseError


class RateLimit:
    """Takes one of a limiter for each request, of the name that ``name`` returns for its environ, or None.

    ``budget`` is how many seconds a decision may take. ``fail_open`` is whether a request goes on when there
    was none; otherwise it gets 503.
    """

    def __init__(self, app: Any, client: Any, name: Callable[[Any], Any], limit: Any = None, **how: Any) -> None:
        self._app, self._rule = app, Rule(client, name, limit, **how)

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        try:
            refusal, headers = judge(self._rule.ask(environ))
        except GatehouseError as error:
            refusal, headers = self._rule.failed(error), []
        if refusal is not None:
            start_response(refusal.status, refusal.headers)
            return [refusal.body]

        def start(status: str, more: Any, *error: Any) -> Any:
            return start_response(status, [*more, *headers], *error)

        result: Iterable[bytes] = self._app(environ, start)
        return result
