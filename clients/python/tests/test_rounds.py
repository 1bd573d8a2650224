"""A short sample of rounds in which processes, the server and the roads between fail; see rounds.py."""

import os
import sys
import unittest

from . import rounds


class RoundsOfALock(unittest.TestCase):
    """GATEHOUSE_ROUNDS and GATEHOUSE_FAULTS make it longer."""

    def play(self, how):
        count = int(os.environ.get("GATEHOUSE_ROUNDS", "15"))
        faults = int(os.environ.get("GATEHOUSE_FAULTS", "1"))
        played = rounds.Rounds(count, faults, [sys.executable, "-m", "tests.worker", how])
        played.run()
        wrong, _ = played.judge()
        self.assertEqual(wrong, [])

    def test_blocking(self):
        self.play("blocking")

    def test_asyncio(self):
        self.play("awaiting")
