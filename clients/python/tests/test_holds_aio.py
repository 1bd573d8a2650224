"""What holds do in a program for asyncio."""

import asyncio
import unittest

import gatehouse
from gatehouse import aio

from .server import patience, shared_address
from .test_holds import fresh


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.gh = aio.Client(shared_address(), timeout=patience)

    async def asyncTearDown(self):
        await self.gh.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        self.assertEqual([task for task in left if "Test" not in repr(task) and "_asyncioLoopRunner" not in repr(task)], [])

    async def test_block_and_decorator(self):
        name = fresh("gpu")
        async with self.gh.semaphore(name, 2) as hold:
            self.assertGreater(hold.fence, 0)

            @self.gh.semaphore(name)
            async def holders():
                return len(await self.gh.holders("semaphore", name))

            self.assertEqual(await holders(), 2)
        self.assertEqual(await self.gh.holders("semaphore", name), [])

    async def test_lost_cancels_the_block(self):
        name = fresh("lock")
        with self.assertRaises(gatehouse.HoldLost):
            async with self.gh.lock(name, expires=3):
                await self.gh.delete("lock", name)
                await asyncio.sleep(patience)
                self.fail("the block was not cancelled")
        await asyncio.sleep(0)  # and the task is not cancelled any more

    async def test_lost_while_the_block_ends(self):
        name = fresh("lock")
        with self.assertRaises(gatehouse.HoldLost):
            async with self.gh.lock(name, expires=3) as hold:
                await self.gh.delete("lock", name)
                try:
                    await asyncio.sleep(patience)
                except asyncio.CancelledError:
                    pass  # a block that swallows it is told at its end
                self.assertTrue(hold.lost)

    async def test_cancelled_wait_leaves_the_line(self):
        name = fresh("lock")
        async with self.gh.lock(name):
            waiting = asyncio.ensure_future(self.gh.lock(name).acquire())
            while len(await self.gh.waiters("lock", name)) < 1:
                pass
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            while len(await self.gh.waiters("lock", name)) > 0:
                pass
        async with self.gh.lock(name, max_wait=0):
            pass

    async def test_cancelled_block_releases(self):
        name = fresh("lock")
        inside = asyncio.Event()

        async def work():
            async with self.gh.lock(name):
                inside.set()
                await asyncio.sleep(patience)

        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertIsNotNone(await self._taken(name))

    async def _taken(self, name):
        hold = await self.gh.lock(name).try_acquire()
        if hold is not None:
            await hold.release()
        return hold

    async def test_grant_and_budget(self):
        name = fresh("tokens")
        async with self.gh.grant({"lock": name}, {"gcra": name, "limits": "100/1h", "cost": 60}) as grant:
            self.assertEqual([member["cost"] for member in grant.want], [1, 60])
            await grant.settle({f"gcra/{name}": 10})
        async with self.gh.budget(name, "100/1h", kind="gcra").reserve(50) as spend:
            await spend.settle(20)
        self.assertEqual((await self.gh.limiter(name, kind="gcra").peek(0)).remaining, 70)

    async def test_the_rest(self):
        self.assertEqual(await self.gh.counter(fresh("c")).count(2), 2)
        event = self.gh.event(fresh("e"))
        await event.send("done")
        self.assertEqual(await event.wait(), "done")
        barrier = self.gh.barrier(fresh("b"), 2)
        await asyncio.gather(barrier.wait(), barrier.wait())
        async with self.gh.watchdog(fresh("w"), 1.5) as dog:
            while (await self.gh.stats("watchdog", dog.name))["kicks"] < 3:
                pass  # each look is a request
        limiter = self.gh.limiter(fresh("api"), "2/1h")
        await limiter.acquire()
        self.assertTrue(await limiter.try_acquire())
        self.assertFalse(await limiter.try_acquire())

    async def test_capacity(self):
        async with self.gh.capacity() as capacity:
            resource = capacity.resource(fresh("db"), 80)
            self.assertTrue(await resource.ready(patience))
            self.assertEqual(resource.capacity, 80)
            await resource.wait(2)
