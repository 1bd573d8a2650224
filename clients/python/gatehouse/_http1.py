"""HTTP/1.1 as bytes, without sockets: what both clients, blocking and asyncio, write and read."""

import urllib.parse
from typing import Dict, List, NamedTuple, Optional

MAX_HEAD = 64 << 10  # of an answer: the server's own are below 16 KiB
MAX_BODY = 64 << 20  # a batch of 1,000 decisions is below 1 MiB; lists and statistics are below 16


class Address(NamedTuple):
    """Where a server is."""

    scheme: str
    host: str
    port: int
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str, secure: bool = False) -> Address:
    """Read ``http://host:port/prefix``, or ``host:port`` alone, which is of https if secure says so."""
    bare = "://" not in text
    if bare:
        text = ("https://" if secure else "http://") + text
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"address {text!r}: want http://host:port")
    if parts.username is not None:
        raise ValueError("an address has no user name: the server knows none")
    port = parts.port or (443 if parts.scheme == "https" and not bare else 5505)
    return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


class Request(NamedTuple):
    """A request, but for where it goes."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/x-www-form-urlencoded"

    def encode(self, address: Address, token: str = "") -> bytes:
        head = [
            f"{self.method} {address.prefix}{self.path} HTTP/1.1",
            f"Host: {address.authority}",
            "Accept: application/json",
            "User-Agent: gatehouse-python",
        ]
        if token:
            head.append(f"Authorization: Bearer {token}")
        if self.method != "GET":
            head.append(f"Content-Type: {self.content_type}")
            head.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(head).encode("ascii") + b"\r\n\r\n" + self.body


class Response(NamedTuple):
    """An answer. The names of its headers are in small letters."""

    status: int
    headers: Dict[str, str]
    body: bytes
    keep: bool  # whether another request may follow on the connection


class ProtocolError(Exception):
    """What came is no HTTP/1.1."""


class Parser:
    """Takes the bytes of one answer as they come.

    ``feed`` returns the answer once it is whole, and None before that; ``eof`` says that no more will come.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._head: Optional[Response] = None
        self._chunks: List[bytes] = []
        self.started = False

    def feed(self, data: bytes) -> Optional[Response]:
        self.started = True
        self._data += data
        while self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                if len(self._data) > MAX_HEAD:
                    raise ProtocolError(f"the head of the answer is longer than {MAX_HEAD} bytes")
                return None
            head = _parse_head(bytes(self._data[:end]))
            del self._data[: end + 4]
            if head.status >= 200:  # others only announce one
                self._head = head
        return self._parse_body(self._head, ended=False)

    def eof(self) -> Response:
        """The connection has ended; return the answer if that was its end."""
        answer = self._parse_body(self._head, ended=True) if self._head else None
        if answer is None:
            raise ProtocolError("the connection ended before the answer did")
        return answer

    def _parse_body(self, head: Response, ended: bool) -> Optional[Response]:
        if head.status in (204, 304):
            return head
        if len(self._data) > MAX_BODY:
            raise ProtocolError(f"the answer is longer than {MAX_BODY} bytes")
        if "chunked" in head.headers.get("transfer-encoding", "").lower():
            return self._parse_chunks(head)
        if "content-length" in head.headers:
            length = _parse_number(head.headers["content-length"], 10)
            if len(self._data) < length:
                return None
            return head._replace(body=bytes(self._data[:length]))
        return head._replace(body=bytes(self._data), keep=False) if ended else None

    def _parse_chunks(self, head: Response) -> Optional[Response]:
        while True:
            end = self._data.find(b"\r\n")
            if end < 0:
                return None
            size = _parse_number(bytes(self._data[:end]).split(b";")[0].decode("latin-1"), 16)
            if size == 0:
                # Trailers end with an empty line; the server sends none, and they say nothing to us.
                if not self._data.endswith(b"\r\n\r\n") and self._data[end + 2 :] != b"\r\n":
                    return None
                return head._replace(body=b"".join(self._chunks))
            if len(self._data) < end + 2 + size + 2:
                return None
            self._chunks.append(bytes(self._data[end + 2 : end + 2 + size]))
            del self._data[: end + 2 + size + 2]


def _parse_head(head: bytes) -> Response:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise ProtocolError(f"{lines[0][:100]!r} is no status line")
    headers: Dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise ProtocolError(f"{line[:100]!r} is no header")
        name = name.strip().lower()
        value = value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    keep = words[0] != "HTTP/1.0" and headers.get("connection", "").lower() != "close"
    return Response(_parse_number(words[1], 10), headers, b"", keep)


def _parse_number(text: str, base: int) -> int:
    try:
        return int(text.strip(), base)
    except ValueError:
        raise ProtocolError(f"{text[:100]!r} is no number") from None
