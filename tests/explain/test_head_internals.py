"""What happens inside of heads: experts and alpha."""

import pytest
import torch

from manylabel.data import ImageLoader, eval_transform, scenes
from manylabel.errors import ConfigError
from manylabel.explain import ExpertLoad, draw_experts, expert_load, mixup_scale
from manylabel.types import LabelSpace
from tiny_runs import make_model


@pytest.fixture(scope="module")
def dataset():
    return scenes(12)


def maps(model, dataset):
    loader = ImageLoader(dataset, transform=eval_transform(model.input_spec), batch_size=1)
    return [model.backbone(batch.images) for batch in loader]


@pytest.mark.slow
def test_the_load_is_the_mean_of_the_gates_with_shared_experts_first(dataset):
    model = make_model("hsq", labels=dataset.labels, settings={"width": 16, "num_shared_experts": 3})
    load = expert_load(model, dataset)
    gates = torch.stack([model.head.gates(features)[0].detach() for features in maps(model, dataset)]).mean(0)
    expected = torch.cat([gates[:, 1:], gates[:, :1]], dim=1)
    assert torch.allclose(load.loads, expected, atol=1e-5)
    assert torch.allclose(load.loads.sum(1), torch.ones(len(dataset.labels)), atol=1e-5)
    assert (load.num_shared, load.num_images, load.dead) == (3, 12, ())
    assert load.summary() == "None of the 4 experts is dead: each has weight for some label."


def test_an_expert_that_one_label_needs_is_not_dead():
    loads = torch.tensor([[0.5, 0.0, 0.0, 0.5], [0.5, 0.4, 0.001, 0.099]])
    assert ExpertLoad(LabelSpace(["cat", "dog"]), loads, 3, 1).dead == (2,)
    assert "expert 3 has no weight for any label" in ExpertLoad(LabelSpace(["cat", "dog"]), loads, 3, 1).summary()


def test_the_drawing_has_a_row_for_each_label_and_one_for_the_average():
    load = ExpertLoad(LabelSpace(["$cat$", "dog"]), torch.tensor([[0.9, 0.1], [0.5, 0.5]]), 1, 8)
    axes = draw_experts(load).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["$cat$", "dog", "average"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "own"]
    assert axes.images[0].get_array()[2].tolist() == pytest.approx([0.7, 0.3])


def test_experts_of_another_head_are_refused(dataset):
    with pytest.raises(ConfigError, match="LinearClassifier has no experts"):
        expert_load(make_model("linear", labels=dataset.labels), dataset)


@pytest.mark.slow
def test_alpha_is_the_mean_over_the_images_of_a_label(dataset):
    model = make_model("rm", labels=dataset.labels)
    alphas = torch.cat([model.head.alpha(features)[:, 0].detach() for features in maps(model, dataset)]).double()
    targets = torch.from_numpy(dataset.targets.dense()[0]).bool()
    scale = mixup_scale(model, dataset)
    expected = {
        label: alphas[targets[:, column]].mean().item()
        for column, label in enumerate(dataset.labels)
        if targets[:, column].any()
    }
    assert dict(scale.by_label) == pytest.approx(expected, rel=1e-4)
    values = [value for _, value in scale.by_label]
    assert values == sorted(values, reverse=True)
    assert dict(scale.by_image) == pytest.approx(
        {dataset.images.name(index): alphas[index].item() for index in range(12)}, rel=1e-4
    )
    assert scale.summary().startswith("The earlier layers have a weight of up to")


def test_alpha_that_is_practically_zero_is_said_so(dataset):
    model = make_model("rm", labels=dataset.labels)
    torch.nn.init.zeros_(model.head.scale.weight)
    torch.nn.init.constant_(model.head.scale.bias, -20.0)
    assert mixup_scale(model, dataset).summary().startswith("Alpha is practically zero (at most 2.1e-09)")


def test_alpha_of_another_head_is_refused(dataset):
    with pytest.raises(ConfigError, match="does not mix earlier layers"):
        mixup_scale(make_model("linear", labels=dataset.labels), dataset)
