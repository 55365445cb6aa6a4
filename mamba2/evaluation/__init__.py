"""Judging forecasts: whole segments as they would be lived, next to baselines that any model must beat."""
