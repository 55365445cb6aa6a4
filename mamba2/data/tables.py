"""Arrays with a row for each bar: in memory, or on disk beside bars that are on disk."""

import math
import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mamba2.errors import DataError

_T = TypeVar("_T", bound=np.generic)


def new_table(shape: tuple[int, ...], dtype: type[_T], folder: Path | None) -> NDArray[_T]:
    """Zeros, in memory or in a file of the folder that has no name and is gone with the last use of the table.

    Where the folder cannot be written, the file is among the system's temporary ones.

    Raises:
        DataError: there is no room for it.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if folder is None or size == 0:
        return np.zeros(shape, dtype)
    try:
        with TemporaryFile(dir=folder if os.access(folder, os.W_OK) else None) as file:
            if hasattr(os, "posix_fallocate"):  # a disk that fills up later would kill the process
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "w+", shape=shape).view(np.ndarray)
    except OSError as error:
        raise DataError(
            f"{folder}: there must be room for {size:,} bytes of features; {error.strerror}. Free some."
        ) from error
