"""Connections of the client for asyncio. A call that is cancelled closes its own, so the server frees the place."""

import asyncio
import ssl
from typing import Dict, Generator, List, Optional, Tuple, TypeVar

from ._connection import IDLE, KEPT, keep_alive
from ._delivery import Failure, Outcome, Pause, Send, Step
from ._http1 import Address, Parser, ProtocolError, Response

T = TypeVar("T")
Stream = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pool:
    """Connections that are kept for the next call, of one event loop at a time."""

    def __init__(self, tls: Optional[ssl.SSLContext] = None) -> None:
        self._idle: Dict[Address, List[Tuple[float, Stream]]] = {}
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._tls = tls  # None until it is needed

    async def run(self, steps: Generator[Step, Outcome, T]) -> T:
        """Do what a delivery asks for, until it is through."""
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                outcome = None
            else:
                outcome = await self._send(step)

    async def _send(self, step: Send) -> Outcome:
        stream: Optional[Stream] = None
        sent = False
        try:
            stream = self._take(step.address) or await self._connect(step)
            sent = True
            stream[1].write(step.encode())
            answer = await _receive(stream, step.deadline)
        except (OSError, ProtocolError) as error:
            _close(stream)
            return Failure(str(error) or "no answer in time", sent)
        except BaseException:
            _close(stream)
            raise
        if answer.keep:
            self._give(step.address, stream)
        else:
            _close(stream)
        return answer

    async def _connect(self, step: Send) -> Stream:
        address = step.address
        if address.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if address.scheme == "https" else None
        opening = asyncio.ensure_future(asyncio.open_connection(address.host, address.port, ssl=tls))
        try:
            left = max(0.0, step.connect_deadline - asyncio.get_running_loop().time())
            done, _ = await asyncio.wait([opening], timeout=left)
            if not done:
                raise OSError(f"no connection to {address.authority} in time")
        except BaseException:
            opening.cancel()
            opening.add_done_callback(_close_opened)
            raise
        stream = opening.result()
        sock = stream[1].get_extra_info("socket")
        if sock is not None:
            keep_alive(sock)
        return stream

    def _take(self, address: Address) -> Optional[Stream]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the streams of another loop are of no use in this one
            self._idle, self._loop = {}, loop
        kept = self._idle.get(address)
        while kept:
            since, stream = kept.pop()
            if loop.time() - since < IDLE and not stream[0].at_eof() and not stream[1].is_closing():
                return stream
            _close(stream)
        return None

    def _give(self, address: Address, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        kept = self._idle.setdefault(address, [])
        if self._loop is loop and len(kept) < KEPT:
            kept.append((loop.time(), stream))
        else:
            _close(stream)

    async def close(self) -> None:
        kept, self._idle = self._idle, {}
        for streams in kept.values():
            for _, (_, writer) in streams:
                writer.close()
                try:
                    await writer.wait_closed()
                except OSError:
                    pass


async def _receive(stream: Stream, deadline: Optional[float]) -> Response:
    """Read an answer. asyncio.wait_for could swallow a cancellation, so a timer ends the connection instead."""
    reader, writer = stream
    timer: Optional[asyncio.TimerHandle] = None
    if deadline is not None:
        timer = asyncio.get_running_loop().call_at(deadline, writer.transport.abort)
    parser = Parser()
    try:
        while True:
            data = await reader.read(64 << 10)
            if not data:
                if writer.transport.is_closing() and not parser.started:
                    raise ProtocolError("no answer before the connection ended, or not in time")
                return parser.eof()
            answer = parser.feed(data)
            if answer is not None:
                return answer
    finally:
        if timer is not None:
            timer.cancel()


def _close_opened(opening: "asyncio.Task[Stream]") -> None:
    """What was opened while it was given up is nobody's."""
    if not opening.cancelled() and opening.exception() is None:
        _close(opening.result())


def _close(stream: Optional[Stream]) -> None:
    if stream is not None:
        stream[1].transport.abort()
