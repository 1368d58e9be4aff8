"""Queries of heads: one per label or per group of labels; learned, random or computed from text.

Letters in shape comments: L labels, K groups (K = L when every label has its own query), g slots of a group, D width,
E text dimensions.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.errors import ConfigError, list_choices
from manylabel.seeds import private_generator

QueryKind = Literal["learnable", "random", "text"]


def group_labels(num_labels: int, num_groups: int, seed: int = 0) -> Tensor:
    """Divide labels into groups at random, as evenly as possible.

    Groups differ by at most one label, so every query is used. With as many groups as labels, label i is group i.

    Args:
        num_labels: Labels, N in the paper.
        num_groups: Groups, K in the paper.
        seed: Seeds the division; the same seed gives the same groups.

    Returns:
        ``[L]``, the slot of each label: ``group * g + position`` with ``g = ceil(num_labels / num_groups)``.

    Raises:
        ConfigError: There are more groups than labels, or none.

    Examples:
        >>> slots = group_labels(5, 2)
        >>> (slots // 3).bincount().tolist()  # g = 3: one group of three labels, one of two
        [3, 2]
    """
    if not 1 <= num_groups <= num_labels:
        raise ConfigError(
            f"num_groups must be between 1 and num_labels ({num_labels}), got {num_groups}; "
            "lower num_groups or leave it out"
        )
    if num_groups == num_labels:
        return torch.arange(num_labels, device="cpu")
    order = torch.from_numpy(private_generator("label groups", seed).permutation(num_labels))
    return order % num_groups * math.ceil(num_labels / num_groups) + order // num_groups


class LearnableQueries(nn.Module):
    """Learned queries.

    Args:
        num_queries: Number of queries.
        width: Channels of a query.

    Examples:
        >>> LearnableQueries(5, 8)().shape
        torch.Size([5, 8])
    """

    def __init__(self, num_queries: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(num_queries, width))

    def forward(self) -> Tensor:
        """Return the queries, ``[K, D]``."""
        return self.vectors


class RandomQueries(nn.Module):
    """Queries drawn once from N(0, 1) and never trained; the projection after them is.

    Args:
        num_queries: Number of queries.
        width: Channels of a query.
        seed: Seeds the draw.

    Examples:
        >>> queries = RandomQueries(5, 8, seed=1)
        >>> queries().shape, len(list(queries.parameters())), list(queries.state_dict())
        (torch.Size([5, 8]), 0, ['vectors'])
    """

    vectors: Tensor

    def __init__(self, num_queries: int, width: int, *, seed: int = 0) -> None:
        super().__init__()
        drawn = private_generator("random queries", seed).standard_normal((num_queries, width))
        self.register_buffer("vectors", torch.from_numpy(drawn).to(torch.get_default_dtype()))

    def forward(self) -> Tensor:
        """Return the queries, ``[K, D]``."""
        return self.vectors


class TextQueries(nn.Module):
    """Queries computed from a text vector per label: Linear + ReLU. The vectors are saved with the model.

    Args:
        num_labels: Labels.
        width: Channels of a query.
        text_vectors: ``[L, E]``, a vector per label (default: zeros, for a state dict to fill in).
        text_dim: E; needed only without `text_vectors`.

    Raises:
        ConfigError: Neither `text_vectors` nor `text_dim` is given, or a shape does not fit.

    Examples:
        >>> TextQueries(3, 8, text_vectors=torch.eye(3, 4))().shape
        torch.Size([3, 8])
    """

    vectors: Tensor

    def __init__(
        self, num_labels: int, width: int, *, text_vectors: Tensor | None = None, text_dim: int | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("vectors", check_text_vectors(num_labels, text_vectors, text_dim))
        self.project = nn.Linear(self.vectors.shape[1], width)

    def forward(self) -> Tensor:
        """Return the queries, ``[L, D]``."""
        return self.make(self.vectors)

    def make(self, vectors: Tensor) -> Tensor:
        """Return the queries ``[K, D]`` of any text vectors ``[K, E]``."""
        return F.relu(self.project(vectors))


def make_queries(
    kind: QueryKind,
    num_queries: int,
    width: int,
    *,
    num_labels: int,
    text_vectors: Tensor | None = None,
    text_dim: int | None = None,
    seed: int = 0,
) -> LearnableQueries | RandomQueries | TextQueries:
    """Build queries by name.

    Args:
        kind: ``"learnable"``, ``"random"`` or ``"text"``.
        num_queries: Number of queries.
        width: Channels of a query.
        num_labels: Labels; text queries have a vector for each.
        text_vectors: See `TextQueries`.
        text_dim: See `TextQueries`.
        seed: Seeds random queries.

    Returns:
        A module that returns ``[K, D]``.

    Raises:
        ConfigError: There is no such kind, or text vectors are given to another kind than ``"text"``.

    Examples:
        >>> type(make_queries("random", 5, 8, num_labels=10)).__name__
        'RandomQueries'
    """
    if kind == "text":
        return TextQueries(num_labels, width, text_vectors=text_vectors, text_dim=text_dim)
    if text_vectors is not None or text_dim is not None:
        raise ConfigError(f"text vectors are used only with queries='text', got queries={kind!r}; set queries='text'")
    if kind == "learnable":
        return LearnableQueries(num_queries, width)
    if kind == "random":
        return RandomQueries(num_queries, width, seed=seed)
    raise ConfigError(f"no queries {kind!r}; {list_choices(str(kind), ['learnable', 'random', 'text'])}")


def check_text_vectors(num_labels: int, text_vectors: Tensor | None, text_dim: int | None) -> Tensor:
    """Return a copy of text vectors ``[L, E]``, or zeros to be filled in by a state dict.

    Args:
        num_labels: Labels.
        text_vectors: A vector per label.
        text_dim: E; needed only without `text_vectors`.

    Raises:
        ConfigError: Neither is given, or a shape does not fit.

    Examples:
        >>> check_text_vectors(3, None, 4).shape
        torch.Size([3, 4])
    """
    if text_vectors is None:
        if text_dim is None or text_dim < 1:
            raise ConfigError(f"text queries need text_vectors, one per label, or text_dim; got text_dim={text_dim}")
        return torch.zeros(num_labels, text_dim)
    shape = list(text_vectors.shape)
    if len(shape) != 2 or shape[0] != num_labels or shape[1] != (text_dim or shape[1]):
        wanted = f"[{num_labels}, {text_dim or 'any'}]"
        raise ConfigError(f"text_vectors must be [labels, dimensions] = {wanted}, got {shape}; pass one row per label")
    return text_vectors.detach().clone().to(torch.get_default_dtype())


def group_means(vectors: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """Return the mean vector of each group: ``[L, E]`` and groups ``[L]`` -> ``[K, E]``.

    Examples:
        >>> group_means(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 0, 1]), 2).tolist()
        [[2.0], [2.5]]
    """
    sums = vectors.new_zeros(num_groups, vectors.shape[1]).index_add(0, groups, vectors)
    counts = vectors.new_zeros(num_groups).index_add(0, groups, torch.ones_like(vectors[:, 0]))
    return sums / counts.unsqueeze(1)
