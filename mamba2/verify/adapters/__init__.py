"""Implementations that come with an adapter; each module lists them in IMPLEMENTATIONS.

mamba_ssm has none: it can be imported only where it was compiled for CUDA, and nobody has run an adapter there.
"""
