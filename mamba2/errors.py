"""Every error this package raises on purpose.

    Mamba2Error
    ├── ShapeError       a tensor does not have the shape its annotation states   (also a TypeError)
    ├── ConfigError      settings that cannot work together                       (also a ValueError)
    ├── DataError        a file or its bars are not what they must be             (also a ValueError)
    ├── CheckpointError  a checkpoint cannot be written or read
    └── TrainingError    training cannot go on: a loss or a gradient is not finite

The first line of a message says where, what must hold, what was got and what to do: the one a command prints.
"""


class Mamba2Error(Exception):
    """Root of all errors raised on purpose by this package."""

    @property
    def headline(self) -> str:
        """The first line of the message."""
        return str(self).partition("\n")[0]


class ShapeError(Mamba2Error, TypeError):
    """A tensor's shape or dtype is not the annotated one."""


class ConfigError(Mamba2Error, ValueError):
    """Settings that cannot work together."""


class DataError(Mamba2Error, ValueError):
    """A file, or the bars in it, are not what they must be."""


class CheckpointError(Mamba2Error):
    """A checkpoint cannot be written or read."""


class TrainingError(Mamba2Error):
    """Training cannot go on."""
