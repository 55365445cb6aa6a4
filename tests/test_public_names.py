"""What `import mamba2` offers."""

import mamba2


def test_every_public_name_is_there() -> None:
    assert {name: getattr(mamba2, name).__name__ for name in mamba2.__all__ if name != "__version__"} == {
        name: name for name in mamba2.__all__ if name != "__version__"
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(mamba2, "Mamba3")
