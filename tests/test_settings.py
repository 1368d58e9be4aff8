from dataclasses import replace

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.losses import AsymmetricLoss, CrossEntropy, EntropyMaximization
from manylabel.recipes import open_sets, setup
from manylabel.recipes.setup import build_classifier, build_loss
from manylabel.schema import read_flags, read_settings
from manylabel.settings import PRESETS, RECIPE_SETTINGS

PROBE, TUNE = "probe", "finetune"


def resolve(name, flags, **given):
    """Read settings as the command line does, and fill in what depends on the head as the recipe does."""
    settings = read_settings(RECIPE_SETTINGS[name], flags, presets=PRESETS[name], **given)
    return setup.resolve(settings)


def test_flags_come_before_the_file_and_the_file_before_the_preset(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("data: scenes:10\nepochs: 7\nbatch_size: 3\n")
    settings = resolve(TUNE, {"epochs": "9"}, preset="ml_decoder", file=file)
    assert (settings.epochs, settings.batch_size, settings.image_size) == (9, 3, 448)


def test_settings_of_the_head_are_added_to_those_before(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("data: scenes:10\nhead: ml_decoder\nhead_settings: {num_groups: 4, width: 64}\n")
    settings = resolve(PROBE, {"head.num_groups": "8"}, file=file)
    assert settings.head_settings == {"num_groups": 8, "width": 64, "feedforward": 512, "add_csra": True}


def test_another_head_forgets_the_settings_of_the_one_before(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("data: scenes:10\nhead: ml_decoder\nhead_settings: {num_groups: 4}\n")
    settings = resolve(PROBE, {"head": "linear", "head.pooling": "max"}, file=file)
    assert settings.head_settings == {"pooling": "max"}
    assert resolve(PROBE, {"head": "linear"}, file=file).head_settings == {}


def test_another_head_forgets_the_rate_that_was_filled_in_for_the_one_before(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("data: scenes:10\nhead: ml_decoder\nlearning_rate: 0.002\n")
    assert resolve(PROBE, {"head": "hsq"}, file=file).learning_rate == 5e-4
    assert resolve(PROBE, {"head": "hsq", "learning_rate": "0.01"}, file=file).learning_rate == 0.01
    assert resolve(PROBE, {"epochs": "1"}, file=file).learning_rate == 0.002


def test_a_default_of_a_recipe_is_kept_beside_a_flag():
    top = {"name": "csra", "settings": {}}
    settings = resolve("representation_mixup", {"data": "x", "head.top": "csra"})
    assert settings.head_settings == {"form": "stable", "stages": (-2, -1), "top": top}


@pytest.mark.parametrize(("short", "name"), [("lr", "learning_rate"), ("bs", "batch_size"), ("wd", "weight_decay")])
def test_the_usual_short_names_work(short, name, tmp_path):
    (tmp_path / "config.yaml").write_text("data: x\nlearning_rate: 1\nbatch_size: 1\nweight_decay: 1\n")
    settings = resolve(TUNE, {short: "3"}, file=tmp_path / "config.yaml")
    assert getattr(settings, name) == 3


def test_switches_need_no_value():
    switches = ["augment", "resume"]
    assert read_flags(["--no-augment", "--resume"], switches=switches) == ([], {"augment": False, "resume": True})
    assert read_flags(["--resume", "a.csv", "--augment=0"], switches=switches) == (
        ["a.csv"],
        {"augment": "0", "resume": True},
    )


def test_a_preset_that_is_not_there_is_told():
    with pytest.raises(ConfigError, match="no preset 'mldecoder'; did you mean 'ml_decoder'"):
        resolve(TUNE, {"data": "x"}, preset="mldecoder")


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "+1.e-3", ".1e-2", "0.001"])
def test_numbers_are_numbers_in_every_form(text, tmp_path):
    assert resolve(TUNE, {"data": "x", "loss.clip": text}).loss_settings["clip"] == 0.001
    file = tmp_path / "config.yaml"
    file.write_text(f"data: x\nloss_settings: {{clip: {text}}}\n")
    assert resolve(TUNE, {}, file=file).loss_settings["clip"] == 0.001


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("head.stages", "[1,", r"value of --head\.stages, got '\[1,'; use a number"),
        ("head.dropout", "", r"--head\.dropout needs a value, such as 0.1"),
    ],
)
def test_values_that_are_none_are_told(flag, text, message):
    with pytest.raises(ConfigError, match=message):
        resolve(TUNE, {"data": "x", flag: text})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"loss.clip": "low"}, r"AsymmetricLoss cannot be created with clip='low' \(.*\); change the value"),
        ({"head": "ml_decoder", "head.dropout": "null"}, "MLDecoder cannot be created with .*dropout=None"),
        ({"head": "rm", "head.stages": "1"}, r"list of whole numbers such as \[0, -1\], got 1"),
    ],
)
def test_values_that_do_not_fit_are_told(flags, message):
    settings = resolve(TUNE, {"data": "scenes:10", "backbone": "test_resnet", "pretrained": "false", **flags})
    sets = open_sets(settings)
    with pytest.raises(ConfigError, match=message):
        (build_loss(settings, single_label=False), build_classifier(settings, sets.train, frozen=True))


def test_the_automatic_loss_depends_on_the_data():
    settings = resolve(TUNE, {"data": "x"})
    assert isinstance(build_loss(settings, single_label=False), AsymmetricLoss)
    assert isinstance(build_loss(settings, single_label=True), CrossEntropy)
    assert build_loss(settings, single_label=False).unknown == "ignore"
    assert isinstance(build_loss(settings, single_label=False, incomplete=True), EntropyMaximization)
    asymmetric = replace(settings, loss="asymmetric")
    assert build_loss(asymmetric, single_label=False, incomplete=True).unknown == "negative"
    given = resolve(TUNE, {"data": "x", "loss": "asymmetric", "loss.unknown": "ignore"})
    assert build_loss(given, single_label=False, incomplete=True).unknown == "ignore"


def test_the_default_loss_corrects_confident_errors():
    def gradient(flags):
        loss = build_loss(resolve(PROBE, {"data": "x", **flags}), single_label=False)
        logits = torch.full((1, 1), 10.0, requires_grad=True)
        loss(logits, torch.zeros(1, 1)).backward()
        return logits.grad.item()

    assert gradient({}) > 0.99
    assert gradient({"loss": "asymmetric"}) == gradient({"loss.clip": "0.05"}) < 0.01  # as in the paper


def test_weights_of_positives_need_a_loss_that_takes_them():
    settings = resolve(TUNE, {"data": "x", "loss": "splc", "positive_weights": "true"})
    with pytest.raises(ConfigError, match="the loss splc takes no positive weights; use another"):
        build_loss(settings, single_label=False)


def test_flags_are_read_in_every_form():
    inputs, flags = read_flags(["a.csv", "--head.num-groups", "20", "--loss.clip=0.1", "--fast", "--x", "-1", "b.csv"])
    assert inputs == ["a.csv", "b.csv"]
    assert flags == {"head.num_groups": "20", "loss.clip": "0.1", "fast": "", "x": "-1"}
