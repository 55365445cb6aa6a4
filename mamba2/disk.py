"""Files beyond doubt: on disk before anything relies on them, and what they hold as one number."""

import hashlib
import os
from pathlib import Path


def reach_disk(path: Path) -> None:
    """Waits until a file, or the names in a folder, would outlast a loss of power."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """SHA-256 of a file, however large, as `sha256sum` writes it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
