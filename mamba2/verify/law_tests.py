"""The laws as tests of pytest and Hypothesis."""

from collections.abc import Callable, Iterable

from hypothesis import example, given, settings

from mamba2.verify.case import Case
from mamba2.verify.draw import can_run, cases, fixed_cases
from mamba2.verify.implementation import Implementation, check_implementation
from mamba2.verify.laws import LAWS, Law


def law_tests(
    *implementations: type[Implementation], laws: Iterable[Law] = LAWS, examples: Iterable[Case] = ()
) -> Callable[[Law, type[Implementation]], None]:
    """A test of every law that the implementations claim; give it a name that begins with `test_`.

        test_mine = law_tests(Mine)

    `examples` are cases to try each time, such as counterexamples that were found. How many are drawn is Hypothesis's
    setting.

    Raises:
        ConfigError: an implementation claims what it lacks.
    """
    import pytest

    for implementation in implementations:
        check_implementation(implementation)
    applicable = [
        pytest.param(law, implementation, id=f"{law.id}-{law.name}-{implementation.__name__}")
        for implementation in implementations
        for law in laws
        if law.missing(implementation) is None
    ]
    found = tuple(examples)

    @pytest.mark.parametrize(("law", "implementation"), applicable)
    def test(law: Law, implementation: type[Implementation]) -> None:
        law_test(law, implementation, found)()

    return test


def law_test(law: Law, implementation: type[Implementation], examples: Iterable[Case] = ()) -> Callable[[], None]:
    """A law on one implementation, to be called: first on fixed cases and the examples, then on what is drawn."""

    def check(case: Case) -> None:
        law(implementation, case)

    test = given(case=cases(law, implementation))(check)
    for case in (*fixed_cases(law, implementation), *examples):
        if can_run(implementation, case):
            test = example(case=case)(test)
    usual = settings.get_profile(settings.get_current_profile_name())
    # The first call of many a library takes long, which is no fault of what is judged.
    return settings(max_examples=law.examples(implementation, usual.max_examples), deadline=None)(test)
