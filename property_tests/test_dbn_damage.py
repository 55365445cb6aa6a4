"""For all damage to a valid file: an error of ours, or what the bytes still say; `nox -s fuzz` draws 10,000 cases."""

import os
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mamba2.data.bars import load_bars
from mamba2.data.dbn import SymbolInterval, read_dbn
from mamba2.data.planted import planted_records
from mamba2.data.synthetic import compress_dbn, encode_header
from mamba2.errors import DataError

EXAMPLES = int(os.environ.get("MAMBA2_FUZZ_EXAMPLES", "100"))
SYMBOLS = {"6EH4": (SymbolInterval(date(2024, 1, 2), date(2024, 1, 3), 4916),)}
RECORDS = planted_records("ar1", bars=30)
RAW = {version: encode_header(symbols=SYMBOLS, version=version) + RECORDS.tobytes() for version in (1, 2, 3)}
PACKED = {version: compress_dbn(content) for version, content in RAW.items()}


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with up to three flips, cuts, repeats, insertions or losses; headers are hit as often as the rest."""
    for _ in range(draw(st.integers(1, 3))):
        places = st.integers(0, max(len(content) - 1, 0))
        at = draw(places | st.integers(0, min(400, max(len(content) - 1, 0))))
        length = draw(st.integers(1, 120))
        kind = draw(st.sampled_from(["flip", "byte", "cut", "repeat", "insert", "lose"]))
        part = content[at : at + length]
        if kind == "flip":
            content = content[:at] + bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) + content[at + 1 :]
        elif kind == "byte":
            content = content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
        elif kind == "cut":
            content = content[: max(at, 1)]
        elif kind == "repeat":
            content = content[:at] + part + part + content[at + length :]
        elif kind == "insert":
            content = content[:at] + draw(st.binary(min_size=1, max_size=8)) + content[at:]
        elif len(part) < len(content):
            content = content[:at] + content[at + length :]
        content = content or b"D"
    return content


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage") / "a.dbn"


def reading(path: Path) -> np.ndarray | str:
    """The records, or the error in one line."""
    try:
        load_bars([path])
        return read_dbn(path).records
    except DataError as error:
        return str(error)


def is_named(error: str, path: Path) -> bool:
    return error.startswith(f"{path}: ") and "\n" not in error


@pytest.mark.parametrize("version", [1, 2, 3])
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_damage_to_a_compressed_file_is_an_error_or_changes_nothing(
    version: int, path: Path, data: st.DataObject
) -> None:
    path.write_bytes(data.draw(damaged(PACKED[version])))
    found = reading(path)

    assert is_named(found, path) if isinstance(found, str) else np.array_equal(found, RECORDS)


@pytest.mark.parametrize("version", [1, 2, 3])
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_damage_to_a_plain_file_is_an_error_or_what_the_bytes_say(
    version: int, path: Path, data: st.DataObject
) -> None:
    content = data.draw(damaged(RAW[version]))
    path.write_bytes(content)
    found = reading(path)

    if isinstance(found, str):
        assert is_named(found, path)
    else:
        assert found.tobytes() == content[8 + int.from_bytes(content[4:8], "little") :]
        assert ((found["length"] == 14) & (found["rtype"] == 33)).all()
        assert (found["low"] <= np.minimum(found["open"], found["close"])).all()
        assert (found["high"] >= np.maximum(found["open"], found["close"])).all()
