"""What stands before applications, and before calls of a third party that is a real server here."""

import asyncio
import contextlib
import http.server
import json
import threading
import time
import unittest
import urllib.error
import urllib.request
import uuid
import wsgiref.simple_server

import gatehouse
from gatehouse import aio, asgi, transport, wsgi
from gatehouse.feedback import read_feedback

from .server import patience, shared_address

NOBODY = "127.0.0.1:1"  # where nobody listens


def fresh(name):
    return f"{name}-{uuid.uuid4()}"


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def get(address):
    """Status, headers and body."""
    try:
        with urllib.request.urlopen(address) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


class Wsgi(unittest.TestCase):
    def test_limit(self):
        name = fresh("api")
        with gatehouse.Client(shared_address(), timeout=patience) as gh:
            app = wsgi.RateLimit(hello, gh, lambda environ: name + environ["PATH_INFO"], "2/1h", budget=patience)
            with serving(wsgiref.simple_server.make_server("127.0.0.1", 0, app, handler_class=Quiet)) as address:
                status, headers, body = get(address)
                self.assertEqual((status, body), (200, b"hello"))
                self.assertIn("r=1", headers["RateLimit"])
                get(address)
                status, headers, body = get(address)
                self.assertEqual(status, 429)
                self.assertEqual(headers["Content-Type"], "application/problem+json")
                self.assertGreater(int(headers["Retry-After"]), 1000)
                self.assertEqual(json.loads(body)["code"], "refused")
                self.assertEqual(get(address + "other")[0], 200)

    def test_open_and_closed(self):
        errors = []
        with gatehouse.Client(NOBODY) as gh:
            for fail_open, want in ((True, "200 OK"), (False, "503 Service Unavailable")):
                app = wsgi.RateLimit(hello, gh, lambda _: "a", "1/1s", fail_open=fail_open, on_error=errors.append)
                told = []
                b"".join(app({}, lambda status, headers: told.append(status)))
                self.assertEqual(told, [want])
        self.assertEqual([error.code for error in errors], ["unavailable"] * 2)


class Asgi(unittest.TestCase):
    async def ask(self, app, path="/"):
        sent = []

        async def send(message):
            sent.append(message)

        await app({"type": "http", "path": path}, None, send)
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]

    def test_limit(self):
        async def hello(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
            await send({"type": "http.response.body", "body": b"hello"})

        async def run():
            name = fresh("api")
            async with aio.Client(shared_address(), timeout=patience) as gh, aio.Client(NOBODY) as nobody:
                app = asgi.RateLimit(hello, gh, lambda scope: name + scope["path"], "1/1h", budget=patience)
                status, headers, body = await self.ask(app)
                self.assertEqual((status, headers[b"a"], body), (200, b"b", b"hello"))
                self.assertIn(b"r=0", headers[b"ratelimit"])
                status, headers, body = await self.ask(app)
                self.assertEqual((status, json.loads(body)["status"]), (429, 429))
                self.assertEqual((await self.ask(app, "/other"))[0], 200)
                closed = asgi.RateLimit(hello, nobody, lambda scope: "a", "1/1h", fail_open=False)
                self.assertEqual((await self.ask(closed))[0], 503)
                self.assertEqual((await self.ask(asgi.RateLimit(hello, nobody, lambda scope: "a")))[0], 200)

        asyncio.run(run())


class Party(http.server.BaseHTTPRequestHandler):
    """A third party that has had enough."""

    def do_GET(self):
        self.server.calls += 1
        self.send_response(429)
        self.send_header("Retry-After", "30")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def third_party():
    party = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Party)
    party.calls = 0
    return party


class Inner:
    """An adapter and transports with the shape of requests' and httpx's."""

    class Response:
        def __init__(self, status, headers):
            self.status_code, self.headers = status, {k.lower(): v for k, v in headers.items()}

    def send(self, request, **how):
        status, headers, _ = get(request)
        return self.Response(status, headers)

    handle_request = send

    async def handle_async_request(self, request):
        return await asyncio.get_running_loop().run_in_executor(None, self.send, request)

    def close(self):
        pass


class Transports(unittest.TestCase):
    def limiter(self, gh):
        return gh.limiter(fresh("partner"), 600, per=60, kind="slidinglog")

    def assert_second_is_refused(self, call):
        self.assertEqual(call().status_code, 429)
        with self.assertRaises(gatehouse.Refused):
            call()

    def test_one_429_pauses_everybody(self):
        party = third_party()
        with serving(party) as address, gatehouse.Client(shared_address(), timeout=patience) as gh:
            limiter = self.limiter(gh)
            adapter = transport.LimitedAdapter(Inner(), limiter, max_wait=0)
            self.assertEqual(adapter.send(address, timeout=1).status_code, 429)
            with self.assertRaises(gatehouse.Refused):
                adapter.send(address)
            other = transport.LimitedTransport(Inner(), lambda request: limiter, max_wait=0)
            with self.assertRaises(gatehouse.Refused):
                other.handle_request(address)
            self.assertEqual(party.calls, 1)
            free = transport.LimitedTransport(Inner(), lambda request: None)
            self.assertEqual(free.handle_request(address).status_code, 429)

    def test_asyncio(self):
        party = third_party()

        async def run(address):
            async with aio.Client(shared_address(), timeout=patience) as gh:
                limited = transport.AsyncLimitedTransport(Inner(), self.limiter(gh), max_wait=0)
                self.assertEqual((await limited.handle_async_request(address)).status_code, 429)
                with self.assertRaises(gatehouse.Refused):
                    await limited.handle_async_request(address)

        with serving(party) as address:
            asyncio.run(run(address))
        self.assertEqual(party.calls, 1)

    def test_real_libraries(self):
        """requests and httpx themselves, where they are installed."""
        party = third_party()
        tried = 0
        with serving(party) as address, gatehouse.Client(shared_address(), timeout=patience) as gh:
            try:
                import requests

                with requests.Session() as session:
                    inner = requests.adapters.HTTPAdapter()
                    session.mount("http://", transport.LimitedAdapter(inner, self.limiter(gh), max_wait=0))
                    self.assert_second_is_refused(lambda: session.get(address))
                tried += 1
            except ImportError:
                pass
            try:
                import httpx

                inner = transport.LimitedTransport(httpx.HTTPTransport(), self.limiter(gh), max_wait=0)
                with httpx.Client(transport=inner) as client:
                    self.assert_second_is_refused(lambda: client.get(address))
                tried += 1
            except ImportError:
                pass
        self.assertEqual(party.calls, tried)

    def test_feedback_in_all_generations_of_headers(self):
        wall = 1767225600.0  # 2026-01-01

        def read(status, **headers):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return tuple(read_feedback(status, named.get, wall))[1:]

        self.assertEqual(read(429, retry_after="30"), (30, None, None))
        self.assertEqual(read(429, retry_after_ms="250"), (0.25, None, None))
        self.assertEqual(read(503, retry_after="Thu, 01 Jan 2026 00:00:10 GMT"), (10, None, None))
        seven = (None, 7, 10)
        self.assertEqual(read(200, ratelimit='"day";r=70;t=99, "burst";r=7;t=10'), seven)
        self.assertEqual(read(200, ratelimit="limit=100, remaining=7, reset=10"), seven)
        self.assertEqual(read(200, ratelimit_remaining="7", ratelimit_reset="10"), seven)
        self.assertEqual(read(200, x_ratelimit_remaining="7", x_ratelimit_reset="1767225610"), seven)
        self.assertEqual(read(200, x_ratelimit_remaining_requests="7", x_ratelimit_reset_requests="10s"), seven)
        self.assertEqual(read(200, x_ratelimit_remaining_requests="7", x_ratelimit_reset_requests="6m0s")[2], 360)
        model = dict(anthropic_ratelimit_requests_remaining="7")
        self.assertEqual(read(200, anthropic_ratelimit_requests_reset="2026-01-01T00:00:10Z", **model), seven)
        self.assertEqual(read(429, ratelimit='"a";r=0;t=5'), (5, 0, 5))
        self.assertLess(time.time() - wall, 1e12)
