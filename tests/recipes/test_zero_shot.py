"""The recipe zero_shot, from settings to a model that answers for new labels, with a stand-in encoder."""

import json

import numpy as np
import pytest
import torch

from manylabel.backbone import Backbone, load_classes
from manylabel.classifier import Classifier
from manylabel.data import scenes
from manylabel.errors import ConfigError
from manylabel.features import FeatureCache
from manylabel.heads import MLDecoder, TextMap
from manylabel.heads.typed_labels import BIAS, SCALE
from manylabel.losses import BinaryCrossEntropy
from manylabel.recipes import TrainAndVal, ZeroShot, zero_shot
from manylabel.recipes.plan import plan
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.unseen import EVERYDAY
from manylabel.recipes.zero_shot import AugmentedQueries, PseudoLabels, ZeroShotTask
from manylabel.schema import read_settings
from manylabel.settings import LoopSettings
from manylabel.text import TextVocabulary
from manylabel.training import ClassificationTask
from manylabel.types import FeatureBatch, InputSpec

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


VECTORS = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def make_head(num_groups=None):
    torch.manual_seed(0)
    text = {"queries": "text", "shared_projection": True, "text_vectors": VECTORS}
    return MLDecoder(8, 5, num_groups=num_groups, width=16, num_heads=2, feedforward=16, dropout=0.0, **text)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    targets = (torch.rand(4, 5, generator=generator) < 0.5).float()
    return FeatureBatch(
        (torch.randn(4, 8, 2, 2, generator=generator),), targets, torch.ones(4, 5).bool(), torch.arange(4)
    )


def test_switched_off_it_is_plain_training(batch):
    head, loss = make_head(), BinaryCrossEntropy()
    augmented = ZeroShotTask(AugmentedQueries(head), loss, settings=LoopSettings())
    plain = ClassificationTask(head, loss, settings=LoopSettings())
    torch.testing.assert_close(augmented.objective(batch), plain.objective(batch))
    assert len(list(augmented.model.parameters())) == len(list(head.parameters()))


@pytest.mark.parametrize("num_groups", [None, 2])
def test_random_queries_have_a_target_of_their_own(batch, num_groups):
    model = AugmentedQueries(make_head(num_groups), num_random=3)
    task = ZeroShotTask(model, BinaryCrossEntropy(reduction="sum"), settings=LoopSettings())
    torch.manual_seed(7)
    logits, random = model.augmented(batch.features)
    queries = num_groups or 5
    assert random.shape == (4, queries + 3)
    targets = torch.tensor([0.0] * queries + [1.0] * 3).expand(4, -1)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    expected = entropy(logits, batch.targets, reduction="sum") + entropy(random, targets, reduction="sum")
    torch.manual_seed(7)
    torch.testing.assert_close(task.objective(batch), expected)


def test_random_queries_do_not_change_the_labels_answers(batch):
    head = make_head()
    with_random, _ = AugmentedQueries(head, num_random=3).augmented(batch.features)
    torch.testing.assert_close(with_random, head(batch.features), atol=1e-5, rtol=1e-5)


def test_noise_changes_training_and_not_the_vectors(batch):
    head = make_head()
    model = AugmentedQueries(head, noise=0.5)
    first, second = (model.augmented(batch.features)[0] for _ in range(2))
    assert not torch.allclose(first, second)
    assert torch.equal(head.text_vectors, VECTORS)
    torch.testing.assert_close(model(batch.features), head(batch.features))


def test_gradients_reach_every_parameter(batch):
    task = ZeroShotTask(
        AugmentedQueries(make_head(2), num_random=2, noise=0.1), BinaryCrossEntropy(), settings=LoopSettings()
    )
    task.objective(batch).backward()
    assert all(parameter.grad is not None for parameter in task.parameters())


def test_rejects_heads_without_text():
    with pytest.raises(ConfigError, match="needs text queries"):
        AugmentedQueries(MLDecoder(8, 5, width=16)).augmented([torch.zeros(1, 8, 2, 2)])


@pytest.mark.parametrize("num_groups", [None, 5])
def test_a_head_scores_more_labels_in_training_as_a_head_made_for_them(batch, num_groups):
    head, more = make_head(num_groups).eval(), torch.randn(9, 6)
    logits, _ = head.decode(batch.features, more)
    torch.testing.assert_close(logits, head.with_text(more)(batch.features))
    assert head(batch.features).shape == (4, 5)


def test_groups_divide_more_labels_evenly(batch):
    projection = make_head(2).projection.resized(7)
    assert projection.num_groups == 3
    assert sorted(projection.slots.tolist()) == sorted(set(projection.slots.tolist()))
    assert make_head(2).decode(batch.features, torch.randn(7, 6))[0].shape == (4, 7)


@pytest.mark.parametrize("head", [make_head(), make_head(2), TextMap(8, 5, text_vectors=VECTORS)])
def test_pseudo_labels_add_their_soft_targets_to_the_loss(batch, head):
    probabilities = torch.rand(4, 2, 3).softmax(2)
    members = torch.tensor([[1.0, 0, 0], [0, 1, 1]])
    pseudo = PseudoLabels(torch.randn(2, 6), members, probabilities.half())
    torch.manual_seed(3)
    vectors, targets = pseudo.sample(batch.indices, 2)
    for row in range(4):
        for column, vector in enumerate(vectors):
            name = int((pseudo.vectors == vector).all(1).nonzero())
            both = [
                sum(float(probabilities[row, kind, each]) * members[name, each] for each in range(3)) for kind in (0, 1)
            ]
            expected = torch.sigmoid(SCALE * (torch.log(both[0]) + torch.log(both[1])) / 2 + BIAS)
            assert float(targets[row, column]) == pytest.approx(float(expected), abs=1e-3)
    task = ZeroShotTask(AugmentedQueries(head.eval()), BinaryCrossEntropy(reduction="sum"), settings=LoopSettings())
    plain = task.objective(batch)
    task.pseudo, task.num_pseudo = pseudo, 2
    torch.manual_seed(3)
    found = task.objective(batch)
    logits, _ = head.decode(batch.features, torch.cat([VECTORS, vectors]))
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    expected = entropy(logits, torch.cat([batch.targets, targets], 1), reduction="sum")
    torch.testing.assert_close(found, expected)
    assert found > plain


@pytest.mark.slow
def test_pseudo_labels_of_a_backbone_are_its_own_probabilities(tmp_path):
    backbone = Backbone("offline:efficientnet_lite0", frozen=True, stages=(-1,))
    cache = FeatureCache(backbone, input_spec=InputSpec(size=(64, 64)), root=tmp_path / "cache", num_workers=0)
    cached = cache.fill(cache.plan(scenes(3)))
    np.savez(tmp_path / "vectors.npz", labels=["tabby", "cat", "tench"], vectors=np.eye(3))
    text = TextVocabulary(f"npz:{tmp_path / 'vectors.npz'}", ("{label}",), trained=())
    pseudo = PseudoLabels.of_backbone(backbone, text, cached, size=(64, 64))
    pooled, local = load_classes(backbone.name)(cached.read([0, 1, 2])[0])
    expected = torch.stack([pooled.softmax(1), local.softmax(1).amax((2, 3))], 1)
    torch.testing.assert_close(pseudo.probabilities.float(), expected, atol=1e-3, rtol=1e-2)
    counts = sorted(pseudo.members.sum(1).tolist())
    assert counts[:2] == [1, 1]  # tabby and tench
    assert 2 < counts[2] < 120  # cat
    changed = Backbone("offline:everyday", frozen=True, stages=(-1,))
    with pytest.raises(ConfigError, match="as it was pretrained, got offline:everyday"):
        PseudoLabels.of_backbone(changed, text, cached, size=(64, 64))
