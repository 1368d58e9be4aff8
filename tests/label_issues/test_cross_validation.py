import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier
from manylabel.data import load, scenes, stratified_folds, write_scenes
from manylabel.data.readers.table import read_table
from manylabel.heads import CSRA, LinearClassifier, MLDecoder
from manylabel.label_issues import (
    IssueReport,
    LabelIssue,
    cross_validate,
    find_label_issues,
    issues_page,
    write_issues,
)
from manylabel.label_issues.cross_validation import PENALTY, fit_head
from manylabel.losses import EntropyMaximization
from manylabel.recipes import Probe, Reporter, TrainAndVal, probe
from manylabel.recipes.setup import build_loss, resolve


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))


def small_backbone():
    torch.manual_seed(0)
    return Backbone("test_resnet", pretrained=False, frozen=True, image_size=32)


def test_the_fit_is_logistic_regression():
    generator = torch.Generator().manual_seed(0)
    features = 3 + 2 * torch.randn(200, 6, generator=generator)
    targets = (features[:, :2] + torch.randn(200, 2, generator=generator) > 3).float()
    known = torch.ones(200, 2, dtype=torch.bool)
    known[:50, 1] = False
    head = fit_head(features, targets, known)
    inputs = ((features - features.mean(0)) / features.std(0) / 6**0.5).numpy()
    for label in range(2):
        rows = known[:, label].numpy()
        reference = LogisticRegression(C=1 / PENALTY, tol=1e-8, max_iter=1000)
        reference.fit(inputs[rows], targets[rows, label].numpy())
        expected = torch.from_numpy(reference.decision_function(inputs)).float()
        torch.testing.assert_close(head.linear(features)[:, label], expected, atol=0.05, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("head", [MLDecoder, CSRA, LinearClassifier])
def test_each_image_is_scored_by_the_model_that_has_not_seen_it(head):
    dataset, backbone = scenes(24), Backbone("offline:efficientnet_lite0", frozen=True)
    found = cross_validate(dataset, backbone, head=head, num_folds=3, num_workers=0)
    assert np.bincount(found.folds).tolist() == [8, 8, 8]
    assert {type(model.head) for model in found.models} == {head}
    for index in (0, 7, 23):
        predicted = found.model_of(index).predict(dataset.images[index]).scores
        np.testing.assert_allclose(predicted[0], found.scored.scores[index], atol=5e-3)


@pytest.mark.slow
def test_the_default_head_trains_as_in_manylabel_train_but_for_half_the_epochs(tmp_path):
    dataset = scenes(30)
    found = cross_validate(dataset, small_backbone(), num_folds=2, num_workers=0)
    train, test = stratified_folds(dataset.targets, num_folds=2)[0]
    run = probe(
        Probe(data="scenes", out=tmp_path / "run", views=1, epochs=50, tune=False, workers=0),
        sets=TrainAndVal(dataset.subset(train), dataset.subset(test)),
        backbone=small_backbone(),
        reporter=Reporter(),
    )
    expected = Classifier.from_pretrained(run.model).predict(dataset.subset(test)).scores
    np.testing.assert_allclose(found.scored.scores[test], expected, atol=2e-3)


@pytest.mark.parametrize(
    ("batch_size", "epochs"),
    [(1, 2), (2, 3), (10, 10)],  # 2 epochs have 100 steps; half of 6 epochs; half of 20 epochs, which have 100 steps
)
def test_a_fold_trains_for_two_epochs_if_they_are_enough_and_for_half_otherwise(monkeypatch, batch_size, epochs):
    def small_batches(settings, parts):
        return replace(resolve(settings, parts), batch_size=batch_size)

    monkeypatch.setattr("manylabel.label_issues.cross_validation.resolve", small_batches)
    dataset, totals = scenes(100), []

    def watch(done, total, *, doing):
        totals.append(total)

    cross_validate(dataset, small_backbone(), head=CSRA, num_folds=2, num_workers=0, progress=watch)
    assert totals[-1] == 2 * epochs * -(-50 // batch_size)


def test_progress_counts_the_features_and_then_the_steps_of_all_folds():
    seen = {}

    def watch(done, total, *, doing):
        seen.setdefault(doing, []).append((done, total))

    cross_validate(scenes(20), small_backbone(), head=CSRA, num_folds=2, num_workers=0, progress=watch)
    assert seen["computing features"][-1] == (20, 20)
    assert seen["training"] == [(step + 1, 100) for step in range(100)]


def test_nothing_of_the_training_remains(tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    cross_validate(scenes(20), small_backbone(), head=CSRA, num_folds=2, num_workers=0)
    assert not list((tmp_path / "temporary").iterdir())
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_training_and_leaves_nothing(tmp_path, number):
    (tmp_path / "temporary").mkdir()
    code = (
        "import signal, sys\n"
        "from manylabel import Backbone, data, label_issues\n"
        "def stop(done, total, *, doing):\n"
        f"    if doing == 'training' and done == 3: signal.raise_signal({int(number)})\n"
        "backbone = Backbone('test_resnet', pretrained=False, frozen=True, image_size=32)\n"
        "label_issues.cross_validate(data.scenes(20), backbone, num_folds=2, num_workers=0, progress=stop)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    stopped = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, env=environment)
    assert stopped.returncode == -number, stopped.stderr.decode()
    assert not list((tmp_path / "temporary").iterdir())


def test_unknown_labels_and_unreadable_images_are_left_out(tmp_path):
    folder = write_scenes(tmp_path / "scenes", 40, unknown=0.3).parent
    sorted((folder / "images").iterdir())[5].write_bytes(b"no image")
    dataset = load(folder / "labels.csv")
    found = cross_validate(dataset, small_backbone(), head=CSRA, num_folds=2, num_workers=0)
    assert [image.index for image in found.scored.bad] == np.flatnonzero(found.folds < 0).tolist() == [5]
    _, known = dataset.targets.dense()
    assert torch.equal(found.scored.known, torch.from_numpy(np.delete(known, 5, axis=0)))


def test_incomplete_tags_train_with_the_loss_for_incomplete_tags(monkeypatch):
    built = []

    def watched(*arguments, **options):
        built.append(build_loss(*arguments, **options))
        return built[-1]

    monkeypatch.setattr("manylabel.label_issues.cross_validation.build_loss", watched)
    dataset = replace(scenes(20), incomplete=True)
    found = cross_validate(dataset, small_backbone(), head=CSRA, num_folds=2, num_workers=0)
    assert [type(loss) for loss in built] == [EntropyMaximization] * 2
    assert found.scored.known.all()  # a tag that is not listed can be missing
    blank = replace(scenes(20), targets=scenes(20).targets.forget_absent())
    cross_validate(blank, small_backbone(), head=CSRA, num_folds=2, num_workers=0)
    assert [type(loss) for loss in built] == [EntropyMaximization] * 4


@pytest.mark.slow
@pytest.mark.parametrize("head", [MLDecoder, LinearClassifier])
def test_the_page_shows_images_and_escapes_names(head):
    dataset = scenes(40)
    found = cross_validate(dataset, small_backbone(), head=head, num_folds=2, num_workers=0)
    report = find_label_issues(found.scored, min_positives=2)
    assert report.issues
    page = issues_page(report, dataset, found)
    assert page.title == "Labels of scenes"
    assert page.html().count("<img") == min(len(report.issues), 100)
    assert f"1. {'wrong' if report.issues[0].given == 'present' else 'missing'}?" in page.html()


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_odd_names_of_images_can_be_written(tmp_path, ending):
    issue = LabelIssue("caf\udce9.jpg", "cat", "present", "absent", score=0.75, index=0)
    report = IssueReport("pets", 1, 1, (issue,), wrong_fraction=1.0, missing_fraction=0.0)
    table = read_table(write_issues(report, tmp_path / f"issues.{ending}"))
    assert table["image"].to_list() == [r"caf\udce9.jpg"]
