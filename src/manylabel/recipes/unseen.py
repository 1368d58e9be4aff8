"""Unseen labels of a zero-shot run: their choice, the bias of their scores, and their evaluation.

A bias makes the scores of seen and unseen labels comparable (calibrated stacking; Chao et al., "An Empirical Study and
Analysis of Generalized Zero-Shot Learning", ECCV 2016): models favour seen labels, and a constant corrects most of it.
Deviation: the paper chooses it with labelled images of unseen labels; here it is chosen without any.

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
from manylabel.evaluation.scores import ScoredImages
from manylabel.evaluation.zero_shot import ZeroShotEvaluation, evaluate_zero_shot
from manylabel.features import CachedFeatures, FeatureLoader
from manylabel.types import LabelSpace

logger = logging.getLogger(__name__)

# Rahman et al., "Polarity Loss for Zero-shot Object Detection", https://arxiv.org/abs/1811.08982
_COCO = (
    "airplane|train|parking meter|cat|bear|suitcase|frisbee|snowboard|fork|sandwich|hot dog|toilet|mouse|toaster|"
    "hair drier"
)

NAMED_SPLITS: dict[str, tuple[str, ...]] = {"coco_65_15": tuple(_COCO.split("|"))}
"""Unseen labels of splits used in papers, by name."""

_NOUNS = (
    "airplane|apple|baby|backpack|ball|banana|basket|beach|bed|bicycle|bird|boat|book|bottle|bowl|bread|bridge|bus|cake|"
    "camera|candle|car|cat|chair|cheese|church|clock|cloud|coat|coffee|computer|cow|crowd|cup|dog|door|duck|elephant|"
    "fence|fire|fish|flag|flower|fork|garden|glass|glove|grass|guitar|hat|helmet|horse|house|kitchen|knife|lake|lamp|"
    "leaf|monkey|moon|motorcycle|mountain|mouse|painting|phone|piano|pizza|river|road|robot|rose|sandwich|ship|shoe|sky|"
    "snow|sofa|spoon|stairs|street|sun|table|telephone|tent|tiger|tower|toy|train|tree|truck|umbrella|window|zebra"
)

EVERYDAY = tuple(_NOUNS.split("|"))
"""Stand-ins for unseen labels when a run has none."""


def choose_unseen(unseen: str, labels: LabelSpace, *, data: str = "", seed: int = 0) -> tuple[str, ...]:
    """Return the unseen labels that a setting names, in the order of the dataset.

    Args:
        unseen: ``none``; ``random:15`` (a number) or ``random:0.2`` (a fraction); ``coco_65_15``; ``nus_wide`` (the 81
            concepts; the 925 tags are seen); a file with one label per line; or names separated by ``|``.
        labels: Labels of the dataset.
        data: Data spec, with the label lists for ``nus_wide``.
        seed: Random seed for ``random``.

    Raises:
        ConfigError: All labels, or none, would be unseen.
        LabelError: A label is not in the dataset.

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
            "some must be seen and some unseen; change it, or set it to none"
        )
    return tuple(labels[position] for position in positions)


def seen_part(dataset: ImageDataset, unseen: tuple[str, ...], *, images: str) -> ImageDataset:
    """Return the training part of a dataset: seen labels and a selection of images.

    Args:
        dataset: Dataset with all labels.
        unseen: Unseen labels.
        images: ``with_seen`` selects images with a seen label, ``without_unseen`` those without any unseen one, ``all``
            all images.

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


def choose_bias(model: Classifier, cached: CachedFeatures, *, unseen: tuple[str, ...], fraction: float) -> float:
    """Choose the bias added to the logits of unseen labels, without any ground truth.

    Unseen labels are assumed to be as frequent as seen ones: the bias equalises the average logit quantile at
    1 - `fraction` of both.

    Args:
        model: Trained classifier with its seen labels.
        cached: Features of images not used for training.
        unseen: Unseen labels (default: `EVERYDAY`).
        fraction: Fraction of images with a label, averaged over the seen labels.

    Returns:
        The bias; 0 if the text encoder lacks these labels.
    """
    names = unseen or tuple(name for name in EVERYDAY if name not in model.labels)
    try:
        new = model.with_labels(names)
    except LabelError as error:
        logger.warning("scores of unseen labels are not calibrated: %s", error)
        return 0.0
    # `with_labels` for both: ConSE scores its own labels differently without it.
    old = model.with_labels(model.labels)
    levels = [_level(logits_of(each, cached), fraction) for each in (old, new)]
    return round(levels[0] - levels[1], 4)


@torch.inference_mode()
def logits_of(model: Classifier, cached: CachedFeatures, *, batch_size: int = 64) -> Tensor:
    """Return the logits of cached images ``[N, L]``, including the bias of unseen labels.

    Args:
        model: Classifier.
        cached: Features of its backbone.
        batch_size: Images per batch.
    """
    model.eval()
    device = next(model.parameters()).device
    few = max(1, min(batch_size, 64_000 // len(model.labels)))
    loader = FeatureLoader(cached, batch_size=few, view=0)
    return torch.cat([model.classify([map_.to(device) for map_ in batch.features]).float().cpu() for batch in loader])


def evaluate_unseen(
    model: Classifier, cached: CachedFeatures, dataset: ImageDataset, *, unseen: tuple[str, ...], draws: int = 1000
) -> ZeroShotEvaluation:
    """Evaluate a model on seen and unseen labels.

    Args:
        model: Trained classifier.
        cached: Features of the validation images.
        dataset: Validation set with all labels.
        unseen: Unseen labels.
        draws: Number of bootstrap samples for the confidence intervals.
    """
    queried = model.with_labels(dataset.labels)
    names = {cached.dataset.images.name(row): row for row in range(len(cached))}
    order = [row for row in range(len(dataset)) if dataset.images.name(row) in names]  # without unreadable images
    whole = dataset.subset(order)
    rows = cached.subset([names[whole.images.name(row)] for row in range(len(whole))])
    targets, known = whole.targets.dense()
    plain = logits_of(queried, rows) - (0 if queried.label_bias is None else queried.label_bias.cpu())
    scored = ScoredImages.from_arrays(plain.sigmoid(), targets, labels=whole.labels, known=known)
    bias = 0.0 if model.text is None else model.text.new_label_bias
    return evaluate_zero_shot(scored, unseen=unseen, bias=bias, draws=draws)


def _draw(amount: str, labels: LabelSpace, *, seed: int) -> list[str]:
    try:
        number = float(amount)
    except ValueError:
        raise ConfigError(f"unseen=random:N needs a number or a fraction of the labels, got {amount!r}") from None
    count = round(number * len(labels)) if 0 < number < 1 else int(number)
    if not 0 < count < len(labels):
        raise ConfigError(f"unseen=random:{amount} must leave some of {len(labels)} labels unseen and some seen")
    drawn = np.random.default_rng(seed).choice(len(labels), size=count, replace=False)
    return [labels[int(position)] for position in drawn]


def _level(logits: Tensor, fraction: float) -> float:
    """Return the logit quantile at 1 - `fraction`, averaged over labels."""
    return float(np.quantile(logits.numpy(), 1 - fraction, axis=0).mean())
