"""The law book holds for all that is ours."""

from mamba2.verify import Case, law_tests
from mamba2.verify.adapters.ours import IMPLEMENTATIONS

FOUND = (Case(batch=0),)
"""Every counterexample that was ever found."""

test_law = law_tests(*IMPLEMENTATIONS.values(), examples=FOUND)
