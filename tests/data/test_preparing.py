"""Files of bars to a folder that is read in place: the same bars, whole or not at all."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from mamba2.config import DataConfig
from mamba2.data import bars as bars_module
from mamba2.data.bars import Dropped, Market, load_bars
from mamba2.data.dataset import prepare
from mamba2.data.folder import BARS, CHECKSUMS, MANIFEST, checksums
from mamba2.data.preparing import Read, prepare_folder
from mamba2.data.selection import select
from mamba2.data.synthetic import write_example
from mamba2.data.tables import new_table
from mamba2.errors import DataError
from mamba2.train.records import data_digest

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_example(tmp_path_factory.mktemp("example"))


@pytest.fixture
def prepared(example: list[Path], tmp_path: Path) -> Path:
    run(example, tmp_path / "bars")
    return tmp_path / "bars"


def run(files: Sequence[Path], out: Path) -> list[Read]:
    return list(prepare_folder(files, out))


def columns(market: Market) -> dict[str, np.ndarray]:
    return {
        bars.symbol: np.array([bars.time, bars.open, bars.high, bars.low, bars.close, bars.volume])
        for bars in market.series
    }


def require_same(found: Market, expected: Market) -> None:
    assert (found.files, found.messages, found.dropped) == (expected.files, expected.messages, expected.dropped)
    assert columns(found).keys() == columns(expected).keys()
    assert all(np.array_equal(columns(found)[symbol], each) for symbol, each in columns(expected).items())


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(DataError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_prepared_folder_is_the_market_of_its_files(example: list[Path], prepared: Path) -> None:
    require_same(load_bars([prepared]), load_bars(example))


def test_prepared_bars_stay_on_disk(prepared: Path) -> None:
    (bars, *_) = load_bars([prepared]).series

    assert isinstance(whose(bars.close), np.memmap)
    assert not bars.close.flags.writeable


def test_training_sees_the_same_from_a_folder_on_disk_in_slabs_as_from_its_files(
    example: list[Path], prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DataConfig(contract="all", targets=("return", "range"), horizon=3, warm_up=0)
    expected = prepare(example, config)
    monkeypatch.setattr(bars_module, "_SLAB", 100)
    found = prepare([prepared], config)

    assert data_digest(found) == data_digest(expected)
    assert isinstance(whose(found.train.tracks[0].features), np.memmap)
    assert not isinstance(whose(expected.train.tracks[0].features), np.memmap)


def whose(array: np.ndarray) -> np.ndarray:
    """The array that the memory of this one belongs to."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def test_the_front_is_the_same_in_slabs(example: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    market = load_bars(example)
    expected = [each.keep.tolist() for each in select(market, "front").series]
    monkeypatch.setattr(bars_module, "_SLAB", 7)

    assert [each.keep.tolist() for each in select(market, "front").series] == expected


def test_tables_on_disk_leave_no_file(tmp_path: Path) -> None:
    table = new_table((5, 2), np.float32, tmp_path)
    table[3, 1] = 7

    assert table.tolist() == [[0, 0], [0, 0], [0, 0], [0, 7], [0, 0]]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_for_tables_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there must be room for 4[,0]+ bytes of features; .+\. Free some\."):
        new_table((10**18,), np.float32, tmp_path)


def test_each_file_is_told_once_it_is_read(example: list[Path], tmp_path: Path) -> None:
    assert run(example, tmp_path / "bars") == [
        Read(path, records, True) for path, records in zip(example, (1831, 1846, 1818, 1728), strict=True)
    ]


def test_the_manifest_names_files_and_series(example: list[Path], prepared: Path) -> None:
    content = json.loads((prepared / MANIFEST).read_text(encoding="utf-8"))

    assert [(each["name"], each["records"], each["dataset"]) for each in content["files"]] == [
        (path.name, records, "SYNTHETIC") for path, records in zip(example, (1831, 1846, 1818, 1728), strict=True)
    ]
    assert [(each["symbol"], each["bars"]) for each in content["series"]][:2] == [("6EH4", 5460), ("6EH4-6EM4", 338)]
    assert sorted(path.name for path in prepared.iterdir()) == [BARS, CHECKSUMS, MANIFEST]
    assert (prepared / BARS).stat().st_size == 7223 * 6 * 8


def test_a_file_given_twice_is_dropped_once_with_a_count(example: list[Path], tmp_path: Path) -> None:
    run([example[0], example[0]], tmp_path / "bars")
    market = load_bars([tmp_path / "bars"])

    require_same(market, load_bars([example[0], example[0]]))
    assert Dropped("6EH4", 1380, "that another file holds too") in market.dropped


def test_a_run_that_stopped_goes_on_with_the_next_file(example: list[Path], tmp_path: Path) -> None:
    stopped = prepare_folder(example, tmp_path / "bars")
    next(stopped)
    next(stopped)
    stopped.close()

    assert [each.is_new for each in run(example, tmp_path / "bars")] == [False, False, True, True]
    require_same(load_bars([tmp_path / "bars"]), load_bars(example))


@pytest.mark.parametrize("file", ["runs", "index.jsonl"])
def test_half_a_file_that_was_staged_when_the_process_was_killed_is_never_used(
    file: str, example: list[Path], tmp_path: Path
) -> None:
    stopped = prepare_folder(example, tmp_path / "bars")
    next(stopped)
    stopped.close()
    with (tmp_path / ".bars.unfinished" / file).open("ab") as half:
        half.write(b'{"name": "half')

    assert [each.is_new for each in run(example, tmp_path / "bars")] == [False, True, True, True]
    require_same(load_bars([tmp_path / "bars"]), load_bars(example))


def test_what_was_staged_is_read_again_where_its_runs_are_gone(example: list[Path], tmp_path: Path) -> None:
    stopped = prepare_folder(example, tmp_path / "bars")
    next(stopped)
    stopped.close()
    (tmp_path / ".bars.unfinished" / "runs").unlink()

    assert [each.is_new for each in run(example, tmp_path / "bars")] == [True, True, True, True]
    require_same(load_bars([tmp_path / "bars"]), load_bars(example))


@pytest.mark.parametrize("moment", range(14))
def test_wherever_it_is_killed_nothing_loads_or_all_and_it_goes_on(
    moment: int, example: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, out = [], tmp_path / "bars"

    def interrupted(_descriptor: int) -> None:
        seen.append(None)
        if len(seen) > moment:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        if moment < 13:
            with pytest.raises(KeyboardInterrupt):
                run(example, out)
        else:
            run(example, out)
            assert len(seen) == 13  # runs and index of four files, three files, their folder and the one above
    if out.exists():
        require_same(load_bars([out]), load_bars(example))
    run(example, out)

    require_same(load_bars([out]), load_bars(example))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars"]


def test_an_unfinished_folder_is_refused(example: list[Path], tmp_path: Path) -> None:
    next(prepare_folder(example, tmp_path / "bars"))
    unfinished = tmp_path / ".bars.unfinished"

    assert refusal(lambda: load_bars([unfinished])) == (
        f"{unfinished}: must be DBN files, or a folder that mamba2 prepare finished; {unfinished / CHECKSUMS} is "
        "missing. Name the files one by one, or prepare them."
    )


@pytest.mark.parametrize("name", [BARS, MANIFEST, CHECKSUMS])
def test_one_other_byte_in_a_prepared_folder_is_refused(name: str, prepared: Path) -> None:
    content = bytearray((prepared / name).read_bytes())
    content[len(content) // 2] ^= 1
    (prepared / name).write_bytes(content)

    assert refusal(lambda: load_bars([prepared])) == (
        f"{prepared}: must be as mamba2 prepare left it; it is damaged: its files are not those of checksums. "
        "Prepare the files again."
    )


@pytest.mark.parametrize("name", [BARS, MANIFEST, CHECKSUMS])
def test_a_prepared_folder_without_one_of_its_files_is_refused(name: str, prepared: Path) -> None:
    (prepared / name).unlink()

    assert f"{prepared / name} is missing. " in refusal(lambda: load_bars([prepared]))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            {"format": "mamba2-bars-9"},
            "must have the format mamba2-bars-1; it has mamba2-bars-9. Prepare the files again.",
        ),
        ({"series": 5}, "it is damaged: manifest.json: TypeError"),
        ({"files": [{}]}, "it is damaged: manifest.json: KeyError('records')"),
    ],
)
def test_a_manifest_of_something_else_is_refused(change: dict[str, object], found: str, prepared: Path) -> None:
    content = json.loads((prepared / MANIFEST).read_text(encoding="utf-8"))
    (prepared / MANIFEST).write_text(json.dumps(content | change), encoding="utf-8")
    (prepared / CHECKSUMS).write_text(checksums(prepared), encoding="utf-8")

    assert found in refusal(lambda: load_bars([prepared]))


def test_a_folder_of_the_same_files_is_left_as_it_is(example: list[Path], prepared: Path) -> None:
    before = (prepared / BARS).stat()

    assert run(example[::-1], prepared) == []
    assert (prepared / BARS).stat() == before


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("name", ["bars", "notes"])
def test_a_folder_of_something_else_is_refused(name: str, example: list[Path], tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    out = tmp_path / name

    assert refusal(lambda: run(example[:2], out)) == (
        f"{out}: must be a new or empty folder, or hold the bars of just these files; it holds something else. "
        "Choose another --out."
    )


def test_an_empty_folder_is_taken(example: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bars").mkdir()
    run(example, tmp_path / "bars")

    require_same(load_bars([tmp_path / "bars"]), load_bars(example))


def test_a_file_that_is_refused_leaves_no_folder_and_costs_no_other_file(example: list[Path], tmp_path: Path) -> None:
    bad, out = FIXTURES / "bad" / "undefined-price.dbn", tmp_path / "bars"
    assert refusal(lambda: run([example[0], bad], out)) == refusal(lambda: load_bars([example[0], bad]))

    assert not out.exists()
    assert [each.is_new for each in run(example[:2], out)] == [False, True]


@pytest.mark.parametrize("name", ["nowhere.dbn", "."])
def test_what_is_no_file_is_refused_as_in_loading(name: str, tmp_path: Path) -> None:
    assert refusal(lambda: run([tmp_path / name], tmp_path / "bars")).startswith(f"{tmp_path / name}: must be a ")


def test_files_of_different_intervals_are_refused_as_in_loading(tmp_path: Path) -> None:
    files = [FIXTURES / "good" / "1h.dbn", FIXTURES / "good" / "v3.dbn"]

    assert refusal(lambda: run(files, tmp_path / "bars")) == refusal(lambda: load_bars(files))


def test_a_file_without_records_makes_a_folder_without_series(tmp_path: Path) -> None:
    run([FIXTURES / "good" / "zero-records.dbn.zst"], tmp_path / "bars")

    require_same(load_bars([tmp_path / "bars"]), load_bars([FIXTURES / "good" / "zero-records.dbn.zst"]))


def test_two_at_once_are_refused(example: list[Path], tmp_path: Path) -> None:
    first = prepare_folder(example, tmp_path / "bars")
    next(first)

    assert refusal(lambda: run(example, tmp_path / "bars")) == (
        f"{tmp_path / 'bars'}: must be prepared by one process at a time; another is at it. "
        "Wait for it, or choose another --out."
    )
    assert len(list(first)) == 3


def test_a_full_disk_is_named(example: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    assert refusal(lambda: run(example, tmp_path / "bars")) == (
        f"{tmp_path / 'bars'}: must be writable; No space left on device. "
        "Check the folder, its permissions and the room on the disk."
    )
