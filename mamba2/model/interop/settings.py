"""Another library's settings, read and written by one table each."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mamba2.config import ModelConfig
from mamba2.errors import ConfigError


class Setting(NamedTuple):
    """A setting of the other library that may have any value of its kind."""

    theirs: str
    default: Any
    """The other library's, where the setting is not given; its type is the setting's."""
    ours: str | None = None
    """The field of `ModelConfig` that has the same value, if there is one."""


class Fixed(NamedTuple):
    """A setting of the other library of which only some values are supported."""

    theirs: str
    default: Any
    allowed: tuple[Any, ...]


class Found(NamedTuple):
    """What was read: a value for every setting, and what is wrong with those given."""

    values: dict[str, Any]
    faults: list[str]


def read_settings(settings: Iterable[Setting], fixed: Iterable[Fixed], given: Mapping[str, Any]) -> Found:
    """The value of each setting by the other library's name; in the place of a wrong one stands the default."""
    values, faults = {}, []
    for theirs, default, _ in settings:
        value = given.get(theirs, default)
        wanted = _misfit(value, default)
        if wanted is not None:
            faults.append(f"{theirs} = {value!r}, not {wanted}")
            value = default
        values[theirs] = tuple(map(float, value)) if isinstance(default, tuple) else value
    for theirs, default, allowed in fixed:
        value = given.get(theirs, default)
        if value not in allowed:
            faults.append(f"{theirs} = {value!r}, not {' or '.join(map(repr, allowed))}")
    return Found(values, faults)


def our_fields(settings: Iterable[Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ModelConfig` that are settings of the other library under another name."""
    return {each.ours: values[each.theirs] for each in settings if each.ours is not None}


def their_values(settings: Iterable[Setting], config: ModelConfig) -> dict[str, Any]:
    """The settings of the other library that are fields of `ModelConfig` under another name, as JSON has them."""
    values = {each.theirs: getattr(config, each.ours) for each in settings if each.ours is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def make_config(where: str, fields: dict[str, Any], faults: list[str]) -> ModelConfig:
    """The config of these fields, if nothing was wrong with what they were read from.

    Raises:
        ConfigError: something was, or the fields do not go together; all that is known to be wrong is named.
    """
    try:
        config = ModelConfig(**fields)
    except ConfigError as error:
        faults = [*faults, str(error).rstrip(".")]
    if faults:
        raise ConfigError(f"{where}: each setting must be one that mamba2 supports; got {'; '.join(faults)}.")
    return config


def require_expressible(where: str, config: ModelConfig, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Each of these fields of ours has a value that the other library has a word for.

    Raises:
        ConfigError: not so; all such fields are named.
    """
    faults = [
        f"{name} = {getattr(config, name)!r}, not {' or '.join(map(repr, values))}"
        for name, values in allowed.items()
        if getattr(config, name) not in values
    ]
    if faults:
        raise ConfigError(f"{where}: each setting must be one that the other library has; got {'; '.join(faults)}.")


def _misfit(value: Any, default: Any) -> str | None:
    """What the value should have been, to be of the default's kind."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, int):
        return None if type(value) is int else "a whole number"
    if isinstance(default, float):
        return None if _is_number(value) else "a number"
    fits = isinstance(value, (list, tuple)) and len(value) == len(default) and all(map(_is_number, value))
    return None if fits else f"{len(default)} numbers"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
