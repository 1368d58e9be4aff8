"""What every head must do; a head's test file subclasses `HeadSuite` and lists its settings.

    class TestLinearClassifier(HeadSuite):
        cases = {
            "average": lambda: LinearClassifier(24, 7),
            "maximum": lambda: LinearClassifier(24, 7, pooling="max"),
        }

The maps that a head is given have `channels` channels, finest first, each twice as fine as the next.
Override `channels` and `num_labels` where a head wants other ones; `tells` is what its `repr` must also say, per case;
`copies` names buffers that hold the same values by design.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError


class HeadSuite:
    """The contract of a head: `head(features) -> logits [B, L]`, for any size, precision and way of running it."""

    cases: ClassVar[Mapping[str, Callable[[], nn.Module]]] = {}
    channels: ClassVar[Sequence[int]] = (24,)
    num_labels: ClassVar[int] = 7
    tells: ClassVar[Mapping[str, Sequence[str]]] = {}
    copies: ClassVar[Sequence[str]] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", list(self.cases))

    @pytest.fixture
    def head(self, case: str) -> nn.Module:
        torch.manual_seed(0)
        return self.cases[case]().eval()

    def features(self, batch: int = 2, height: int = 3, width: int = 4) -> list[Tensor]:
        """Return maps of an image batch, finest first, the last one `height` x `width`."""
        generator = torch.Generator().manual_seed(batch)
        scales = [2 ** (len(self.channels) - 1 - stage) for stage in range(len(self.channels))]
        return [
            torch.randn(batch, channels, height * scale, width * scale, generator=generator)
            for channels, scale in zip(self.channels, scales, strict=True)
        ]

    def test_gives_one_logit_per_image_and_label(self, head: nn.Module) -> None:
        assert head(self.features(batch=3)).shape == (3, self.num_labels)

    def test_takes_a_single_feature_map_like_a_list_of_one(self, head: nn.Module) -> None:
        if len(self.channels) > 1:
            with pytest.raises(ConfigError, match="takes a list of"):
                head(self.features()[-1])
            return
        [feature] = self.features(batch=3)
        assert torch.equal(head(feature), head([feature]))
        if hasattr(head, "attention"):
            assert torch.equal(head.attention(feature), head.attention([feature]))

    @pytest.mark.parametrize("shape", [(3, 24), (3, 12, 24), (24, 5, 3, 3), (24, 3, 3)])
    def test_a_tensor_that_is_no_map_is_a_clear_error(self, head: nn.Module, shape: tuple[int, ...]) -> None:
        earlier = self.features(batch=3)[:-1]
        with pytest.raises(ConfigError, match=r"feature map \[images, \d+, height, width\]"):
            head([*earlier, torch.zeros(shape)])
        with pytest.raises(ConfigError, match=r"feature map"):
            head([])

    def test_says_which_stages_it_wants(self, head: nn.Module) -> None:
        assert isinstance(head.stages, tuple)
        assert all(-len(self.channels) <= stage < len(self.channels) for stage in head.stages)

    @pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 5), (7, 7)])
    def test_takes_any_size(self, head: nn.Module, height: int, width: int) -> None:
        logits = head(self.features(height=height, width=width))
        assert logits.shape == (2, self.num_labels)
        assert logits.isfinite().all()

    def test_gradient_reaches_every_parameter_and_map(self, head: nn.Module) -> None:
        features = [feature.requires_grad_() for feature in self.features()]
        head.train()(features).square().sum().backward()
        without = [name for name, parameter in head.named_parameters() if not _has_gradient(parameter)]
        assert not without
        assert all(_has_gradient(features[stage]) for stage in head.stages)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
    def test_is_finite_in_half_precision(self, head: nn.Module, dtype: torch.dtype) -> None:
        exact = head(self.features())
        logits = head.to(dtype)([feature.to(dtype) for feature in self.features()])
        assert logits.dtype == dtype
        torch.testing.assert_close(logits.float(), exact, atol=0.1, rtol=0.1)

    def test_images_do_not_see_each_other(self, head: nn.Module) -> None:
        features = self.features(batch=3)
        alone = head([feature[1:2] for feature in features])
        torch.testing.assert_close(head(features)[1:2], alone, atol=1e-5, rtol=1e-5)

    def test_eval_is_deterministic(self, head: nn.Module) -> None:
        assert torch.equal(head(self.features()), head(self.features()))

    def test_does_not_change_its_input(self, head: nn.Module) -> None:
        features = self.features()
        before = copy.deepcopy(features)
        head.train()(features)
        assert all(torch.equal(old, new) for old, new in zip(before, features, strict=True))

    def test_no_seed_makes_two_tensors_alike(self, case: str) -> None:
        """With one stream for weights and queries, both were the same numbers."""
        for seed in range(21):
            torch.manual_seed(seed)
            head = self.cases[case]()
            drawn: dict[int, dict[str, Tensor]] = {}  # by their number of values
            for name, tensor in (*head.named_parameters(), *head.named_buffers()):
                values = tensor.detach().flatten()
                if name not in self.copies and values.numel() >= 32 and values.is_floating_point() and values.std() > 0:
                    drawn.setdefault(values.numel(), {})[name] = values
            for alike in drawn.values():
                correlations = torch.stack(list(alike.values())).corrcoef().reshape(len(alike), -1)
                assert correlations.fill_diagonal_(0).abs().max() < 0.9, (seed, list(alike))

    def test_state_dict_round_trip_is_exact(self, head: nn.Module, case: str) -> None:
        torch.manual_seed(1)
        other = self.cases[case]().eval()
        other.load_state_dict(head.state_dict(), strict=True)
        assert torch.equal(other(self.features()), head(self.features()))

    @pytest.mark.slow
    def test_exports_with_a_dynamic_batch(self, head: nn.Module) -> None:
        batch = torch.export.Dim("batch", min=1, max=64)
        program = torch.export.export(
            head, (self.features(batch=3),), dynamic_shapes=([{0: batch} for _ in self.channels],)
        )
        for size in (1, 5):
            features = self.features(batch=size)
            torch.testing.assert_close(program.module()(features), head(features), atol=1e-5, rtol=1e-5)

    @pytest.mark.slow
    def test_compiles_without_a_graph_break(self, head: nn.Module) -> None:
        torch.compiler.reset()
        compiled = torch.compile(head, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(self.features()), head(self.features()), atol=1e-5, rtol=1e-5)

    def test_repr_tells_the_settings(self, head: nn.Module, case: str) -> None:
        for text in (f"num_labels={self.num_labels}", *self.tells.get(case, ())):
            assert text in head.extra_repr()

    def test_attention_is_a_distribution_over_places(self, head: nn.Module) -> None:
        if not hasattr(head, "attention"):
            pytest.skip("this head has no attention to show")
        maps = head.attention(self.features(height=3, width=5))
        assert maps.shape == (2, self.num_labels, 3, 5)
        assert (maps >= 0).all()
        torch.testing.assert_close(maps.sum((2, 3)), torch.ones(2, self.num_labels))


def _has_gradient(tensor: Tensor) -> bool:
    return tensor.grad is not None and bool(tensor.grad.abs().sum() > 0)
