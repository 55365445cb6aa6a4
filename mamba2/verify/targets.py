"""From what is typed to the implementations that are meant: `ours`, `ours.block`, `MODULE:NAME`."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from mamba2.errors import ConfigError
from mamba2.verify.implementation import Implementation, check_implementation

ADAPTERS = "mamba2.verify.adapters"


def load_implementations(target: str) -> dict[str, type[Implementation]]:
    """Each implementation that a target means, by the name to show; checked.

    Raises:
        ConfigError: there is none such, it cannot be imported, or it claims what it lacks.
    """
    found = _from_module(target) if ":" in target else _from_adapters(target)
    for each in found.values():
        check_implementation(each)
    return found


def adapters() -> list[str]:
    """The adapters in the box."""
    folder = Path(str(import_module(ADAPTERS).__file__)).parent
    return sorted(each.stem for each in folder.glob("[!_]*.py"))


def _from_adapters(target: str) -> dict[str, type[Implementation]]:
    package, _, name = target.partition(".")
    if package not in adapters():
        raise ConfigError(
            f"{target}: must be one of {', '.join(adapters())}, one of theirs such as ours.block, or MODULE:NAME."
        )
    all_ = _import(f"{ADAPTERS}.{package}", target).IMPLEMENTATIONS
    if name and name not in all_:
        raise ConfigError(f"{target}: {package} has no {name}. Choose from: {', '.join(all_)}.")
    return {f"{package}.{key}": each for key, each in all_.items() if key == name or not name}


def _from_module(target: str) -> dict[str, type[Implementation]]:
    module, _, name = target.partition(":")
    if "" in (module, name):
        raise ConfigError(f"{target}: must be MODULE:NAME, such as mypackage.adapters:Mine.")
    # As python -m does, so that an adapter beside one's own code needs no installing.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found: Any = getattr(_import(module, target), name, None)
    if found is None:
        raise ConfigError(f"{target}: {module} has no {name}. Write class {name}(Block) there.")
    if not (isinstance(found, type) and issubclass(found, Implementation)) or not hasattr(found, "level"):
        raise ConfigError(f"{target}: must be a subclass of mamba2.verify's Scan, Conv, Block or Model; got {found!r}.")
    return {name: found}


def _import(module: str, target: str) -> ModuleType:
    try:
        exists = find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        exists = False
    except Exception as error:  # of a package around it
        raise ConfigError(f"{target}: {module} does not import: {type(error).__name__}: {error}") from error
    if not exists:
        raise ConfigError(f"{target}: there is no module {module}. Install it, or run where it can be imported from.")
    try:
        return import_module(module)
    except Exception as error:
        raise ConfigError(f"{target}: {module} does not import: {type(error).__name__}: {error}") from error
