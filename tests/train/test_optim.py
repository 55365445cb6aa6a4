"""The optimizer's groups and its schedule."""

from mamba2.config import TrainConfig
from mamba2.model.forecaster import Forecaster
from mamba2.train.optim import learning_rate, make_optimizer, set_learning_rate


def test_only_matrices_decay(model: Forecaster) -> None:
    optimizer = make_optimizer(model, TrainConfig(weight_decay=0.3))
    decay = {id(each): group["weight_decay"] for group in optimizer.param_groups for each in group["params"]}

    assert {name: decay[id(each)] for name, each in model.named_parameters()} == {
        name: 0.3 if each.ndim >= 2 else 0.0 for name, each in model.named_parameters()
    }


def test_without_warm_up_the_first_step_has_the_peak_rate() -> None:
    assert learning_rate(0, 10, TrainConfig(learning_rate=0.5, warm_up_steps=0)) == 0.5


def test_a_single_step_has_the_peak_rate() -> None:
    assert learning_rate(0, 1, TrainConfig(learning_rate=0.5, warm_up_steps=1)) == 0.5


def test_the_rate_is_set_in_every_group(model: Forecaster) -> None:
    optimizer = make_optimizer(model, TrainConfig())
    set_learning_rate(optimizer, 0.125)

    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]
