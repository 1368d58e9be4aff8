"""Arms of the claims: recipes with settings, trained with several seeds on the same frozen features.

Finished runs are reused, interrupted ones resumed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manylabel.classifier import Classifier
from manylabel.features import FeatureLoader
from manylabel.recipes import Probe, RepresentationMixup, TrainAndVal, probe, representation_mixup
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.models import Parts, build_classifier, build_loss
from manylabel.recipes.recipe import Setup
from manylabel.text import encode_labels, open_encoder


class WordQueries(Probe):
    """A probe whose queries are the labels' text vectors."""


def _prepare_words(settings: Probe, data: TrainAndVal, parts: Parts) -> Setup[Probe]:
    encoder = open_encoder("offline:minilm")
    vectors = encode_labels(encoder, data.train.labels, templates=encoder.templates)
    arguments = {**settings.head_settings, "queries": "text", "text_vectors": vectors}
    model = build_classifier(settings, data.train, frozen=True, parts=parts, head_arguments=arguments)
    return Setup(settings, data, data, model, build_loss(settings, single_label=model.single_label), parts)


RUNS = {Probe: probe, WordQueries: replace(probe, prepare=_prepare_words), RepresentationMixup: representation_mixup}


@dataclass(frozen=True)
class Arm:
    """A recipe and its settings.

    Args:
        name: Name of the arm and prefix of its run folders.
        settings: Settings that differ from the recipe's defaults.
        recipe: Settings class of the recipe.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    recipe: type[Probe | RepresentationMixup] = Probe


def decoder(name: str, **head: object) -> Arm:
    """Return ML-Decoder with settings of its head."""
    return Arm(name, {"head": "ml_decoder", "head_settings": head})


# Training settings of the Representation Mixup recipe, without the mixup.
AS_MIXUP = {
    "head": "linear",
    "loss": "soft_margin",
    "epochs": 30,
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "weight_decay": 0.0,
    "warmup": 0.3,
    "ema_decay": 0.0,
    "views": 1,
    "feature_dropout": 0.0,
}
# Hybrid sharing diverges at the default learning rate; its baselines use the same settings.
AS_SHARING = {"epochs": 12, "weight_decay": 0.01, "feature_dropout": 0.0, "learning_rate": 5e-4}
NARROW = {"width": 128, "feedforward": 256}
WATCHED = 200


def sharing(name: str, **head: object) -> Arm:
    """Return Hybrid Sharing Query with settings of its head."""
    return Arm(name, {**AS_SHARING, "head": "hsq", "head_settings": {**NARROW, **head}})


def under_mixup(head: str) -> dict[str, Any]:
    """Return the settings that put a head on mixed features."""
    return {"head": "rm", "head_settings": {"top": {"name": head, "settings": NARROW}}}


ARMS = {
    arm.name: arm
    for arm in (
        Arm("linear", {"head": "linear"}),
        decoder("decoder"),
        decoder("decoder-self-attention", self_attention=True),
        decoder("decoder-learnable", queries="learnable"),
        Arm("decoder-words", {"head": "ml_decoder"}, WordQueries),
        decoder("decoder-two-layers", num_layers=2),
        Arm("linear-as-mixup", AS_MIXUP),
        *(
            Arm(f"mixup-{block + 1}", {"head_settings": {"stages": [block, -1]}}, RepresentationMixup)
            for block in range(3)
        ),
        Arm("query2label", {**AS_SHARING, "head": "q2l", "head_settings": NARROW}),
        sharing("sharing"),
        sharing("sharing-linear", layers="linear"),
        sharing("sharing-none", num_shared_experts=0),
        # RM caches early layers, so each augmented view would cost another pass.
        Arm("decoder-one-view", {"head": "ml_decoder", "head_settings": NARROW, "views": 1}),
        Arm("sharing-one-view", {**AS_SHARING, "head": "hsq", "head_settings": NARROW, "views": 1}),
        Arm("mixed-decoder", {**under_mixup("ml_decoder"), "views": 1}),
        Arm("mixed-sharing", {**AS_SHARING, **under_mixup("hsq"), "views": 1}),
    )
}


def arm_named(name: str, num_labels: int) -> Arm:
    """Return an arm; the size of groups depends on the number of labels."""
    return decoder(name, num_groups=-(-num_labels // 4)) if name == "decoder-groups" else ARMS[name]


def train(arm: Arm, data: Mapping[str, Any], sets: TrainAndVal, folder: Path, seeds: Sequence[int]) -> list[Path]:
    """Train an arm for each seed that is not finished, and return the model folders.

    Validation after each epoch uses only some images, which affects no weight; `scores` uses all.
    """
    watched = TrainAndVal(sets.train, sets.val.subset(range(min(WATCHED, len(sets.val)))))
    found = []
    for seed in seeds:
        out = folder / f"{arm.name}-{seed}"
        known = {name: value for name, value in data.items() if name in arm.recipe.__dataclass_fields__}
        settings = arm.recipe(**{**arm.settings, **known}, seed=seed, out=out, logger="none")
        found.append(RUNS[arm.recipe](settings, sets=watched, resume=True).model)
    return found


def scores(model: Path, sets: TrainAndVal) -> NDArray[np.float32]:
    """Return a model's scores of the validation images, ``[N, L]``; cached next to the model."""
    cache_file = model.parent / "scores.npy"
    if not cache_file.is_file():
        classifier = Classifier.load(model).eval()
        cached = cache_sets(classifier, sets, Probe(data="", views=1)).val
        with torch.inference_mode():
            parts = [
                classifier.head(batch.features).sigmoid() for batch in FeatureLoader(cached, batch_size=256, view=0)
            ]
        np.save(cache_file, torch.cat(parts).numpy())
    found: NDArray[np.float32] = np.load(cache_file)
    return found
