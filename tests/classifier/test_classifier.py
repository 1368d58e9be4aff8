import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import yaml
from msgspec.structs import replace
from PIL import Image
from torch import nn

from manylabel import heads
from manylabel.classifier import Classifier, ScoreCalibration, classifier
from manylabel.classifier import change_config as change_settings
from manylabel.errors import ConfigError, LabelError, ModelFormatError, OutputExistsError
from manylabel.predictions import Predictions
from manylabel.text import TextVocabulary
from manylabel.types import LabelSpace

LABELS = LabelSpace(["cat", "dog", "bird"], display_names={"cat": "Cat"})


class CornerHead(nn.Module):
    """A head of a user's own: looks at one corner of the map."""

    def __init__(self, in_channels, num_labels):
        super().__init__()
        self.in_channels, self.num_labels = in_channels, num_labels
        self.linear = nn.Linear(in_channels, num_labels)

    def forward(self, features):
        return self.linear(features[-1][:, :, 0, 0])


def make(head=heads.LinearClassifier, backbone="test_resnet", **settings):
    torch.manual_seed(0)
    model = Classifier.create(
        backbone, head=head, labels=LABELS, pretrained=False, image_size=64, head_settings=settings
    )
    return model.eval()


@pytest.fixture
def image():
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 100, 3), dtype=np.uint8))


@pytest.fixture
def saved(tmp_path):
    return make().save_pretrained(tmp_path / "model")


HEAD_SETTINGS = {
    "conse": {"text_vectors": torch.eye(3, 5)},
    "hsq": {"width": 32, "feedforward": 64},
    "ml_decoder": {"num_groups": 2, "width": 32, "feedforward": 64},
    "text_map": {"text_vectors": torch.eye(3, 5)},
    "token_encoder": {"width": 32, "num_layers": 1},
    "q2l": {"width": 32, "feedforward": 64},
}


@pytest.mark.parametrize("name", heads.HEADS)
def test_every_head_comes_back_from_disk_exactly(name, tmp_path, image):
    model = make(heads.HEADS[name], **HEAD_SETTINGS.get(name, {}))
    again = Classifier.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert np.array_equal(again.predict(image).scores, model.predict(image).scores)
    assert again.labels == model.labels
    assert again.input_spec == model.input_spec
    assert repr(again.head) == repr(model.head)
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"model.safetensors", "config.json", "labels.json"}


@pytest.mark.slow
def test_a_head_inside_another_is_saved_and_restored(tmp_path, image):
    class Doubled(CornerHead):
        """A head of a user's own around a ready one."""

        def __init__(self, in_channels, num_labels, inner):
            super().__init__(in_channels, num_labels)
            self.inner = inner

        def forward(self, features):
            return 2 * self.inner(features)

    model = make(heads.RepresentationMixup, top=heads.MLDecoder(96, 3, width=32, feedforward=64))
    again = Classifier.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert repr(again.head) == repr(model.head)
    assert np.array_equal(again.predict(image).scores, model.predict(image).scores)
    model = make(Doubled, inner=heads.CSRA(96, 3, temperatures=[1, 2]))
    again = Classifier.from_pretrained(model.save_pretrained(tmp_path / "own"), head=Doubled)
    assert np.array_equal(again.predict(image).scores, model.predict(image).scores)


def test_text_vectors_are_saved_with_the_model(tmp_path, image):
    model = make(heads.MLDecoder, queries="text", text_vectors=torch.randn(3, 7), width=32, feedforward=64)
    again = Classifier.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert torch.equal(again.head.text_vectors, model.head.text_vectors)
    assert np.array_equal(again.predict(image).scores, model.predict(image).scores)


def test_a_path_bytes_array_image_or_list_of_them_give_the_same_scores(tmp_path, image):
    model = make()
    path = tmp_path / "a b.png"
    image.save(path)
    scores = [model.predict(form).scores for form in (path, str(path), path.read_bytes(), np.asarray(image), image)]
    assert all(np.array_equal(other, scores[0]) for other in scores)
    many = model.predict([path, image, path], batch_size=2)
    assert isinstance(many, Predictions)
    assert many.names == [str(path), "image 1", str(path)]
    np.testing.assert_allclose(many.scores, scores[0].repeat(3, axis=0), atol=1e-6)


def test_an_open_image_gives_the_scores_of_its_file(tmp_path, image):
    path, turned = tmp_path / "turned.jpg", Image.Exif()
    turned[0x0112] = 6
    image.save(path, exif=turned)
    model = make()
    assert np.array_equal(model.predict(Image.open(path)).scores, model.predict(path).scores)


def test_the_whole_image_counts_not_only_its_centre(image):
    edge = np.asarray(image).copy()
    edge[:, :8] = 0
    model = make()
    assert not np.array_equal(model.predict(edge).scores, model.predict(image).scores)
    assert model.input_spec.resize == "squash"


def test_nothing_to_predict_is_no_prediction():
    assert make().predict([]).scores.shape == (0, 3)


def test_predicting_does_not_depend_on_the_mode_and_leaves_it(image):
    model = make(heads.MLDecoder, dropout=0.5, width=32, feedforward=64)
    expected = model.predict(image).scores
    model.train()
    assert np.array_equal(model.predict(image).scores, expected)
    assert model.training


def test_a_bad_image_is_recorded_in_its_place(tmp_path, image):
    bad = tmp_path / "bad.jpg"
    bad.write_text("this is not an image")
    model = make().train()
    first, second, third = model.predict([image, bad, np.zeros((3, 8, 8))])
    assert (first.name, first.error) == ("image 0", None)
    assert (second.name, second.tags) == (str(bad), ())
    assert second.error.startswith("it is not an image")
    assert "got float64 [3, 8, 8]" in third.error
    assert model.training


def test_tuned_thresholds_choose_the_tags(image):
    model = make()
    model.thresholds = (0.0, 1.0, 0.0)
    assert {tag.label for tag in model.predict(image)[0].tags} == {LABELS[0], LABELS[2]}


def test_single_label_scores_sum_to_one(image):
    model = Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=LABELS, pretrained=False, image_size=64, single_label=True
    )
    assert model.predict(image).scores.sum() == pytest.approx(1)


def test_fusing_keeps_the_logits_and_the_original(image):
    model = make(heads.MLDecoder, width=32, feedforward=64)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fused = model.fuse()
    torch.testing.assert_close(fused.predict(image).scores, model.predict(image).scores, atol=1e-5, rtol=0)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_a_small_folder_names_its_backbone_and_checks_its_weights(tmp_path, image, monkeypatch):
    model = Classifier.create("offline:efficientnet_lite0", head=heads.LinearClassifier, labels=LABELS, frozen=True)
    folder = model.save_pretrained(tmp_path / "model", include_backbone=False)
    assert (folder / "model.safetensors").stat().st_size < 100_000
    assert np.array_equal(Classifier.from_pretrained(folder).predict(image).scores, model.predict(image).scores)
    monkeypatch.setattr(classifier, "fingerprint_weights", lambda _: "other")
    with pytest.raises(ModelFormatError, match="differ from those the model was trained with"):
        Classifier.from_pretrained(folder)


def test_loading_draws_no_random_numbers(saved):
    before = torch.random.get_rng_state()
    Classifier.from_pretrained(saved)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_nothing_is_overwritten_unless_asked(saved):
    with pytest.raises(OutputExistsError):
        make().save_pretrained(saved)
    make().save_pretrained(saved, overwrite=True)


def test_overwriting_keeps_files_of_others_and_models_below(saved):
    (saved / "README.md").write_text("my model")
    below = make().save_pretrained(saved / "tuned" / "model")
    make().save_pretrained(saved, overwrite=True)
    assert (saved / "README.md").read_text() == "my model"
    assert Classifier.from_pretrained(below).labels == LABELS


def test_a_head_of_ones_own_is_used_and_saved_but_loaded_only_when_passed(tmp_path, image):
    model = make(CornerHead)
    folder = model.save_pretrained(tmp_path / "model")
    with pytest.raises(ModelFormatError, match=r"a custom head.*pass head=CornerHead"):
        Classifier.from_pretrained(folder)
    with pytest.raises(ModelFormatError, match="LinearClassifier was passed"):
        Classifier.from_pretrained(folder, head=heads.LinearClassifier)
    again = Classifier.from_pretrained(folder, head=CornerHead)
    assert np.array_equal(again.predict(image).scores, model.predict(image).scores)


def test_a_head_that_forgets_its_arguments_cannot_be_saved(tmp_path):
    class Forgetful(CornerHead):
        def __init__(self, in_channels, num_labels, scale=1.0):
            super().__init__(in_channels, num_labels)

    with pytest.raises(ConfigError, match=r"does not store its argument 'scale'; write self\.scale = scale"):
        make(Forgetful).save_pretrained(tmp_path / "model")


def test_a_wrong_head_setting_suggests_the_right_one():
    with pytest.raises(ConfigError, match="MLDecoder has no setting 'num_group'; did you mean 'num_groups'"):
        make(heads.MLDecoder, num_group=2)


def change_config(folder: Path, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "labels.json").unlink(), "labels.json missing; it holds: config.json"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"rubbish"), "damaged"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged"),
        (lambda folder: (folder / "config.json").write_text("[]"), "Expected `object`, got `array`"),
        (lambda folder: (folder / "labels.json").write_text("{}"), "does not hold labels"),
        (lambda folder: change_config(folder, format="other"), "not written by manylabel"),
        (lambda folder: change_config(folder, format_version=99), "format version 99.*update manylabel"),
        (lambda folder: change_config(folder, head={"name": "no_such", "settings": {}}), "no head 'no_such'"),
        (lambda folder: change_config(folder, head={}), "missing required field `name`"),
        (lambda folder: change_config(folder, input={"sizes": 3}), "unknown field `sizes`"),
    ],
)
def test_a_damaged_foreign_or_newer_folder_is_refused_with_a_reason(saved, damage, message):
    damage(saved)
    with pytest.raises(ModelFormatError, match=message):
        Classifier.from_pretrained(saved)


def test_weights_that_do_not_fit_are_named(saved):
    config = json.loads((saved / "config.json").read_text())
    config["head"]["settings"]["num_labels"] = 5
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFormatError, match="3 labels, but the head has 5 outputs"):
        Classifier.from_pretrained(saved)
    labels = {"names": ["a", "b", "c", "d", "e"]}
    (saved / "labels.json").write_text(json.dumps(labels))
    with pytest.raises(ModelFormatError, match=r"does not fit its config.json: 2 of another shape \(head\."):
        Classifier.from_pretrained(saved)


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(ModelFormatError, match="there is no model"):
        Classifier.from_pretrained(tmp_path / "nowhere")
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(ModelFormatError, match="is a file; pass the folder of the model"):
        Classifier.from_pretrained(tmp_path / "model.onnx")


class FolderHub:
    """A stand-in for the hub: repositories are folders."""

    def __init__(self, root):
        self.root = root

    def create_repo(self, name, *, private, exist_ok):
        (self.root / name).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(self, *, folder_path, repo_id, commit_message):
        for file in Path(folder_path).iterdir():
            (self.root / repo_id / file.name).write_bytes(file.read_bytes())
        return type("Commit", (), {"commit_url": f"hub/{repo_id}/commit/1"})


def test_a_model_goes_to_the_hub_and_comes_back(tmp_path, image, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: FolderHub(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: str(tmp_path / name))
    model = make()
    assert model.push_to_hub("someone/tagger") == "hub/someone/tagger/commit/1"
    assert np.array_equal(
        Classifier.from_pretrained("someone/tagger").predict(image).scores, model.predict(image).scores
    )


def test_a_revision_of_the_hub_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: FolderHub(tmp_path))
    make().push_to_hub("someone/tagger")
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        lambda name, *, revision, **_: asked.append(revision) or str(tmp_path / name),
    )
    Classifier.from_pretrained("someone/tagger", revision="v1")
    assert asked == ["v1"]


def test_a_model_on_the_hub_has_a_card(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: FolderHub(tmp_path))
    run = tmp_path / "run"
    make().save_pretrained(run / "model")
    numbers = {"num_images": 120, "mAP": {"value": 0.7692, "low": 0.69, "high": 0.84}, "best_epoch": 3}
    (run / "validation.json").write_text(json.dumps(numbers))
    model = Classifier.from_pretrained(run)
    model.thresholds = tuple(0.25 for _ in model.labels)
    model.push_to_hub("someone/tagger", licence="apache-2.0")
    metadata, text = (tmp_path / "someone" / "tagger" / "README.md").read_text().removeprefix("---\n").split("\n---\n")
    card = yaml.safe_load(metadata)
    assert (card["library_name"], card["pipeline_tag"], card["license"]) == (
        "manylabel",
        "image-classification",
        "apache-2.0",
    )
    assert "multi-label" in card["tags"]
    (result,) = card["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "mAP", "value": 76.92, "name": "mAP"}]
    assert "| mAP | 76.9 | 69.0 to 84.0 |" in text
    assert "120 validation images" in text
    assert all(f"| {label} | 0.25 |" in text for label in model.labels)
    assert 'Classifier.from_pretrained("someone/tagger")  # revision="v1"' in text


def test_a_card_without_a_run_states_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: FolderHub(tmp_path))
    make().push_to_hub("someone/tagger")
    text = (tmp_path / "someone" / "tagger" / "README.md").read_text()
    assert "manylabel evaluate DATA --model someone/tagger" in text
    assert "license" not in text.split("---")[1]
    with pytest.raises(ConfigError, match=r"no validation\.json; pass the folder of a finished run"):
        make().push_to_hub("someone/tagger", run=tmp_path)


def test_from_pretrained_takes_a_folder_too(saved):
    assert Classifier.from_pretrained(saved).labels == LABELS


def test_a_name_that_is_no_repository_is_told():
    with pytest.raises(ModelFormatError, match="neither a local folder nor a model on the hub"):
        Classifier.from_pretrained("no such/place/at all")


def test_an_unreachable_hub_is_told(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelFormatError, match="could not be downloaded from the hub"):
        Classifier.from_pretrained("someone/tagger")


def test_calibration_changes_scores_and_is_saved(tmp_path):
    model = Classifier.create("test_resnet", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False)
    logits = torch.tensor([[2.0, 3.0]])
    model.calibration = ScoreCalibration("platt", scale=(0.5, 1.0), shift=(0.0, -1.0))
    expected = torch.tensor([[1.0, 2.0]]).sigmoid()
    torch.testing.assert_close(model.scores(logits), expected)
    torch.testing.assert_close(model.fuse().scores(logits), expected)
    again = Classifier.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert again.calibration == model.calibration
    with pytest.raises(ConfigError, match="one scale for each of 2 labels, got 1"):
        Classifier(model.backbone, model.head, model.labels, calibration=ScoreCalibration("platt", (1.0,), (0.0,)))
    with pytest.raises(ConfigError, match="scales must be above 0"):
        ScoreCalibration("platt", (-1.0,), (0.0,))


def test_half_the_size_gives_almost_the_same_scores(tmp_path):
    model = Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False
    ).eval()
    whole, half = (
        model.save_pretrained(tmp_path / str(half), half=half) / "model.safetensors" for half in (False, True)
    )
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    image = np.full((64, 64, 3), 100, dtype=np.uint8)
    again = Classifier.from_pretrained(half.parent)
    assert next(again.parameters()).dtype == torch.float32
    torch.testing.assert_close(again.predict(image).scores, model.predict(image).scores, atol=1e-2, rtol=0)


def test_settings_on_disk_are_changed_in_place(tmp_path):
    model = Classifier.create("test_resnet", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False)
    change_settings(model.save_pretrained(tmp_path / "model"), {"thresholds": [0.2, 0.3]})
    assert Classifier.from_pretrained(tmp_path / "model").thresholds == (0.2, 0.3)
    with pytest.raises(ModelFormatError, match="not a manylabel model"):
        change_settings(tmp_path, {})


@pytest.mark.slow  # starts a process
def test_importing_the_classifier_loads_no_readers_of_data():
    heavy = ("manylabel.data", "manylabel.evaluation", "polars", "scipy", "sklearn", "matplotlib")
    code = f"import sys, manylabel.classifier; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_restoring_ends_where_an_initialisation_rejects_values():
    with classifier._Restoration(10**9):
        weight = torch.nn.init.trunc_normal_(torch.empty(64, 64).fill_(9.0), std=0.02)
    assert not weight.any()


IMAGE = np.full((40, 50, 3), 128, dtype=np.uint8)
TRAINED = ("cat", "dog", "/m/bus")


class LetterEncoder:
    """A stand-in: a vector from the letters of a text; counts how often it is called."""

    name, templates = "letters", ("{label}",)

    def reads(self, text):
        return bool(text)

    def __init__(self, width=6):
        self.width, self.calls = width, []

    def encode(self, texts):
        self.calls.append(list(texts))
        rows = [torch.Generator().manual_seed(sum(map(ord, text)) + len(text)) for text in texts]
        return torch.stack([torch.randn(self.width, generator=row) for row in rows])


@pytest.fixture
def encoder(monkeypatch):
    found = LetterEncoder()
    monkeypatch.setattr("manylabel.text.open_encoder", lambda name: found)
    monkeypatch.setattr("manylabel.classifier.typed_labels.open_encoder", lambda: found)
    return found


def make_with_text(head=heads.MLDecoder, *, bias=0.0, **settings):
    torch.manual_seed(0)
    text = {"text_vectors": torch.randn(3, 6)}
    if head is heads.MLDecoder:
        text |= {"queries": "text", "shared_projection": True, "width": 16, "num_heads": 2, "feedforward": 16}
    labels = LabelSpace(TRAINED, display_names={"/m/bus": "bus"}, descriptions={"cat": "it purrs"})
    model = Classifier.create(
        "test_resnet", head=head, labels=labels, head_settings=text | settings, pretrained=False, image_size=32
    )
    model.text = TextVocabulary("letters", ("{label}",), trained=TRAINED, new_label_bias=bias)
    return model


CASES = {
    "full": (heads.MLDecoder, {}),
    "groups": (heads.MLDecoder, {"num_groups": 2}),
    "text map": (heads.TextMap, {}),
    "conse": (heads.ConSE, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_for_new_labels_and_saves_them(case, encoder, tmp_path):
    head, settings = CASES[case]
    asked = make_with_text(head, bias=0.5, **settings).with_labels(["tram", "dog", "fire truck"])
    scores = asked.predict(IMAGE).scores
    assert scores.shape == (1, 3)
    again = Classifier.from_pretrained(asked.save_pretrained(tmp_path / "model"))
    assert again.text == asked.text
    assert np.array_equal(again.predict(IMAGE).scores, scores)
    assert len(encoder.calls) == 1  # saved vectors need no text model


@pytest.mark.parametrize("head", [heads.MLDecoder, heads.TextMap])
def test_a_trained_label_keeps_its_score_beside_new_ones(head, encoder):
    model = make_with_text(head)
    before, beside = model.predict(IMAGE), model.predict(IMAGE, labels=["tram", "dog"])
    assert beside.scores[0, 1] == pytest.approx(before.scores[0, 1], abs=1e-5)
    assert encoder.calls == [["tram"]]


@pytest.mark.parametrize(("head", "kept"), [(heads.MLDecoder, True), (heads.ConSE, False)])
def test_thresholds_go_along_unless_the_head_scores_in_another_way(head, kept, encoder, caplog):
    model = make_with_text(head)
    model.thresholds = [0.2] * len(model.labels)
    assert model.with_labels(["dog", "tram"]).thresholds == ((0.2, 0.5) if kept else None)
    assert ("thresholds and calibration are dropped" in caplog.text) is not kept


def test_trained_labels_alone_need_no_encoder(encoder):
    assert make_with_text().predict(IMAGE, labels=["dog", "bus"]).labels.names == ("dog", "/m/bus")
    assert not encoder.calls


def test_the_bias_moves_new_labels_alone(encoder):
    plain, moved = (
        torch.from_numpy(make_with_text(bias=bias).predict(IMAGE, labels=["tram", "cat"]).scores).logit()
        for bias in (0.0, 1.5)
    )
    torch.testing.assert_close(moved - plain, torch.tensor([[1.5, 0.0]]), atol=1e-4, rtol=1e-4)


def test_doubled_labels_are_asked_once_and_descriptions_are_encoded(encoder, caplog):
    wanted = LabelSpace(["tram", "dog"], descriptions={"tram": "a train in a street"})
    assert make_with_text().with_labels(wanted).labels.descriptions == {"tram": "a train in a street"}
    assert encoder.calls == [["tram", "a train in a street"]]
    assert make_with_text().with_labels(["tram", " tram", "bus", "/m/bus"]).labels.names == ("tram", "/m/bus")
    assert "duplicate labels are ignored: 2" in caplog.text


@pytest.mark.parametrize("labels", [[], ["cat", " "], ["cat", None], "cat"])
def test_rejects_no_label_and_blank_ones(labels, encoder):
    with pytest.raises(LabelError):
        make_with_text().with_labels(labels)


def test_ten_thousand_new_labels_and_a_very_long_one_are_one_pass(encoder):
    model = make_with_text()
    asked = [f"thing {number}" for number in range(10_000)] + ["x" * 5000]
    sizes = []
    model.backbone.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    found = model.predict([IMAGE] * 4, labels=asked)
    assert found.scores.shape == (4, 10_001)
    assert len(encoder.calls) == 1
    assert sizes == [3, 1]  # so many images at once that memory does not run out


def test_thresholds_of_trained_labels_are_kept(encoder):
    model = make_with_text()
    model.thresholds = (0.1, 0.2, 0.3)
    assert model.with_labels(["tram", "dog"]).thresholds == (0.5, 0.2)


def test_fusing_keeps_the_vocabulary(encoder):
    fused = make_with_text(bias=0.5).fuse()
    torch.testing.assert_close(
        fused.predict(IMAGE, labels=["tram"]).scores,
        make_with_text(bias=0.5).eval().predict(IMAGE, labels=["tram"]).scores,
        atol=1e-4,
        rtol=1e-3,
    )


def test_says_which_recipe_to_use_where_labels_are_fixed(encoder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # no retries
    model = Classifier.create("test_resnet", head=heads.LinearClassifier, labels=["cat"], pretrained=False)
    with pytest.raises(ConfigError, match=r"knows only the 1 labels it was trained on.*use the recipe zero_shot"):
        model.predict(IMAGE, labels=["tram"])
    text = {"queries": "text", "shared_projection": True, "text_vectors": torch.randn(1, 6), "width": 16}
    unnamed = Classifier.create(
        "test_resnet", head=heads.MLDecoder, labels=["cat"], head_settings=text, pretrained=False
    )
    with pytest.raises(ConfigError, match="its text encoder is not recorded"):
        unnamed.with_labels(["tram"])


def test_rejects_vectors_of_another_encoder(encoder):
    with pytest.raises(ConfigError, match=r"vectors of 6 numbers, but the encoder returns 4.*trained with \(letters\)"):
        make_with_text().with_labels(["tram"], encoder=LetterEncoder(4))


def test_models_saved_before_there_was_text_still_load(tmp_path):
    model = make_with_text()
    model.text = None
    folder = model.save_pretrained(tmp_path / "model")
    config = (folder / "config.json").read_text().replace(',\n  "text": null', "")
    (folder / "config.json").write_text(config)
    assert '"text"' not in config.replace('"text",', "").replace('"text_dim"', "")
    assert Classifier.from_pretrained(folder).text is None


def test_a_vocabulary_is_a_value():
    text = make_with_text().text
    assert replace(text, new_label_bias=1.0) != text
    assert msgspec.convert(msgspec.to_builtins(text), TextVocabulary) == text
