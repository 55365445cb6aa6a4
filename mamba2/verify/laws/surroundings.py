"""Laws about what is around the maths: L16, L17, L18, L19, L20."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mamba2.verify.checks import MismatchError, require, require_bitwise
from mamba2.verify.laws.compare import gradient_scales, leaves, require_same, require_same_gradients
from mamba2.verify.laws.law import law
from mamba2.verify.strategies import Source
from mamba2.verify.trial import WITHOUT_TIME, Inputs, Trial


@law(16)
def the_memory_layout_changes_nothing(trial: Trial) -> None:
    """Inputs whose memory is permuted, sliced or expanded, and gradients that come in so, give the same as contiguous
    ones."""
    expected = trial.run()
    for name, change in (("permuted", _permuted), ("sliced", _sliced)):
        require_same(f"of {name} inputs", trial.run(trial.select(trial.inputs, change)), expected)
    if trial.case.batch and trial.case.time:
        first = trial.rows(trial.inputs, torch.tensor([0]))
        spread = trial.select(first, lambda each: each.expand(trial.case.batch, *each.shape[1:]))
        dense = trial.select(spread, lambda each: each.contiguous())
        require_same("of expanded inputs", trial.run(spread), trial.run(dense))
    if trial.claims("gradients"):
        _require_same_gradients_from_any_layout(trial)


def _require_same_gradients_from_any_layout(trial: Trial) -> None:
    at = leaves(trial)
    inputs = tuple(at[name] for name in trial.implementation.inputs)
    outputs = trial.run(inputs).outputs
    incoming = Source(7).normal(*outputs.shape).to(outputs.dtype)

    def gradients(layout: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        given = layout(incoming)
        found = torch.autograd.grad(
            outputs, list(at.values()), given, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return dict(zip(at, found, strict=True))

    dense_gradients = gradients(torch.Tensor.contiguous)
    scales = gradient_scales(trial, at, dense_gradients)
    require_same_gradients("from a permuted one", gradients(_permuted), dense_gradients, scales)


@law(17, needs=("errors",), cost=4)
def wrong_sizes_are_refused_by_name(trial: Trial) -> None:
    """Sizes that cannot work together raise a ValueError or TypeError with both numbers in it: in a config when it is
    built, in a call before anything is broadcast."""
    case = trial.case
    if trial.implementation.level in ("block", "model"):
        config = trial.config
        if config.d_inner > 1:
            wrong = replace(config, headdim=config.d_inner + 1)
            _require_refused("a headdim above d_inner", lambda: trial.implementation(wrong), wrong.headdim)
        wrong = replace(config, n_groups=config.n_heads + 1)
        _require_refused("more groups than heads", lambda: trial.implementation(wrong), wrong.n_groups, config.n_heads)
    # The last of the inputs that has a time axis: of a scan that is C, which the rest of a formula broadcasts over.
    position = max(index for index, name in enumerate(trial.implementation.inputs) if name not in WITHOUT_TIME)
    name, tensor = trial.implementation.inputs[position], trial.inputs[position]
    wider = torch.cat((tensor, tensor[..., :1]), dim=-1)
    _require_call_refused(f"{name} one wider", trial, position, wider, wider.shape[-1], tensor.shape[-1])
    alone_in_batch = trial.implementation.level in ("block", "model") and not trial.claims("state")
    if case.batch and not alone_in_batch:
        more = torch.cat((tensor, tensor[:1]), dim=0)
        _require_call_refused(f"{name} of one sequence more", trial, position, more, case.batch + 1, case.batch)
    if case.batch > 1 and not alone_in_batch:
        _require_call_refused(f"{name} of one sequence", trial, position, tensor[:1], 1, case.batch)


@law(18)
def every_path_is_the_same_function(trial: Trial) -> None:
    """Without gradients, in inference mode, checkpointed, in evaluation mode, and by every other path that the
    implementation has: the results of a plain run."""
    plain = trial.run()
    for name, path in _paths(trial).items():
        require_same(name, trial.as_run(*path(*trial.inputs, trial.start())), plain)
    with torch.no_grad():
        require_same("without gradients", trial.run(), plain)
    with torch.inference_mode():
        inside = trial.run()
        require_same("in inference mode", inside, plain)
    if module := getattr(trial.subject, "module", None):
        module.eval()
        require_same("in evaluation mode", trial.run(), plain)
        module.train()


@law(18, needs=("compile",), cost=100)
def compiled_it_is_the_same_function(trial: Trial) -> None:
    """Compiled with sizes left open: the results of a plain run, at its length and at others."""
    torch.compiler.reset()
    compiled = torch.compile(trial.subject.run, backend="aot_eager", dynamic=True)
    for end in sorted({trial.case.time, trial.case.cut} - {0}, reverse=True):
        inputs = trial.window(trial.inputs, 0, end)
        require_same(f"compiled, {end} steps", trial.as_run(*compiled(*inputs, trial.start())), trial.run(inputs))


@law(19, levels=("block", "model"), needs=("save",))
def saving_and_loading_changes_nothing(trial: Trial) -> None:
    """What is saved and loaded runs bit for bit the same; what is said to be tied is one storage; dt and A start within
    their limits."""
    other = Trial(trial.implementation, replace(trial.case, seed=trial.case.seed + 9))
    with tempfile.TemporaryDirectory() as folder:
        trial.subject.save(Path(folder) / "parameters")
        other.subject.load(Path(folder) / "parameters")
    loaded, saved = other.subject.parameters(), trial.subject.parameters()
    for name, each in saved.items():
        require(name in loaded, f"parameter {name}: is gone after loading.")
        require_bitwise(f"parameter {name} after loading", loaded[name], each)
    again, before = other.run(trial.inputs, trial.start()), trial.run()
    require_bitwise("outputs after loading", again.outputs, before.outputs)
    if trial.claims("tied"):
        for first, second in trial.subject.tied():
            require(first.data_ptr() == second.data_ptr(), "tied tensors: are two storages.")
    if trial.claims("init"):
        _require_start_within_limits(trial)


@law(20, needs=("offsets",))
def offsets_have_64_bits(trial: Trial) -> None:
    """The place of an element past 2³¹ and 2³² is the exact sum of index times stride."""
    source = Source(trial.case.seed)
    for power in (20, 31, 32, 33, 40):
        strides = tuple(int(2 ** float(each)) for each in source.uniform(power / 2, power, 3))
        index = tuple(int(each) for each in source.uniform(1, 2 ** max(1, power // 2), 3))
        exact = sum(each * stride for each, stride in zip(index, strides, strict=True))
        got = trial.subject.offset(index, strides)
        require(got == exact, f"offset of {index} with strides {strides}: is {got}, expected {exact}.")


def _permuted(tensor: Tensor) -> Tensor:
    """The same values, the last axis outermost in memory."""
    return tensor.movedim(-1, 0).contiguous().movedim(0, -1)


def _sliced(tensor: Tensor) -> Tensor:
    """The same values, every other one of a larger tensor."""
    return torch.stack((tensor, torch.full_like(tensor, torch.nan)), dim=-1).flatten(-2)[..., ::2]


def _paths(trial: Trial) -> dict[str, Callable[..., Any]]:
    paths = {f"on the path {name}": path for name, path in trial.subject.paths().items()}
    paths["checkpointed"] = lambda *arguments: checkpoint(trial.subject.run, *arguments, use_reentrant=False)
    return paths


def _require_start_within_limits(trial: Trial) -> None:
    fresh, config = trial.implementation(trial.config), trial.config
    for name, each in fresh.parameters().items():
        for end, (low, high), value in (
            ("dt_bias", config.dt_init, F.softplus(each.double())),
            ("A_log", config.A_init, each.double().exp()),
        ):
            if name.endswith(end):
                within = bool(((value >= low * (1 - 1e-3)) & (value <= high * (1 + 1e-3))).all())
                require(within, f"{name} at the start: is {value.tolist()}, expected within {low} … {high}.")


def _require_call_refused(what: str, trial: Trial, position: int, wrong: Tensor, *numbers: int) -> None:
    inputs: Inputs = tuple(wrong if index == position else each for index, each in enumerate(trial.inputs))
    _require_refused(what, lambda: trial.subject.run(*inputs, trial.start()), *numbers)


def _require_refused(what: str, call: Callable[[], object], *numbers: int) -> None:
    try:
        call()
    except (ValueError, TypeError) as refusal:
        found = set(re.findall(r"\d+", str(refusal)))
        missing = [number for number in numbers if str(number) not in found]
        require(not missing, f"{what}: the message does not name {missing}: {str(refusal).partition(chr(10))[0]}")
    except Exception as error:
        raise MismatchError(
            f"{what}: raised {type(error).__name__}, expected a ValueError or TypeError that names the sizes."
        ) from error
    else:
        raise MismatchError(f"{what}: was taken, expected a ValueError or TypeError that names the sizes.")
