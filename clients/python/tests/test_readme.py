"""Every block of the README is executed, in the order of reading and in one namespace."""

import contextlib
import io
import os
import pathlib
import re
import unittest

import gatehouse

BLOCK = re.compile(r"(?ms)^(?:<!-- needs (\w+) -->\n)?```python\n(.*?)^```$")


class Readme(unittest.TestCase):
    def test_blocks(self):
        text = (pathlib.Path(__file__).parents[1] / "README.md").read_text("utf-8")
        blocks = BLOCK.findall(text)
        self.assertEqual(len(blocks), text.count("```python"))
        names = {}
        with gatehouse.Client(os.environ["GATEHOUSE_ADDRESS"]) as gh:
            gh.delete("event", "migrated-7")  # of another run
        for needed, block in blocks:
            if needed:
                try:
                    __import__(needed)
                except ImportError:
                    compile(block, "README.md", "exec")
                    continue
            block = block.replace("http://localhost:5505", os.environ["GATEHOUSE_ADDRESS"])
            block = block.replace('owner="train-a"', 'owner="train-a", timeout=60')  # on a busy machine
            with self.subTest(block), contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block, "README.md", "exec"), names)
        names["gh"].close()
