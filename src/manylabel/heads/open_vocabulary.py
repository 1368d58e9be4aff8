"""What a head must offer to answer for labels that it was not trained on.

Letters in shape comments: L labels, E text dimensions.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

__all__ = ["OpenVocabularyHead", "as_open_vocabulary"]


@runtime_checkable
class OpenVocabularyHead(Protocol):
    """A head whose labels are text vectors."""

    @property
    def takes_new_labels(self) -> bool:
        """Whether it can answer for other labels as it is set."""
        ...

    @property
    def text_vectors(self) -> Tensor | None:
        """The text vectors of its labels, ``[L, E]``."""
        ...

    def with_text(self, text_vectors: Tensor) -> nn.Module:
        """Return a head with the same weights for other labels, of these vectors ``[L', E]``."""
        ...


def as_open_vocabulary(head: nn.Module) -> OpenVocabularyHead | None:
    """Return the head if it can answer for other labels, else None.

    Examples:
        >>> from manylabel.heads import LinearHead
        >>> as_open_vocabulary(LinearHead(8, 2))
    """
    return head if isinstance(head, OpenVocabularyHead) and head.takes_new_labels else None
