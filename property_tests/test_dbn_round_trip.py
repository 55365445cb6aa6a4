"""For all DBN files: what was written is read, and what was damaged is refused or cannot be told from a sound file."""

from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mamba2.data.dbn import RECORD, UNDEF_PRICE, DbnFile, SymbolInterval, read_dbn
from mamba2.data.synthetic import Records, Symbols, write_dbn
from mamba2.errors import DataError

SCHEMAS = {"ohlcv-1s": (32, 1), "ohlcv-1m": (33, 60), "ohlcv-1h": (34, 3600), "ohlcv-1d": (35, 86400)}
INSTRUMENTS = st.integers(0, 2**32 - 1)


class Written(NamedTuple):
    """What a file is made from, apart from how it is packed."""

    version: int
    schema: str
    dataset: str
    parent: str | None
    symbols: Symbols
    records: Records


@st.composite
def interval_lists(draw: st.DrawFn) -> tuple[SymbolInterval, ...]:
    """One to three intervals, one after another in time."""
    cuts = sorted(draw(st.sets(st.integers(0, 4000), min_size=2, max_size=4)))
    days = [date(2015, 1, 1) + timedelta(cut) for cut in cuts]
    return tuple(SymbolInterval(*pair, draw(INSTRUMENTS)) for pair in pairwise(days))


@st.composite
def bars(draw: st.DrawFn, rtype: int) -> tuple[int, ...]:
    """One bar, of an outright or of a spread, whose prices may be negative."""
    low, *inner, high = sorted(draw(st.lists(st.integers(-(10**13), 10**13), min_size=4, max_size=4)))
    opened, close = draw(st.permutations(inner))
    publisher, instrument = draw(st.integers(0, 2**16 - 1)), draw(INSTRUMENTS)
    time, volume = draw(st.integers(0, 2**63 - 1)), draw(st.integers(0, 2**63 - 1))
    return 14, rtype, publisher, instrument, time, opened, high, low, close, volume


@st.composite
def written(draw: st.DrawFn, most: int = 6) -> Written:
    schema = draw(st.sampled_from(sorted(SCHEMAS)))
    names = st.text("ABCEHMZ0123456789-. ", min_size=1, max_size=21)
    rows = draw(st.lists(bars(SCHEMAS[schema][0]), max_size=most))
    return Written(
        version=draw(st.sampled_from([1, 2, 3])),
        schema=schema,
        dataset=draw(st.sampled_from(["GLBX.MDP3", "OPRA.PILLAR", "EQUS.MINI"])),
        parent=draw(st.sampled_from([None, "6E.FUT"])),
        symbols=draw(st.dictionaries(names, interval_lists(), max_size=3)),
        records=np.array(rows, RECORD),
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dbn") / "file.dbn"


def write(path: Path, made: Written, *, compress: bool, checksum: bool = True) -> bytes:
    write_dbn(
        path,
        made.records,
        symbols=made.symbols,
        version=made.version,
        compress=compress,
        checksum=checksum,
        schema=made.schema,
        dataset=made.dataset,
        parent=made.parent,
    )
    return path.read_bytes()


def reading(path: Path, content: bytes) -> DbnFile | None:
    """The file with that content, or None where it is refused in one line that starts with its path."""
    path.write_bytes(content)
    try:
        return read_dbn(path)
    except DataError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return None


def is_sound(file: DbnFile) -> bool:
    """Every record is a bar of the file's interval, with prices in order; said again, one record at a time."""
    rtypes = {seconds * 10**9: rtype for rtype, seconds in SCHEMAS.values()}
    return all(
        (length, rtype) == (14, rtypes[file.interval])
        and max(time, volume) < 2**63
        and low <= min(opened, close) <= max(opened, close) <= high < UNDEF_PRICE
        for length, rtype, _, _, time, opened, high, low, close, volume in file.records.tolist()
    )


def flipped(content: bytes, at: int, by: int) -> bytes:
    return content[:at] + bytes([content[at] ^ by]) + content[at + 1 :]


@given(made=written(), compress=st.booleans(), checksum=st.booleans())
def test_what_was_written_is_read(path, made, compress, checksum):
    write(path, made, compress=compress, checksum=checksum)
    file = read_dbn(path)

    assert file.records.tolist() == made.records.tolist()
    assert dict(file.symbols) == dict(made.symbols)
    assert (file.version, file.dataset) == (made.version, made.dataset)
    assert file.interval == SCHEMAS[made.schema][1] * 10**9


@given(made=written(), data=st.data())
def test_a_raw_file_with_one_other_byte_is_refused_or_as_long_and_sound(path, made, data):
    content = write(path, made, compress=False)
    at = data.draw(st.integers(0, len(content) - 1))
    file = reading(path, flipped(content, at, data.draw(st.integers(1, 255))))

    assert file is None or (len(file.records) == len(made.records) and is_sound(file))


@given(made=written(), data=st.data())
def test_a_compressed_file_with_one_other_byte_is_refused_or_the_same(path, made, data):
    content = write(path, made, compress=True)
    at = data.draw(st.integers(0, len(content) - 1))
    file = reading(path, flipped(content, at, data.draw(st.integers(1, 255))))

    assert file is None or file.records.tolist() == made.records.tolist()


@given(made=written(), data=st.data())
def test_a_file_without_checksum_with_one_other_byte_is_refused_or_sound(path, made, data):
    content = write(path, made, compress=True, checksum=False)
    at = data.draw(st.integers(0, len(content) - 1))
    file = reading(path, flipped(content, at, data.draw(st.integers(1, 255))))

    assert file is None or is_sound(file)


@given(made=written(), data=st.data())
def test_a_raw_file_cut_anywhere_is_refused_or_gives_its_first_records(path, made, data):
    content = write(path, made, compress=False)
    kept = data.draw(st.integers(0, len(content) - 1))
    file = reading(path, content[:kept])
    whole, part = divmod(kept - (len(content) - made.records.nbytes), RECORD.itemsize)

    assert (file is None) == (part != 0 or whole < 0)
    assert file is None or file.records.tolist() == made.records[:whole].tolist()


@given(made=written(), data=st.data())
def test_a_compressed_file_cut_anywhere_is_refused(path, made, data):
    content = write(path, made, compress=True)
    kept = data.draw(st.integers(0, len(content) - 1))

    assert reading(path, content[:kept]) is None


@given(first=written(), second=written(), compress=st.booleans())
def test_two_files_joined_are_refused(path, first, second, compress):
    content = write(path, first, compress=compress) + write(path, second, compress=compress)

    assert reading(path, content) is None


@given(made=written(most=2), word=st.integers(0, 2**32 - 1), data=st.data())
def test_four_other_bytes_in_the_metadata_never_cost_a_record(path, made, word, data):
    content = write(path, made, compress=False)
    at = data.draw(st.integers(4, len(content) - made.records.nbytes - 4))
    file = reading(path, content[:at] + word.to_bytes(4, "little") + content[at + 4 :])

    assert file is None or file.records.tolist() == made.records.tolist()


@given(start=st.sampled_from([b"", b"DBN\x03", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"]), rest=st.binary(max_size=300))
def test_arbitrary_bytes_are_no_dbn_file(path, start, rest):
    file = reading(path, start + rest)

    assert file is None or is_sound(file)
