"""One series out of several files, a block at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mamba2.data.clock import utc
from mamba2.data.series import Columns, Part
from mamba2.errors import DataError


def joined(blocks: Sequence[Columns]) -> Columns:
    """Blocks of one series, one after another.

    Not by `np.concatenate` alone: numpy asks for huge pages, and a busy machine takes seconds to clear some.
    """
    if len(blocks) == 1:
        return blocks[0]
    width, bars = len(blocks[0]), sum(block.shape[1] for block in blocks)
    columns = np.frombuffer(bytearray(width * bars * blocks[0].itemsize), np.int64).reshape(width, bars)
    np.concatenate(blocks, axis=1, out=columns)
    return columns


class _Stream(NamedTuple):
    """A part that is being merged."""

    path: Path
    block: Columns
    """What is read of it and not merged yet."""
    rest: Iterator[Columns]


def merge(symbol: str, parts: Sequence[Part]) -> Iterator[Columns]:
    """The bars of one series out of several files, a block at a time, without those that come twice.

    Of files that follow one another only one block is held.

    Raises:
        DataError: two files hold different bars for one time.
    """
    if len(parts) == 1:
        yield from parts[0].blocks
        return
    waiting = sorted(parts, key=lambda part: part.first)[::-1]
    streams: list[_Stream] = []
    while waiting or streams:
        while waiting and all(waiting[-1].first <= stream.block[0, -1] for stream in streams):
            part = waiting.pop()
            rest = iter(part.blocks)
            streams.append(_Stream(part.path, next(rest), rest))
        until = min(stream.block[0, -1] for stream in streams)
        ends = [int(np.searchsorted(stream.block[0], until, side="right")) for stream in streams]
        taken = [(stream.path, stream.block[:, :end]) for stream, end in zip(streams, ends, strict=True) if end]
        yield taken[0][1] if len(taken) == 1 else _once(symbol, taken)
        streams = [left for stream, end in zip(streams, ends, strict=True) if (left := _without(stream, end))]


def _without(stream: _Stream, end: int) -> _Stream | None:
    """The stream after its first bars, with its next block if these were all; None at its end."""
    if end < stream.block.shape[1]:
        return stream._replace(block=stream.block[:, end:])
    block = next(stream.rest, None)
    return None if block is None else stream._replace(block=block)


def _once(symbol: str, parts: Sequence[tuple[Path, Columns]]) -> Columns:
    """Bars of several files in time order; one that several of them hold comes once."""
    columns = np.concatenate([block for _, block in parts], axis=1)
    source = np.repeat(np.arange(len(parts)), [block.shape[1] for _, block in parts])
    order = np.argsort(columns[0], kind="stable")
    columns, source = columns[:, order], source[order]
    again = columns[0, 1:] == columns[0, :-1]
    differing = np.flatnonzero(again & (columns[:, 1:] != columns[:, :-1]).any(axis=0))
    if len(differing):
        at = differing[0]
        first, second = (parts[source[row]][0] for row in (at, at + 1))
        raise DataError(
            f"{second}: a bar that comes in two files must be the same in both; {symbol} at {utc(columns[0, at])} "
            f"differs from {first}. Keep one of the files."
        )
    once: Columns = columns[:, np.concatenate([[True], ~again])]
    return once
