"""The recipe zero_shot, from settings to a model that answers for new labels, with a stand-in encoder."""

import json

import numpy as np
import pytest
import torch

from manylabel.classifier import Classifier
from manylabel.errors import ConfigError
from manylabel.recipes import TrainAndVal, ZeroShot, zero_shot
from manylabel.recipes.plan import plan
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.unseen import EVERYDAY
from manylabel.schema import read_settings

IMAGE = np.full((64, 64, 3), 100, dtype=np.uint8)
SMALL = {"width": 16, "num_heads": 2, "feedforward": 16}


@pytest.fixture
def text(quick, sets, tmp_path):
    """Quick settings with an encoder that knows the labels of the scenes, everyday things and a tram."""
    names = list(dict.fromkeys([*sets.train.labels, *EVERYDAY, "tram"]))
    vectors = np.random.default_rng(0).normal(size=(len(names), 8))
    np.savez(tmp_path / "vectors.npz", labels=names, vectors=vectors)
    return quick | {"encoder": f"npz:{tmp_path / 'vectors.npz'}", "out": tmp_path / "run"}


HEADS = {
    "full": {"head_settings": SMALL},
    "groups": {"head_settings": SMALL | {"num_groups": 4}},
    "text_map": {"head": "text_map"},
    "conse": {"head": "conse"},
}


@pytest.mark.parametrize("case", HEADS)
@pytest.mark.slow
def test_trains_judges_and_answers_for_new_labels(case, text, sets):
    run = zero_shot(ZeroShot(**text, **HEADS[case], unseen="random:6"), sets=sets)
    model = Classifier.from_pretrained(run.model)
    found = json.loads((run.path / "zero_shot.json").read_text())
    assert len(found["unseen"]) == 6
    assert set(found["unseen"]).isdisjoint(model.labels)
    assert tuple(found["seen"]) == model.labels.names == model.text.trained
    assert 0 < found["zsl"]["mAP"]["value"] < 1
    assert len(model.text.centre) == 8
    torch.testing.assert_close(model.head.text_vectors.norm(dim=1), torch.full((18,), 8**0.5), atol=1e-4, rtol=1e-4)
    assert found["bias"] == model.text.new_label_bias != 0
    mixed = model.predict(IMAGE, labels=["tram", found["unseen"][0], model.labels[0]])
    assert mixed.scores.shape == (1, 3)


@pytest.mark.slow
def test_unseen_labels_that_no_image_to_judge_by_has_do_not_cost_the_model(text, sets):
    rare = sets.train.labels[0]
    without = sets.val.subset(sets.val.select_labels([rare]).targets.dense()[0][:, 0] == 0)
    said = []
    reporter = Reporter()
    reporter.say = said.append
    run = zero_shot(
        ZeroShot(**text, head_settings=SMALL, unseen=rare), sets=TrainAndVal(sets.train, without), reporter=reporter
    )
    assert rare not in Classifier.from_pretrained(run.model).labels
    assert not (run.path / "zero_shot.json").exists()
    assert f"no image has one of the 1 labels to evaluate, such as {rare}" in "".join(said)


@pytest.mark.slow
def test_all_labels_can_be_seen_and_the_bias_comes_from_everyday_things(text, sets):
    run = zero_shot(ZeroShot(**text, head_settings=SMALL), sets=sets)
    model = Classifier.from_pretrained(run.model)
    assert model.labels.names == sets.train.labels.names
    assert model.text.new_label_bias != 0
    assert not (run.path / "zero_shot.json").exists()


@pytest.mark.slow
def test_the_augmentation_changes_training_and_leaves_nothing_in_the_model(text, sets, tmp_path):
    heads = []
    for number, changes in enumerate([{}, {"random_queries": 10, "query_noise": 0.1}]):
        settings = ZeroShot(**text | {"out": tmp_path / str(number), "epochs": 1}, head_settings=SMALL, **changes)
        heads.append(Classifier.from_pretrained(zero_shot(settings, sets=sets).model).head.state_dict())
    assert heads[0].keys() == heads[1].keys()
    assert not torch.equal(heads[0]["embed.weight"], heads[1]["embed.weight"])


@pytest.mark.slow
def test_flags_plan_and_mistakes(text, sets):
    flags = {"data": "x", "unseen": "random:3", "head.num_groups": "5", "query_noise": "0.2", "encoder": "npz:x"}
    settings = read_settings(ZeroShot, flags)
    assert (settings.head_settings, settings.query_noise) == ({"num_groups": 5}, 0.2)
    planned = plan(zero_shot.setup(ZeroShot(**text, head_settings=SMALL, unseen="random:3"), sets=sets))
    assert len(planned.setup.sets.train.labels) == 21
    with pytest.raises(ConfigError, match="does not support single_label=True; remove the setting"):
        ZeroShot(data="scenes:30", single_label=True)
    with pytest.raises(ConfigError, match="conse"):
        ZeroShot(data="scenes:30", head="linear")
    with pytest.raises(ConfigError, match=r"needs \{label\}"):
        zero_shot.setup(ZeroShot(**text, templates="a photo"), sets=sets)
