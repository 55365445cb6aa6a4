"""Peak memory of one pass in a process of its own: `python -m benchmarks.memory forward 16384 ours`, in bytes."""

import sys

import torch

from benchmarks.contenders import contenders
from benchmarks.measure import peak_memory
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
    before = peak_memory()
    run(time)
    return peak_memory() - before


if __name__ == "__main__":
    print(growth(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
