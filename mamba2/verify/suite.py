"""The laws as a test module for anybody: `pytest --pyargs mamba2.verify.suite --mamba2-impl MODULE:NAME`."""

from mamba2.verify.implementation import Implementation
from mamba2.verify.law_tests import law_test
from mamba2.verify.laws import Law


def test_law(law: Law, implementation: type[Implementation]) -> None:
    """One law on one implementation; `mamba2.pytest_plugin` says which."""
    law_test(law, implementation)()
