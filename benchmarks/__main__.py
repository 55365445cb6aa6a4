"""`python -m benchmarks`: how fast the network is beside its bare matrix products and beside peers, and how exact."""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.accuracy import accuracy, recurrence, strong_decay
from benchmarks.contenders import Contender, contenders
from benchmarks.measure import Clock, cpu_clock, cuda_clock, interleave, ratio, wall_clock
from mamba2.config import ModelConfig
from mamba2.model.backbone import Backbone

PEERS = ["transformers 64", "transformers 256", "niverel"]
PARTS = ("train", "forward", "growth", "step", "decay", "bf16", "memory", "shapes")


class Row(NamedTuple):
    """One figure; a time stands beside the errors of what took it."""

    part: str
    case: str
    contender: str
    microseconds: float | None
    """A token."""
    ratio: tuple[float, float, float] | float | None
    """Median, lowest and highest; to the products unless the case says otherwise."""
    errors: tuple[float | None, ...] | None
    """Of output, gradient and steps against float64; None where not measured."""


class Setup(NamedTuple):
    """How all parts are measured."""

    clock: Clock
    rounds: int
    device: str
    names: list[str]
    scale: int
    """Lengths and batches are divided by it, for a trial of the machinery."""


def backbone(setup: Setup, layers: int, d_state: int) -> Backbone:
    """The same weights each time."""
    torch.manual_seed(0)
    return Backbone(ModelConfig(layers=layers, d_state=d_state)).to(setup.device)


def once(task: str, contender: Contender, x: torch.Tensor, state: list[Any]) -> None:
    """One train step without its optimizer, one forward, or one time step, which leaves its state to the next."""
    if task == "train":
        for each in contender.parameters():
            each.grad = None
        y = contender.run(x)
        y.backward(torch.ones_like(y))
        return
    with torch.inference_mode():
        if task == "forward":
            contender.run(x)
        else:
            _, state[0] = contender.step(x, state[0])


def compare(
    setup: Setup, part: str, task: str, model: Backbone, size: tuple[int, int], names: list[str], repeat: int = 1
) -> list[Row]:
    """All contenders on one size, interleaved, with the errors of each."""
    batch, time = max(1, size[0] // setup.scale), max(1, size[1] // setup.scale)
    found = contenders(model, names)
    x = torch.randn(batch, time, model.config.d_model, device=setup.device)
    runs: dict[str, Callable[[], None]] = {
        name: partial(once, task, each, x, [each.start(batch)]) for name, each in found.items()
    }
    times = interleave(runs, rounds=setup.rounds, repeat=repeat, clock=setup.clock)
    sample = torch.randn(2, min(64, max(time, 8)), model.config.d_model, device=setup.device)
    exact = recurrence(model, sample)
    rows = []
    for name, each in found.items():
        errors = None if name == "products" else accuracy(each, sample, exact)
        case = f"{task} {batch} x {time}"
        rows.append(
            Row(part, case, name, min(times[name]) / batch / time * 1e6, ratio(times[name], times["products"]), errors)
        )
    return rows


def measure(part: str, setup: Setup) -> Iterator[Row]:
    """The rows of one part."""
    ours = [name for name in setup.names if name not in PEERS] or ["ours"]
    match part:
        case "train" | "forward":
            yield from compare(setup, part, part, backbone(setup, 6, 16), (32, 60), setup.names)
        case "growth":
            model = backbone(setup, 1, 64)
            for task, lengths in (("forward", (1024, 4096, 16384, 65536)), ("train", (1024, 4096, 16384))):
                for length in lengths:
                    yield from compare(setup, part, task, model, (1, length), ours)
        case "step":
            for batch in (1, 32):
                model = backbone(setup, 6, 16)
                yield from compare(setup, part, "step", model, (batch * setup.scale, 1), setup.names, 20 // setup.scale)
        case "decay":
            mild = backbone(setup, 6, 16)
            yield from compare(setup, part, "train", mild, (32, 60), ["ours"])
            rows = compare(setup, part, "train", strong_decay(mild), (32, 60), ["ours"])
            yield from (row._replace(case=f"{row.case}, strong") for row in rows)
        case "bf16":
            yield half(setup)
        case "memory":
            yield from memory(setup, ours)
        case "shapes":
            yield from shapes(setup)


def half(setup: Setup) -> Row:
    """A train step under autocast over one in float32, with the error of the output against float32."""
    model = backbone(setup, 6, 16)
    contender = contenders(model, ["ours"])["ours"]
    x = torch.randn(max(1, 32 // setup.scale), 60, 256, device=setup.device)

    def autocast() -> None:
        with torch.autocast(setup.device, dtype=torch.bfloat16):
            once("train", contender, x, [])

    runs = {"float32": partial(once, "train", contender, x, []), "bf16": autocast}
    times = interleave(runs, rounds=setup.rounds, repeat=1, clock=setup.clock)
    with torch.no_grad():
        exact = contender.run(x)
        with torch.autocast(setup.device, dtype=torch.bfloat16):
            error = float((contender.run(x) - exact).abs().max() / exact.abs().max())
    tokens = x.shape[0] * x.shape[1]
    each = min(times["bf16"]) / tokens * 1e6
    return Row("bf16", "train, over float32", "ours", each, ratio(times["bf16"], times["float32"]), (error, None, None))


def memory(setup: Setup, names: list[str]) -> Iterator[Row]:
    """Kilobytes a token: in processes of their own, from one length to a longer one."""
    for task, short, long in (("train", 4096, 16384), ("forward", 16384, 65536)):
        for name in names:
            sizes = [_child("benchmarks.memory", task, str(each // setup.scale), name) for each in (short, long)]
            kilobytes = (int(sizes[1]) - int(sizes[0])) / ((long - short) // setup.scale) / 1000
            yield Row("memory", f"{task} {short} to {long}, KB a token", name, None, kilobytes, None)


def shapes(setup: Setup) -> Iterator[Row]:
    """Ours over the products with shapes checked fully, once for each shape, and not at all."""
    for mode in ("off", "cached", "full"):
        options = ["--only", "train", "step", "--contenders", "ours", "--rounds", str(setup.rounds)]
        options += ["--scale", str(setup.scale), "--json", "-"]
        answer = _child("benchmarks", *options, environment={"MAMBA2_SHAPES": mode})
        for row in json.loads(answer)["rows"]:
            if row["contender"] == "ours":
                case = f"{row['case']}, MAMBA2_SHAPES={mode}"
                errors = tuple(row["errors"])
                yield Row("shapes", case, "ours", row["microseconds"], tuple(row["ratio"]), errors)


def _child(module: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, env=os.environ | (environment or {}), capture_output=True, text=True, check=True
    ).stdout


def describe(row: Row) -> str:
    """One line for people."""
    each = "" if row.microseconds is None else f"{row.microseconds:10.2f} us a token"
    if isinstance(row.ratio, tuple):
        shown = f"{row.ratio[0]:6.2f} ({row.ratio[1]:.2f} to {row.ratio[2]:.2f})"
    else:
        shown = f"{row.ratio:6.2f}"
    errors = (
        ""
        if row.errors is None
        else "errors " + " ".join("-" if error is None else f"{error:.1e}" for error in row.errors)
    )
    return f"{row.part:8} {row.case:44} {row.contender:17} {each:22} {shown:24} {errors}".rstrip()


def main(arguments: list[str] | None = None) -> None:
    """Measures the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--contenders", nargs="+", default=["ours", "composed", *PEERS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="1: processor time; more: time on the wall")
    parser.add_argument("--device", default="cpu", help="cuda: device events; not tried on a GPU yet")
    parser.add_argument("--scale", type=int, default=1, help="divides lengths and batches")
    parser.add_argument("--json", help="a file to write, or - for standard output in place of the table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    clock = cuda_clock if options.device.startswith("cuda") else cpu_clock if options.threads == 1 else wall_clock
    setup = Setup(clock, options.rounds, options.device, options.contenders, options.scale)
    rows = []
    for part in options.only:
        for row in measure(part, setup):
            rows.append(row)
            if options.json != "-":
                print(describe(row), flush=True)
    machine = {"torch": torch.__version__, "python": platform.python_version(), "cpu": platform.processor()}
    report = {"machine": machine, "threads": options.threads, "rows": [row._asdict() for row in rows]}
    if options.json == "-":
        print(json.dumps(report))
    elif options.json:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
