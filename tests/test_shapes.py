"""What does not fit its annotation is refused by name, in every mode but off, and without a word about values."""

import re
import runpy
import traceback
import weakref
from collections.abc import Callable
from textwrap import dedent
from typing import NamedTuple

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from mamba2 import shapes
from mamba2.errors import ConfigError, ShapeError
from mamba2.model.block import BlockState
from mamba2.shapes import shaped, unchecked

X, B, C = torch.zeros(2, 16, 4, 3), torch.zeros(2, 16, 1, 8), torch.zeros(2, 16, 1, 8)


class Pair(NamedTuple):
    B: Float[Tensor, "batch time group state"]
    C: Float[Tensor, "batch time group state"]


class Mixed(NamedTuple):
    y: Float[Tensor, "batch time"]
    size: int


def mix(
    x: Float[Tensor, "batch time head channel"],
    B: Float[Tensor, "batch time group state"],
    C: Float[Tensor, "batch time group state"],
    bias: Float[Tensor, " head"] | None = None,
    *,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Float[Tensor, "batch time head channel"]:
    del B, C, bias, limits
    return x


def pair(B: Tensor, C: Tensor) -> Pair:
    return Pair(B, C)


def scores(x: Float[Tensor, "batch time head channel"], pairs: Pair) -> Float[Tensor, "batch time head channel"]:
    del pairs
    return x


def total(x: Float[Tensor, "batch time"]) -> Float[Tensor, " batch"]:
    return x.sum()[None]


def totals(x: Float[Tensor, "batch time"]) -> tuple[Float[Tensor, " batch"], Float[Tensor, " time"]]:
    return x.sum(1), x.sum(1)


def mixed(x: Float[Tensor, "batch time"]) -> Mixed:
    return Mixed(x.T, 1)


def first(x: Float[Tensor, " time"], count: int) -> Float[Tensor, " time"]:
    return x[:count]


def stacked(x: Float[Tensor, "batch time"], parts: tuple[BlockState, ...]) -> Float[Tensor, "batch time"]:
    del parts
    return x


def listed(x: Float[Tensor, " time"], sizes: list[int]) -> Float[Tensor, " time"]:
    return x[: sizes[0]]


def refused(function, *args, **kwargs) -> str:
    """The message of the refusal."""
    with pytest.raises(ShapeError) as caught:
        shaped(function, "full")(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(
            (X, torch.zeros(2, 16, 1, 16), C),
            """\
            mix: axis 'state' is 8 in C (2, 16, 1, 8) but 16 in B (2, 16, 1, 16).
              C: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   2
                time   16 (from x)  16
                group  1 (from B)   1
                state  16 (from B)  8 <--""",
            id="another size of an axis",
        ),
        pytest.param(
            (X, torch.zeros(16, 1, 8), C),
            """\
            mix: B must have 4 axes (batch time group state); got 3: (16, 1, 8).
              B: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   - <--
                time   16 (from x)  16
                group  any          1
                state  any          8
              hint: the batch is missing: expand B over it.""",
            id="no batch",
        ),
        pytest.param(
            (X, torch.zeros(1, 16, 1, 8), C),
            """\
            mix: axis 'batch' is 1 in B (1, 16, 1, 8) but 2 in x (2, 16, 4, 3).
              B: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   1 <--
                time   16 (from x)  16
                group  any          1
                state  any          8
              hint: the batch is missing: expand B over it.""",
            id="a batch of one",
        ),
        pytest.param(
            (X, nn.Parameter(torch.zeros(512, 16)), C),
            """\
            mix: B must have 4 axes (batch time group state); got 2: (512, 16).
              B: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   - <--
                time   16 (from x)  - <--
                group  any          512
                state  any          16
              hint: B is a weight, not an activation: was the layer passed in place of its output?""",
            id="a parameter",
        ),
        pytest.param(
            (X, torch.zeros(512, 16), C),
            """\
            mix: B must have 4 axes (batch time group state); got 2: (512, 16).
              B: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   - <--
                time   16 (from x)  - <--
                group  any          512
                state  any          16
              hint: B looks like a weight, not an activation: was the layer passed in place of its output?""",
            id="what looks like a weight",
        ),
        pytest.param(
            (X, B.transpose(1, 3), C),
            """\
            mix: axis 'time' is 8 in B (2, 8, 1, 16) but 16 in x (2, 16, 4, 3).
              B: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   2
                time   16 (from x)  8 <--
                group  any          1
                state  any          16
              hint: the axes are transposed: B fits as (2, 16, 1, 8), B.permute(0, 3, 2, 1).""",
            id="transposed",
        ),
        pytest.param(
            (X, torch.zeros(3, 16, 1, 8), C),
            """\
            mix: axis 'batch' is 3 in B (3, 16, 1, 8) but 2 in x (2, 16, 4, 3).
              B: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   3 <--
                time   16 (from x)  16
                group  any          1
                state  any          8""",
            id="another batch, which no transposition explains",
        ),
        pytest.param(
            (X, B.long(), C),
            """\
            mix: B must be Float; got int64 (2, 16, 1, 8).
              B: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   2
                time   16 (from x)  16
                group  any          1
                state  any          8""",
            id="another dtype",
        ),
        pytest.param(
            (X, [0.0], C),
            """\
            mix: B must be a Tensor (batch time group state); got list.
              B: Float (batch time group state)
                axis   expected     got
                batch  2 (from x)   - <--
                time   16 (from x)  - <--
                group  any          - <--
                state  any          - <--""",
            id="no tensor",
        ),
        pytest.param(
            (X, torch.zeros(2, 16, 1, 1, 8), C),
            """\
            mix: B must have 4 axes (batch time group state); got 5: (2, 16, 1, 1, 8).
              B: Float (batch time group state)
                axis    expected      got
                batch   2 (from x)    2
                time    16 (from x)   16
                group   any           1
                state   any           1
                (none)  no such axis  8 <--""",
            id="an axis too many",
        ),
        pytest.param(
            (X, B, C, torch.zeros(3)),
            """\
            mix: axis 'head' is 3 in bias (3,) but 4 in x (2, 16, 4, 3).
              bias: Float (head)
                axis  expected    got
                head  4 (from x)  3 <--""",
            id="an optional tensor that is there",
        ),
        pytest.param(
            (X, B, C, 0.0),
            """\
            mix: bias must be a Tensor (head); got float.
              bias: Float (head)
                axis  expected    got
                head  4 (from x)  - <--""",
            id="an optional tensor that is neither there nor None",
        ),
    ],
)
def test_a_misfit_is_put_into_words(args, message):
    assert refused(mix, *args) == dedent(message)


@pytest.mark.parametrize("mode", ["full", "cached", "off"])
@pytest.mark.parametrize("function", [mix, scores])
@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((X,) * 9, {}), ((X,), {"x": X}), ((X, B), {"C": C, "colour": 1})]
)
def test_a_call_that_python_refuses_is_refused_in_its_words(mode, function, args, kwargs):
    with pytest.raises(TypeError) as expected:
        function(*args, **kwargs)
    with pytest.raises(TypeError, match=re.escape(f"{function.__name__}() ")) as raised:
        shaped(function, mode)(*args, **kwargs)

    assert str(raised.value) == str(expected.value)


def test_what_is_called_with_a_method_does_not_keep_its_object():
    class Owner:
        def method(self):
            pass

    def call(x: Float[Tensor, "batch time"], how: Callable[[], None]) -> Float[Tensor, "batch time"]:
        how()
        return x

    owner = Owner()
    gone = weakref.ref(owner)
    cached = shaped(call, "cached")
    cached(torch.zeros(2, 3), owner.method)
    del owner

    assert gone() is None
    with pytest.raises(ShapeError):
        cached(torch.zeros(2, 3), 3)


def test_an_optional_tensor_may_be_missing():
    assert shaped(mix, "full")(X, B, C, None) is X


def test_a_whole_number_is_a_float():
    assert shaped(mix, "full")(X, B, C, limits=(0, 1)) is X


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("ab", "mix: limits must be of type tuple[float, float]; got str."),
        ((0.0,), "mix: limits must be of type tuple[float, float]; got tuple."),
        ((0.0, "1"), "mix: limits[1] must be of type float; got str."),
    ],
)
def test_an_argument_that_is_no_tensor_is_refused_by_name_too(limits, message):
    assert refused(mix, X, B, C, limits=limits) == message


def test_a_field_of_an_argument_is_named():
    assert refused(scores, X, Pair(B, torch.zeros(2, 16, 1, 7))).startswith(
        "scores: axis 'state' is 7 in pairs.C (2, 16, 1, 7) but 8 in pairs.B (2, 16, 1, 8).\n  pairs.C: Float "
    )


def test_a_field_is_checked_before_the_function_runs():
    def unreachable(x: Float[Tensor, "batch time"], pairs: Pair) -> None:
        raise AssertionError(x, pairs)

    assert refused(unreachable, X[..., 0, 0], Pair(B[:1], C)).startswith(
        "test_a_field_is_checked_before_the_function_runs.<locals>.unreachable: axis 'batch' is 1 in pairs.B "
    )


def test_a_plain_tuple_is_no_record():
    assert refused(scores, X, (B, C)) == "scores: pairs must be of type Pair; got tuple."


def test_each_part_of_a_tuple_is_named():
    good, bad = (BlockState(torch.zeros(b, 3, 5), torch.zeros(b, 4, 3, 8)) for b in (2, 1))

    assert refused(stacked, X[..., 0, 0], (good, bad)).startswith(
        "stacked: axis 'batch' is 1 in parts[1].conv (1, 3, 5) but 2 in x (2, 16)."
    )


def test_a_field_of_the_result_is_named():
    assert refused(pair, B, torch.zeros(2, 16, 1, 7)).startswith(
        "pair: axis 'state' is 7 in result.C (2, 16, 1, 7) but 8 in result.B (2, 16, 1, 8)."
    )


def test_a_field_of_the_result_has_the_arguments_axes():
    assert refused(mixed, torch.zeros(2, 3)).startswith(
        "mixed: axis 'batch' is 3 in result.y (3, 2) but 2 in x (2, 3)."
    )


def test_a_wrong_result_is_refused():
    assert refused(total, torch.zeros(2, 3)) == dedent("""\
        total: axis 'batch' is 1 in result (1,) but 2 in x (2, 3).
          result: Float (batch)
            axis   expected    got
            batch  2 (from x)  1 <--
          hint: the batch is missing: expand result over it.""")


def test_a_wrong_part_of_the_result_is_numbered():
    assert refused(totals, torch.zeros(2, 3)).startswith(
        "totals: axis 'time' is 2 in result[1] (2,) but 3 in x (2, 3)."
    )


def test_the_headline_names_the_method():
    class Layer(nn.Module):
        @shaped
        def forward(self, x: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
            return x

    with pytest.raises(ShapeError) as caught:
        Layer()(torch.zeros(2))

    assert caught.value.headline.endswith("Layer.forward: x must have 2 axes (batch time); got 1: (2,).")


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (mix, (X, torch.full((2, 3, 1, 8), 1234.5), C)),
        (mix, (X, B, C, [1234.5])),
        (total, (torch.full((2, 3), 1234.5),)),
        (pair, (torch.full((2, 3, 1, 8), 1234.5), B)),
        (first, (torch.full((3,), 1234.5), "2")),
        (stacked, (torch.full((2, 3), 1234.5), [torch.full((2, 3), 1234.5)])),
    ],
)
def test_no_message_holds_a_value(function, args):
    with pytest.raises(ShapeError) as caught:
        shaped(function, "full")(*args)

    assert "1234" not in "".join(traceback.format_exception(caught.value))


def test_off_is_the_function_itself():
    assert shaped(total, "off") is total


@pytest.mark.parametrize(("mode", "checks"), [("full", True), ("cached", False), ("off", False)])
def test_a_caller_that_knows_the_sizes_does_without_checks_but_in_full_mode(monkeypatch, mode, checks):
    monkeypatch.setattr(shapes, "MODE", mode)
    function = shaped(total, mode)

    assert unchecked(function) is (function if checks else total)


class Switch:
    """A function whose result fits until it is turned."""

    turned = False

    def __call__(self, x: Float[Tensor, " time"], *others: object, **options: object) -> Float[Tensor, " time"]:
        del others, options
        return x[:1] if self.turned else x


def switched(mode):
    """A shaped function, and the switch that makes its results wrong."""
    switch = Switch()

    def run(
        x: Float[Tensor, " time"], count: int = 0, extra: object = None, *, flag: bool = False
    ) -> Float[Tensor, " time"]:
        return switch(x, count, extra, flag)

    return shaped(run, mode), switch


CALLS = {
    "a tensor": ((torch.zeros(3),), {}),
    "a tensor by name": ((), {"x": torch.zeros(3)}),
    "a whole number": ((torch.zeros(3), 1), {}),
    "a tuple of tensors": ((torch.zeros(3), 1, (torch.zeros(2), torch.zeros(3))), {}),
    "a flag by name": ((torch.zeros(3),), {"flag": True}),
    "a module": ((torch.zeros(3), 0, nn.Linear(2, 2)), {}),
}


@pytest.mark.parametrize("call", CALLS)
def test_full_checks_every_call(call):
    run, switch = switched("full")
    args, kwargs = CALLS[call]
    run(*args, **kwargs)
    switch.turned = True

    with pytest.raises(ShapeError, match="axis 'time' is 1 in result"):
        run(*args, **kwargs)


@pytest.mark.parametrize("call", CALLS)
def test_cached_checks_a_call_like_an_earlier_one_no_more(call):
    run, switch = switched("cached")
    args, kwargs = CALLS[call]
    run(*args, **kwargs)
    switch.turned = True

    assert run(*args, **kwargs).tolist() == [0.0]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((torch.zeros(4), 1), {}),
        ((torch.zeros(3, dtype=torch.float64), 1), {}),
        ((torch.zeros(3), 2), {}),
        ((torch.zeros(3), True), {}),
        ((torch.zeros(3),), {"count": 1}),
        ((torch.zeros(3), 1), {"flag": True}),
        ((torch.zeros(3), 1, (torch.zeros(2),)), {}),
        ((torch.zeros(3), 1, nn.Linear(2, 2)), {}),
    ],
    ids=["shape", "dtype", "number", "type", "by name", "flag", "tuple", "module"],
)
def test_cached_checks_a_call_unlike_the_earlier_ones(args, kwargs):
    run, switch = switched("cached")
    run(torch.zeros(3), 1)
    switch.turned = True

    with pytest.raises(ShapeError, match="axis 'time' is 1 in result"):
        run(*args, **kwargs)


def test_cached_checks_an_argument_without_a_hash_every_time():
    run = shaped(listed, "cached")
    sizes = [3]
    run(torch.zeros(3), sizes)
    sizes[0] = 2

    with pytest.raises(ShapeError, match="axis 'time' is 2 in result"):
        run(torch.zeros(3), sizes)


def test_cached_tells_values_of_one_shape_apart():
    run = shaped(first, "cached")
    run(torch.zeros(3), 3)

    with pytest.raises(ShapeError, match="axis 'time' is 2 in result"):
        run(torch.zeros(3), 2)


def test_cached_refuses_a_wrong_call_again_and_again():
    run = shaped(total, "cached")

    for _ in range(2):
        with pytest.raises(ShapeError):
            run(torch.zeros(2, 3))


def test_cached_checks_the_method_of_a_resized_module():
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Float[Tensor, "batch feature"]) -> Float[Tensor, "batch feature"]:
            return x * self.weight

    Layer.forward = shaped(Layer.forward, "cached")
    layer, x = Layer(), torch.ones(2, 1)
    with pytest.raises(ShapeError, match="axis 'feature' is 3 in result"):
        layer(x)
    layer.weight = nn.Parameter(torch.ones(1))

    assert layer(x).tolist() == [[1.0], [1.0]]


def test_cached_forgets_all_calls_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(shapes, "_CACHED_CALLS", 2)
    run, switch = switched("cached")
    for time in (2, 3, 4):
        run(torch.zeros(time))
    switch.turned = True

    assert run(torch.zeros(4)).tolist() == [0.0]
    with pytest.raises(ShapeError):
        run(torch.zeros(2))


@pytest.mark.parametrize(
    ("setting", "mode"), [("full", "full"), ("off", "off"), ("cached", "cached"), (None, "cached")]
)
def test_the_environment_says_how_much_is_checked(monkeypatch, setting, mode):
    monkeypatch.delenv("MAMBA2_SHAPES")
    if setting is not None:
        monkeypatch.setenv("MAMBA2_SHAPES", setting)

    assert runpy.run_path(shapes.__file__)["MODE"] == mode


def test_an_unknown_setting_of_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("MAMBA2_SHAPES", "sometimes")

    with pytest.raises(ConfigError, match=re.escape("MAMBA2_SHAPES: must be full, cached or off; got 'sometimes'.")):
        runpy.run_path(shapes.__file__)


OPERATIONS = [torch.neg, torch.abs, torch.square, torch.exp, torch.sin, torch.cos, torch.tan, torch.tanh, torch.floor]
"""One more than torch compiles of one piece of code."""


def applying(operation):
    """All of one name and, but for the operation, one code."""

    def apply(x: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        return operation(x)

    return shaped(apply, "full")


def test_compiled_a_shaped_function_is_one_graph():
    torch.compiler.reset()
    compiled = torch.compile(applying(torch.neg), backend="eager", fullgraph=True)

    assert compiled(torch.ones(1, 2)).tolist() == [[-1.0, -1.0]]


def test_compiled_each_shaped_function_has_its_own_limit_of_recompilations():
    torch.compiler.reset()
    functions = [torch.compile(applying(each), backend="eager", fullgraph=True) for each in OPERATIONS]

    zero = torch.zeros(1, 1)
    assert [function(zero).item() for function in functions] == [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]


class Halves(nn.Module):
    """A module as small as they come, with a record that goes in and comes out."""

    @shaped
    def forward(self, x: Float[Tensor, "batch time"], state: Pair) -> tuple[Float[Tensor, "batch time"], Pair]:
        return x / 2, Pair(state.C, state.B)


@pytest.mark.parametrize("strict", [True, False])
def test_exported_a_shaped_module_gives_the_same(strict):
    x, state = torch.tensor([[2.0, 4.0]]), Pair(torch.ones(1, 2, 1, 1), torch.zeros(1, 2, 1, 1))
    exported = torch.export.export(Halves(), (x, state), strict=strict).module()

    y, after = exported(x, state)

    assert (y.tolist(), after[0].sum().item(), after[1].sum().item()) == ([[1.0, 2.0]], 0.0, 2.0)
