"""The recipe from images to a student, in one process."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import yaml

from manylabel.classifier import Classifier
from manylabel.data import ImageLoader, LazyBytes, eval_transform, scenes
from manylabel.errors import ConfigError
from manylabel.recipes import Probe, SelfDistillation, TrainAndVal, loaders, probe, self_distillation
from manylabel.recipes.plan import plan
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.self_distillation import recipe as recipe_module
from manylabel.recipes.self_distillation.student import CachedTeachers, OnlineTeachers
from manylabel.types import FeatureBatch

pytestmark = [pytest.mark.usefixtures("undrawn"), pytest.mark.slow]


def weights(folder):
    return Classifier.from_pretrained(folder).state_dict()


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_tells_the_whole_story(brief, sets, tmp_path):
    settings = SelfDistillation(**{**brief, "baseline": True}, out=tmp_path / "run")
    run = self_distillation(settings, sets=sets)
    names = ["co-01", "co-02", "dis-01", "dis-02"]
    assert sorted(path.name for path in (run.path / "teachers").iterdir()) == names
    story = json.loads((run.path / "summary.json").read_text())
    assert [teacher["name"] for teacher in story["teachers"]] == names
    assert (story["baseline"]["epochs"], story["student"]["epochs"]) == (2, 3)
    assert story["gain"]["low"] <= story["gain"]["value"] <= story["gain"]["high"]
    partitions = json.loads((run.path / "partitions.json").read_text())
    for side in partitions["sides"]:
        labels = [Classifier.from_pretrained(run.path / "teachers" / name / "model").labels.names for name in names]
        assert [list(each) for each in labels if list(each) in side["subsets"]]
        rows = [each for each in story["teachers"] if each["name"].startswith(side["name"])]
        expected = sum(each["mAP"] * each["evaluated_labels"] for each in rows) / sum(
            each["evaluated_labels"] for each in rows
        )
        assert story["sides"][side["name"]] == pytest.approx(expected)
    table = (run.path / "summary.md").read_text()
    assert all(f"| {name} |" in table for name in [*names, "student", "baseline", "co teachers together"])
    assert not (run.path / "teacher-logits").exists()
    assert yaml.safe_load((run.path / "teachers/co-01/config.yaml").read_text())["epochs"] == 2


def test_teachers_of_few_labels_have_fewer_groups_also_under_representation_mixup(brief, sets, tmp_path):
    top = {"num_groups": 20, "width": 16, "num_heads": 2, "feedforward": 16}
    head = {"head": "rm", "head_settings": {"top": {"name": "ml_decoder", "settings": top}}}
    run = self_distillation(SelfDistillation(**{**brief, **head}, out=tmp_path / "run"), sets=sets)
    teacher, student = (Classifier.from_pretrained(run.path / name) for name in ("teachers/co-01/model", "model"))
    assert teacher.head.top.num_groups == len(teacher.labels) < 20
    assert student.head.top.num_groups == 20


def as_probe(brief):
    """Return the settings of a linear probe that trains as the student does."""
    student = SelfDistillation(**brief)
    same = {name: getattr(student, name) for name in ("loss", "weight_decay", "views", "feature_dropout")}
    common = {name: value for name, value in brief.items() if name in Probe.__dataclass_fields__}
    return {**common, **same}


def test_without_weight_the_student_is_a_plain_model(brief, sets, tmp_path):
    settings = SelfDistillation(**brief, out=tmp_path / "run", distillation_weight=0.0)
    run = self_distillation(settings, sets=sets)
    plain = probe(Probe(**as_probe(brief), out=tmp_path / "plain"), sets=sets)
    assert equal(weights(run.model), weights(plain.model))


def test_the_baseline_is_a_plain_model_of_as_many_epochs_as_a_teacher(brief, sets, tmp_path):
    run = self_distillation(SelfDistillation(**{**brief, "baseline": True}, out=tmp_path / "run"), sets=sets)
    as_long = {**as_probe(brief), "epochs": brief["teacher_epochs"]}
    plain = probe(Probe(**as_long, out=tmp_path / "plain"), sets=sets)
    assert equal(weights(run.path / "baseline/model"), weights(plain.model))


def test_more_subsets_than_labels_are_refused_before_anything_is_computed(brief, sets, tmp_path):
    settings = SelfDistillation(**{**brief, "k": 99}, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"cannot divide 24 labels into k=99 subsets; set a smaller --k"):
        self_distillation(settings, sets=sets)


def test_an_ensemble_is_two_teachers_of_all_labels(brief, sets, tmp_path):
    run = self_distillation(SelfDistillation(**brief, out=tmp_path / "run", partition="ensemble"), sets=sets)
    first, second = (Classifier.from_pretrained(run.path / f"teachers/{name}-01/model") for name in ("first", "second"))
    assert first.labels.names == second.labels.names == sets.train.labels.names
    assert not equal(first.state_dict(), second.state_dict())
    assert {*json.loads((run.path / "summary.json").read_text())["sides"]} == {"first", "second"}


@pytest.mark.parametrize("images", ["all", "own"])
def test_whole_is_plain_self_distillation(brief, sets, tmp_path, images):
    settings = SelfDistillation(**brief, out=tmp_path / "run", partition="whole", teacher_images=images)
    run = self_distillation(settings, sets=sets)
    teacher = Classifier.from_pretrained(run.path / "teachers/whole-01/model")
    assert teacher.labels.names == sets.train.labels.names
    assert not equal(teacher.state_dict(), weights(run.model))
    story = json.loads((run.path / "summary.json").read_text())
    shown = (sets.train.targets.labels_per_image > 0).sum()
    assert story["teachers"][0]["images"] == (shown if images == "own" else len(sets.train))


@pytest.mark.parametrize("views", [1, 2])
def test_cached_and_online_teachers_teach_the_same(brief, sets, tmp_path, views, monkeypatch):
    cached = self_distillation(SelfDistillation(**{**brief, "views": views}, out=tmp_path / "cached"), sets=sets)
    asking_online(monkeypatch)
    online = self_distillation(SelfDistillation(**{**brief, "views": views}, out=tmp_path / "online"), sets=sets)
    one, other = weights(cached.model), weights(online.model)
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


def asking_online(monkeypatch):
    """Ask teachers about each batch, though their answers could be cached."""
    folders = []
    monkeypatch.setattr(recipe_module, "write_logits", lambda file, teachers, *a, **k: folders.append(list(teachers)))
    labels = scenes(1).labels
    monkeypatch.setattr(recipe_module, "CachedTeachers", lambda files: OnlineTeachers(folders, labels))


def test_no_image_passes_the_backbone_twice(brief, sets, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    from manylabel.features import FeatureCache

    passed, real = [], FeatureCache.maps
    monkeypatch.setattr(
        FeatureCache, "maps", lambda self, batch, *a, **k: passed.append(len(batch)) or real(self, batch, *a, **k)
    )
    monkeypatch.setattr(Classifier, "forward", lambda self, images: pytest.fail("an image passes the whole model"))
    self_distillation(SelfDistillation(**{**brief, "baseline": True}, out=tmp_path / "run"), sets=sets)
    assert sum(passed) == len(sets.train) + len(sets.val)


def test_finetune_asks_teachers_online_and_leaves_their_statistics_alone(brief, sets, tmp_path, monkeypatch):
    asked = []

    class Watched(OnlineTeachers):
        def __init__(self, sides, labels):
            super().__init__(sides, labels)
            self.before = [{n: v.clone() for n, v in each.state_dict().items()} for side in sides for each in side]
            asked.append(self)

    monkeypatch.setattr(recipe_module, "OnlineTeachers", Watched)
    run = self_distillation(
        SelfDistillation(**brief, out=tmp_path / "run", training="finetune", partition="co"), sets=sets
    )
    (teachers,) = asked
    after = [each.state_dict() for side in teachers.sides for each in side]
    assert all(equal(one, other) for one, other in zip(teachers.before, after, strict=True))
    assert not any(each.training for side in teachers.sides for each in side)
    start = weights(run.model)
    assert any("running_mean" in name and not torch.equal(start[name], after[0][name]) for name in start)


def test_finetune_without_augmentation_caches_what_teachers_say(brief, sets, tmp_path, monkeypatch):
    same = {"training": "finetune", "partition": "co", "augment": False, "freeze_epochs": 1}
    cached = self_distillation(SelfDistillation(**brief, **same, out=tmp_path / "cached"), sets=sets)
    asking_online(monkeypatch)
    online = self_distillation(SelfDistillation(**brief, **same, out=tmp_path / "online"), sets=sets)
    one, other = weights(cached.model), weights(online.model)
    assert all(torch.allclose(one[name], other[name], atol=1e-3) for name in one if one[name].is_floating_point())


def test_teachers_and_student_train_the_top_of_the_backbone_on_cached_maps(brief, sets, tmp_path, monkeypatch):
    monkeypatch.setattr(Classifier, "forward", lambda self, images: pytest.fail("an image passes the whole model"))
    same = {"training": "finetune", "train_from": "2", "partition": "co", "baseline": True}
    run = self_distillation(SelfDistillation(**{**brief, **same}, out=tmp_path / "run"), sets=sets)
    models = [weights(run.path / name) for name in ("model", "teachers/co-01/model", "baseline/model")]
    names = [name for name in models[0] if name.startswith("backbone.") and name.endswith("weight")]
    below = {name for name in names if all(torch.equal(models[0][name], each[name]) for each in models[1:])}
    above = {name for name in names if not torch.equal(models[0][name], models[1][name])}
    assert below | above == {*names}
    assert {name for name in names if "layer4" in name} == above
    assert not any(
        name.startswith("backbone.") and "running" in name and not torch.equal(models[0][name], each[name])
        for name in models[0]
        for each in models[1:]
    )


def test_cached_logits_are_those_of_the_whole_teacher(brief, sets, tmp_path, monkeypatch):
    same = {"training": "finetune", "train_from": "2", "partition": "whole", "augment": False}
    kept = []
    monkeypatch.setattr(recipe_module, "CachedTeachers", lambda files: kept.extend(files) or CachedTeachers(files))
    monkeypatch.setattr(recipe_module.shutil, "rmtree", lambda *args, **settings: None)
    run = self_distillation(SelfDistillation(**brief, **same, out=tmp_path / "run"), sets=sets)
    teacher = Classifier.from_pretrained(run.path / "teachers/whole-01/model").eval()
    (batch,) = ImageLoader(sets.train, transform=eval_transform(teacher.input_spec), batch_size=len(sets.train))
    with torch.inference_mode():
        expected = teacher(batch.images)
    logits = torch.from_numpy(np.load(kept[0])[0])
    torch.testing.assert_close(logits[batch.indices], expected, atol=0.02, rtol=0.02)  # maps are cached in float16


def test_what_is_unknown_is_not_taken_for_absent(brief, tmp_path):
    drawn = scenes(30, size=64, unknown=0.5)
    sets = TrainAndVal(drawn.split("train"), drawn.split("val"))
    absent = TrainAndVal(replace(sets.train, targets=replace(sets.train.targets, unknown=None)), sets.val)
    runs = [
        self_distillation(SelfDistillation(**brief, out=tmp_path / name, partition="whole"), sets=images)
        for name, images in (("unknown", sets), ("absent", absent))
    ]
    for model in ("model", "teachers/whole-01/model"):
        unknown, taken_for_absent = (
            Classifier.from_pretrained(run.path / model).head.linear.bias.mean() for run in runs
        )
        assert unknown > taken_for_absent  # what was never said to be absent is thought more likely


def test_more_groups_than_a_teacher_has_labels_are_as_many_as_it_has(brief, sets, tmp_path):
    heads = {"head": "ml_decoder", "head_settings": {"num_groups": 20, "width": 16, "num_heads": 2, "feedforward": 16}}
    settings = SelfDistillation(**{**brief, **heads, "epochs": 1, "teacher_epochs": 1}, out=tmp_path / "run")
    run = self_distillation(settings, sets=sets)
    teachers = [Classifier.from_pretrained(folder / "model") for folder in sorted((run.path / "teachers").iterdir())]
    assert [each.head.num_groups for each in teachers] == [min(20, len(each.labels)) for each in teachers]
    assert Classifier.from_pretrained(run.model).head.num_groups == 20


def test_single_labels_are_refused(brief, sets, tmp_path):
    with pytest.raises(ConfigError, match="every image has exactly one"):
        self_distillation(SelfDistillation(**brief, out=tmp_path / "run", single_label=True), sets=sets)


def test_a_plan_counts_teachers_student_and_baseline(brief, sets, tmp_path):
    settings = SelfDistillation(**{**brief, "baseline": True}, out=tmp_path / "run")
    found = plan(self_distillation.setup(settings, sets=sets))
    assert found.total_epochs == 3 + (4 + 1) * 2
    assert found.total_seconds == pytest.approx(found.feature_seconds + found.total_epochs * found.epoch_seconds)


def test_a_student_trains_twice_as_long_as_teachers_on_features_unless_told(brief, sets, tmp_path):
    def epochs(**changed):
        settings = SelfDistillation(**{**brief, **changed}, out=tmp_path / "run")
        settings = self_distillation.setup(settings, sets=sets).settings
        return settings.epochs, settings.teacher_epochs, settings.num_views(100)

    assert epochs(epochs=None, views=None) == (4, 2, 4)
    assert epochs(teacher_epochs=None) == (3, 3, 1)
    assert epochs(epochs=None, training="finetune") == (2, 2, 1)


def test_a_finished_run_is_left_as_it_is_and_can_be_replaced(brief, sets, tmp_path):
    settings = SelfDistillation(**brief, out=tmp_path / "run", partition="co")
    run = self_distillation(settings, sets=sets)
    written = (run.model / "model.safetensors").stat().st_mtime_ns
    self_distillation(settings, sets=sets, resume=True)
    assert (run.model / "model.safetensors").stat().st_mtime_ns == written
    self_distillation(settings, sets=sets, overwrite=True)
    assert (run.model / "model.safetensors").stat().st_mtime_ns > written


def test_batches_of_features_say_which_view_they_are(sets, quick, tmp_path):
    from manylabel.features import FeatureLoader
    from manylabel.recipes.loaders import cache_sets

    settings = Probe(**quick, head="linear", views=2)
    cached = cache_sets(probe.setup(settings, sets=sets), Reporter()).train
    seen = set()
    for batch in FeatureLoader(cached, batch_size=5, shuffle=True):
        assert isinstance(batch, FeatureBatch)
        (stage,) = cached.read(batch.indices.numpy(), batch.views.numpy())
        assert torch.equal(stage, batch.features[0])
        seen |= set(batch.views.tolist())
    assert seen == {0, 1}


def test_teachers_count_on_their_own_images_though_some_are_bad(brief, sets, tmp_path, monkeypatch):
    good = sets.train.images
    names = [good.name(index) for index in range(len(good))]
    load = lambda index: b"no image" if index == 1 else good[index]  # noqa: E731 (a line says it)
    train = replace(sets.train, images=LazyBytes(names, load=load), splits={}, name="one is bad")
    monkeypatch.setattr(loaders, "FeatureCache", partial(loaders.FeatureCache, max_bad_fraction=0.5))
    heard, real = [], recipe_module.TeacherMask
    monkeypatch.setattr(
        recipe_module, "TeacherMask", lambda *given, **named: (heard.append(given[1]), real(*given, **named))[1]
    )
    settings = SelfDistillation(**brief, out=tmp_path / "run", teacher_images="own")
    self_distillation(settings, sets=TrainAndVal(train, sets.val))
    values, _ = heard[0].dense()
    expected, _ = train.targets.dense([index for index in range(len(train)) if index != 1])
    assert (values == expected).all()
