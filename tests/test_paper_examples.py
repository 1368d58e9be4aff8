"""The papers' settings in examples/paper: each is planned with its backbone, and takes two steps with a smaller one, on
tiny data of the form it names."""

import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from conformance.reader_suite import draw
from manylabel.cli.main import app
from tiny_data import write_coco, write_nus_wide, write_open_images, write_voc

FOLDER = Path(__file__).parents[1] / "examples" / "paper"
FILES = sorted(FOLDER.glob("*/*.yaml"))
NUM = 4  # images a split

pytestmark = pytest.mark.slow

# So that it fits into CI: no pretrained weights, small images, and small backbones of the same kind for the steps.
STAND_INS = {"convnext": "test_convnext", "swin": "swin_tiny_patch4_window7_224", "vit": "test_vit"}
SMALL = (
    "--no-pretrained --image-size {size} --epochs 1 --limit 4 --batch-size 2 --accumulate 1 --workers 0 --device cpu"
)
LESS = {
    "finetune": "--no-augment",
    "representation_mixup": "",
    "self_distillation": "--no-augment --k 1 --teacher-epochs 1 --no-baseline --executor sequential",
    "zero_shot": "",
}


def command_of(file):
    """Return the words of the command in the file's first line."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return shlex.split(first.removeprefix("# "))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Tiny data under the names that the files give."""
    root = tmp_path_factory.mktemp("paper")
    write_coco(root / "coco", num=NUM)
    write_voc(root / "VOCdevkit" / "VOC2007", num=NUM)
    write_nus_wide(root / "nus_wide", num=NUM)
    write_open_images(root / "open_images", num=NUM)
    for split in ("train", "val"):
        for n in range(NUM):
            draw(root / "imagenet" / split / ["n01440764", "n01443537"][n % 2] / f"{n}.jpg")
    return root


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_is_planned_and_takes_two_steps(file, data, tmp_path, monkeypatch):
    monkeypatch.chdir(data)
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    program, *words = command_of(file)
    words[words.index("--config") + 1] = str(file)
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    groups = settings.get("head_settings", {}).get("num_groups")
    size = 96 if "swin" in settings["backbone"] else 64
    flags = [
        *shlex.split(SMALL.format(size=size)),
        *shlex.split(LESS[file.parent.name]),
        "--out",
        str(tmp_path / "run"),
    ]
    flags += ["--head.num-groups", "2"] if groups else []  # there are few labels here
    assert program == "manylabel"
    planned = CliRunner().invoke(app, [*words, *flags, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert f"backbone: {settings['backbone']}" in planned.output
    assert f"{NUM} for training, {NUM} for validation" in planned.output
    kind = settings["backbone"].partition("_")[0]
    trained = CliRunner().invoke(app, [*words, *flags, "--backbone", STAND_INS.get(kind, "test_resnet")])
    assert trained.exit_code == 0, trained.output
    assert (tmp_path / "run" / "model" / "config.json").is_file()
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert int(rows[-1].split(",")[1]) == NUM // 2  # steps


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_names_itself_in_its_command(file):
    words = command_of(file)
    assert words[:2] == ["manylabel", "train"]
    assert words[words.index("--recipe") + 1] == file.parent.name
    assert words[-1] == file.relative_to(FOLDER.parents[1]).as_posix()
