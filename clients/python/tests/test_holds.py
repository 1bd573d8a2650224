"""What holds and the rest do when all is well, and when a server says no."""

import threading
import unittest
import uuid

import gatehouse

from .server import patience, shared_address


def fresh(name):
    return f"{name}-{uuid.uuid4()}"


class Blocking(unittest.TestCase):
    def setUp(self):
        self.threads = set(threading.enumerate())
        self.gh = gatehouse.Client(shared_address(), timeout=patience)

    def tearDown(self):
        self.gh.close()
        left = set(threading.enumerate()) - self.threads
        self.assertEqual([t for t in left if t.name.startswith(("renew", "kick", "capacity"))], [])

    def test_block_holds_and_releases(self):
        name = fresh("gpu")
        with self.gh.semaphore(name, 2) as hold:
            self.assertGreater(hold.fence, 0)
            self.assertGreater(hold.remaining, 50)
            hold.check()
            self.assertEqual(len(self.gh.holders("semaphore", name)), 1)
        self.assertEqual(self.gh.holders("semaphore", name), [])

    def test_refused(self):
        name = fresh("lock")
        with self.gh.lock(name):
            self.assertIsNone(self.gh.lock(name).try_acquire())
            with self.assertRaises(gatehouse.Refused) as refused:
                self.gh.lock(name, max_wait=0.01).acquire()
            self.assertGreater(refused.exception.retry_after, 50)

    def test_one_guard_in_many_threads_and_nested(self):
        guard = self.gh.semaphore(fresh("gpu"), 8)
        fences = []

        def use():
            with guard as one:
                with guard as two:
                    fences.extend([one.fence, two.fence])

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience)
        self.assertEqual(len(set(fences)), 8)

    def test_decorator(self):
        name = fresh("lock")

        @self.gh.lock(name)
        def holders(extra):
            """Says who holds."""
            return len(self.gh.holders("lock", name)) + extra

        self.assertEqual(holders(1), 2)
        self.assertEqual(holders.__doc__, "Says who holds.")
        self.assertEqual(self.gh.holders("lock", name), [])

    def test_lost_is_told_thrice(self):
        told = threading.Event()
        name = fresh("lock")
        with self.assertRaises(gatehouse.HoldLost) as lost:
            with self.gh.lock(name, expires=3, on_lost=lambda hold: told.set()) as hold:
                self.gh.delete("lock", name)
                self.assertTrue(told.wait(patience))
                self.assertTrue(hold.lost)
                with self.assertRaises(gatehouse.HoldLost):
                    hold.check()
        self.assertIn("not held", str(lost.exception))

    def test_lost_beside_an_error(self):
        told = threading.Event()
        name = fresh("lock")
        with self.assertRaises(gatehouse.HoldLost) as lost:
            with self.gh.lock(name, expires=3, on_lost=lambda hold: told.set()):
                self.gh.delete("lock", name)
                told.wait(patience)
                raise KeyError("of the block")
        self.assertIsInstance(lost.exception.__cause__, KeyError)

    def test_next_address(self):
        with gatehouse.Client("localhost:1", shared_address()) as gh:
            self.assertEqual(gh.counter(fresh("c")).count(), 1)  # nothing was sent to the first
            with gh.lock(fresh("lock")):
                pass

    def test_budget(self):
        name = fresh("tokens")
        budget = self.gh.budget(name, "1000/1h")
        with budget.reserve(600) as spend:
            with self.assertRaises(gatehouse.Refused):
                spend.top_up(500)
            spend.top_up(100)
            spend.settle(250)
        self.assertEqual(self.gh.limiter(name, kind="slidinglog").peek(0).remaining, 750)

    def test_watchdog_block(self):
        name = fresh("nightly")
        with self.assertRaises(KeyError):
            with self.gh.watchdog(name, expires=1.5):
                while self.gh.stats("watchdog", name)["kicks"] < 3:
                    pass  # each look is a request
                raise KeyError("died")
        self.gh.watchdog(name).wait(patience)  # an alarm
        with self.gh.watchdog(fresh("w"), expires=3):
            pass

    def test_batch(self):
        answers = self.gh.batch([{"counter": fresh("c"), "op": "count"}, {"lock": fresh("l"), "op": "release", "key": "k"}])
        self.assertEqual([answer["outcome"] for answer in answers], ["granted", "conflict"])

    def test_capacity(self):
        name = fresh("db")
        with self.gh.capacity() as one, self.gh.capacity() as two:
            first = one.resource(name, 80)
            self.assertTrue(first.ready(patience))
            self.assertEqual(first.capacity, 80)
            first.wait(2)
            second = two.resource(name, 80)
            self.assertTrue(second.ready(patience))
            self.assertEqual(second.capacity, 20)
            first.release()
            self.assertEqual(first.capacity, 0)
