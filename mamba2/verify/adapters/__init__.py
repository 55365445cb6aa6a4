"""Implementations that come with an adapter; each module lists them in IMPLEMENTATIONS."""
