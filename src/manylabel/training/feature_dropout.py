"""Dropping channels of a frozen backbone's features at random, so that a head cannot learn pictures by heart.

Letters in shape comments: B pictures, C channels, H and W cells of a map.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.functional import dropout2d

__all__ = ["dropped_channels"]


@contextmanager
def dropped_channels(head: nn.Module, *, share: float) -> Iterator[None]:
    """Let a head, while it trains, see each picture without some channels of each map; the others grow to make up.

    Args:
        head: Takes a list of maps ``[B, C, H, W]``.
        share: How many of the channels are dropped, other ones for each picture.

    Examples:
        >>> import torch
        >>> from manylabel.heads import LinearClassifier
        >>> head, maps = LinearClassifier(8, 2), [torch.ones(4, 8, 3, 3)]
        >>> with dropped_channels(head, share=0.5):
        ...     torch.equal(head(maps), head(maps)), torch.equal(head.eval()(maps), head(maps))
        (False, True)
    """

    def drop(module: nn.Module, inputs: tuple[Sequence[Tensor]]) -> tuple[list[Tensor]]:
        return ([dropout2d(maps, share, training=module.training) for maps in inputs[0]],)

    handle = head.register_forward_pre_hook(drop)
    try:
        yield
    finally:
        handle.remove()
