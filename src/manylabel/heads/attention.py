"""Attention over tokens and the feed-forward block of transformer heads.

Letters in shape comments: B images, C channels, H and W positions of a map, T = H * W tokens, Q queries, D width,
h attention heads, d channels of a head.
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.heads.head import check_divides


def to_tokens(feature: Tensor) -> Tensor:
    """Return the positions of a feature map ``[B, C, H, W]`` as tokens ``[B, T, C]``, row by row.

    Examples:
        >>> import torch
        >>> to_tokens(torch.zeros(2, 8, 3, 5)).shape
        torch.Size([2, 15, 8])
    """
    return feature.flatten(2).transpose(1, 2)


def feed_forward(width: int, hidden: int, *, dropout: float, activation: nn.Module) -> nn.Sequential:
    """Return the feed-forward block of a transformer layer, without its residual and norm.

    Examples:
        >>> import torch
        >>> feed_forward(8, 32, dropout=0.1, activation=nn.ReLU())(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """
    return nn.Sequential(
        nn.Linear(width, hidden), activation, nn.Dropout(dropout), nn.Linear(hidden, width), nn.Dropout(dropout)
    )


class MultiHeadAttention(nn.Module):
    """Multi-head attention, with queries that may be the same for all images.

    Args:
        width: Channels of queries, keys, values and output.
        num_heads: Attention heads.
        head_width: Channels of each head (default: the width divided by the heads).
        dropout: Fraction of attention weights dropped in training.

    Raises:
        ConfigError: The width is not a multiple of the heads.

    Examples:
        >>> import torch
        >>> attention = MultiHeadAttention(8, 2)
        >>> queries, tokens = torch.zeros(1, 3, 8), torch.zeros(4, 6, 8)
        >>> attention(queries, tokens, tokens).shape  # one set of queries for all four images
        torch.Size([4, 3, 8])
    """

    def __init__(self, width: int, num_heads: int, *, head_width: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        if head_width is None:
            check_divides(width, num_heads)
        self.width, self.num_heads, self.head_width, self.dropout = width, num_heads, head_width, dropout
        inner = width if head_width is None else num_heads * head_width
        self.query = nn.Linear(width, inner)
        self.key = nn.Linear(width, inner)
        self.value = nn.Linear(width, inner)
        self.out = nn.Linear(inner, width)
        bound = math.sqrt(6 / (width + 3 * inner))  # Xavier's, of the three projections as one, as in torch
        for projection in (self.query, self.key, self.value):
            nn.init.uniform_(projection.weight, -bound, bound)
        for projection in (self.query, self.key, self.value, self.out):
            nn.init.zeros_(projection.bias)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"width={self.width}, num_heads={self.num_heads}, head_width={self.head_width}, dropout={self.dropout}"

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend: ``[B, Q, D]`` or ``[1, Q, D]``, ``[B, T, D]``, ``[B, T, D]`` -> ``[B, Q, D]``."""
        key, value = self._split(self.key(keys)), self._split(self.value(values))  # [B, h, T, d]
        query = self._split(self.query(queries)).expand(key.shape[0], -1, -1, -1)  # [B, h, Q, d]
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        found: Tensor = self.out(mixed.transpose(1, 2).flatten(2))  # [B, Q, D]
        return found

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the attention weights ``[B, Q, T]``, averaged over the heads, without dropout."""
        query, key = self._split(self.query(queries)), self._split(self.key(keys))
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])  # [B, h, Q, T]
        return scores.softmax(-1).mean(1)

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.reshape(*tokens.shape[:2], self.num_heads, -1).transpose(1, 2)  # [B, h, T, d]
