"""Rounds of a lock that processes hold one after the other, while they, the server and the roads between fail.

    python3 -m tests.rounds ROUNDS FAULTS COMMAND...

runs three processes of COMMAND with the address of a server and the name of a lock, until they have held it so
often and so many faults were made. They must never hold it together, and know of a loss before the next one
holds it. Instants are those of the machine's monotonic clock, which all processes share.
"""

import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
import signal

from .server import Link, Server, patience

FAULTS = ("kill", "pause", "cut", "server paused", "server paused long", "server killed")
TERM = 0.5
LATE = 75_000_000  # ns; a worker does a step each 50 ms at least, if it gets a processor


class Worker:
    """One process, behind a road of its own."""

    def __init__(self, number, command, server, events):
        self.number, self.command, self.events = number, command, events
        self.link = Link(server.address)
        self.start()

    def start(self):
        command = [*self.command, self.link.address, "rounds"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, stream):
        with stream:
            for line in stream:
                self.events.put((self.number, line.split()))

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(patience)
        self.link.__exit__()


class Hold:
    """What is known of one hold."""

    def __init__(self, worker, start, fence):
        self.worker, self.start, self.fence = worker, start, fence
        self.last_work, self.lost, self.stopped = start, None, False

    def at(self, instant):
        """Its process ran at that instant. One that did not run for long before it was as good as stopped."""
        self.stopped |= instant - self.last_work > LATE
        self.last_work = instant


class Rounds:
    def __init__(self, rounds, faults, command):
        self.rounds, self.faults = rounds, faults
        self.events = queue.Queue()
        self.holds, self.open, self.made = [], {}, []
        self.errors = {}
        self.first = random.randrange(len(FAULTS))
        self.folder = tempfile.TemporaryDirectory()
        self.server = Server("--store", "disk:" + self.folder.name)
        self.workers = [Worker(n, command, self.server, self.events) for n in range(3)]

    def run(self):
        timers = []
        try:
            while len(self.holds) < self.rounds or len(self.made) < self.faults:
                number, words = self.events.get(timeout=patience)
                self.note(number, words)
                if words[0] == "hold" and words[3] == "long" and len(self.made) < self.faults:
                    if not any(timer.is_alive() for timer in timers):
                        timers = self.fail(self.workers[number])
            for timer in timers:
                timer.join()
        finally:
            for timer in timers:
                timer.join(patience)
            for worker in self.workers:
                worker.stop()
            self.server.__exit__()
            self.folder.cleanup()
        while not self.events.empty():
            self.note(*self.events.get())

    def note(self, number, words):
        if words[0] == "error":
            self.errors[words[1]] = self.errors.get(words[1], 0) + 1
        elif words[0] == "hold":
            hold = Hold(number, int(words[1]), int(words[2]))
            self.open[number] = hold
            self.holds.append(hold)
        elif words[0] == "work":
            self.open[number].at(int(words[1]))
        elif words[0] == "lost":
            hold = self.open[number]
            hold.lost = int(words[1])
            hold.stopped |= hold.lost - hold.last_work > LATE

    def fail(self, worker):
        """Make the next fault, and return the timer that ends it."""
        fault = FAULTS[(self.first + len(self.made)) % len(FAULTS)]
        self.made.append(fault)
        hold = self.open[worker.number]
        end, after = None, 1.6 * TERM
        if fault == "kill":
            worker.process.kill()
            worker.process.wait(patience)
            worker.start()
        elif fault == "pause":
            hold.stopped = True
            worker.process.send_signal(signal.SIGSTOP)
            end = lambda: worker.process.send_signal(signal.SIGCONT)  # noqa: E731
        elif fault == "cut":
            worker.link.cut()
            end = worker.link.mend
        elif fault.startswith("server paused"):
            self.server.pause()
            end, after = self.server.go_on, after if fault.endswith("long") else 0.3 * TERM
        else:
            self.server.kill()
            self.server.start()
        if end is None:
            return []
        timer = threading.Timer(after, end)
        timer.start()
        return [timer]

    def judge(self):
        """Find what must not be, and return it with the least time from a loss to the next hold, in ms."""
        wrong, least = [], None
        holds = sorted(self.holds, key=lambda hold: hold.start)
        for hold, following in zip(holds, holds[1:]):
            if hold.last_work >= following.start:
                wrong.append(f"worker {hold.worker} worked {hold.last_work - following.start} ns after the next began")
            if hold.fence >= following.fence:
                wrong.append(f"fence {following.fence} came after {hold.fence}")
            if hold.lost is not None and not hold.stopped:
                margin = (following.start - hold.lost) / 1e6
                least = margin if least is None else min(least, margin)
                if margin < 0:
                    wrong.append(f"worker {hold.worker} learnt of a loss {-margin} ms after the next began")
        return wrong, least


def main(rounds, faults, command):
    random.seed()
    began = time.monotonic()
    played = Rounds(int(rounds), int(faults), command)
    played.run()
    wrong, least = played.judge()
    lost = sum(hold.lost is not None for hold in played.holds)
    print(
        f"{len(played.holds)} rounds, {len(played.made)} faults, {lost} lost, errors {played.errors}, "
        f"least time from a loss to the next hold {'none' if least is None else f'{least:.1f} ms'}, "
        f"{len(wrong)} wrong, {time.monotonic() - began:.1f} s"
    )
    for text in wrong[:20]:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
