"""Basic types: labels, batches and input specs.

Letters in shape comments: B images of a batch, L labels, H and W pixels.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import msgspec

from manylabel.errors import ConfigError, LabelError, list_choices

if TYPE_CHECKING:  # running an exported model needs these types, but must not need torch
    import torch
    from torch import Tensor

logger = logging.getLogger(__name__)

LONGEST_LABEL = 10_000  # characters; longer ones come from a missing quote, and take minutes to print


@dataclass(frozen=True, repr=False)
class LabelSpace:
    """Ordered, unique label names, with optional display names and descriptions.

    Args:
        names: The labels, in the order of the logits.
        display_names: Display names of some labels (``/m/01yrx`` -> ``cat``).
        descriptions: Descriptions of some labels, used by text queries.

    Raises:
        LabelError: A name is empty or a duplicate, or a display name or description belongs to no label.

    Examples:
        >>> labels = LabelSpace(["cat", "dog"])
        >>> labels
        LabelSpace(2 labels: cat, dog)
        >>> labels.index("dog"), len(labels), "cow" in labels
        (1, 2, False)
    """

    names: tuple[str, ...]
    display_names: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)

    def __init__(
        self,
        names: Sequence[str],
        *,
        display_names: Mapping[str, str] | None = None,
        descriptions: Mapping[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "names", tuple(_checked(names)))
        object.__setattr__(self, "display_names", dict(display_names or {}))
        object.__setattr__(self, "descriptions", dict(descriptions or {}))
        if len(self._positions) != len(self.names):
            doubled = sorted(name for name, count in Counter(self.names).items() if count > 1)
            named = f"{', '.join(doubled[:10])}{f' and {len(doubled) - 10} more' if len(doubled) > 10 else ''}"
            raise LabelError(f"labels must be unique, but these occur twice: {named}; rename or drop them")
        for what in ("display_names", "descriptions"):
            strangers = sorted(set(getattr(self, what)) - set(self.names))
            if strangers:
                raise LabelError(f"{what} has no such label {strangers[0]!r}; {list_choices(strangers[0], self.names)}")

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def __repr__(self) -> str:
        more = ", ..." if len(self) > 5 else ""
        return f"LabelSpace({len(self):,} labels: {', '.join(self.names[:5])}{more})"

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __getitem__(self, position: int) -> str:
        return self.names[position]

    def index(self, name: str) -> int:
        """Return the position of a label.

        Raises:
            LabelError: There is no such label; the message suggests the nearest ones.
        """
        try:
            return self._positions[name]
        except KeyError:
            raise LabelError(f"no label {name!r}; {list_choices(name, self.names)}") from None

    def display(self, name: str) -> str:
        """Return the display name of a label."""
        return self.display_names.get(name, name)

    def subset(self, names: Sequence[str]) -> LabelSpace:
        """Return some of the labels, in the order given.

        Examples:
            >>> LabelSpace(["cat", "dog", "cow"]).subset(["cow", "cat"]).names
            ('cow', 'cat')
        """
        kept = [self.names[self.index(name)] for name in _checked(names)]
        return LabelSpace(
            kept,
            display_names={name: self.display_names[name] for name in kept if name in self.display_names},
            descriptions={name: self.descriptions[name] for name in kept if name in self.descriptions},
        )

    def resolve(self, wanted: LabelSpace | Sequence[str]) -> LabelSpace:
        """Resolve the labels a user asked for, each once, with known display names and descriptions.

        Args:
            wanted: Names or display names of these labels, and new ones.

        Raises:
            LabelError: The list is empty, or a name is blank or not a string.

        Examples:
            >>> labels = LabelSpace(["/m/01yrx"], display_names={"/m/01yrx": "cat"})
            >>> labels.resolve(["tram", "cat", "tram "]).names
            ('tram', '/m/01yrx')
        """
        given = wanted if isinstance(wanted, LabelSpace) else LabelSpace([])
        names = _checked(wanted)
        if not names:
            raise LabelError("there are no labels; pass a list of names, such as ['fire truck', 'tram']")
        shown = {display: name for name, display in self.display_names.items()}
        stripped = [name.strip() for name in names]
        found = dict.fromkeys(name if name in self else shown.get(name, name) for name in stripped)
        if len(found) < len(names):
            logger.warning("duplicate labels are ignored: %d", len(names) - len(found))
        display, descriptions = (
            {name: text for name, text in {**old, **new}.items() if name in found}
            for old, new in ((self.display_names, given.display_names), (self.descriptions, given.descriptions))
        )
        return LabelSpace(list(found), display_names=display, descriptions=descriptions)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries, ready for JSON."""
        return {
            "names": list(self.names),
            "display_names": dict(self.display_names),
            "descriptions": dict(self.descriptions),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LabelSpace:
        """Restore a label space from `to_dict`.

        Raises:
            LabelError: A value is missing or has the wrong type, or the labels are wrong.
        """
        try:
            fields = msgspec.convert(values, _LabelFields)
        except msgspec.ValidationError as error:
            raise LabelError(f"this is not a list of labels: {error}") from error
        return cls(fields.names, display_names=fields.display_names, descriptions=fields.descriptions)


def _checked(names: Iterable[str]) -> list[str]:
    """Return label names; refuse a single text, anything but a list, and blank names."""
    if isinstance(names, str):
        raise LabelError(f"labels must be a list of names, got the single string {names!r}; write [{names!r}]")
    if not isinstance(names, Iterable):
        raise LabelError(f"labels must be a list of names, such as ['dog', 'cat'], got {names!r}")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str) or not name.strip():
            raise LabelError(f"every label needs a name, got {name!r} among {len(listed)} labels")
        if len(name) > LONGEST_LABEL:
            raise LabelError(
                f"a label may have {LONGEST_LABEL:,} characters, got one of {len(name):,}: {name[:40]!r}...; check the "
                "quotes and separators in the data"
            )
    return listed


class _LabelFields(msgspec.Struct, forbid_unknown_fields=True):
    """Schema of a `LabelSpace` in saved files."""

    names: tuple[str, ...]
    display_names: dict[str, str] = {}
    descriptions: dict[str, str] = {}


@dataclass(frozen=True)
class BadImage:
    """An image that could not be decoded, and the reason."""

    index: int
    name: str
    reason: str


class _Batch:
    """Length of a batch, and its copy on another device."""

    indices: Tensor

    def __len__(self) -> int:
        return int(self.indices.shape[0])

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on another device."""

        def moved(value: Any) -> Any:  # noqa: ANN401 - each field has its own type
            if isinstance(value, tuple):
                return tuple(map(moved, value))
            return value.to(device) if hasattr(value, "to") else value

        return type(self)(**{name: moved(value) for name, value in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Batch(_Batch):
    """A batch of images.

    Args:
        images: ``[B, 3, H, W]``, normalised.
        targets: ``[B, L]``, 1 where a label is present, else 0.
        known: ``[B, L]``, true where the target is known.
        indices: ``[B]``, positions of the images in their dataset.
        bad: Images of this batch that could not be decoded.
    """

    images: Tensor
    targets: Tensor
    known: Tensor
    indices: Tensor
    bad: tuple[BadImage, ...] = ()


@dataclass(frozen=True, eq=False)
class FeatureBatch(_Batch):
    """A batch of feature maps computed by a backbone.

    Args:
        features: One map ``[B, C, H, W]`` per stage, finest first; pooled ones are ``[B, C, 1, 1]``.
        targets: ``[B, L]``, 1 where a label is present, else 0.
        known: ``[B, L]``, true where the target is known.
        indices: ``[B]``, positions of the images in their dataset.
        views: ``[B]``, the view of each image (default: the first of all).
    """

    features: tuple[Tensor, ...]
    targets: Tensor
    known: Tensor
    indices: Tensor
    views: Tensor | None = None


LARGEST_INPUT = 4096  # pixels per side; larger batches fit no machine


class InputSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and normalisation of a model's input images.

    Attributes:
        size: Height and width in pixels.
        mean: Mean per channel of the training images, for values in 0..1.
        std: Standard deviation per channel, likewise.
        interpolation: Resize filter.
        resize: ``"squash"`` resizes to a square, as in the papers; ``"crop"`` preserves the aspect ratio, resizes the
            short side to size / `crop_fraction` and crops the centre, as ImageNet models do.
        crop_fraction: Fraction of the short side that ``"crop"`` retains.

    Raises:
        ConfigError: A value is out of range.

    Examples:
        >>> InputSpec(size=(448, 448)).resize
        'squash'
    """

    size: tuple[int, int] = (224, 224)
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    resize: Literal["squash", "crop"] = "squash"
    crop_fraction: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.crop_fraction <= 1:
            raise ConfigError(f"crop_fraction must be above 0 and at most 1, got {self.crop_fraction}")
        if min(self.size) < 1 or max(self.size) / self.crop_fraction > LARGEST_INPUT:
            most = f"at most {LARGEST_INPUT}, also when divided by crop_fraction ({self.crop_fraction:g})"
            raise ConfigError(f"size must be at least 1 pixel each way and {most}, got {self.size}")
        if not all(map(math.isfinite, self.mean)):
            raise ConfigError(f"mean must be finite, got {self.mean}")
        if not all(0 < value < math.inf for value in self.std):
            raise ConfigError(f"std must be above 0 and finite, got {self.std}")

    def uncropped(self) -> InputSpec:
        """Return the spec that squashes the whole image to the size; a crop would cut off objects at the edge."""
        return msgspec.structs.replace(self, resize="squash", crop_fraction=1.0)


class Tag(NamedTuple):
    """A label and its score."""

    label: str
    score: float


def position_of(index: int, num_images: int) -> int:
    """Return the position of an image, counted from the end if the index is negative.

    Raises:
        IndexError: There is no such image.

    Examples:
        >>> position_of(-1, 3)
        2
    """
    try:
        return range(num_images)[index]
    except IndexError:
        raise IndexError(f"no image {index}: there are {num_images}, counted from 0") from None
    except TypeError:
        raise TypeError(f"an image is selected by its position, such as 0, got {index!r}") from None
