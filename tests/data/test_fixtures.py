"""The script beside the fixtures makes them again."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import zstandard

from mamba2.data.dbn import DbnFile, read_dbn
from mamba2.errors import DataError

FIXTURES = Path(__file__).parents[2] / "fixtures"
FILES = sorted(path for path in FIXTURES.glob("*/*.*") if path.parent.name != "__pycache__")
NAMES = [path.relative_to(FIXTURES).as_posix() for path in FILES]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_fixtures", FIXTURES / "make_fixtures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made_again(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixtures")
    script.main(folder)
    return folder


def content(path: Path) -> bytes:
    """What the file holds, decompressed as far as that goes."""
    data = path.read_bytes()
    if not data.startswith(b"\x28\xb5\x2f\xfd"):
        return data.partition(b"\x28\xb5\x2f\xfd")[0]
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            return reader.read()
    except zstandard.ZstdError as error:
        return str(error).encode()


def reading(path: Path) -> DbnFile | str:
    try:
        return read_dbn(path)
    except DataError as error:
        return str(error).replace(str(path), path.name)


def test_the_script_makes_every_fixture_and_no_other(made_again):
    made = {path.relative_to(made_again) for path in made_again.glob("*/*")}

    assert made == {path.relative_to(FIXTURES) for path in FILES}


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"bad/cut.dbn.zst"}))  # zstd decides where that cut falls
def test_a_fixture_made_again_has_the_same_content(name, made_again):
    assert content(made_again / name) == content(FIXTURES / name)


@pytest.mark.parametrize("name", NAMES)
def test_a_fixture_made_again_reads_the_same(name, made_again):
    here, again = reading(FIXTURES / name), reading(made_again / name)

    if isinstance(here, DbnFile) and isinstance(again, DbnFile):
        assert np.array_equal(again.records, here.records)
        assert (again.version, again.dataset, again.interval) == (here.version, here.dataset, here.interval)
        assert again.symbols == here.symbols
    else:
        assert again == here


@pytest.mark.parametrize("name", NAMES)
def test_the_table_says_what_a_fixture_is(name):
    assert f"`{Path(name).name}`" in (FIXTURES / "README.md").read_text(encoding="utf-8")


def test_all_fixtures_together_are_small():
    assert sum(path.stat().st_size for path in FILES) < 1_000_000
