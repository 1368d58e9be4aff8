"""Scores of trained and new labels that can be compared: what to add to the logits of labels that were never seen.

Chao et al., "An Empirical Study and Analysis of Generalized Zero-Shot Learning", ECCV 2016: models prefer what they
were trained on, and a constant between both kinds of labels mends most of it (calibrated stacking). They choose it with
labelled pictures of unseen labels; here it is chosen without any.

Letters in shape comments: N pictures, L labels.
"""

import logging

import numpy as np
import torch
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.errors import LabelError
from manylabel.features import CachedFeatures, FeatureLoader

__all__ = ["EVERYDAY", "choose_bias", "logits_of"]

logger = logging.getLogger(__name__)

_NOUNS = (
    "airplane|apple|baby|backpack|ball|banana|basket|beach|bed|bicycle|bird|boat|book|bottle|bowl|bread|bridge|bus|cake|"
    "camera|candle|car|cat|chair|cheese|church|clock|cloud|coat|coffee|computer|cow|crowd|cup|dog|door|duck|elephant|"
    "fence|fire|fish|flag|flower|fork|garden|glass|glove|grass|guitar|hat|helmet|horse|house|kitchen|knife|lake|lamp|"
    "leaf|monkey|moon|motorcycle|mountain|mouse|painting|phone|piano|pizza|river|road|robot|rose|sandwich|ship|shoe|sky|"
    "snow|sofa|spoon|stairs|street|sun|table|telephone|tent|tiger|tower|toy|train|tree|truck|umbrella|window|zebra"
)

EVERYDAY = tuple(_NOUNS.split("|"))
"""What stands for new labels where none are named."""


def choose_bias(model: Classifier, cached: CachedFeatures, *, unseen: tuple[str, ...], share: float) -> float:
    """Choose what is added to the logits of new labels; no truth of these pictures is used.

    A label is asked how high its logit is for the best `share` of the pictures. New labels get what they lack on
    average: they are taken to be in as many pictures as trained ones.

    Args:
        model: The trained classifier, of its trained labels.
        cached: Features of pictures that it was not trained on.
        unseen: Labels that stand for the new ones; `EVERYDAY` things when there are none.
        share: The share of pictures that have a label, on average over the trained labels.

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
    """Return the logits of cached pictures, ``[N, L]``, the bias of new labels included.

    Args:
        model: The classifier.
        cached: Features of its backbone.
        batch_size: Pictures at once.
    """
    model.eval()
    device = next(model.parameters()).device
    few = max(1, min(batch_size, 64_000 // len(model.labels)))
    loader = FeatureLoader(cached, batch_size=few, view=0)
    return torch.cat([model.classify([map_.to(device) for map_ in batch.features]).float().cpu() for batch in loader])


def _level(logits: Tensor, share: float) -> float:
    """Return what the logit of the best pictures is, averaged over the labels."""
    return float(np.quantile(logits.numpy(), 1 - share, axis=0).mean())
