"""Hostile and damaged model folders: each loads properly or is refused in one sentence, at once, in little memory."""

import json
import re
import resource
import shutil
import socket
import struct
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file

from manylabel import heads
from manylabel.backbone import Backbone
from manylabel.builtin import find_model
from manylabel.classifier import Classifier, ScoreCalibration, change_config
from manylabel.cli.main import main
from manylabel.errors import ManyLabelError, ModelFormatError
from manylabel.labelgraph import Partition
from manylabel.predictions import InferenceSpec
from manylabel.text import TextVocabulary
from manylabel.types import InputSpec, LabelSpace

NAMES = ["cat", "dog", "bird"]
DECODER = {"queries": "text", "text_vectors": torch.eye(3, 4), "width": 16, "num_heads": 2, "feedforward": 16}
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A model that uses all that a folder can hold."""
    torch.manual_seed(0)
    model = Classifier.create(
        "test_resnet", head=heads.MLDecoder, labels=NAMES, head_settings=DECODER, pretrained=False, image_size=32
    )
    model.thresholds = (0.5, 0.4, 0.3)
    model.calibration = ScoreCalibration("platt", scale=(1.0, 0.5, 2.0), shift=(0.0, 0.1, -0.1))
    model.text = TextVocabulary("npz:vectors.npz", ("{label}",), trained=("cat", "dog"), centre=(0.1, 0.2, 0.3, 0.4))
    return model.save_pretrained(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "model"))


@contextmanager
def bounds(seconds=10.0, megabytes=500):
    """Fail where the block takes long, even on a busy machine, or much memory."""
    started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - started < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1000 * megabytes


def edit(file, change):
    """Change the JSON in a file; a change of text goes in as it is."""
    values = json.loads(file.read_text(encoding="utf-8"))
    changed = change(values)
    file.write_text(changed if isinstance(changed, str) else json.dumps(values), encoding="utf-8")


def setting(*path, to):
    """Return a change that sets one value."""

    def change(values):
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = to

    return change


def text(*path, to):
    """Return a change that sets one value to JSON as it is written, such as ``1e999``."""

    def change(values):
        setting(*path, to="@@")(values)
        return json.dumps(values).replace('"@@"', to)

    return change


HUGE = 10**12
CONFIGS = {
    "big integer": text("backbone", "image_size", to="9" * 5000),
    "big integer as a version": text("format_version", to="9" * 5000),
    "nested": lambda _: DEEP,
    "nested settings": text("head", "settings", "width", to=DEEP),
    "huge width": setting("head", "settings", "width", to=HUGE),
    "wide layers": setting("head", "settings", "feedforward", to=40_000_000),
    "many layers": setting("head", "settings", "num_layers", to=HUGE),
    "huge text vectors": setting("head", "settings", "text_dim", to=HUGE),
    "many heads": setting("head", "settings", "num_heads", to=HUGE),
    "many small layers": setting("head", "settings", "num_layers", to=10**6),
    "settings as a list": setting("head", "settings", to=[1, 2]),
    "unknown setting": setting("head", "settings", "no_such", to=1),
    "setting as text": setting("head", "settings", "width", to="wide"),
    "nested head": setting("head", "settings", "width", to={"name": 3, "settings": {}}),
    "other head": setting("head", to={"name": "linear", "settings": {"in_channels": 3, "num_labels": 3}}),
    "head of another width": setting("head", "settings", "in_channels", to=7),
    "a head's code": setting("head", "name", to="os:system"),
    "interpolation": setting("input", "interpolation", to="nearest"),
    "huge input": setting("input", "size", to=[10**6, 10**6]),
    "input of no pixels": setting("input", "size", to=[0, 32]),
    "input of three sizes": setting("input", "size", to=[32, 32, 32]),
    "tiny crop": setting("input", "crop_fraction", to=1e-9),
    "std of zero": setting("input", "std", to=[0.0, 0.1, 0.1]),
    "infinite mean": text("input", "mean", to="[1e999, 0, 0]"),
    "thresholds as text": setting("thresholds", to="0.5"),
    "a threshold as text": setting("thresholds", to=[0.5, "0.4", 0.3]),
    "a threshold that is no number": text("thresholds", to="[0.5, NaN, 0.3]"),
    "an infinite threshold": text("thresholds", to="[0.5, Infinity, 0.3]"),
    "a threshold above 1": setting("thresholds", to=[0.5, 7, 0.3]),
    "too few thresholds": setting("thresholds", to=[0.5]),
    "scale that is no number": text("calibration", "scale", to="[NaN, 1, 1]"),
    "scale below zero": setting("calibration", "scale", to=[-1, 1, 1]),
    "too few scales": setting("calibration", "scale", to=[1]),
    "unknown calibration": setting("calibration", "method", to="magic"),
    "versions as a list": setting("versions", to=["1.0"]),
    "format as a number": setting("format", to=1),
    "unknown backbone": setting("backbone", "name", to="no_such_model"),
    "a hub's backbone": setting("backbone", "name", to="hf-hub:someone/model"),
    "another backbone": setting("backbone", "name", to="resnet10t"),
    "a backbone of 28 GB": setting("backbone", "name", to="vit_7b_patch16_dinov3"),
    "a long name": setting("backbone", "name", to="x" * 10**6),
    "no stages": setting("backbone", "stages", to=[]),
    "too many stages": setting("backbone", "stages", to=list(range(10_000))),
    "huge images": setting("backbone", "image_size", to=HUGE),
    "unknown key": setting("trust_remote_code", to=True),
    "text as a list": setting("text", to=["offline:minilm"]),
    "an infinite bias": text("text", "new_label_bias", to="1e999"),
    "single_label as text": setting("single_label", to="yes"),
    "a list": lambda _: "[]",
    "nothing": lambda _: "",
    "not text": lambda _: "\x00\x01",
}


SLOW = ["a backbone of 28 GB", "many small layers"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CONFIGS])
def test_a_hostile_config_is_refused(folder, name):
    edit(folder / "config.json", CONFIGS[name])
    with bounds(), pytest.raises(ModelFormatError) as error:
        Classifier.from_pretrained(folder)
    assert len(str(error.value)) < 1000
    assert "\n" not in str(error.value)


LABELS = {
    "too few": {"names": ["cat", "dog"]},
    "too many": {"names": [f"label {number}" for number in range(500_000)]},
    "doubled": {"names": ["cat", "dog", "cat"]},
    "60,000, half of them doubled": {"names": [f"label {number % 30_000}" for number in range(60_000)]},
    "display names of 60,000 others": {"names": NAMES, "display_names": {f"x{i}": "y" for i in range(60_000)}},
    "numbers": {"names": [1, 2, 3]},
    "null": {"names": None},
    "one is null": {"names": ["cat", None, "bird"]},
    "blank": {"names": ["cat", " ", "bird"]},
    "text": {"names": "cat"},
    "display names as a list": {"names": NAMES, "display_names": ["Cat"]},
    "display names as numbers": {"names": NAMES, "display_names": {"cat": 1}},
    "descriptions of others": {"names": NAMES, "descriptions": {"cow": "it moos"}},
    "no names": {},
    "a list": NAMES,
    "null altogether": None,
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.slow
def test_labels_that_do_not_fit_are_refused(folder, name):
    (folder / "labels.json").write_text(json.dumps(LABELS[name]))
    with bounds(), pytest.raises(ModelFormatError):
        Classifier.from_pretrained(folder)


@pytest.mark.parametrize("count", [60_000, 200_000])
def test_doubled_labels_are_named_at_once(count):
    names = [f"label {number // 2}" for number in range(count)]
    with bounds(seconds=5), pytest.raises(ManyLabelError, match=r"occur twice: label 0, .* more; rename") as error:
        LabelSpace(names)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("half", [False, True])
def test_weights_that_are_no_numbers_are_refused(folder, value, half):
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.startswith("backbone") and tensors[name].is_floating_point())
    tensors[name].flatten()[3] = value
    save_file(
        {name: tensor.half() if half else tensor for name, tensor in tensors.items()}, folder / "model.safetensors"
    )
    with pytest.raises(ModelFormatError, match="weights of inf or nan"):
        Classifier.from_pretrained(folder)


WEIGHTS = {
    "missing": lambda tensors: tensors.pop(next(iter(tensors))),
    "unexpected": lambda tensors: tensors.update(more=torch.zeros(3)),
    "another shape": lambda tensors: tensors.update({next(iter(tensors)): torch.zeros(1)}),
    "another type": lambda tensors: tensors.update({key: value.long() for key, value in tensors.items()}),
    "complex": lambda tensors: tensors.update({key: value.to(torch.complex64) for key, value in tensors.items()}),
    "empty": lambda tensors: tensors.clear(),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_do_not_fit_are_refused(folder, name):
    tensors = load_file(folder / "model.safetensors")
    WEIGHTS[name](tensors)
    save_file(tensors, folder / "model.safetensors")
    with bounds(), pytest.raises(ModelFormatError):
        Classifier.from_pretrained(folder)


def test_a_calibration_or_threshold_that_is_no_number_cannot_be_made(folder):
    model = Classifier.from_pretrained(folder)
    with pytest.raises(ManyLabelError, match="finite"):
        ScoreCalibration("platt", (float("nan"),), (0.0,))
    with pytest.raises(ManyLabelError, match=r"0\.\.1"):
        Classifier(model.backbone, model.head, model.labels, thresholds=[float("nan"), 0.5, 0.5])
    with pytest.raises(ModelFormatError):
        change_config(folder, {"thresholds": ["high", 0.5, 0.5]})
    assert Classifier.from_pretrained(folder).thresholds == (0.5, 0.4, 0.3)


@pytest.fixture
def no_network(monkeypatch):
    def connect(*_):
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


@pytest.mark.usefixtures("no_network")
def test_a_local_folder_never_asks_a_hub(folder, monkeypatch, tmp_path):
    assert Classifier.from_pretrained(folder).labels.names == tuple(NAMES)
    monkeypatch.chdir(tmp_path)
    for name in ("model/no_such", "./model2", "../nowhere/model", str(tmp_path / "no"), tmp_path / "no", "nothing"):
        with pytest.raises(ModelFormatError, match=r"there is no model|neither a local folder"):
            find_model(name)


def test_weights_by_name_respect_the_offline_mode_and_say_why_they_are_needed(folder, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    edit(folder / "config.json", setting("backbone", "fingerprint", to="0" * 64))
    edit(folder / "config.json", setting("backbone", "name", to="resnet10t.c3_in1k"))
    with pytest.raises(ModelFormatError, match=r"saved without the weights of its backbone.*hub cannot be reached"):
        Classifier.from_pretrained(folder)


COMMANDS = {
    "predict": ["IMAGE", "--model", "MODEL"],
    "explain": ["IMAGE", "--model", "MODEL"],
    "serve": ["--model", "MODEL"],
    "export": ["--model", "MODEL", "--out", "OUT"],
    "vocabulary": ["list", "--model", "MODEL"],
    "evaluate": ["DATA", "--model", "MODEL"],
    "compare": ["DATA", "--model", "MODEL", "--model", "MODEL"],
    "tune": ["DATA", "--model", "MODEL"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["nested", "huge width"])
def test_every_command_ends_with_a_sentence_and_exit_code_2(command, name, folder, tmp_path, monkeypatch, capfd):
    edit(folder / "config.json", CONFIGS[name])
    table, image = tmp_path / "labels.csv", tmp_path / "a.png"
    Image.new("RGB", (32, 32)).save(image)
    table.write_text("image,labels\na.png,cat|dog|bird\n")
    places = {"MODEL": str(folder), "IMAGE": str(image), "OUT": str(tmp_path / "a.onnx"), "DATA": f"csv:{table}"}
    monkeypatch.setattr(sys, "argv", ["manylabel", command, *(places.get(word, word) for word in COMMANDS[command])])
    with pytest.raises(SystemExit) as end:
        main()
    found = capfd.readouterr().err
    assert end.value.code == 2, found
    assert found.count("Error: ") == 1
    assert re.search(r"config\.json is damaged|describes a larger model|is above", found)
    assert "Traceback" not in found


SHAPES = [[], {}, [[]], [0] * 1000, {"name": "linear", "settings": {}}, "1", "nan", HUGE]
NUMBERS = st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | st.floats()
ODD = st.none() | NUMBERS | st.text(max_size=20) | st.sampled_from(SHAPES)


def paths_of(values, at=()):
    """Return the places of all values of a JSON object."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [at, *(path for key, value in inner for path in paths_of(value, (*at, key)))]


def mutate(data, values):
    """Replace, remove or add one value somewhere in a JSON object."""
    path = data.draw(st.sampled_from(paths_of(values)[1:]))
    place = values
    for key in path[:-1]:
        place = place[key]
    match data.draw(st.sampled_from(["replace", "replace", "remove", "add"])):
        case "replace":
            place[path[-1]] = data.draw(ODD)
        case "remove":
            del place[path[-1]]
        case "add" if isinstance(place, dict):
            place[data.draw(st.text(max_size=8))] = data.draw(ODD)
        case _:
            place.append(data.draw(ODD))


def loads_or_is_refused(folder):
    with bounds():
        try:
            model = Classifier.from_pretrained(folder)
        except ManyLabelError:
            return
        if max(model.input_spec.size) <= 64:
            scores = model.scores(model(torch.zeros(1, 3, *model.input_spec.size)))
            assert scores.shape == (1, len(model.labels))
            assert scores.isfinite().all()


@settings(max_examples=120)
@given(data=st.data())
@pytest.mark.slow
def test_any_change_of_the_json_loads_or_is_refused(whole, tmp_path_factory, data):
    folder = Path(shutil.copytree(whole, tmp_path_factory.mktemp("mutated") / "model"))
    file = folder / data.draw(st.sampled_from(["config.json", "config.json", "labels.json"]))
    values = json.loads(file.read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        mutate(data, values)
    file.write_text(json.dumps(values))
    loads_or_is_refused(folder)


@settings(max_examples=50)
@given(data=st.data())
@pytest.mark.slow
def test_any_change_of_the_header_of_the_weights_loads_or_is_refused(whole, tmp_path_factory, data):
    folder = Path(shutil.copytree(whole, tmp_path_factory.mktemp("mutated") / "model"))
    content = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    mutate(data, header)
    changed = json.dumps(header).encode()
    said = data.draw(st.sampled_from([len(changed)] * 5 + [0, 2**63, len(changed) + 1]))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", said) + changed + content[8 + length :])
    loads_or_is_refused(folder)


@settings(max_examples=40)
@given(names=st.lists(ODD | st.text(), max_size=6), cut=st.integers(0, 3000))
@pytest.mark.slow
def test_any_list_of_labels_and_any_cut_loads_or_is_refused(whole, tmp_path_factory, names, cut):
    folder = Path(shutil.copytree(whole, tmp_path_factory.mktemp("mutated") / "model"))
    (folder / "labels.json").write_text(json.dumps({"names": names}))
    loads_or_is_refused(folder)
    shutil.copyfile(whole / "labels.json", folder / "labels.json")
    content = (whole / "config.json").read_bytes()
    (folder / "config.json").write_bytes(content[:cut])
    loads_or_is_refused(folder)


SPEC = InferenceSpec(LabelSpace(NAMES), InputSpec(size=(32, 32)), thresholds=(0.5, 0.4, 0.3)).to_json()


@settings(max_examples=60)
@given(data=st.data())
def test_any_change_of_the_metadata_of_an_exported_file_is_read_or_refused(data):
    values = json.loads(SPEC)
    mutate(data, values)
    try:
        spec = InferenceSpec.from_json(json.dumps(values), source="tagger.onnx")
    except ModelFormatError:
        return
    assert len(spec.labels) == len(spec.thresholds or spec.labels)
    assert max(spec.input_spec.size) <= 4096


@pytest.mark.parametrize("text", ["", "[]", "{}", DEEP, '{"version": 9}', SPEC[:100], SPEC.replace("0.5", "1e999")])
def test_damaged_metadata_of_an_exported_file_is_refused(text):
    with bounds(), pytest.raises(ModelFormatError, match=r"tagger\.onnx"):
        InferenceSpec.from_json(text, source="tagger.onnx")


def test_a_damaged_file_of_weights_is_refused(whole, tmp_path):
    torch.save(load_file(whole / "model.safetensors"), tmp_path / "weights.pth")
    content = (tmp_path / "weights.pth").read_bytes()
    for cut in (0, 1, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "weights.pth").write_bytes(content[:cut])
        with pytest.raises(ModelFormatError, match="read safely") as error:
            Backbone("test_resnet", weights=tmp_path / "weights.pth")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change", [{"subsets": 3}, {"subsets": [["cat"], [1]]}, {"kind": "other"}, {"stability": "high"}, {"seed": None}]
)
def test_a_damaged_partition_of_labels_is_refused(change):
    values = Partition((("cat", "dog"), ("bird",)), kind="co").to_dict()
    assert Partition.from_dict(values).to_dict() == values
    with pytest.raises(ManyLabelError, match="not a partition of labels"):
        Partition.from_dict(values | change)
