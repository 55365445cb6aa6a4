"""Every call's shapes are checked in tests; Hypothesis draws many examples in CI, the same ones each time."""

import os

os.environ.setdefault("MAMBA2_SHAPES", "full")  # read once, when mamba2.shapes is imported

import torch
from hypothesis import HealthCheck, Phase, settings

torch.set_num_threads(1)  # tensors here are too small to share

settings.register_profile("dev", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("nightly", settings.get_profile("dev"), max_examples=2_000, print_blob=True)
settings.register_profile(
    "mutation", settings.get_profile("dev"), max_examples=10, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
