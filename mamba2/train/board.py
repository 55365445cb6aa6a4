"""What TensorBoard shows of a run; its package is an extra, imported only where it is asked for."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from mamba2.errors import ConfigError
from mamba2.train.loop import Epoch, Step

Event = TypeVar("Event")


def board_writer() -> Callable[..., Any]:
    """Torch's writer of event files.

    Raises:
        ConfigError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "--tensorboard: TensorBoard must be installed; it is not. Run pip install 'mamba2[tensorboard]'."
        ) from error
    writer: Callable[..., Any] = SummaryWriter
    return writer


def boarded(events: Iterator[Event], out: Path, per_epoch: int, make_writer: Callable[..., Any]) -> Iterator[Event]:
    """Passes events on, with their numbers in `out/tensorboard`, where steps taken again replace the earlier ones.

    An epoch that is told again, as `fit` does where it goes on from one, stands there twice, with the same numbers.
    """
    writer = None
    try:
        for event in events:
            values = _values(event, per_epoch)
            if values:
                step = values.pop("step")
                again = step + isinstance(event, Epoch)  # its last step was not taken again
                writer = writer or make_writer(str(out / "tensorboard"), purge_step=again)
                for name, value in values.items():
                    writer.add_scalar(name, value, step)
            yield event
    finally:
        if writer:
            writer.close()


def _values(event: object, per_epoch: int) -> dict[str, Any]:
    if isinstance(event, Step):
        names = {"loss/step": event.loss, "learning rate": event.learning_rate, "gradient norm": event.gradient_norm}
        return {"step": event.step, **names}
    if isinstance(event, Epoch):
        validation = {} if event.validation_loss is None else {"loss/validation": event.validation_loss}
        return {"step": event.epoch * per_epoch, "loss/train": event.train_loss, **validation}
    return {}
