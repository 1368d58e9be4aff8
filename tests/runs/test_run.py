import pytest

from manylabel.errors import ConfigError, DataError
from manylabel.recipes import Finetune, Probe, RepresentationMixup, ZeroShot
from manylabel.recipes.setup import describe_images, open_sets
from manylabel.runs import Run, differences, find_runs
from manylabel.training import RunFolder
from tiny_runs import make_run


def test_a_run_tells_what_its_folder_holds(tmp_path):
    make_run(tmp_path / "first", epochs=4)
    run = Run.read(tmp_path / "first")
    assert (run.name, run.recipe, run.is_finished, len(run.epochs)) == ("first", "probe", True, 4)
    assert (run.mean_average_precision, run.seconds) == (0.4, 10.0)
    assert run.settings["backbone"] == "test_resnet"
    assert "torch" in run.environment["packages"]
    assert run.command == "manylabel train DATA --head linear"


def test_a_run_opens_the_images_it_held_out(tmp_path):
    make_run(tmp_path / "run", finished=False)
    sets = Run.read(tmp_path / "run").sets
    assert (len(sets.train), len(sets.val)) == (24, 6)


def test_images_that_came_since_are_told_instead_of_judging_by_what_was_trained_on(tmp_path):
    rows = [f"{number}.jpg,{'cat' if number % 2 else 'dog'}" for number in range(30)]
    for number in range(30):
        (tmp_path / f"{number}.jpg").touch()
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["image,labels", *rows[:20]]))
    settings = Probe(data=f"csv:{table},images={tmp_path}", out=tmp_path / "run")
    folder = RunFolder.open(settings.out)
    folder.describe(settings, command="")
    first = open_sets(settings)
    folder.record_images(describe_images(first))
    assert len(Run.read(settings.out).sets.val) == len(first.val) == 4
    table.write_text("\n".join(["image,labels", *rows]))
    with pytest.raises(DataError, match=r"\(16 for training and 4 for validation, now 24 and 6\).*manylabel evaluate"):
        _ = Run.read(settings.out).sets


def test_the_images_have_the_labels_that_were_trained_on(tmp_path):
    RunFolder.open(tmp_path / "run").describe(ZeroShot(data="scenes:30", unseen="random:5"), command="train")
    sets = Run.read(tmp_path / "run").sets
    assert len(sets.train.labels) == len(sets.val.labels) == 24 - 5


@pytest.mark.parametrize(("settings", "name"), [(Finetune, "finetune"), (RepresentationMixup, "representation_mixup")])
def test_the_recipe_is_known_by_its_settings(tmp_path, settings, name):
    RunFolder.open(tmp_path / "run").describe(settings(data="scenes:5"), command="python train.py")
    run = Run.read(tmp_path / "run")
    assert (run.recipe, run.is_finished, run.epochs, run.mean_average_precision) == (name, False, (), None)


def test_the_best_epoch_is_told_apart_from_the_last(tmp_path):
    folder = make_run(tmp_path / "run", finished=False)
    folder.metrics.write_text("epoch,val_mAP\n1,0.7\n2,0.6\n", encoding="utf-8")
    run = Run.read(tmp_path / "run")
    assert (run.mean_average_precision, run.best_mean_average_precision) == (0.6, 0.7)


def test_a_damaged_run_is_named(tmp_path):
    folder = make_run(tmp_path / "run", finished=False)
    folder.metrics.write_text("epoch,val_mAP\n1,much\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="run is damaged: could not convert"):
        Run.read(tmp_path / "run")


def test_runs_are_found_below_a_folder_newest_first(tmp_path):
    import os

    for number, name in enumerate(["a", "deep/er/b", "c"]):
        run = make_run(tmp_path / name, finished=name == "c")
        os.utime(run.path / "config.yaml", (number, number))
    (tmp_path / "strange").mkdir()
    make_run(tmp_path / "c/teachers/co-01", finished=False)
    assert [run.name for run in find_runs(tmp_path)] == ["c", "b", "a"]


def test_only_what_differs_is_a_difference(tmp_path):
    for head, epochs in (("linear", 2), ("ml_decoder", 3)):
        make_run(tmp_path / head, head=head, epochs=epochs, finished=False)
    runs = [Run.read(tmp_path / head) for head in ("linear", "ml_decoder")]
    sizes = [{}, {"width": 256, "feedforward": 512, "add_csra": True}]
    assert differences(runs) == {"epochs": [2, 3], "head": ["linear", "ml_decoder"], "head_settings": sizes}
    assert differences(runs, everything=True)["seed"] == [0, 0]
