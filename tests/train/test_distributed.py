"""Several processes train as one: the same losses, gradients and weights, and a killed one does not end the run."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mamba2.errors import ConfigError
from mamba2.train.checkpoint import load_model
from mamba2.train.distributed import joined, own_device
from mamba2.train.records import read_metrics

WORKERS = Path(__file__).with_name("workers.py")
IN_FULL = os.environ.get("MAMBA2_DISTRIBUTED") == "full"
full = pytest.mark.skipif(not IN_FULL, reason="minutes of processes: nox -s distributed")


def start(count: int, *arguments: object) -> None:
    """Runs the workers as torchrun would, without its second of start-up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    common |= {"MAMBA2_SHAPES": "off"}  # the test's own process checks them
    running = [
        subprocess.Popen(
            [sys.executable, WORKERS, *map(str, arguments)],
            env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    errors = [process.communicate(timeout=240)[1] for process in running]

    assert [process.returncode for process in running] == [0] * count, "\n".join(errors)


def workers():
    spec = importlib.util.spec_from_file_location("workers", WORKERS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=full)])
def test_processes_together_train_as_one(count: int, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    start(count, "equal", tmp_path / "many")
    alone = workers().trained(tmp_path / "alone")
    found = [torch.load(tmp_path / "many" / f"rank-{rank}.pt", weights_only=True) for rank in range(count)]
    states = [
        torch.load(tmp_path / name / "True" / "checkpoints" / "epoch-002" / "training.pt", weights_only=True)["state"]
        for name in ("many", "alone")
    ]

    for each in found:
        assert len(each) == len(alone)
        assert all(torch.allclose(one, other, rtol=0, atol=1e-10) for one, other in zip(each, alone, strict=True))
    assert all(
        torch.allclose(one, other, rtol=0, atol=1e-6)
        for blocks in zip(*states, strict=True)
        for one, other in zip(*blocks, strict=True)
    )


@full
def test_torchrun_restarts_after_a_killed_process_and_training_goes_on(example: list[Path], tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    began = time.perf_counter()
    for name, restarts in (("killed", 1), ("whole", 0)):
        out = tmp_path / name
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        command = [*torchrun, f"--max-restarts={restarts}", str(WORKERS), "restart", str(out), *map(str, example)]
        if name == "whole":
            environment |= {"MAMBA2_NOBODY_DIES": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
    killed, whole = (
        load_model(tmp_path / name / "checkpoints" / "last")[0].state_dict() for name in ("killed", "whole")
    )
    print(f"restarted and whole run: {time.perf_counter() - began:.0f} s")

    assert all(torch.equal(each, whole[name]) for name, each in killed.items())
    steps = [
        [line["loss"] for line in read_metrics(tmp_path / name) if line["kind"] == "step"]
        for name in ("killed", "whole")
    ]
    assert steps[0] == steps[1]


def test_a_restart_that_would_meet_the_addresses_of_the_processes_before_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("TORCHELASTIC_RESTART_COUNT", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")

    with pytest.raises(ConfigError, match=r"Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun\.$"), joined():
        pass


def test_each_process_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_device("cuda") == "cuda"

    monkeypatch.setenv("LOCAL_RANK", "3")
    assert (own_device("cuda"), own_device("cpu")) == ("cuda:3", "cpu")
    with pytest.raises(ConfigError, match=r"^device: several processes must not share one GPU; got 'cuda:1'\."):
        own_device("cuda:1")
