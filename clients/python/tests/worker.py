"""A process that holds one lock again and again, for tests/rounds.py. Says on standard output what it does."""

import asyncio
import random
import sys
import time

import gatehouse
from gatehouse import aio

TERM = 0.5


def say(what, *more):
    print(what, *more, flush=True)


def work(hold):
    """One step of work: the instant is taken before the check, so what passes it was held then."""
    at = time.monotonic_ns()
    hold.check()
    say("work", at)


def duration():
    """Mostly short; sometimes longer than a term, so that it must be renewed."""
    long = random.random() < 0.15
    return (2.5 * TERM if long else random.uniform(0.002, 0.02)), long


def blocking(address, name):
    with gatehouse.Client(address, timeout=2) as gh:
        lost = lambda hold: say("lost", time.monotonic_ns(), hold.fence)  # noqa: E731
        guard = gh.lock(name, expires=TERM, on_lost=lost)
        while True:
            lasts, long = duration()
            try:
                with guard as hold:
                    say("hold", time.monotonic_ns(), hold.fence, "long" if long else "short")
                    ends = time.monotonic() + lasts
                    while time.monotonic() < ends:
                        work(hold)
                        time.sleep(0.05 if long else 0.002)
                say("left", time.monotonic_ns())
            except gatehouse.GatehouseError as error:
                say("error", error.code)


async def awaiting(address, name):
    async with aio.Client(address, timeout=2) as gh:
        lost = lambda hold: say("lost", time.monotonic_ns(), hold.fence)  # noqa: E731
        guard = gh.lock(name, expires=TERM, on_lost=lost)
        while True:
            lasts, long = duration()
            try:
                async with guard as hold:
                    say("hold", time.monotonic_ns(), hold.fence, "long" if long else "short")
                    ends = time.monotonic() + lasts
                    while time.monotonic() < ends:
                        work(hold)
                        await asyncio.sleep(0.05 if long else 0.002)
                say("left", time.monotonic_ns())
            except gatehouse.GatehouseError as error:
                say("error", error.code)


if __name__ == "__main__":
    how, where, what = sys.argv[1:]
    if how == "blocking":
        blocking(where, what)
    else:
        asyncio.run(awaiting(where, what))
