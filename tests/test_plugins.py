"""Heads, losses, readers and backbones of another package, known by its entry points."""

import importlib
import json
import sys

import pytest
from typer.testing import CliRunner

from manylabel import Classifier, data
from manylabel.backbone import Backbone
from manylabel.cli.main import app
from manylabel.errors import ConfigError, ModelFormatError, SpecError
from manylabel.heads import HEADS
from manylabel.heads.config import describe_head
from manylabel.losses import LOSSES
from manylabel.plugins import plugins
from manylabel.settings import Probe

MODULE = '''
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnet import BasicBlock, ResNet
from torch import nn

from manylabel import data


class Corner(nn.Module):
    """A head that looks at one corner."""

    def __init__(self, in_channels, num_labels, scale=1.0):
        super().__init__()
        self.in_channels, self.num_labels, self.scale = in_channels, num_labels, scale
        self.linear = nn.Linear(in_channels, num_labels)

    def forward(self, features):
        return self.scale * self.linear(features[-1][:, :, 0, 0])


class Squares(nn.Module):
    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = weight

    def forward(self, logits, targets, known=None):
        return self.weight * ((logits.sigmoid() - targets) ** 2).mean()


def drawn(path, seed: int = 0, mood=None):
    """Read nothing: draw scenes."""
    return data.scenes(int(path), seed=seed)


IMAGES = {"input_size": (3, 64, 64), "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic", "crop_pct": 1.0}
WEIGHTS = {"url": "https://example.org/corner.pth", "first_conv": "conv1", "classifier": "fc"}
default_cfgs = generate_default_cfgs({"corner_net.first": {**IMAGES, **WEIGHTS}})


@register_model
def corner_net(pretrained=False, **settings):
    return build_model_with_cfg(ResNet, "corner_net", pretrained, block=BasicBlock, layers=(1, 1, 1, 1), **settings)
'''
ENTRIES = """
[manylabel.heads]
corner = corner_package:Corner
broken = corner_package:NoSuchHead
linear = corner_package:Corner
[manylabel.losses]
squares = corner_package:Squares
[manylabel.readers]
drawn = corner_package:drawn
[manylabel.backbones]
corner_net = corner_package:corner_net
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """An installed package, as far as Python can tell."""
    folder = tmp_path_factory.mktemp("site")
    about = folder / "corner_package-1.0.dist-info"
    about.mkdir()
    (folder / "corner_package.py").write_text(MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: corner-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    own = [(registry, dict(registry.data)) for registry in (HEADS, LOSSES, data.FORMATS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        plugins.cache_clear()
        yield importlib.import_module("corner_package")
    plugins.cache_clear()
    sys.modules.pop("corner_package")
    for registry, before in own:
        registry.data = before


def test_names_of_a_package_are_listed_and_ours_are_not_replaced(package):
    assert {"corner", "broken", "linear"} <= set(HEADS)
    assert len(HEADS) == len(list(HEADS))
    assert HEADS["corner"] is package.Corner
    assert HEADS["linear"] is not package.Corner
    assert "squares" in CliRunner().invoke(app, ["train", "--help-all"]).output


def test_a_plug_in_that_cannot_be_imported_is_named_with_its_package(package):
    with pytest.raises(ConfigError, match=r"'broken' of corner-package \(manylabel\.heads, .*fix or uninstall"):
        HEADS["broken"]
    with pytest.raises(KeyError):
        HEADS["no such head"]


def test_a_reader_is_a_format(package):
    assert len(data.load("drawn:6,seed=3,mood=good")) == 6
    with pytest.raises(SpecError, match="no option 'sed'"):
        data.load("drawn:6,sed=3")


def test_a_loss_is_a_setting(package):
    assert Probe(data="scenes:9", loss="squares").loss == "squares"
    with pytest.raises(ConfigError, match="loss cannot be 'squarez'; did you mean 'squares'"):
        Probe(data="scenes:9", loss="squarez")


def test_a_backbone_has_a_name(package):
    for name in ("corner_net", "corner_net.first"):
        assert Backbone(name, pretrained=False, stages=(-1,)).channels == (512,)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the libraries under the command
def test_training_and_saved_models_use_the_names(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "train drawn:20 --head corner --head.scale 2 --loss squares --loss.weight 3 --backbone corner_net --out run"
    small = "--no-pretrained --image-size 64 --epochs 1 --views 1 --workers 0 --device cpu"
    result = CliRunner().invoke(app, f"{words} {small}".split())
    assert result.exit_code == 0, result.output
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert (saved["head"]["name"], saved["backbone"]["name"]) == ("corner", "corner_net")
    model = Classifier.from_pretrained("run")
    assert isinstance(model.head, package.Corner)
    assert model.head.scale == 2
    assert describe_head(model.head).name == "corner"


def test_a_model_whose_package_is_gone_is_refused(package, tmp_path, monkeypatch):
    head = HEADS["corner"]
    model = Classifier.create("resnet10t", head=head, labels=["cat"], pretrained=False, image_size=64)
    folder = model.save_pretrained(tmp_path / "model")
    monkeypatch.delitem(HEADS.data, "corner")
    monkeypatch.delitem(plugins("manylabel.heads"), "corner")
    with pytest.raises(ModelFormatError, match="no head 'corner' in this version and the installed packages"):
        Classifier.from_pretrained(folder)
