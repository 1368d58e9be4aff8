"""The report, as text and in a browser."""

import io
import json

import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from typer.testing import CliRunner

from manylabel import page
from manylabel.cli.main import app
from manylabel.data import load
from manylabel.errors import OutputExistsError
from manylabel.evaluation import evaluate, score
from manylabel.recipes import ZeroShot, choose_unseen
from manylabel.runs import Run, evaluate_run, heat_thumbnails, report_page
from manylabel.runs.report import _comparisons, _head_parts, draw_curves
from manylabel.training import RunFolder
from tiny_runs import make_model, make_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [make_run(root / name, head=name).path for name in ("linear", "csra")]


def report(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments), "--draws", "30"], catch_exceptions=False)


def test_the_numbers_are_those_of_an_evaluation(folders):
    evaluated = evaluate_run(Run.read(folders[0]), draws=0)
    expected = evaluate(score(evaluated.model, load("scenes:30").split("val")), draws=0)
    assert evaluated.evaluation.metrics["mAP"].value == pytest.approx(expected.metrics["mAP"].value)
    assert evaluated.evaluation.model == "linear"
    assert evaluated.cost.parameters == sum(each.numel() for each in evaluated.model.parameters())


def test_a_run_with_unseen_labels_is_evaluated_by_the_seen_ones(tmp_path):
    settings = ZeroShot(data="scenes:30", unseen="random:5", out=tmp_path / "run")
    run = RunFolder.open(settings.out)
    run.describe(settings, command="manylabel train --recipe zero_shot --unseen random:5")
    labels = load("scenes:30").labels
    seen = [name for name in labels if name not in choose_unseen(settings.unseen, labels)]
    run.save(make_model("linear", labels=seen))
    assert evaluate_run(Run.read(run.path), draws=0).scored.labels.names == tuple(seen)


@pytest.mark.parametrize("changed", ["model.safetensors", "config.json"])  # training changes one, tuning the other
def test_scores_are_kept_until_the_model_changes(changed, tmp_path, monkeypatch):
    import os

    from manylabel.runs import run

    folder = make_run(tmp_path / "run")
    calls = []
    monkeypatch.setattr(run, "score", lambda *given, **named: (calls.append(given), score(*given, **named))[1])
    first, second = (evaluate_run(Run.read(folder.path), draws=0) for _ in range(2))
    assert len(calls) == 1
    assert (first.scored.scores - second.scored.scores).abs().max() < 1e-6
    os.utime(folder.model / changed, (2**31, 2**31))
    evaluate_run(Run.read(folder.path), draws=0)
    assert len(calls) == 2


def test_kept_scores_are_evaluated_as_the_models_own(tmp_path):
    from manylabel.classifier import change_config

    folder = make_run(tmp_path / "run")
    change_config(folder.model, {"single_label": True})  # the data do not say so
    first, second = (evaluate_run(Run.read(folder.path), draws=0).evaluation for _ in range(2))
    assert first.single_label
    assert second.single_label
    assert second.metrics["OF1"] == first.metrics["OF1"]


def test_a_run_with_kept_scores_can_be_overwritten(tmp_path):
    folder = make_run(tmp_path / "run")
    evaluate_run(Run.read(folder.path), draws=0)
    assert (folder.path / "scores.npz").is_file()
    assert not RunFolder.open(folder.path, overwrite=True).is_finished


def test_the_page_of_two_runs_opens_from_disk_sorts_and_fits_a_phone(browser, tmp_path, folders):
    page = tmp_path / "report.html"
    result = report(*folders, "--out", page)
    assert result.stdout == f"Wrote {page}\n"
    assert page.stat().st_size < 3_000_000
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())
    assert browser.find_element(By.TAG_NAME, "h1").text == "2 runs"
    heads = [head.text for head in browser.find_elements(By.TAG_NAME, "h2")]
    assert heads[:4] == ["Metrics", "Labels", "Images", "Training"]  # of the comparison, then its own
    assert heads[-1] == "Settings and environment"
    table = next(
        each
        for each in browser.find_elements(By.TAG_NAME, "table")
        if each.text.startswith("Average precision of each label")
    )
    buttons = table.find_elements(By.CSS_SELECTOR, "th button")
    buttons[1].click()
    counts = [int(cell.text) for cell in table.find_elements(By.CSS_SELECTOR, "tbody td:nth-child(2)")]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == load("scenes:30").split("val").targets.positives.sum()
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert all(address.startswith(("file:", "data:")) for address in requests)
    assert browser.get_log("browser") == []
    browser.set_window_size(500, 900)  # the narrowest that Chromium makes
    size = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(f"return {size}") == 0


def test_a_report_of_one_run_shows_its_images_and_settings(folders):
    html = report_page([evaluate_run(Run.read(folders[0]), draws=30)]).html()
    assert "<h1>Run linear</h1>" in html
    assert "Highest loss" in html
    assert "test_resnet (frozen, randomly initialised)" in html
    assert "<td>backbone</td><td>test_resnet</td>" in html
    assert "<td>loss</td><td>asymmetric</td>" in html  # the settings say auto
    assert "Co-occurrence of labels" in html
    assert "of scenes" in html
    assert "<td>head_settings</td><td></td>" in html  # none, rather than {}
    assert "manylabel train DATA --head linear" in html


def test_a_run_that_cannot_be_evaluated_still_shows_its_curves(tmp_path, folders):
    unfinished = make_run(tmp_path / "unfinished", finished=False, epochs=2)
    result = report(folders[0], unfinished.path, "--out", tmp_path / "report.html")
    assert result.exit_code == 0
    assert "unfinished could not be evaluated: the run unfinished is not finished" in result.stderr
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "unfinished could not be evaluated" in html
    assert "Command and environment of unfinished" in html


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    for part in ("a", "b"):
        make_run(tmp_path / part / "run", finished=False)
    report(tmp_path / "a" / "run", tmp_path / "b" / "run", "--out", tmp_path / "report.html")
    assert f"Command and environment of {tmp_path / 'b' / 'run'}" in (tmp_path / "report.html").read_text("utf-8")


def test_runs_on_other_images_are_shown_with_a_warning(tmp_path, folders):
    other = make_run(tmp_path / "other", data="scenes:20")
    parts = list(_comparisons([evaluate_run(Run.read(folder), draws=0) for folder in (folders[0], other.path)]))
    assert any(part.startswith('<p class="note') and "different validation images" in part for part in parts)
    assert not any(part.startswith("<details>") for part in parts)


def test_the_best_run_is_compared_with_each_of_the_others(tmp_path, folders):
    third = make_run(tmp_path / "third")
    runs = [evaluate_run(Run.read(folder), draws=30) for folder in (*folders, third.path)]
    parts = list(_comparisons(runs))
    titles = [part.removeprefix("<details><summary>").split("<")[0] for part in parts if part.startswith("<details>")]
    best, *others = sorted(runs, key=lambda each: -each.evaluation.metrics["mAP"].value)
    assert titles == [f"{best.run.name} against {other.run.name}" for other in others]
    assert any("significantly higher mAP" in part for part in parts if part.startswith('<p class="note'))


def test_a_report_that_is_there_is_not_replaced(tmp_path, folders):
    (tmp_path / "report.html").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputExistsError):
        report(folders[0], "--out", tmp_path / "report.html")


def test_the_inside_of_a_head_is_shown(tmp_path):
    mixup = make_run(tmp_path / "mixup", head="rm")
    experts = make_run(tmp_path / "experts", head="hsq", head_settings={"width": 16})
    plain = make_run(tmp_path / "plain")
    shown = [list(_head_parts(evaluate_run(Run.read(run.path), draws=0))) for run in (mixup, experts, plain)]
    assert shown[0][0] == page.heading("Weight of earlier layers")
    assert [words in shown[0][2] for words in (">label<", ">alpha<")] == [True, True]
    assert shown[1][1] == page.note("None of the 17 experts is dead: each has weight for some label.", "good")
    assert shown[2] == []


def test_heat_maps_stand_beside_the_images(folders):
    evaluated = evaluate_run(Run.read(folders[1]), draws=0)
    worst = evaluated.evaluation.worst[0]
    drawn = heat_thumbnails(evaluated)(worst, "a scene")
    label = [*worst.false_negatives, *worst.false_positives, *worst.true_positives][0].label
    assert drawn.caption == f"a scene. Right: heat map of {label}"
    with Image.open(io.BytesIO(drawn.jpeg)) as both:
        assert both.width > 1.9 * both.height  # two square scenes


def test_ticks_of_a_log_scale_are_plain_numbers(tmp_path):
    rows = tuple({"epoch": float(n), "train_loss": 7.0 / n, "val_mAP": 0.5} for n in range(1, 51))
    (_, loss) = draw_curves([Run(tmp_path, "run", {}, rows, {}, "", True)])
    assert "mathdefault" not in loss
    assert ">0.5<" in loss
