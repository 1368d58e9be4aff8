"""Checks of the inputs and settings of heads.

Letters in shape comments: B images, C channels, H and W positions of a map.
"""

from collections.abc import Iterable, Sequence

from torch import Tensor

from manylabel.errors import ConfigError, list_choices

__all__ = [
    "Features",
    "check_choice",
    "check_divides",
    "check_fraction",
    "check_positive",
    "final_map",
    "maps_per_stage",
]

Features = Tensor | Sequence[Tensor]
"""Input of a head: one feature map ``[B, C, H, W]``, or a list of maps, finest first, the final one last."""


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
        manylabel.errors.ConfigError: width (768) must be a multiple of num_heads, got num_heads=5; try 4 or 6
    """
    check_positive(width=width, num_heads=num_heads)
    if width % num_heads:
        below = next(count for count in range(min(num_heads, width), 0, -1) if width % count == 0)
        above = next((count for count in range(num_heads, width + 1) if width % count == 0), width)
        raise ConfigError(
            f"width ({width}) must be a multiple of num_heads, got num_heads={num_heads}; try {below} or {above}"
        )


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise unless a setting is one of the choices.

    Examples:
        >>> check_choice("queries", "texts", ["random", "text"])
        Traceback (most recent call last):
        manylabel.errors.ConfigError: no queries 'texts'; did you mean 'text'? There is: random, text
    """
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"no {name} {value!r}; {list_choices(str(value), choices)}")
