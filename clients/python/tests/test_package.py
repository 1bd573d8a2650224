"""The wheel can be built without a network, and what is installed from it can be imported."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

HERE = pathlib.Path(__file__).parents[1]


class Package(unittest.TestCase):
    def test_wheel(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            for folder in (one, two):
                subprocess.run([sys.executable, HERE / "build_wheel.py", folder], check=True, capture_output=True)
            (first,) = pathlib.Path(one).glob("*.whl")
            (second,) = pathlib.Path(two).glob("*.whl")
            self.assertEqual(first.read_bytes(), second.read_bytes())
            with zipfile.ZipFile(first) as archive:
                self.assertIn("gatehouse/py.typed", archive.namelist())
                self.assertFalse([name for name in archive.namelist() if "test" in name])
            # A wheel of Python alone can be imported as it is.
            program = "import gatehouse.aio, gatehouse.asgi, gatehouse.wsgi, gatehouse.transport as t; print(t.__file__)"
            done = subprocess.run([sys.executable, "-c", program], cwd=two, env={"PYTHONPATH": str(first)},
                                  check=True, capture_output=True, text=True)  # fmt: skip
            self.assertIn(first.name, done.stdout)


if __name__ == "__main__":
    unittest.main()
