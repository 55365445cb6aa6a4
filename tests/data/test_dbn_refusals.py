"""Every kind of file that is damaged, or holds no bars, is refused in one line that names it."""

import os
import re
import struct
import tracemalloc
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import zstandard

from mamba2.data.dbn import UNDEF_PRICE, SymbolInterval, read_dbn
from mamba2.data.synthetic import compress_dbn, encode_header, example_records
from mamba2.errors import DataError

FIXTURES = Path(__file__).parents[2] / "fixtures"
H4 = SymbolInterval(date(2024, 1, 2), date(2024, 1, 3), 4916)
HEADER = encode_header(symbols={"6EH4": (H4,)})

REFUSALS = {
    "empty.dbn": "must be a DBN file; it is empty, as a failed download leaves it. Fetch it again.",
    "four-bytes.dbn": "metadata must be whole; it takes 8 bytes, the file has 4. The file was cut: fetch it again.",
    "csv.dbn": "must be a DBN file; its content starts with b'ts_', not b'DBN'. "
    "Download with encoding dbn, not csv or json.",
    "csv.dbn.zst": "must be a DBN file; its content starts with b'ts_', not b'DBN'. "
    "Download with encoding dbn, not csv or json.",
    "legacy.dbz": "must be a .dbn or .dbn.zst file; it is DBZ, the format before DBN. "
    "Download it again, or convert it with Databento's dbn command.",
    "version-9.dbn": "must be DBN version 3 or older; it is the newer version 9. "
    "Update databento-dbn, or fetch the file again if that one is new enough.",
    "cut-inside-metadata.dbn": "metadata must be whole; it takes 360 bytes, the file has 100. "
    "The file was cut: fetch it again.",
    "cut-inside-a-record.dbn": "records must be whole; record 4 has 26 of 56 bytes. The file was cut: fetch it again.",
    "cut.dbn.zst": "must be whole zstd data; the compressed data ends early. Fetch it again.",
    "last-byte-missing.dbn.zst": "must be whole zstd data; the compressed data ends early. Fetch it again.",
    "wrong-checksum.dbn.zst": "must be whole zstd data; it is damaged: "
    "zstd decompressor error: Restored data doesn't match checksum. Fetch it again.",
    "flipped-byte-without-checksum.dbn.zst": "record 2 must have length 14 and rtype 33 (ohlcv-1m); "
    "it has length 14 and rtype 99. The file is damaged: fetch it again.",
    "joined.dbn": "record 5 must be a bar; another DBN file starts there. Files were joined: give each one by itself.",
    "joined.dbn.zst": "record 5 must be a bar; another DBN file starts there. "
    "Files were joined: give each one by itself.",
    "header-1h-body-1m.dbn": "record 0 must be ohlcv-1h as the header says; it is ohlcv-1m. "
    "Header and bars do not belong together.",
    "header-trades-body-1m.dbn": "must hold bars; its schema is trades. "
    "Download again: ohlcv-1s, -1m, -1h or -1d is needed.",
    "trades.dbn.zst": "must hold bars; its schema is trades. Download again: ohlcv-1s, -1m, -1h or -1d is needed.",
    "definition.dbn.zst": "must hold bars; its schema is definition. "
    "Download again: ohlcv-1s, -1m, -1h or -1d is needed.",
    "mixed.dbn.zst": "must hold one schema; it is mixed, as a live recording is, and has 5 ohlcv-1m, 2 trades. "
    "Download one schema from the historical API: ohlcv-1s, -1m, -1h or -1d is needed.",
    "ts-out.dbn": "must have plain records; send times are appended to these (ts_out). Record without ts_out.",
    "undefined-price.dbn": "record 3 at 2024-01-02T14:33Z must have four prices; open is 9223372036854775807, "
    "undefined. The bar is bad: fetch the file again or leave it out.",
    "undefined-time.dbn": "record 4 must have a time; ts_event is 18446744073709551615, undefined. "
    "The bar is bad: fetch the file again or leave it out.",
    "high-below-close.dbn": "record 1 at 2024-01-02T14:31Z must have low <= open, close <= high; "
    "got open 1.0951, high 1.095, low 1.09505, close 1.09505. "
    "The bar is bad: fetch the file again or leave it out.",
}


def refusal(path: Path) -> str:
    """The error's text after the path, which must start it, and be all on one line."""
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}: [^\n]+$") as caught:
        read_dbn(path)
    return str(caught.value).removeprefix(f"{path}: ")


def refusal_of(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "file.dbn"
    path.write_bytes(content)
    return refusal(path)


def bars(count: int) -> np.ndarray:
    """The fixtures' five bars, over and over."""
    return np.resize(read_dbn(FIXTURES / "good" / "v3.dbn").records, count)


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "bad").iterdir()))
def test_a_bad_file_is_refused(name):
    assert refusal(FIXTURES / "bad" / name) == REFUSALS[name]


def test_a_missing_file_is_refused(tmp_path):
    assert refusal(tmp_path / "none.dbn") == (
        "must be a readable file; No such file or directory. Check the path and its permissions."
    )


def test_a_folder_is_refused(tmp_path):
    assert refusal(tmp_path) == "must be a file; it is a folder or a device. Name the DBN files one by one."


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert refusal(tmp_path / "pipe") == "must be a file; it is a folder or a device. Name the DBN files one by one."


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    (tmp_path / "a.dbn").touch()

    assert refusal(tmp_path / "a.dbn") == (
        "must be a readable file; Permission denied. Check the path and its permissions."
    )


@pytest.mark.parametrize("kept", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_long_compressed_file_cut_anywhere_is_refused(tmp_path, kept):
    packed = compress_dbn(HEADER + np.concatenate([example_records()] * 8).tobytes())

    assert refusal_of(tmp_path, packed[: int(kept * len(packed))]) == REFUSALS["cut.dbn.zst"]


def test_a_compressed_text_is_refused_before_all_of_it_is_unpacked(tmp_path):
    packed = compress_dbn(b"time,open\n" * 5_000_000)
    tracemalloc.start()
    message = refusal_of(tmp_path, packed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert message.startswith("must be a DBN file; its content starts with b'tim', not b'DBN'.")
    assert peak < 5_000_000


def test_bytes_after_the_last_frame_are_refused(tmp_path):
    assert "it is damaged: zstd decompressor error: Unknown frame descriptor" in refusal_of(
        tmp_path, compress_dbn(HEADER) + bytes(60)
    )


def test_a_header_alone_of_the_compressed_kind_is_refused(tmp_path):
    assert refusal_of(tmp_path, zstandard.FRAME_HEADER) == REFUSALS["cut.dbn.zst"]


def test_a_file_compressed_from_nothing_is_refused(tmp_path):
    assert refusal_of(tmp_path, compress_dbn(b"")) == (
        "must be a DBN file; its content starts with b'', not b'DBN'. Download with encoding dbn, not csv or json."
    )


@pytest.mark.parametrize("length", [0, 1, 99, 100, 103])
def test_metadata_too_short_for_its_fixed_part_is_refused(tmp_path, length):
    assert refusal_of(tmp_path, HEADER[:4] + struct.pack("<I", length) + HEADER[8:]) == (
        f"metadata must be readable; it is damaged: {length} bytes are too few. Fetch the file again."
    )


def test_an_absurd_length_of_the_metadata_is_refused(tmp_path):
    assert refusal_of(tmp_path, HEADER[:4] + b"\xff" * 4 + HEADER[8:]) == (
        "metadata must be whole; it takes 4294967303 bytes, the file has 360. The file was cut: fetch it again."
    )


def test_metadata_that_would_swallow_a_record_is_refused(tmp_path):
    content = HEADER[:4] + struct.pack("<I", len(HEADER) - 8 + 56) + HEADER[8:] + bars(5).tobytes()

    assert refusal_of(tmp_path, content) == (
        "metadata must be readable; it is damaged: its content takes 360 bytes, its length says 416. "
        "Fetch the file again."
    )


def test_metadata_that_lost_its_mappings_is_refused(tmp_path):
    count = HEADER.rindex(b"6EH4") - 4
    assert HEADER[count : count + 4] == struct.pack("<I", 1)

    assert "its content takes 200 bytes, its length says 360" in refusal_of(
        tmp_path, HEADER[:count] + bytes(4) + HEADER[count + 4 :]
    )


def test_metadata_that_lost_one_interval_is_refused(tmp_path):
    later = SymbolInterval(date(2024, 1, 3), date(2024, 1, 9), 5)
    header = encode_header(symbols={"6EH4": (H4, later)}, version=1)
    count = header.index(b"4916") - 12
    assert header[count : count + 4] == struct.pack("<I", 2)

    assert "its content takes 206 bytes, its length says 236" in refusal_of(
        tmp_path, header[:count] + struct.pack("<I", 1) + header[count + 4 :]
    )


def test_text_that_is_none_in_the_metadata_is_refused(tmp_path):
    assert "metadata must be readable; it is damaged: UTF-8 error" in refusal_of(
        tmp_path, HEADER.replace(b"6EH4", b"6E\xff4")
    )


def test_a_date_that_is_none_in_the_metadata_is_refused(tmp_path):
    year_0 = HEADER.replace(struct.pack("<I", 20240102), struct.pack("<I", 101))

    assert refusal_of(tmp_path, year_0) == (
        "metadata must be readable; it is damaged: year 0 is out of range. Fetch the file again."
    )


def test_a_symbol_mapped_to_no_number_is_refused(tmp_path):
    assert refusal_of(tmp_path, HEADER.replace(b"4916", b"49x6")) == (
        "metadata must be readable; it is damaged: symbol '6EH4' maps to '49x6', which is no instrument id. "
        "Fetch the file again."
    )


@pytest.mark.parametrize("price", ["open", "high", "low", "close"])
def test_each_undefined_price_is_named(tmp_path, price):
    records = bars(5)
    records[price][2] = UNDEF_PRICE

    assert refusal_of(tmp_path, HEADER + records.tobytes()).startswith(
        f"record 2 at 2024-01-02T14:32Z must have four prices; {price} is 9223372036854775807, undefined."
    )


@pytest.mark.parametrize(("price", "value"), [("high", 1_094), ("low", 1_096), ("open", 1_096), ("close", 1_094)])
def test_each_price_out_of_order_is_refused(tmp_path, price, value):
    records = bars(1)
    records[price] = value * 10**6

    assert refusal_of(tmp_path, HEADER + records.tobytes()).startswith(
        "record 0 at 2024-01-02T14:30Z must have low <= open, close <= high; got open 1.09"
    )


def test_a_volume_beyond_int64_is_refused(tmp_path):
    records = bars(2)
    records["volume"][1] = 2**63

    assert refusal_of(tmp_path, HEADER + records.tobytes()).startswith(
        "record 1 at 2024-01-02T14:31Z must have a volume below 2**63; it is 9223372036854775808."
    )


def test_the_first_bad_record_is_named_in_a_long_file(tmp_path):
    layout, values = bars(50_000), bars(50_000)
    layout["length"][[40_001, 49_999]] = 13
    values["low"][[40_001, 49_999]] = UNDEF_PRICE

    assert refusal_of(tmp_path, HEADER + layout.tobytes()).startswith("record 40001 must have length 14 and rtype 33")
    assert refusal_of(tmp_path, HEADER + values.tobytes()).startswith("record 40001 at 2024-01-02T14:31Z must have")


def test_a_mixed_file_with_records_of_no_length_is_refused_at_once(tmp_path):
    content = encode_header(symbols={}, schema=None) + bars(1).tobytes() + bytes(56)

    assert "is mixed, as a live recording is, and has 1 ohlcv-1m. " in refusal_of(tmp_path, content)
