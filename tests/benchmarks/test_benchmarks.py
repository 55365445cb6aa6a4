"""The benchmarks: ratios of given times, every figure beside its error, adapters; no time is judged."""

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from benchmarks.__main__ import main
from benchmarks.accuracy import accuracy, recurrence
from benchmarks.contenders import Ours, Products, contenders
from benchmarks.measure import Ratio, interleave, ratio
from mamba2.config import ModelConfig
from mamba2.model.backbone import Backbone

SMALL = ModelConfig(d_model=8, layers=2, headdim=4, d_state=3)


@pytest.fixture
def backbone() -> Backbone:
    torch.manual_seed(0)
    return Backbone(SMALL)


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    ran: list[str] = []
    ticks: Iterator[float] = iter(range(1, 100))

    def clock(run: Callable[[], object]) -> float:
        run()
        return next(ticks)

    times = interleave({"a": lambda: ran.append("a"), "b": lambda: ran.append("b")}, rounds=2, repeat=2, clock=clock)

    assert ran == ["a", "a", "b", "b"] * 3
    assert times == {"a": [1.5, 2.5], "b": [2.0, 3.0]}


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert ratio([4.0, 9.0, 8.0], [2.0, 3.0, 1.0]) == Ratio(3.0, 2.0, 8.0)


def test_the_products_are_two_a_block_and_have_gradients_of_full_size(backbone: Backbone) -> None:
    products, x = Products(backbone), torch.randn(2, 5, 8, requires_grad=True)
    y = products.run(x)
    gradients = torch.autograd.grad(y.sum(), [x, *products.parameters()])
    weight = backbone.blocks[1].out_proj.weight
    first = (
        torch.nn.functional.linear(x, backbone.blocks[0].in_proj.weight)[..., :16]
        @ backbone.blocks[0].out_proj.weight.T
    )
    second = torch.nn.functional.linear(first, backbone.blocks[1].in_proj.weight)[..., :16] @ weight.T

    assert torch.allclose(y, second, atol=1e-6)
    assert [each.shape for each in gradients] == [x.shape, *(each.shape for each in products.parameters())]


def test_ours_is_as_exact_as_float32_is_and_a_wrong_one_is_seen(backbone: Backbone) -> None:
    x = torch.randn(2, 9, 8)
    exact = recurrence(backbone, x)

    class Wrong(Ours):
        def run(self, x: torch.Tensor) -> torch.Tensor:
            return super().run(x) * 1.01

    assert max(accuracy(Ours(backbone), x, exact)) < 1e-4
    assert accuracy(Wrong(backbone), x, exact).output == pytest.approx(0.01, rel=1e-3)


def test_every_contender_has_the_same_weights(backbone: Backbone) -> None:
    x = torch.randn(2, 9, 8)
    found = contenders(backbone, ["ours", "composed", "transformers 64", "niverel", "benchmarks.contenders:Ours"])
    products, *others = (each.run(x) for each in found.values())

    assert products.shape == others[0].shape
    assert all(torch.allclose(each, others[0], atol=1e-5) for each in others[1:])


def test_the_compiled_contender_compiles_both_and_gives_the_same(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    x, found = torch.randn(2, 9, 8), contenders(backbone, ["ours", "compiled"])
    _, ours, compiled = found.values()
    before = counters["frames"]["ok"]

    assert torch.allclose(compiled.run(x), ours.run(x), atol=1e-5)
    y, state = compiled.step(x[:, :1], compiled.start(2))
    assert torch.allclose(y, ours.run(x[:, :1]), atol=1e-5)
    assert [[part.shape for part in each] for each in state] == [[p.shape for p in each] for each in ours.start(2)]
    assert counters["frames"]["ok"] - before == 2


def test_a_part_writes_each_time_beside_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        ["--only", "step", "--contenders", "ours", "--rounds", "1", "--scale", "16", "--json", str(tmp_path / "a.json")]
    )
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]

    assert [(row["case"], row["contender"]) for row in rows] == [
        (f"step {batch} x 1", name) for batch in (1, 32) for name in ("products", "ours")
    ]
    assert all(row["microseconds"] >= 0 and math.isfinite(row["ratio"][0]) for row in rows)
    assert all(max(row["errors"]) < 1e-4 for row in rows if row["contender"] == "ours")
    assert len(capsys.readouterr().out.splitlines()) == len(rows)
