"""Servers for tests: one that all share, and some that are killed, stopped and cut off."""

import os
import re
import signal
import socket
import subprocess
import threading

patience = 60.0  # how long anything may take that has no time of its own, on a busy machine


def shared_address():
    """The server that all tests may use who do not end it."""
    return os.environ["GATEHOUSE_ADDRESS"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A real server of one test's own."""

    def __init__(self, *flags, port=0):
        self.address = ""
        self.flags = flags
        self.port = port or free_port()
        self.start()

    def start(self):
        command = [os.environ["GATEHOUSE_BINARY"], "serve", "--http", f"127.0.0.1:{self.port}"]
        command += ["--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *self.flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "serving HTTP" in line:
                self.address = "http://" + re.search(r'"?address"?[=:]"?([^\s",]+)', line).group(1)
                break
        else:
            raise RuntimeError("the server does not serve")
        threading.Thread(target=self._drain, args=(self.process.stderr,), daemon=True).start()

    @staticmethod
    def _drain(stream):
        with stream:
            for _ in stream:
                pass

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # it answers until it has stopped

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait(patience)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.go_on()
            self.process.terminate()
            self.process.wait(patience)


class Link:
    """A road to a server that can be cut: then nothing comes through, and nobody is told."""

    def __init__(self, address):
        host, port = address.rsplit("/", 1)[1].split(":")
        self._to = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._sockets = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        self._open.clear()

    def mend(self):
        self._open.set()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._to)
            except OSError:  # there is no server just now
                client.close()
                continue
            self._sockets += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, one, other):
        try:
            while True:
                data = one.recv(64 << 10)
                self._open.wait()
                if not data:
                    break
                other.sendall(data)
        except OSError:
            pass
        for sock in (one, other):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._open.set()
        self._listener.close()
        for sock in self._sockets:
            sock.close()
