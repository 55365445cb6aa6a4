"""Where the tensors live, and how much they take."""

import sys

import torch

from mamba2.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """The device of that name, once a tensor was put there and came back.

    Raises:
        ConfigError: the name is not cpu, cuda or cuda:N, or there is no such device for this torch.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device: must be cpu, cuda or cuda:N; got {name!r}.")
    if device.type == "cuda" and torch.version.cuda is None:
        raise ConfigError(
            f"device: {name} needs a torch with CUDA; got torch {torch.__version__}. Install a CUDA build."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ConfigError(f"device: {name} is not there; torch {torch.__version__} sees {count} CUDA devices.")
    torch.ones(1, device=device).sum().item()
    return device


def device_name(device: torch.device) -> str:
    """`cpu`, or `cuda:0` and which GPU that is."""
    return str(device) if device.type == "cpu" else f"{device} ({torch.cuda.get_device_name(device)})"


def peak_memory(device: torch.device) -> int | None:
    """Most bytes that tensors on a GPU, else this process, held at once; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # all others count KiB
