"""Builds the wheel, and the archive of sources, with the standard library alone (PEP 517).

``pip wheel .`` and ``pip install .`` call it; ``python3 build_wheel.py FOLDER`` does the same without pip.
The same files make the same bytes.
"""

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import sys
import tarfile
import zipfile

HERE = pathlib.Path(__file__).parent
NAME = "gatehouse"
VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / NAME / "__init__.py").read_text("utf-8"), re.M).group(1)
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Limits, semaphores, locks, events and budgets that many processes share
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""
WHEEL = """Wheel-Version: 1.0
Generator: build_wheel
Root-Is-Purelib: true
Tag: py3-none-any
"""


def sources():
    """The files of the package, by their names in an archive."""
    paths = [path for path in (HERE / NAME).rglob("*") if path.suffix == ".py" or path.name == "py.typed"]
    return {path.relative_to(HERE).as_posix(): path.read_bytes() for path in sorted(paths)}


def metadata():
    return (METADATA + (HERE / "README.md").read_text("utf-8")).encode()


def record(files):
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{INFO}/RECORD,,\n"]).encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {**sources(), f"{INFO}/METADATA": metadata(), f"{INFO}/WHEEL": WHEEL.encode()}
    files[f"{INFO}/RECORD"] = record(files)
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))  # the same each time
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return name


def build_sdist(sdist_directory, config_settings=None):
    folder = f"{NAME}-{VERSION}"
    files = {**sources(), "PKG-INFO": metadata()}
    for name in ("README.md", "pyproject.toml", "build_wheel.py"):
        files[name] = (HERE / name).read_bytes()
    with open(os.path.join(sdist_directory, folder + ".tar.gz"), "wb") as out:
        with gzip.GzipFile(fileobj=out, mode="wb", mtime=0, filename="") as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for name, data in files.items():
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
    return folder + ".tar.gz"


if __name__ == "__main__":
    print(build_wheel(sys.argv[1]))
    print(build_sdist(sys.argv[1]))
