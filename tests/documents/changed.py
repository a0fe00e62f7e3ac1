"""Prints the folders of the documents' tests where the documents have changed since these passed.

python tests/documents/changed.py            # what `make test` adds to its tests
python tests/documents/changed.py --passed   # what `make test-documents` says when they pass
"""

import hashlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PASSED = HERE / "passed.sha256"
# What running the tests or making the site leaves behind.
MADE = {"__pycache__", ".unpacked", "_build"}
FOLDERS = ("docs", "reports/chapters", "reports/recorded", "reports/reference", "tests/documents")


def digest() -> str:
    """SHA-256 over the names and bytes of the documents and their tests."""
    found = hashlib.sha256()
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")):
        if path.is_file() and path != PASSED and not MADE.intersection(path.parts):
            found.update(f"{path.relative_to(ROOT)}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest() + "\n"


if __name__ == "__main__":
    if "--passed" in sys.argv:
        PASSED.write_text(digest())
    elif not PASSED.exists() or PASSED.read_text() != digest():
        chapters = sorted((ROOT / "reports/chapters").glob("*/tests"))
        print(*(folder.relative_to(ROOT) for folder in (HERE, *chapters)))
