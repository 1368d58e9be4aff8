"""Arms of the claims: recipes with settings, trained with several seeds on the same cached features.

Where the data name a module to train from, the top of the backbone is trained, too: as `finetune`, with the settings of
the head and two thirds of the epochs. Finished runs are reused, interrupted ones resumed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.self_distillation_results import scores_of
from numpy.typing import NDArray

from manylabel.classifier import Classifier
from manylabel.recipes import (
    PRESETS,
    Finetune,
    Probe,
    RepresentationMixup,
    TrainAndVal,
    finetune,
    probe,
    representation_mixup,
)
from manylabel.recipes.setup import Parts, Setup, build_classifier, build_loss
from manylabel.text import encode_labels, open_encoder


class WordQueries(Probe):
    """A probe whose queries are the labels' text vectors."""


def _prepare_words(settings: Probe, data: TrainAndVal, parts: Parts) -> Setup[Probe]:
    encoder = open_encoder("offline:minilm")
    vectors = encode_labels(encoder, data.train.labels, templates=encoder.templates)
    arguments = {**settings.head_settings, "queries": "text", "text_vectors": vectors}
    model = build_classifier(settings, data.train, frozen=True, parts=parts, head_arguments=arguments)
    loss = build_loss(settings, single_label=model.single_label)
    return Setup(settings, data, data, model, loss, model.head, model.backbone, parts)


RUNS = {
    Probe: probe,
    WordQueries: replace(probe, prepare=_prepare_words),
    RepresentationMixup: representation_mixup,
    Finetune: finetune,
}
TOP = {"train_from": "blocks.5", "backbone_scale": 1.0, "precision": "bfloat16"}


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


PLAIN = {"add_csra": False}  # as in the paper


def decoder(name: str, **head: object) -> Arm:
    """Return the paper's ML-Decoder with settings of its head."""
    return Arm(name, {"head": "ml_decoder", "head_settings": {**PLAIN, **head}})


PAPER = PRESETS["representation_mixup"]["paper"]
AS_PAPER = {**PAPER, "head": "linear", "head_settings": {}, "views": 1}  # without the mixture
# Hybrid sharing diverges at the default learning rate; its baselines use the same settings.
AS_SHARING = {"epochs": 12, "weight_decay": 0.01, "feature_dropout": 0.0, "learning_rate": 5e-4}
NARROW = {"width": 128, "feedforward": 256}
WATCHED = 200


def sharing(name: str, **head: object) -> Arm:
    """Return Hybrid Sharing Query with settings of its head."""
    return Arm(name, {**AS_SHARING, "head": "hsq", "head_settings": {**NARROW, **head}})


def narrow(head: str) -> dict[str, Any]:
    """Return a small head on top of another."""
    return {"name": head, "settings": NARROW | (PLAIN if head == "ml_decoder" else {})}


def under_mixup(head: str) -> dict[str, Any]:
    """Return the settings that put a head on features mixed as in the paper."""
    return {"head": "rm", "head_settings": {**PAPER["head_settings"], "top": narrow(head)}}


def mixup(name: str, **settings: object) -> Arm:
    """Return Representation Mixup without its own baseline."""
    return Arm(name, {"baseline": False, **settings}, RepresentationMixup)


ARMS = {
    arm.name: arm
    for arm in (
        Arm("linear", {"head": "linear"}),
        decoder("decoder"),
        decoder("decoder-self-attention", self_attention=True),
        decoder("decoder-learnable", queries="learnable"),
        Arm("decoder-words", {"head": "ml_decoder", "head_settings": PLAIN}, WordQueries),
        decoder("decoder-two-layers", num_layers=2),
        Arm("linear-as-mixup", AS_PAPER),
        *(
            mixup(f"mixup-{block + 1}", **{**PAPER, "head_settings": {"form": "paper", "stages": [block, -1]}})
            for block in range(3)
        ),
        Arm("linear-one-view", {"head": "linear", "views": 1}),
        mixup("mixup"),
        Arm("query2label", {**AS_SHARING, "head": "q2l", "head_settings": NARROW}),
        sharing("sharing"),
        sharing("sharing-linear", layers="linear"),
        sharing("sharing-none", num_shared_experts=0),
        # RM caches earlier stages, so each augmented view would cost another pass.
        Arm("decoder-one-view", {"head": "ml_decoder", "head_settings": NARROW | PLAIN, "views": 1}),
        Arm("sharing-one-view", {**AS_SHARING, "head": "hsq", "head_settings": NARROW, "views": 1}),
        Arm("mixed-decoder", {**under_mixup("ml_decoder"), "views": 1}),
        Arm("mixed-sharing", {**AS_SHARING, **under_mixup("hsq"), "views": 1}),
        mixup("stable-decoder", head_settings={"top": narrow("ml_decoder")}),
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
    recipe = Finetune if "train_from" in data else arm.recipe
    loss = "cross_entropy" if data.get("single_label") else "asymmetric"  # with the margin of its paper
    given = {"epochs": 6, "loss": loss, **arm.settings, **data}
    if recipe is Finetune:
        given["epochs"] = given["epochs"] * 2 // 3  # more overfit
    settings = {name: value for name, value in given.items() if name in recipe.__dataclass_fields__}
    found = []
    for seed in seeds:
        out = folder / f"{arm.name}-{seed}"
        found.append(
            RUNS[recipe](recipe(**settings, seed=seed, out=out, logger="none"), sets=watched, resume=True).model
        )
    return found


def scores(model: Path, sets: TrainAndVal, *, cut: str | None) -> NDArray[np.float32]:
    """Return a model's scores of the validation images, ``[N, L]``; cached next to the model."""
    cache_file = model.parent / "scores.npy"
    if not cache_file.is_file():
        np.save(cache_file, scores_of(Classifier.from_pretrained(model), sets.val, cut=cut))
    found: NDArray[np.float32] = np.load(cache_file)
    return found
