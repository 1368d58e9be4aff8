"""Every default of heads, losses and presets, pinned in one table with its source.

A value that changes here changes what "ML-Decoder", "ASL" or "the paper's settings" means; do so on purpose only.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from manylabel.heads import HEADS
from manylabel.losses import LOSSES
from manylabel.settings import PRESETS as OURS
from manylabel.settings import RECIPE_SETTINGS

# Heads: defaults that a paper or its authors' code gives, then ours, where it leaves the choice open.
HEAD_DEFAULTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "ml_decoder": (
        "Ridnik et al., WACV 2023, and its released code",
        {
            "num_groups": None,
            "width": 768,
            "num_heads": 8,
            "feedforward": 2048,
            "dropout": 0.1,
            "num_layers": 1,
            "queries": "random",
            "self_attention": False,
            "shared_projection": False,
            "add_csra": False,
        },
        {"text_vectors": None, "text_dim": None, "add_csra": False, "seed": 0},
    ),
    "q2l": (
        "Liu et al., Query2Label, 2021, and its released code",
        {
            "width": None,
            "num_heads": 4,
            "feedforward": None,
            "dropout": 0.1,
            "num_encoder_layers": 1,
            "num_decoder_layers": 2,
            "self_attention": False,
        },
        {},
    ),
    "hsq": (
        "Yin et al., Hybrid Sharing, with Query2Label's transformer",
        {
            "width": None,
            "num_heads": 4,
            "feedforward": None,
            "dropout": 0.1,
            "num_encoder_layers": 1,
            "num_decoder_layers": 2,
            "expert_widths": (64, 16),
            "num_shared_experts": 16,
            "num_label_experts": 1,
            "gate_hidden": None,
            "classifier_hidden": None,
        },
        {"layers": "hybrid", "bias": True},
    ),
    "csra": (
        "Zhu and Wu, Residual Attention, ICCV 2021",
        {"temperatures": (1.0,), "attention_weight": 0.1},
        {},
    ),
    "rm": (
        "Eom et al., Layover Intermediate Layer: RM@1 of a convolutional backbone",
        {"stages": (0, -1), "summary": "convolution", "form": "paper", "top": None},
        {},
    ),
    "token_encoder": (
        "Xu et al., CPSD, IJCAI 2022: ResNet101-TF, and its released code",
        {
            "width": 1024,
            "num_heads": 4,
            "head_width": None,
            "feedforward": None,
            "dropout": 0.1,
            "num_layers": 3,
        },
        {"queries": "learnable", "text_vectors": None, "text_dim": None},
    ),
    "linear": ("the papers' baseline", {"pooling": "average"}, {}),
    "conse": (
        "Norouzi et al., ConSE, ICLR 2014",
        {"num_best": 10},
        {"text_vectors": None, "text_dim": None, "num_trained": None, "pooling": "average"},
    ),
    "text_map": (
        "Frome et al., DeViSE, NIPS 2013",
        {},
        {"text_vectors": None, "text_dim": None, "pooling": "average"},
    ),
}

COMMON_LOSS = {"unknown": "ignore", "positive_weights": None}
LOSS_DEFAULTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "asymmetric": (
        "Ridnik et al., ASL, ICCV 2021, and its released code",
        {"gamma_negative": 4.0, "gamma_positive": 0.0, "clip": 0.05, "detach_focus": True, "reduction": "sum"},
        COMMON_LOSS,
    ),
    "focal": ("Lin et al., Focal Loss, ICCV 2017", {"gamma": 2.0}, {"reduction": "sum", **COMMON_LOSS}),
    "binary_cross_entropy": ("torch", {"reduction": "mean"}, COMMON_LOSS),
    "cross_entropy": ("torch", {"reduction": "mean"}, {"positive_weights": None}),
    "hill": (
        "Zhang et al., 2021, and its released code",
        {"scale": 1.5, "margin": 1.0, "gamma": 2.0, "reduction": "sum", "unknown": "negative"},
        {},
    ),
    "splc": (
        "Zhang et al., 2021, and its released code",
        {"threshold": 0.6, "first_epoch": 1, "margin": 1.0, "gamma": 2.0, "reduction": "sum"},
        {},
    ),
    "large_loss": (
        "Kim et al., CVPR 2022, and its released code, which tries rates of 0.1 to 0.5 %",
        {"action": "reject", "reduction": "mean"},
        {"rate": 0.002},
    ),
    "entropy_maximization": (
        "Zhou et al., ECCV 2022, and its released code: alpha of COCO and NUS-WIDE, warmup of 5 in 10 epochs",
        {"alpha": 0.1, "negatives": 0.9, "warmup": 0.5, "reduction": "mean"},
        {"beta": 0.2},  # 0.02 to 0.9 in the released code; this is that of NUS-WIDE
    ),
    "selective": (
        "Ben-Baruch et al., CVPR 2022: the command of its released code for COCO",
        {"gamma_positive": 0.0, "gamma_negative": 1.0, "gamma_unknown": 4.0, "num_likely": 5}
        | {"prior_threshold": 0.5, "reduction": "sum"},
        {},
    ),
    "two_way": (
        "Kobayashi, CVPR 2023, and its released code",
        {"positive_temperature": 4.0, "negative_temperature": 1.0, "reduction": "mean"},
        {"unknown": "ignore"},
    ),
    "distribution_balanced": (
        "Wu et al., ECCV 2020: the released settings for COCO-MLT",
        {"gamma": 2.0, "overall": 0.1, "slope": 10.0, "midpoint": 0.2, "bias": 0.05, "absent_scale": 2.0}
        | {"reduction": "mean"},
        {"unknown": "ignore"},
    ),
    "soft_margin": ("torch.nn.MultiLabelSoftMarginLoss", {"reduction": "mean"}, COMMON_LOSS),
}

ASL = {"gamma_negative": 4, "gamma_positive": 0, "clip": 0.05}
CPSD = {
    "k": 5,
    "tau": 2.0,  # the paper says 3; its released partition comes out with 2
    "teacher_images": "all",  # as in the released code
    "teacher_epochs": None,  # as many as the student, as in the released code
    "epochs": 80,
    "batch_size": 32,
    "optimizer": "adam",
    "weight_decay": 1e-4,
    "warmup": 0.1,
    "loss": "asymmetric",
    "distillation_weight": 0.5,  # 0.5 ASL + 0.25 MSE(co) + 0.25 MSE(dis) in the released code
}
# Recipes and their presets: values as they are resolved. The preset None stands for the defaults.
PRESETS: dict[tuple[str, str | None], tuple[str, dict[str, Any]]] = {
    ("finetune", "ml_decoder"): (
        "Ridnik et al., WACV 2023, and its released code",
        {
            "head": "ml_decoder",
            "head_settings": {},
            "loss": "asymmetric",
            "loss_settings": ASL,
            "optimizer": "adam",
            "learning_rate": 1e-4,
            "backbone_scale": 1.0,
            "weight_decay": 1e-4,
            "warmup": 0.2,
            "epochs": 40,
            "batch_size": 56,
            "image_size": 448,
            "ema_decay": 0.9997,
        },
    ),
    ("finetune", "hsq"): (
        "Yin et al., Hybrid Sharing",
        {
            "head": "hsq",
            "head_settings": {},
            "loss": "asymmetric",
            "loss_settings": {},
            "optimizer": "adam",
            "learning_rate": 1e-4,
            "backbone_scale": 1.0,
            "weight_decay": 1e-2,
            "betas": (0.9, 0.9999),
            "epochs": 100,
            "image_size": 576,
        },
    ),
    ("finetune", "q2l"): (
        "Liu et al., Query2Label, 2021, and its released code",
        {
            "head": "q2l",
            "head_settings": {},
            "loss": "asymmetric",
            "loss_settings": {"gamma_negative": 2, "gamma_positive": 0, "clip": 0.0},
            "optimizer": "adamw",
            "learning_rate": 1e-4,
            "backbone_scale": 1.0,
            "weight_decay": 1e-2,
            "warmup": 0.2,
            "epochs": 80,
            "image_size": 448,
            "ema_decay": 0.9997,
        },
    ),
    ("representation_mixup", "paper"): (
        "Eom et al., Layover Intermediate Layer",
        {
            "head": "rm",
            "head_settings": {"form": "paper", "stages": [0, -1]},
            "loss": "soft_margin",
            "loss_settings": {},
            "optimizer": "sgd",
            "learning_rate": 0.1,
            "epochs": 30,
        },
    ),
    **{
        ("self_distillation", name): ("Xu et al., CPSD, IJCAI 2022", {**CPSD, "partition": partition})
        for name, partition in {
            "cpsd": "both",
            "cgpd": "co",
            "dgpd": "dis",
            "sd": "whole",
            "random": "random",
        }.items()
    },
}


def defaults_of(kind: type) -> dict[str, Any]:
    parameters = inspect.signature(kind).parameters.items()
    return {name: each.default for name, each in parameters if each.default is not each.empty}


@pytest.mark.parametrize("name", HEADS)
def test_every_default_of_a_head_is_pinned(name: str) -> None:
    _, papers, ours = HEAD_DEFAULTS[name]
    assert defaults_of(HEADS[name]) == papers | ours


@pytest.mark.parametrize("name", LOSSES)
def test_every_default_of_a_loss_is_pinned(name: str) -> None:
    _, papers, ours = LOSS_DEFAULTS[name]
    assert defaults_of(LOSSES[name]) == papers | ours


@pytest.mark.parametrize(("recipe", "preset"), PRESETS, ids=lambda each: str(each))
def test_a_recipe_resolves_to_the_settings_of_its_paper(recipe: str, preset: str | None) -> None:
    given: Mapping[str, Any] = {} if preset is None else OURS[recipe][preset]
    settings = RECIPE_SETTINGS[recipe](data="x", **given)
    _, expected = PRESETS[recipe, preset]
    assert {name: getattr(settings, name) for name in expected} == expected


def test_no_preset_is_left_out() -> None:
    there = {(name, preset) for name, presets in OURS.items() for preset in presets}
    assert there <= set(PRESETS)
