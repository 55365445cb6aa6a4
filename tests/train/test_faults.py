"""Training is killed, its disk fills up, bytes flip: no whole checkpoint is lost, and no other is taken for one.

A few of each here; MAMBA2_FAULTS=200, as `nox -s faults` sets it, makes it so many.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mamba2.config import RunConfig
from mamba2.data.dataset import Dataset
from mamba2.errors import CheckpointError
from mamba2.train.checkpoint import load_model, load_training, make_model, newest
from mamba2.train.loop import fit
from mamba2.train.optim import make_optimizer
from mamba2.train.records import data_digest, read_metrics
from mamba2.train.run import recorded

COUNT = int(os.environ.get("MAMBA2_FAULTS", "6"))
PER_EPOCH = 3
EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")
"""Audit events of what touches the disk, each of them a moment to be killed in."""


@pytest.fixture
def often(config: RunConfig) -> RunConfig:
    """A run of nine steps with a checkpoint at each, of which two are kept."""
    return replace(config, train=replace(config.train, epochs=3, save_every=1, keep=2))


def train(dataset: Dataset, config: RunConfig, out: Path) -> None:
    """Goes on with the run in `out`, as `mamba2 train --resume` does."""
    torch.manual_seed(0)
    events = fit(make_model(config), dataset, config, out, start=newest(out / "checkpoints"))
    out.mkdir(exist_ok=True)
    for _ in recorded(events, out, PER_EPOCH):
        pass


def forked(work: Callable[[], None]) -> int:
    """Starts the work in a copy of this process, which has everything loaded; returns its id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def kill_at_event(number: int) -> None:
    """Kills this process at its number-th touch of the disk."""
    left = [number]

    def count(event: str, _arguments: object) -> None:
        if event in EVENTS:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def whole_step(dataset: Dataset, config: RunConfig, out: Path) -> int:
    """The step of the newest checkpoint, which must load in every part; 0 where there is none."""
    place = newest(out / "checkpoints")
    if place is None:
        return 0
    model = make_model(config)
    return load_training(place, model, make_optimizer(model, config.train), config, data_digest(dataset)).step


def untimed(out: Path) -> list[dict[str, object]]:
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read_metrics(out)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_at_any_moment_nothing_is_lost(dataset: Dataset, often: RunConfig, tmp_path: Path) -> None:
    train(dataset, often, tmp_path / "whole")
    weights = load_model(tmp_path / "whole" / "checkpoints" / "last")[0].state_dict()
    rng, counts, run = np.random.default_rng(0), Counter(), 0
    while counts["kills"] < COUNT:
        run, step = run + 1, 0
        out = tmp_path / f"run-{run}"
        while True:
            by_event = bool(rng.random() < 0.7)
            number, wait = int(rng.integers(1, 120)), float(rng.uniform(0.02, 0.4))

            def work(out: Path = out, by_event: bool = by_event, number: int = number) -> None:
                if by_event:
                    kill_at_event(number)
                train(dataset, often, out)

            child = forked(work)
            if not by_event:
                time.sleep(wait)
                os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status in (0, -signal.SIGKILL)
            now = whole_step(dataset, often, out)
            counts["lost"] += now < step
            step = now
            if status == 0:
                break
            counts["kills"] += 1
            counts["in a write"] += any(out.glob("checkpoints/.*"))
        counts["runs"] += 1
        last = load_model(out / "checkpoints" / "last")[0].state_dict()
        counts["runs that ended otherwise"] += not (
            all(torch.equal(each, last[name]) for name, each in weights.items())
            and untimed(out) == untimed(tmp_path / "whole")
            and len(list((out / "checkpoints").glob("epoch-*"))) <= 3
        )
        shutil.rmtree(out)
    print(
        f"\n{counts['kills']} kills in {counts['runs']} runs, {counts['in a write']} inside a checkpoint's write: "
        f"{counts['lost']} lost, {counts['runs that ended otherwise']} ended otherwise"
    )

    assert counts["in a write"] > COUNT / 10
    assert (counts["lost"], counts["runs that ended otherwise"]) == (0, 0)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_fails_at_any_call_costs_no_checkpoint(
    code: int, dataset: Dataset, often: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, failures = [0], 0

    def failing(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(code, os.strerror(code))
            return real(*arguments, **options)

        return call

    for owner, name in ((os, "rename"), (os, "replace"), (os, "mkdir"), (os, "fsync"), (os, "open"), (torch, "save")):
        monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    step = 0
    for number in range(1, 100, max(1, 100 // COUNT)):
        left[0] = number
        try:
            train(dataset, often, tmp_path / "run")
            left[0] = 0
            assert (tmp_path / "run" / "checkpoints" / "last").read_text() == "epoch-003\n"
            shutil.rmtree(tmp_path / "run")  # done, though something that does not matter may have failed
            step = 0
        except (CheckpointError, OSError) as error:
            failures += os.strerror(code) in str(error)
        left[0] = 0
        now = whole_step(dataset, often, tmp_path / "run")

        assert now >= step
        step = now
    print(f"\n{errno.errorcode[code]}: {failures} failures of the disk, 0 lost")

    assert failures >= 2
    left[0] = 0
    train(dataset, often, tmp_path / "run")
    assert whole_step(dataset, often, tmp_path / "run") == 3 * PER_EPOCH


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB; skipped where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)  # a refused file may still be open


def test_a_full_disk_stops_training_with_the_last_checkpoint_whole(
    dataset: Dataset, often: RunConfig, small_disk: Path
) -> None:
    out, step, stops = small_disk / "run", 0, []
    for spare in range(0, 960_000, 960_000 // COUNT):
        (small_disk / "filler").write_bytes(bytes(960_000 - spare))
        try:
            train(dataset, often, out)
            break
        except (CheckpointError, OSError) as error:
            stops.append(str(error))
        finally:
            (small_disk / "filler").unlink()
        now = whole_step(dataset, often, out)

        assert now >= step
        step = now
    print(f"\n{len(stops)} full disks, 0 lost, the last at step {step}")

    assert stops
    train(dataset, often, out)
    assert whole_step(dataset, often, out) == 3 * PER_EPOCH


def test_a_flipped_byte_or_a_lost_end_is_always_found(dataset: Dataset, often: RunConfig, tmp_path: Path) -> None:
    train(dataset, often, tmp_path / "run")
    place, rng, found = newest(tmp_path / "run" / "checkpoints"), np.random.default_rng(0), Counter()
    for _ in range(COUNT):
        for path in sorted(place.iterdir()):
            content = path.read_bytes()
            at = int(rng.integers(len(content)))
            for damaged in (
                content[:at] + bytes([content[at] ^ 1 << rng.integers(8)]) + content[at + 1 :],
                content[:at],
            ):
                path.write_bytes(damaged)
                try:
                    load_model(place)
                    found["missed"] += 1
                except CheckpointError as error:
                    found["found"] += 1
                    found["named"] += path.name in str(error) or path.name == "checksums"
            path.write_bytes(content)
    print(f"\n{found['found']} damaged files found, {found['named']} named, {found['missed']} missed")

    assert (found["missed"], found["named"]) == (0, found["found"])
