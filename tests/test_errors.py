"""Errors can be caught together, by kind, and by the builtin they stand for."""

import pytest

from mamba2.errors import CheckpointError, ConfigError, DataError, Mamba2Error, ShapeError, TrainingError


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (ShapeError, (Mamba2Error, TypeError)),
        (ConfigError, (Mamba2Error, ValueError)),
        (DataError, (Mamba2Error, ValueError)),
        (CheckpointError, (Mamba2Error,)),
        (TrainingError, (Mamba2Error,)),
    ],
)
def test_an_error_is_one_of_ours_and_the_builtin_it_stands_for(error, bases):
    assert error.__bases__ == bases


def test_the_headline_is_the_first_line():
    assert ShapeError("f: x is wrong.\n  x: Float (batch)").headline == "f: x is wrong."


def test_the_headline_of_one_line_is_the_message():
    assert ConfigError("chunk = 0").headline == "chunk = 0"


def test_the_headline_of_no_message_is_empty():
    assert DataError().headline == ""
