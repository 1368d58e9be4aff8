"""Several processes that train one model: which of them this is."""

from lightning.pytorch.utilities import rank_zero_only

__all__ = ["is_first_process"]


def is_first_process() -> bool:
    """Say whether this process is the one that writes and tells; alone, it is.

    Examples:
        >>> is_first_process()
        True
    """
    return not getattr(rank_zero_only, "rank", 0)
