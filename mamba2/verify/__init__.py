"""Judging an implementation of Mamba-2, ours or anyone's, against the recurrence."""

from mamba2.verify import laws
from mamba2.verify.case import Case, Config
from mamba2.verify.implementation import CLAIMS, Block, Conv, Implementation, Model, Scan
from mamba2.verify.law_tests import law_tests
from mamba2.verify.runner import Verdict, verify

__all__ = [
    "CLAIMS",
    "Block",
    "Case",
    "Config",
    "Conv",
    "Implementation",
    "Model",
    "Scan",
    "Verdict",
    "law_tests",
    "laws",
    "verify",
]
