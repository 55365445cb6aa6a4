"""Peak memory of one pass in a process of its own: `python -m benchmarks.memory forward 16384 ours`, in bytes."""

import sys
from pathlib import Path

import torch

from benchmarks.contenders import contenders
from mamba2.config import ModelConfig
from mamba2.model.backbone import Backbone


def growth(task: str, time: int, name: str) -> int:
    """By how much the process grew at its peak beyond what a short pass takes."""
    torch.set_num_threads(1)
    backbone = Backbone(ModelConfig(layers=1, d_state=64))
    contender = contenders(backbone, [name])[name]

    def run(length: int) -> None:
        x = torch.randn(1, length, 256)
        with torch.set_grad_enabled(task == "train"):
            y = contender.run(x)
        if task == "train":
            y.backward(torch.ones_like(y))

    run(256)
    before = _peak()
    run(time)
    return _peak() - before


def _peak() -> int:
    """Of this program alone: what getrusage says begins with the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(kilobytes) * 1024


if __name__ == "__main__":
    print(growth(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
