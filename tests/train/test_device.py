"""Devices by name."""

import pytest
import torch

from mamba2.errors import ConfigError
from mamba2.train.device import choose_device, peak_memory


def test_the_cpu_is_always_there() -> None:
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "mps", "cuda:x", ""])
def test_a_name_that_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^device: must be cpu, cuda or cuda:N; got '{name}'\.$"):
        choose_device(name)


def test_a_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)

    with pytest.raises(
        ConfigError, match=r"^device: cuda needs a torch with CUDA; got torch .* Install a CUDA build\.$"
    ):
        choose_device("cuda")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    with pytest.raises(ConfigError, match=r"^device: cuda:1 is not there; torch .* sees 1 CUDA devices\.$"):
        choose_device("cuda:1")


def test_the_peak_of_memory_never_falls_and_knows_what_was_held() -> None:
    before = peak_memory(torch.device("cpu"))
    held = torch.ones(64 * 2**20, dtype=torch.uint8)
    after = peak_memory(torch.device("cpu"))

    assert before is not None
    assert after is not None
    assert after >= max(before, held.numel())
