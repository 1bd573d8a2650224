"""What holds do when all is well, and when a server is paused, cut off, killed or says no."""

import threading
import time
import unittest
import uuid

import gatehouse

from .server import Link, Server, patience, shared_address


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

    def test_server_paused_for_one_beat_is_harmless(self):
        with Server() as server, gatehouse.Client(server.address) as gh:
            with gh.lock("a", expires=6) as hold:
                fence = hold.fence
                server.pause()  # over the beat after 2 s
                timer = threading.Timer(2.3, server.go_on)
                timer.start()
                timer.join()
                self.assertFalse(hold.lost)
                deadline = time.monotonic() + patience
                while gh.holders("lock", "a")[0]["renewals"] == 0 and time.monotonic() < deadline:
                    pass  # each look is a request
                self.assertFalse(hold.lost)
                self.assertEqual(hold.fence, fence)

    def test_loss_is_known_before_the_next_holds(self):
        with Server() as server, Link(server.address) as link:
            with gatehouse.Client(link.address) as gh, gatehouse.Client(server.address) as other:
                hold = gh.lock("a", expires=1).acquire()
                link.cut()
                with other.lock("a") as following:
                    self.assertTrue(hold.lost)
                    self.assertGreater(following.fence, hold.fence)
                with self.assertRaises(gatehouse.HoldLost):
                    hold.release()  # an error, and no hang

    def test_a_server_that_hangs_is_given_up(self):
        with Server() as server, gatehouse.Client(server.address, timeout=0.2) as gh:
            server.pause()
            with self.assertRaises(gatehouse.Unavailable):
                gh.counter("c").value()

    def test_a_call_that_is_given_up_leaves_another_hold_of_its_key(self):
        with Server() as server, gatehouse.Client(server.address, timeout=0.2) as gh:
            with gatehouse.Client(server.address, timeout=patience) as patient:
                hold = patient.lock("a", key="me").acquire()
                server.pause()
                with self.assertRaises(gatehouse.Unavailable):
                    gh.lock("a", key="me", max_wait=0).acquire()
                server.go_on()
                self.assertEqual(len(patient.holders("lock", "a")), 1)
                hold.release()

    def test_next_address(self):
        with gatehouse.Client("localhost:1", shared_address()) as gh:
            self.assertEqual(gh.counter(fresh("c")).count(), 1)  # nothing was sent to the first
            with gh.lock(fresh("lock")):
                pass

    def test_counter_is_never_sent_twice(self):
        with Server() as server, Link(server.address) as link:
            with gatehouse.Client(link.address, server.address, timeout=0.3) as gh:
                link.cut()
                with self.assertRaises(gatehouse.Unavailable) as error:
                    gh.counter("c").count()
                self.assertTrue(error.exception.maybe_done)
                link.mend()

    def test_holds_survive_a_restart_of_the_server(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder, Server("--store", "disk:" + folder) as server:
            with gatehouse.Client(server.address) as gh, gh.lock("a", expires=5) as hold:
                server.kill()
                server.start()
                hold.check()

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

    def test_capacity_without_a_server(self):
        with Server() as server, gatehouse.Client(server.address, timeout=0.2) as gh:
            failed = threading.Event()
            with gh.capacity(on_error=lambda error: failed.set()) as capacity:
                resource = capacity.resource("nowhere", 5)  # the server has no configuration
                self.assertTrue(failed.wait(patience))
                self.assertEqual(resource.capacity, 0)
                with self.assertRaises(gatehouse.Refused):
                    resource.wait(max_wait=0.05)
