"""Judges the transformers that is on the path, on drawn cases and on those of the faults, and prints JSON."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import torch
import transformers

from mamba2.verify import Case, verify
from mamba2.verify.adapters.transformers import IMPLEMENTATIONS
from mamba2.verify.implementation import Implementation
from mamba2.verify.laws import LAWS

FAULTS = Path(__file__).with_name("faults.toml")


def case_of(values: dict[str, Any], implementation: type[Implementation]) -> Case:
    """A case of the table; a bias where the convolution cannot be without."""
    made = {name: tuple(each) if isinstance(each, list) else each for name, each in values.items()}
    return Case(**{"dtype": "float32", "conv_bias": "no conv_bias" not in implementation.claims} | made)


def broken_by_fault(fault: dict[str, Any], model: str) -> dict[str, str]:
    """What each of a fault's laws says to its case; empty where it holds."""
    implementation = IMPLEMENTATIONS[model]
    said = {}
    for law in LAWS:
        if law.id not in fault["laws"] or law.missing(implementation) or law.id in said:
            continue
        try:
            law(implementation, case_of(fault["case"], implementation))
        except Exception as error:
            said[law.id] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        else:
            said[law.id] = ""
    return said


def main(examples: int) -> None:
    """The verdicts of the search, and those on the cases of the faults."""
    torch.set_num_threads(1)
    faults = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    on_cases = [
        {"report": fault["report"], "model": model, "said": broken_by_fault(fault, model)}
        for fault in faults
        for model in IMPLEMENTATIONS
        if model in fault["models"] or "all" in fault["models"]
    ]
    drawn = [
        {"model": each.target, "law": each.law.id, "outcome": each.outcome, "case": str(each.case), "why": each.why}
        for each in verify(IMPLEMENTATIONS, examples=examples)
    ]
    print(json.dumps({"release": transformers.__version__, "drawn": drawn, "on_cases": on_cases}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
