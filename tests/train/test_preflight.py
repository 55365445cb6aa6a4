"""What a run will take is what it then takes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mamba2.config import RunConfig
from mamba2.train.preflight import preflight, require_room


def test_the_preflight_counts_the_products_of_the_projections(config: RunConfig) -> None:
    one = preflight(replace(config, train=replace(config.train, batch=8)))
    two = preflight(replace(config, train=replace(config.train, batch=16)))
    parts = preflight(replace(config, train=replace(config.train, batch=16, accumulate=2)))
    matrices = 6 * 8 * 8 * (9 * 8 + 2 * (8 * 52 + 16 * 8) + 8 * 4)  # 6 · bars · (embed, projections in and out, head)

    assert matrices < one.flops < 2 * matrices
    assert (two.flops, parts.flops) == (2 * one.flops, 2 * one.flops)
    assert parts.memory == one.memory < two.memory
    require_room(one, torch.device("cpu"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("batch", "window", "d_model", "d_state", "layers", "precision"),
    [
        (32, 60, 256, 16, 6, "float32"),  # activations
        (2, 16, 512, 64, 12, "float32"),  # weights and moments
        (30, 200, 128, 16, 2, "float32"),  # more bars than are tried
        (4, 256, 128, 64, 3, "bf16"),
    ],
)
def test_the_estimate_is_within_a_fifth_of_the_memory_used(batch, window, d_model, d_state, layers, precision):
    sizes = (batch, window, d_model, d_state, layers)
    # In bf16 the C library keeps a third more than lives at once, unless it gives everything back to the system.
    given_back = {"MALLOC_MMAP_THRESHOLD_": "65536"} if precision == "bf16" else {}

    script = Path(__file__).with_name("memory.py")
    command = [sys.executable, script, *map(str, sizes), precision]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | given_back)
    estimate, used = map(int, outcome.stdout.split())

    assert estimate == pytest.approx(used, rel=0.2)
