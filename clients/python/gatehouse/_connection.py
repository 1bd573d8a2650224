"""Connections of the blocking client."""

import os
import select
import socket
import ssl
import threading
import time
from typing import Dict, Generator, List, Optional, Tuple, TypeVar

from ._delivery import Failure, Outcome, Pause, Send, Step
from ._http1 import Address, Parser, ProtocolError, Response

IDLE = 60.0  # seconds; the server closes what is idle for two minutes
KEPT = 16  # idle connections for each address

T = TypeVar("T")


def keep_alive(sock: socket.socket) -> None:
    """Let TCP find out within half a minute that the other machine has gone, however long a call waits."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class Interrupt:
    """Ends a call from another thread."""

    def __init__(self) -> None:
        self._mu = threading.Lock()
        self._sock: Optional[socket.socket] = None
        self.stopped = threading.Event()

    def stop(self) -> None:
        """End the call that is under way, if there is one, and all that follow."""
        with self._mu:
            self.stopped.set()
            if self._sock is not None:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def watch(self, sock: Optional[socket.socket]) -> None:
        with self._mu:
            self._sock = sock
            if sock is not None and self.stopped.is_set():
                raise InterruptedError("stopped")


class Pool:
    """Connections that are kept for the next call. It is safe for concurrent use, and knows a fork."""

    def __init__(self, tls: Optional[ssl.SSLContext] = None) -> None:
        self._mu = threading.Lock()
        self._idle: Dict[Address, List[Tuple[float, socket.socket]]] = {}
        self._process = os.getpid()
        self._tls = tls  # None until it is needed: to read the system's authorities takes a while

    def run(self, steps: Generator[Step, Outcome, T], interrupt: Optional[Interrupt] = None) -> T:
        """Do what a delivery asks for, until it is through."""
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                if interrupt is None:
                    time.sleep(step.seconds)
                elif interrupt.stopped.wait(step.seconds):
                    raise InterruptedError("stopped")
                outcome = None
            else:
                outcome = self._send(step, interrupt or Interrupt())

    def _send(self, step: Send, interrupt: Interrupt) -> Outcome:
        sock: Optional[socket.socket] = None
        sent = False
        try:
            sock = self._take(step.address) or self._connect(step)
            interrupt.watch(sock)
            _allow(sock, step.deadline)
            sent = True
            sock.sendall(step.encode())
            answer = _receive(sock, step.deadline)
            interrupt.watch(None)
        except (OSError, ProtocolError) as error:
            _close(sock)
            if interrupt.stopped.is_set():
                raise InterruptedError("stopped") from None
            return Failure(str(error) or type(error).__name__, sent)
        except BaseException:  # whoever is interrupted leaves, so that the server frees the place
            _close(sock)
            raise
        if answer.keep:
            self._give(step.address, sock)
        else:
            _close(sock)
        return answer

    def _connect(self, step: Send) -> socket.socket:
        address = step.address
        left = max(0.001, step.connect_deadline - time.monotonic())
        sock = socket.create_connection((address.host, address.port), timeout=left)
        keep_alive(sock)
        if address.scheme == "https":
            with self._mu:
                self._tls = self._tls or ssl.create_default_context()
            return self._tls.wrap_socket(sock, server_hostname=address.host)
        return sock

    def _take(self, address: Address) -> Optional[socket.socket]:
        """A connection that is open still, as far as one can see."""
        while True:
            with self._mu:
                if self._process != os.getpid():  # connections of the parent are its own
                    self._idle, self._process = {}, os.getpid()
                kept = self._idle.get(address)
                if not kept:
                    return None
                since, sock = kept.pop()
            if time.monotonic() - since < IDLE and not _readable(sock):
                return sock
            _close(sock)

    def _give(self, address: Address, sock: socket.socket) -> None:
        with self._mu:
            kept = self._idle.setdefault(address, [])
            if self._process == os.getpid() and len(kept) < KEPT:
                kept.append((time.monotonic(), sock))
                return
        _close(sock)

    def close(self) -> None:
        with self._mu:
            kept, self._idle = self._idle, {}
        for sockets in kept.values():
            for _, sock in sockets:
                _close(sock)


def _allow(sock: socket.socket, deadline: Optional[float]) -> None:
    if deadline is None:
        sock.settimeout(None)
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("no answer in time")
    sock.settimeout(left)


def _receive(sock: socket.socket, deadline: Optional[float]) -> Response:
    parser = Parser()
    while True:
        _allow(sock, deadline)
        try:
            data = sock.recv(64 << 10)
        except socket.timeout:
            raise socket.timeout("no answer in time") from None
        if not data:
            return parser.eof()
        answer = parser.feed(data)
        if answer is not None:
            return answer


def _readable(sock: socket.socket) -> bool:
    """Whether something has come that nobody asked for, such as the end."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN | select.POLLERR | select.POLLHUP)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _close(sock: Optional[socket.socket]) -> None:
    if sock is not None:
        try:
            sock.close()
        except OSError:
            pass
