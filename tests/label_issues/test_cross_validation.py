import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from manylabel.backbone import Backbone
from manylabel.data import scenes
from manylabel.data.readers.table import read_table
from manylabel.label_issues import (
    IssueReport,
    LabelIssue,
    cross_validate,
    find_label_issues,
    issues_page,
    write_issues,
)
from manylabel.label_issues.cross_validation import PENALTY, fit_head


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
def test_each_image_is_scored_by_the_model_that_has_not_seen_it():
    dataset, backbone = scenes(24), Backbone("offline:efficientnet_lite0", frozen=True)
    seen = []
    found = cross_validate(
        dataset, backbone, num_folds=3, num_workers=0, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (24, 24)
    assert np.bincount(found.folds).tolist() == [8, 8, 8]
    for index in (0, 7, 23):
        predicted = found.model_of(index).predict(dataset.images[index]).scores
        np.testing.assert_allclose(predicted[0], found.scored.scores[index], atol=5e-3)


@pytest.mark.slow
def test_the_page_shows_images_and_escapes_names():
    dataset = scenes(40)
    found = cross_validate(dataset, small_backbone(), num_folds=2, num_workers=0)
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
