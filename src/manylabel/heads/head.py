"""The contract of a head: its input, checks of its settings, and what it may offer beyond ``head(features) -> logits``.

A head has a trait by having the attribute or method; no base class is needed and there is no registry. Other
packages ask for traits by the functions below and never check the class of a head.

| trait | meaning | asked for by |
|---|---|---|
| ``stages`` | stages of the backbone that it reads; every head has it | classifier |
| ``pooled_input`` | pooling that leaves its logits unchanged: see `pooled_input` | feature cache |
| ``probe_defaults`` | its sizes and learning rate on frozen features: `ProbeDefaults` | probe |
| ``attention(features)`` | ``[B, L, H, W]``, attention of each label | explanation |
| ``label_weights()`` | ``[L, C]``, its weights of the final map's channels, where it is linear in the map | CAM |
| ``gates(features, layer=-1)`` | weights of its experts: `ExpertHead` | explanation, report |
| ``alpha(features)`` | weights of earlier stages: `MixupHead` | explanation, report |
| ``with_text(vectors)`` | the same head for other labels: `OpenVocabularyHead` | new tags, zero-shot |
| ``decode(features, vectors, extra)`` | logits of changed text queries | query augmentation |

Letters in shape comments: B images, C channels, H and W positions of a map, L labels, S earlier stages, E text
dimensions.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, runtime_checkable

from torch import Tensor, nn

from manylabel.errors import ConfigError, list_choices

Features = Tensor | Sequence[Tensor]
"""Input of a head: one feature map ``[B, C, H, W]``, or a list of maps, finest first, the final one last."""

PooledInput = Literal["none", "average", "max", "earlier", "max_average", "max_cells"]
"""Pooling that leaves a head's logits unchanged.

None; the average or the maximum of all maps; the average of all but the final one; the maxima of all but the final one,
over the whole map if the final one is averaged (``max_average``), or around each of its positions (``max_cells``).
"""


class Head(nn.Module):
    """Base class of our heads: uses the final stage, and shows its settings. Custom heads need not derive from it."""

    stages: tuple[int, ...] = (-1,)

    def extra_repr(self) -> str:
        """Return the constructor's arguments, except tensors and modules."""
        names = inspect.signature(type(self)).parameters
        values = {name: getattr(self, name) for name in names if hasattr(self, name)}
        shown = {name: value for name, value in values.items() if not isinstance(value, Tensor | nn.Module)}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def final_map(features: Features, in_channels: int) -> Tensor:
    """Return the final feature map ``[B, C, H, W]`` of a head's input.

    Args:
        features: One map, or a list of maps, the final one last.
        in_channels: C, the channels that the head was built for.

    Raises:
        ConfigError: There is no map, or it is not ``[B, C, H, W]``.

    Examples:
        >>> import torch
        >>> feature = torch.zeros(4, 7, 3, 3)
        >>> final_map(feature, 7) is feature, final_map([feature], 7) is feature
        (True, True)
        >>> final_map(torch.zeros(4, 7), 7)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: a head takes a feature map [images, 7, height, width] or a list of maps, ...
    """
    maps = [features] if isinstance(features, Tensor) else features
    if not maps:
        raise ConfigError("a head takes a feature map or a list of maps, got an empty list")
    _check_map(maps[-1], in_channels)
    return maps[-1]


def maps_per_stage(features: Features, in_channels: Sequence[int]) -> Sequence[Tensor]:
    """Return one feature map ``[B, C, H, W]`` per stage of a head that reads several.

    Raises:
        ConfigError: There are more or fewer maps than stages, or one is not ``[B, C, H, W]``.

    Examples:
        >>> import torch
        >>> maps_per_stage(torch.zeros(4, 7, 3, 3), (7, 8))
        Traceback (most recent call last):
        manylabel.errors.ConfigError: this head takes a list of 2 feature maps, one per stage, got a single one
    """
    if isinstance(features, Tensor) or len(features) != len(in_channels):
        got = "a single one" if isinstance(features, Tensor) else len(features)
        raise ConfigError(f"this head takes a list of {len(in_channels)} feature maps, one per stage, got {got}")
    for feature, channels in zip(features, in_channels, strict=True):
        _check_map(feature, channels)
    return features


def _check_map(feature: Tensor, channels: int) -> None:
    if feature.ndim != 4 or feature.shape[1] != channels:
        raise ConfigError(
            f"a head takes a feature map [images, {channels}, height, width] or a list of maps, "
            f"got {list(feature.shape)}; pass a backbone's map before pooling, or build the head for its channels"
        )


def check_positive(**settings: int) -> None:
    """Raise unless settings are whole numbers of at least 1.

    Examples:
        >>> check_positive(width=64, num_heads=0)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: num_heads must be a whole number of at least 1, got 0
    """
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_fraction(name: str, value: float) -> None:
    """Raise unless a setting lies in [0, 1).

    Examples:
        >>> check_fraction("dropout", 1.5)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: dropout must be at least 0 and below 1, got 1.5
    """
    if not 0.0 <= value < 1.0:
        raise ConfigError(f"{name} must be at least 0 and below 1, got {value!r}")


def check_divides(width: int, num_heads: int) -> None:
    """Raise unless the width is a multiple of the number of attention heads.

    Examples:
        >>> check_divides(768, 5)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: width (768) must be a multiple of num_heads, got 5; try 4 or 6
    """
    check_positive(width=width, num_heads=num_heads)
    if width % num_heads:
        below = next(count for count in range(min(num_heads, width), 0, -1) if width % count == 0)
        above = next((count for count in range(num_heads, width + 1) if width % count == 0), width)
        raise ConfigError(f"width ({width}) must be a multiple of num_heads, got {num_heads}; try {below} or {above}")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise unless a setting is one of the choices.

    Examples:
        >>> check_choice("queries", "texts", ["random", "text"])
        Traceback (most recent call last):
        manylabel.errors.ConfigError: no queries 'texts'; did you mean 'text'? Available: random, text
    """
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"no {name} {value!r}; {list_choices(str(value), choices)}")


@dataclass(frozen=True)
class ProbeDefaults:
    """Defaults of a head on cached features, of a frozen backbone or of the frozen layers below a cut.

    Args:
        settings: Sizes; smaller than in the papers, which also train the backbone.
        learning_rate: Peak learning rate.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    learning_rate: float = 2e-3


@runtime_checkable
class OpenVocabularyHead(Protocol):
    """A head whose labels are represented by text vectors."""

    @property
    def takes_new_labels(self) -> bool:
        """True if it can score other labels with these settings."""

    @property
    def text_vectors(self) -> Tensor | None:
        """The text vectors of its labels, ``[L, E]``."""

    def with_text(self, text_vectors: Tensor) -> nn.Module:
        """Return a head with the same weights for other labels, given their text vectors ``[L', E]``."""


@runtime_checkable
class ExpertHead(Protocol):
    """A head that mixes experts, some shared by all labels, some of each label."""

    num_shared_experts: int
    num_label_experts: int

    @property
    def has_experts(self) -> bool:
        """True if it mixes experts with these settings."""

    def gates(self, features: Features, *, layer: int = -1) -> Tensor:
        """Return the weight of each expert for each label: ``[B, L, own + shared]``, its own first."""


@runtime_checkable
class MixupHead(Protocol):
    """A head that mixes earlier stages into the final one."""

    def alpha(self, features: Features) -> Tensor:
        """Return the weight of each earlier stage in the mixture, ``[B, S]``."""


def as_open_vocabulary(head: nn.Module) -> OpenVocabularyHead | None:
    """Return the head if it can score other labels, else None.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> as_open_vocabulary(LinearClassifier(8, 2))
    """
    return head if isinstance(head, OpenVocabularyHead) and head.takes_new_labels else None


def as_expert_head(head: nn.Module) -> ExpertHead | None:
    """Return the head if it mixes experts, else None."""
    return head if isinstance(head, ExpertHead) and head.has_experts else None


def as_mixup_head(head: nn.Module) -> MixupHead | None:
    """Return the head if it mixes earlier stages into the final one, else None."""
    return head if isinstance(head, MixupHead) else None


def attention_of(head: nn.Module) -> Callable[[Features], Tensor] | None:
    """Return a head's method for the attention map of each label, or None if it has no attention.

    Examples:
        >>> from manylabel.heads import CSRA, LinearClassifier
        >>> attention_of(LinearClassifier(8, 2)) is None, attention_of(CSRA(8, 2)) is None
        (True, False)
    """
    return cast("Callable[[Features], Tensor] | None", getattr(head, "attention", None))


def label_weights(head: nn.Module) -> Tensor | None:
    """Return the weights of the final map's channels for each label, ``[L, C]``; None if the head is not linear.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> label_weights(LinearClassifier(8, 3)).shape
        torch.Size([3, 8])
    """
    weights = cast("Callable[[], Tensor | None] | None", getattr(head, "label_weights", None))
    return None if weights is None else weights()


def pooled_input(head: nn.Module) -> PooledInput:
    """Return the pooling of maps that leaves a head's logits unchanged.

    Examples:
        >>> from manylabel.heads import CSRA, LinearClassifier
        >>> pooled_input(LinearClassifier(8, 2, pooling="max")), pooled_input(CSRA(8, 2))
        ('max', 'none')
    """
    return cast("PooledInput", getattr(head, "pooled_input", "none"))


def probe_defaults(head: type[nn.Module]) -> ProbeDefaults:
    """Return the defaults of a class of heads on frozen features.

    Examples:
        >>> from manylabel.heads import HybridSharingQuery
        >>> probe_defaults(HybridSharingQuery).learning_rate
        0.0005
    """
    return cast("ProbeDefaults", getattr(head, "probe_defaults", ProbeDefaults()))


def stages_of(head: Callable[..., nn.Module], settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the stages of the backbone that a head uses: its ``stages``, or the final one.

    Raises:
        ConfigError: `head` is not a class, or the stages are not a list of integers.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> stages_of(LinearClassifier, {}), stages_of(LinearClassifier, {"stages": [0, -1]})
        ((-1,), (0, -1))
    """
    if isinstance(head, nn.Module) or not callable(head):
        given = repr(head) if isinstance(head, str) else f"an object of type {type(head).__name__}"
        raise ConfigError(f"head must be a class, such as manylabel.heads.MLDecoder, got {given}")
    parameter = inspect.signature(head).parameters.get("stages")
    default = (-1,) if parameter is None or parameter.default is parameter.empty else parameter.default
    stages = settings.get("stages", default)
    is_list = isinstance(stages, Sequence) and not isinstance(stages, str)
    if not is_list or not all(isinstance(stage, int) for stage in stages):
        raise ConfigError(f"stages must be a list of whole numbers such as [0, -1], got {stages!r}")
    return tuple(stages)
