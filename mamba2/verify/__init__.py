"""Judging an implementation of Mamba-2, ours or anyone's, against the recurrence."""
