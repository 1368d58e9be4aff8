"""Cost against accuracy: the script beside a folder of runs."""

import sys

import pytest
from benchmarks.tradeoff import draw_tradeoff, main, measure_tradeoff

from manylabel.cost import count_macs
from manylabel.data import load
from manylabel.runs import Run, find_runs
from tiny_runs import SPEC, make_model, make_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "linear", epochs=2)
    make_run(root / "csra", head="csra", epochs=4)
    make_run(root / "unfinished", finished=False)
    return root


def test_macs_stand_beside_what_was_reached(root):
    import torch

    from manylabel.classifier import Classifier

    runs = [Run.read(root / name) for name in ("linear", "csra", "unfinished")]
    points = measure_tradeoff(runs)
    assert [(point.run, point.head, point.mean_average_precision) for point in points] == [
        ("linear", "linear", 0.2),
        ("csra", "csra", 0.4),
    ]
    macs = count_macs(Classifier.from_pretrained(root / "linear" / "model"), torch.zeros(1, 3, 64, 64))
    assert points[0].cost == pytest.approx(macs / 1e9)
    [axes] = draw_tradeoff(points).axes
    assert sorted(text.get_text() for text in axes.texts) == ["csra", "linear"]


def test_a_run_that_cannot_be_loaded_is_left_out_and_the_head_is_that_of_the_model(root, tmp_path, caplog):
    make_run(tmp_path / "broken")
    (tmp_path / "broken/model/config.json").write_text("{}")
    make_run(tmp_path / "started", head="ml_decoder").save(make_model("linear", labels=load(SPEC).labels))
    points = measure_tradeoff(find_runs(tmp_path))
    assert [(point.run, point.head) for point in points] == [("started", "linear")]
    assert "broken is left out" in caplog.text


def test_time_is_measured_where_asked_for(root):
    points = measure_tradeoff([Run.read(root / "linear")], against="time", rounds=1)
    assert points[0].cost > 0


def test_the_script_prints_and_draws(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tradeoff", str(root), "--out", str(tmp_path / "a.png")])
    main()
    printed = capsys.readouterr().out
    assert "csra" in printed
    assert printed.endswith(f"Wrote {tmp_path / 'a.png'}\n")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
