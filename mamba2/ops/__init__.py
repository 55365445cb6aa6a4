"""The maths of Mamba-2 as pure functions on tensors: no parameters, no config."""
