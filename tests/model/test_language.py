"""A language model is its backbone between an embedding and a head, and a tied head is the embedding."""

import copy
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from mamba2.config import ModelConfig
from mamba2.errors import ConfigError, ShapeError
from mamba2.model.language import LanguageModel
from mamba2.verify.checks import require_close
from mamba2.verify.strategies import randomised

CONFIG = ModelConfig(d_model=8, layers=2, d_state=3, headdim=4, n_groups=2, chunk=4)
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]])


def language_model(*, tied: bool) -> LanguageModel:
    return randomised(LanguageModel(CONFIG, vocabulary=11, tied=tied), seed=0)


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_products_with_the_head(tied):
    model = language_model(tied=tied)
    parameters = dict(model.named_parameters())
    x, _ = model.backbone(parameters["embedding.weight"][TOKENS], model.initial_state(2))
    head = parameters["embedding.weight" if tied else "head.weight"]

    require_close("logits", model(TOKENS, model.initial_state(2))[0], x @ head.T)


@pytest.mark.parametrize("tied", [True, False])
def test_forward_is_a_prefill_and_then_steps(tied):
    model = language_model(tied=tied)
    whole, last = model(TOKENS, model.initial_state(2))

    logits, state = model(TOKENS[:, :4], model.initial_state(2))
    outputs = [logits]
    for t in range(4, TOKENS.shape[1]):
        logits, state = model.step(TOKENS[:, t : t + 1], state)
        outputs.append(logits)

    require_close("logits", torch.cat(outputs, dim=1), whole)
    for after, expected in zip(state, last, strict=True):
        require_close("conv state", after.conv, expected.conv)
        require_close("ssm state", after.ssm, expected.ssm)


def test_pads_of_any_number_change_nothing():
    model = language_model(tied=True)
    mask = torch.tensor([[False] * 3 + [True] * 6, [True] * 4 + [False] * 3 + [True] * 2])
    padded, state = model(torch.where(mask, TOKENS, -100), model.initial_state(2), mask)

    for row in range(2):
        alone, after = model(TOKENS[row, mask[row]][None], model.initial_state(1))
        require_close("logits", padded[row, mask[row]], alone[0])
        require_close("ssm state", state[-1].ssm[row], after[-1].ssm[0])


def loaded(model: LanguageModel, *, assign: bool) -> LanguageModel:
    model.load_state_dict(model.state_dict(), assign=assign)
    return model


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda model: model, id="as made"),
        pytest.param(copy.deepcopy, id="copied"),
        pytest.param(lambda model: pickle.loads(pickle.dumps(model)), id="pickled"),
        pytest.param(lambda model: model.to(torch.float32), id="cast"),
        pytest.param(lambda model: model.to("meta"), id="moved"),
        pytest.param(lambda model: loaded(model, assign=False), id="loaded"),
        pytest.param(lambda model: loaded(model, assign=True), id="loaded by assignment"),
    ],
)
def test_a_tied_head_is_one_parameter_with_the_embedding(changed):
    model = changed(language_model(tied=True))

    assert model.tied
    assert [name for name, each in model.named_parameters() if each.shape == (11, 8)] == ["embedding.weight"]


def test_one_gradient_step_moves_embedding_and_head_together():
    model = language_model(tied=True)
    before = model.embedding.weight.detach().clone()
    logits, _ = model(TOKENS, model.initial_state(2))
    logits.logsumexp(-1).sum().backward()
    with torch.no_grad():
        model.embedding.weight -= 0.1 * model.embedding.weight.grad
    unused = 10  # no token of the input: only the head can have moved its row

    assert (model.embedding.weight[unused] != before[unused]).any()


def test_tied_weights_are_written_and_read_once(tmp_path):
    model = language_model(tied=True)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    fresh = LanguageModel(CONFIG, vocabulary=11, tied=True).double()
    fresh.load_state_dict(load_file(tmp_path / "weights.safetensors"))

    assert torch.equal(fresh(TOKENS, fresh.initial_state(2))[0], model(TOKENS, model.initial_state(2))[0])


def test_an_embedding_starts_small_enough_to_be_a_head():
    torch.manual_seed(0)
    weight = LanguageModel(CONFIG, vocabulary=5000, tied=True).embedding.weight

    assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert weight.mean().item() == pytest.approx(0.0, abs=5e-4)


def test_sizes_are_told():
    model = LanguageModel(CONFIG, vocabulary=11, tied=False)

    assert (model.vocabulary, model.tied) == (11, False)


@pytest.mark.parametrize("vocabulary", [0, -1, 2.0, True])
def test_a_vocabulary_that_is_no_count_is_refused(vocabulary):
    with pytest.raises(ConfigError) as refused:
        LanguageModel(CONFIG, vocabulary=vocabulary, tied=True)

    assert str(refused.value) == (
        f"LanguageModel: vocabulary must be a whole number of at least 1; got {vocabulary!r}."
    )


def test_tokens_that_are_no_whole_numbers_are_refused():
    model = language_model(tied=True)

    with pytest.raises(ShapeError, match=r"^LanguageModel\.forward: tokens must be Int; got float32 \(2, 9\)\."):
        model(TOKENS.float(), model.initial_state(2))


def test_a_step_of_two_tokens_is_refused():
    model = language_model(tied=True)

    with pytest.raises(ShapeError, match=r"^LanguageModel\.step: axis '1' is 2 in tokens \(2, 2\) but must be 1"):
        model.step(TOKENS[:, :2], model.initial_state(2))
