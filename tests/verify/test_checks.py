"""The judge itself: it passes what is right, and says where and how far off the wrong is."""

import re

import pytest
import torch

from mamba2.verify.checks import require_close

RIGHT = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
WRONG = torch.tensor([[1.0, 2.0], [3.5, 4.0]])


def require_refused(message: str, actual: torch.Tensor, expected: torch.Tensor, **options) -> None:
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
        require_close("y", actual, expected, **options)


def test_a_value_within_the_tolerance_passes():
    require_close("y", RIGHT * (1 + 0.9e-5), RIGHT)


def test_a_wrong_value_is_named_with_its_place_and_error():
    require_refused("y: error 1.2e-01 is above 1e-05; worst at (1, 0): 3.5, expected 3.", WRONG, RIGHT)


def test_float64_is_judged_more_strictly():
    off = RIGHT.double() * (1 + 1e-9)

    require_refused("y: error 1.0e-09 is above 1e-10; worst at (1, 1): 4, expected 4.", off, RIGHT.double())


def test_the_error_is_relative_to_the_scale_where_one_is_given():
    require_close("y", WRONG, RIGHT, scale=torch.tensor(1e5))


def test_the_tolerance_can_be_another_one_of_the_table():
    require_close("y", WRONG, RIGHT, tolerance=0.2)


def test_another_shape_is_refused_though_it_broadcasts():
    require_refused("y: shape is (1, 2), expected (2, 2).", RIGHT[:1], RIGHT)


def test_another_dtype_is_refused():
    require_refused("y: dtype is torch.float32, expected torch.float64.", RIGHT, RIGHT.double())


def test_a_nan_never_passes():
    nan = torch.tensor([1.0, torch.nan])

    require_refused("y: error nan is above 1e-05; worst at (1,): nan, expected nan.", nan, nan)


def test_an_infinity_never_passes():
    infinite = torch.tensor([1.0, torch.inf])

    require_refused("y: error nan is above 1e-05; worst at (1,): inf, expected inf.", infinite, infinite)


def test_against_zeros_only_the_absolute_error_is_left():
    require_refused(
        "y: error 5.0e-01 is above 1e-05; worst at (0,): 0.5, expected 0.", torch.tensor([0.5]), torch.zeros(1)
    )


def test_empty_tensors_compare_by_shape():
    require_close("y", torch.zeros(0, 3), torch.zeros(0, 3))

    require_refused("y: shape is (0, 3), expected (3, 0).", torch.zeros(0, 3), torch.zeros(3, 0))
