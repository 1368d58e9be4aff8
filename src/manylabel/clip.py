"""Image-text models of open_clip, such as CLIP and SigLIP: one tower for images, one for text, and their comparison.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021.
Zhai et al., "Sigmoid Loss for Language Image Pre-Training" (SigLIP), ICCV 2023, https://arxiv.org/abs/2303.15343.

Letters in shape comments: B images, L labels, n texts, E embedding dimensions, H and W pixels.
"""

import copy
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.builtin import CLIP
from manylabel.errors import ConfigError, list_choices
from manylabel.system import require
from manylabel.types import InputSpec

NEUTRAL = "a photo"
"""What a label is compared with in models without a bias: only differences of their scores have a meaning."""

_TEXTS_AT_ONCE = 256


@lru_cache(maxsize=1)  # the image and the text tower are of one model
def load_clip(name: str) -> tuple[Any, Any]:
    """Load an image-text model and its tokenizer.

    Args:
        name: ``clip:MODEL`` or ``clip:MODEL/WEIGHTS`` of open_clip's list, ``clip:hf-hub:OWNER/NAME``, or
            ``clip:FOLDER`` with the files ``open_clip_config.json`` and ``open_clip_model.safetensors``.

    Raises:
        MissingExtraError: The extra ``clip`` is not installed.
        ConfigError: There is no such model, or its weights cannot be downloaded.
    """
    library, source = require("open_clip", extra="clip"), name.removeprefix(CLIP)
    model, _, weights = source.partition("/")
    if Path(source).is_dir():
        model, weights = f"local-dir:{source}", ""
    elif source.startswith("hf-hub:"):
        model, weights = source, ""
    else:
        known = library.list_pretrained_tags_by_model(model)
        if not known:
            names = sorted({each for each, _ in library.list_pretrained()})
            raise ConfigError(f"open_clip has no model {source!r}; {list_choices(model, names)}; or pass a folder")
        weights = weights or known[0]
    try:
        loaded = library.create_model(model, pretrained=weights or None, require_pretrained=True)
        return loaded.eval().requires_grad_(False), library.get_tokenizer(model)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{name} cannot be loaded ({reason}); check the name and the network, or pass a folder with "
            "open_clip_config.json and open_clip_model.safetensors"
        ) from error


class ClipEncoder:
    """Text tower of an image-text model; see `load_clip` for its name."""

    templates: tuple[str, ...] = ("a photo of a {label}",)

    def __init__(self, name: str) -> None:
        self.name = name
        self.model, self.tokenizer = load_clip(name)

    def reads(self, text: str) -> bool:  # noqa: ARG002 (that of all encoders)
        """Return True: any text can be encoded; the end of a long one is left out."""
        return True

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, E]``."""
        device = next(self.model.parameters()).device
        parts = [list(texts[start : start + _TEXTS_AT_ONCE]) for start in range(0, len(texts), _TEXTS_AT_ONCE)]
        return torch.cat([self.model.encode_text(self.tokenizer(part).to(device)).float().cpu() for part in parts])


class ImageTower(nn.Module):
    """Image tower of an image-text model, in place of a backbone: one feature map of one position.

    Args:
        name: As for `load_clip`.
    """

    frozen, stages = True, (-1,)

    def __init__(self, name: str) -> None:
        super().__init__()
        model, _ = load_clip(name)
        self.name, self.model = name, cast("nn.Module", model.visual)
        settings = model.visual.preprocess_cfg
        size = settings["size"]
        self.input_spec = InputSpec(
            size=(size, size) if isinstance(size, int) else tuple(size),
            mean=tuple(settings["mean"]),
            std=tuple(settings["std"]),
            interpolation="bilinear" if settings["interpolation"] == "bilinear" else "bicubic",
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the embeddings of images ``[B, 3, H, W]`` as one map ``[B, E, 1, 1]``."""
        return [self.model(images)[:, :, None, None]]

    def fuse(self, *, channels_last: bool = False) -> Self:  # noqa: ARG002 (that of backbones)
        """Return itself: there is no batch norm to fold."""
        return self

    def check_name(self) -> NoReturn:
        """Refuse everything but prediction: it has neither stages nor maps."""
        raise ConfigError(
            f"{self.name} only predicts labels that are given with --labels or labels=; to explain, export, save or "
            "train a model, use another one"
        )

    num_stages = takes_any_size = channels = property(check_name)


class ImageTextMatch(nn.Module):
    """Head that compares the embedding of an image with those of label texts.

    SigLIP is trained with a scale and a bias, which make the scores of labels probabilities. CLIP has no bias: its
    scores are those of a label against "a photo", a softmax over two texts.

    Args:
        text_vectors: ``[L, E]``.
        scale: Factor of the cosine similarity.
        bias: Added to it (default: none; then `neutral` is used).
        neutral: ``[E]``, embedding that labels are compared with.

    Examples:
        >>> head = ImageTextMatch(torch.eye(2, 4), scale=10.0, bias=-5.0)
        >>> head([torch.tensor([[0.0, 3, 0, 0]])[:, :, None, None]])
        tensor([[-5.,  5.]])
    """

    takes_new_labels = True
    text_vectors: Tensor
    neutral: Tensor

    def __init__(
        self, text_vectors: Tensor, *, scale: float, bias: float | None = None, neutral: Tensor | None = None
    ) -> None:
        super().__init__()
        self.scale, self.bias, self.num_labels = scale, bias, len(text_vectors)
        self.register_buffer("text_vectors", F.normalize(text_vectors, dim=1))
        empty = text_vectors.new_zeros(text_vectors.shape[1])
        self.register_buffer("neutral", empty if neutral is None or bias is not None else F.normalize(neutral, dim=0))

    @classmethod
    def of_model(cls, name: str) -> Self:
        """Return the head of an image-text model, without labels."""
        model, _ = load_clip(name)
        bias = getattr(model, "logit_bias", None)
        (neutral,) = ClipEncoder(name).encode([NEUTRAL])
        scale = float(model.logit_scale.exp())
        return cls(
            neutral.new_zeros(0, len(neutral)), scale=scale, bias=None if bias is None else float(bias), neutral=neutral
        )

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return logits ``[B, L]``."""
        images = F.normalize(features[-1].flatten(1), dim=1)  # [B, E]
        return self.scale * (images @ (self.text_vectors - self.neutral).t()) + (self.bias or 0.0)

    def with_text(self, text_vectors: Tensor) -> Self:
        """Return the head for other labels, given their text vectors ``[L', E]``."""
        other = copy.copy(self)
        other._buffers = dict(self._buffers)
        other.num_labels = len(text_vectors)
        other.text_vectors = F.normalize(text_vectors.to(self.text_vectors), dim=1)
        return other
