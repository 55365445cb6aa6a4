"""The content of a file in pieces, unpacked where it is zstd, so that no file is too large."""

from collections.abc import Iterator
from io import FileIO
from itertools import chain
from pathlib import Path
from stat import S_ISREG

import zstandard

from mamba2.errors import DataError

__all__ = ["line_of", "read_content"]

_ZSTD = b"\x28\xb5\x2f\xfd"
_DBZ = b"\x50\x2a\x4d\x18"
_PACKED = 1 << 16  # compressed bytes unpacked at once
_BLOCK_HEADER = 3
_RLE = 1  # kind of a block that is one byte, repeated


def read_content(path: Path, most: int) -> Iterator[bytes]:
    """Yields the content in pieces; of a plain file, of at most `most` bytes.

    The first piece of a compressed file is small, so that something else than DBN is found out before it is unpacked.

    Raises:
        DataError: the file cannot be read, is empty, is DBZ, or is not whole zstd data.
    """
    file, size = _opened(path)
    with file:
        first = _read(file, path, min(most, size + 1))
        if not first:
            raise DataError(f"{path}: must be a DBN file; it is empty, as a failed download leaves it. Fetch it again.")
        if first.startswith(_DBZ):
            raise DataError(
                f"{path}: must be a .dbn or .dbn.zst file; it is DBZ, the format before DBN. "
                f"Download it again, or convert it with Databento's dbn command."
            )
        pieces = _rest(file, path, first, most)
        yield from _unpacked(path, pieces) if first.startswith(_ZSTD) else pieces


def line_of(error: Exception) -> str:
    """What another library says, in one line without its last full stop."""
    return " ".join(str(error).split()).rstrip(".")


def _opened(path: Path) -> tuple[FileIO, int]:
    """The open file and its size; never a pipe, which could be read for ever."""
    try:
        status = path.stat()
        file = path.open("rb", buffering=0) if S_ISREG(status.st_mode) else None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if file is None:
        raise DataError(f"{path}: must be a file; it is a folder or a device. Name the DBN files one by one.")
    return file, status.st_size


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or error
    return DataError(f"{path}: must be a readable file; {reason}. Check the path and its permissions.")


def _read(file: FileIO, path: Path, most: int) -> bytes:
    try:
        return file.read(most)
    except OSError as error:
        raise _unreadable(path, error) from error


def _rest(file: FileIO, path: Path, first: bytes, most: int) -> Iterator[bytes]:
    """All pieces, the first one included."""
    piece = first
    while piece:
        yield piece
        piece = _read(file, path, most)


def _unpacked(path: Path, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The content of all frames; unlike a stream reader, this notices a frame that ends early."""
    zstd = zstandard.ZstdDecompressor()
    frame = zstd.decompressobj()
    try:
        for packed in _portions(pieces):
            rest = packed
            while rest:
                if frame.eof:
                    frame = zstd.decompressobj()
                content = frame.decompress(rest)
                if content:
                    yield content
                rest = frame.unused_data if frame.eof else b""
    except zstandard.ZstdError as error:
        raise DataError(f"{path}: must be whole zstd data; it is damaged: {line_of(error)}. Fetch it again.") from error
    if not frame.eof:
        raise DataError(f"{path}: must be whole zstd data; the compressed data ends early. Fetch it again.")


def _portions(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces cut small: the first portion is the first block."""
    first = next(pieces)
    start = _first_block(first)
    yield first[:start]
    for piece in chain((first[start:],), pieces):
        for at in range(0, len(piece), _PACKED):
            yield piece[at : at + _PACKED]


def _first_block(packed: bytes) -> int:
    """Where the first block of a frame ends: nothing of it can be unpacked without all of it."""
    try:
        start = zstandard.frame_header_size(packed)
    except zstandard.ZstdError:  # cut within the header, or damaged: for the decompressor to say
        return len(packed)
    header = int.from_bytes(packed[start : start + _BLOCK_HEADER], "little")
    return start + _BLOCK_HEADER + (1 if header >> 1 & 3 == _RLE else header >> 3)
