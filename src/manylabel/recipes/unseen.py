"""Labels that a zero-shot run never sees: named lists, the usual ones of the papers, or a draw; and their scores.

Scores of trained and new labels are made comparable by a bias (Chao et al., "An Empirical Study and Analysis of
Generalized Zero-Shot Learning", ECCV 2016): models prefer what they were trained on, and a constant between both kinds
of labels corrects most of it (calibrated stacking). They choose it with labelled images of unseen labels; here it is
chosen without any.

Letters in shape comments: N images, L labels.
"""

import logging

import numpy as np
import torch
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, nus_wide_zero_shot_labels
from manylabel.data.readers.layout import read_label_list
from manylabel.data.spec import spec_path
from manylabel.errors import ConfigError, DataError, LabelError
from manylabel.features import CachedFeatures, FeatureLoader
from manylabel.types import LabelSpace

__all__ = ["EVERYDAY", "NAMED_SPLITS", "choose_bias", "choose_unseen", "logits_of", "seen_part"]

logger = logging.getLogger(__name__)

NAMED_SPLITS: dict[str, tuple[str, ...]] = {
    # Rahman et al., "Polarity Loss for Zero-shot Object Detection", https://arxiv.org/abs/1811.08982
    "coco_65_15": (
        "airplane",
        "train",
        "parking meter",
        "cat",
        "bear",
        "suitcase",
        "frisbee",
        "snowboard",
        "fork",
        "sandwich",
        "hot dog",
        "toilet",
        "mouse",
        "toaster",
        "hair drier",
    ),
}
"""Unseen labels that papers agreed on, by the name of the split."""

_NOUNS = (
    "airplane|apple|baby|backpack|ball|banana|basket|beach|bed|bicycle|bird|boat|book|bottle|bowl|bread|bridge|bus|cake|"
    "camera|candle|car|cat|chair|cheese|church|clock|cloud|coat|coffee|computer|cow|crowd|cup|dog|door|duck|elephant|"
    "fence|fire|fish|flag|flower|fork|garden|glass|glove|grass|guitar|hat|helmet|horse|house|kitchen|knife|lake|lamp|"
    "leaf|monkey|moon|motorcycle|mountain|mouse|painting|phone|piano|pizza|river|road|robot|rose|sandwich|ship|shoe|sky|"
    "snow|sofa|spoon|stairs|street|sun|table|telephone|tent|tiger|tower|toy|train|tree|truck|umbrella|window|zebra"
)

EVERYDAY = tuple(_NOUNS.split("|"))
"""What stands for new labels where none are named."""


def choose_unseen(unseen: str, labels: LabelSpace, *, data: str = "", seed: int = 0) -> tuple[str, ...]:
    """Return the unseen labels that a setting names, in the order of the data.

    Args:
        unseen: ``none``; ``random:15`` (so many) or ``random:0.2`` (a share); ``coco_65_15``; ``nus_wide`` (the 81
            concepts, beside the 925 tags); a file with a label in each line; or names joined by ``|``.
        labels: The labels of the data.
        data: The data spec, where ``nus_wide`` looks for the lists.
        seed: Another seed, another draw.

    Raises:
        ConfigError: No label, or every label, would be seen.
        LabelError: A label is not in the data.

    Examples:
        >>> choose_unseen("dog|cat", LabelSpace(["cat", "cow", "dog"]))
        ('cat', 'dog')
        >>> len(choose_unseen("random:0.25", LabelSpace(["cat", "cow", "dog", "hen"])))
        1
    """
    if unseen == "none":
        return ()
    kind, _, amount = unseen.partition(":")
    if kind == "random":
        names = _draw(amount, labels, seed=seed)
    elif unseen == "nus_wide":
        names = nus_wide_zero_shot_labels(spec_path(data))[1]
    else:
        names = list(NAMED_SPLITS.get(unseen) or read_label_list(unseen))
    positions = sorted({labels.index(name) for name in names})
    if not 0 < len(positions) < len(labels):
        raise ConfigError(
            f"unseen={unseen!r} leaves {len(labels) - len(positions)} of {len(labels)} labels to train on; "
            "some must be seen and some unseen, or say none"
        )
    return tuple(labels[position] for position in positions)


def seen_part(dataset: ImageDataset, unseen: tuple[str, ...], *, images: str) -> ImageDataset:
    """Return what of a dataset is trained on: only seen labels, and only some images.

    Args:
        dataset: The images, with all labels.
        unseen: The labels that must not be seen.
        images: ``with_seen`` keeps images with a seen label, ``without_unseen`` those with no unseen one, ``all``
            every image.

    Raises:
        DataError: No image is left.

    Examples:
        >>> from manylabel.data import scenes
        >>> part = seen_part(scenes(20), ("cloud",), images="without_unseen")
        >>> len(part.labels), len(part) < 20
        (23, True)
    """
    if not unseen:
        return dataset
    seen = dataset.select_labels([name for name in dataset.labels if name not in set(unseen)])
    keep = np.ones(len(dataset), dtype=bool)
    if images == "with_seen":
        keep = seen.targets.labels_per_image > 0
    elif images == "without_unseen":
        keep = dataset.select_labels(unseen).targets.labels_per_image == 0
    if not keep.any():
        raise DataError(f"no image of {dataset.name} is left to train on with images={images}; set images=all")
    return seen if keep.all() else seen.subset(keep)


def choose_bias(model: Classifier, cached: CachedFeatures, *, unseen: tuple[str, ...], share: float) -> float:
    """Choose what is added to the logits of new labels; no truth of these images is used.

    A label is asked how high its logit is for the best `share` of the images. New labels get what they lack on
    average: they are taken to be in as many images as trained ones.

    Args:
        model: The trained classifier, of its trained labels.
        cached: Features of images that it was not trained on.
        unseen: Labels that stand for the new ones; `EVERYDAY` things when there are none.
        share: The share of images that have a label, on average over the trained labels.

    Returns:
        The bias; 0 where the text encoder knows none of these labels.
    """
    names = unseen or tuple(name for name in EVERYDAY if name not in model.labels)
    try:
        new = model.with_labels(names)
    except LabelError as error:
        logger.warning("scores of new labels are not calibrated: %s", error)
        return 0.0
    # Both kinds are asked the same way: ConSE scores its own labels in another way while it is not asked for others.
    old = model.with_labels(model.labels)
    levels = [_level(logits_of(each, cached), share) for each in (old, new)]
    return round(levels[0] - levels[1], 4)


@torch.inference_mode()
def logits_of(model: Classifier, cached: CachedFeatures, *, batch_size: int = 64) -> Tensor:
    """Return the logits of cached images, ``[N, L]``, the bias of new labels included.

    Args:
        model: The classifier.
        cached: Features of its backbone.
        batch_size: Images at once.
    """
    model.eval()
    device = next(model.parameters()).device
    few = max(1, min(batch_size, 64_000 // len(model.labels)))
    loader = FeatureLoader(cached, batch_size=few, view=0)
    return torch.cat([model.classify([map_.to(device) for map_ in batch.features]).float().cpu() for batch in loader])


def _draw(amount: str, labels: LabelSpace, *, seed: int) -> list[str]:
    try:
        number = float(amount)
    except ValueError:
        raise ConfigError(f"unseen=random:N needs a number of labels or a share, got {amount!r}") from None
    count = round(number * len(labels)) if 0 < number < 1 else int(number)
    if not 0 < count < len(labels):
        raise ConfigError(f"unseen=random:{amount} must leave some of {len(labels)} labels unseen and some seen")
    drawn = np.random.default_rng(seed).choice(len(labels), size=count, replace=False)
    return [labels[int(position)] for position in drawn]


def _level(logits: Tensor, share: float) -> float:
    """Return what the logit of the best images is, averaged over the labels."""
    return float(np.quantile(logits.numpy(), 1 - share, axis=0).mean())
