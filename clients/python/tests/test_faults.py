"""What holds do when a server is paused, cut off or killed."""

import tempfile
import threading
import time
import unittest

import gatehouse

from .server import Link, Server, patience


class Faults(unittest.TestCase):
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
                hold = gh.lock("a", expires=2).acquire()
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

    def test_counter_is_never_sent_twice(self):
        with Server() as server, Link(server.address) as link:
            with gatehouse.Client(link.address, server.address, timeout=0.3) as gh:
                link.cut()
                with self.assertRaises(gatehouse.Unavailable) as error:
                    gh.counter("c").count()
                self.assertTrue(error.exception.maybe_done)
                link.mend()

    def test_holds_survive_a_restart_of_the_server(self):
        with tempfile.TemporaryDirectory() as folder, Server("--store", "disk:" + folder) as server:
            with gatehouse.Client(server.address) as gh, gh.lock("a", expires=5) as hold:
                server.kill()
                server.start()
                hold.check()

    def test_capacity_without_a_server(self):
        with Server() as server, gatehouse.Client(server.address, timeout=0.2) as gh:
            failed = threading.Event()
            with gh.capacity(on_error=lambda error: failed.set()) as capacity:
                resource = capacity.resource("nowhere", 5)  # the server has no configuration
                self.assertTrue(failed.wait(patience))
                self.assertEqual(resource.capacity, 0)
                with self.assertRaises(gatehouse.Refused):
                    resource.wait(max_wait=0.05)
