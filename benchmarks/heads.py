"""Heads compared with naive implementations: python benchmarks/heads.py.

Both of a pair must give the same result before they are timed. Prints ratios of medians, interleaved in one process.
"""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manylabel.cost import median_seconds, peak_memory
from manylabel.heads import MLDecoder
from manylabel.heads.ml_decoder import GroupProjection

CHANNELS, SIDE = 2048, 7  # a ResNet's last map at 224 pixels


class LoopProjection(nn.Module):
    """A loop over groups that writes each group's logits into place."""

    def __init__(self, fast: GroupProjection) -> None:
        super().__init__()
        self.weight, self.bias, self.slots = fast.weight, fast.bias, fast.slots

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits of the groups' queries."""
        logits = hidden.new_zeros(hidden.shape[0], self.weight.shape[0], self.weight.shape[2])
        for group in range(self.weight.shape[0]):
            logits[:, group] = hidden[:, group] @ self.weight[group]
        return logits.flatten(1)[:, self.slots] + self.bias


class PlainMLDecoder(nn.Module):
    """ML-Decoder of torch's own attention, with queries that go through norm and projection for each image."""

    def __init__(self, fast: MLDecoder, project: nn.Module) -> None:
        super().__init__()
        self.fast, self.project = fast, project
        cross = fast.layers[0].cross_attention
        self.attention = nn.MultiheadAttention(fast.width, fast.num_heads, batch_first=True)
        with torch.no_grad():
            self.attention.in_proj_weight.copy_(torch.cat([cross.query.weight, cross.key.weight, cross.value.weight]))
            self.attention.out_proj.load_state_dict(cross.out.state_dict())

    def forward(self, features: list[Tensor]) -> Tensor:
        """Return logits of feature maps."""
        tokens = F.relu(self.fast.embed(features[-1].flatten(2).transpose(1, 2)))
        layer = self.fast.layers[0]
        hidden = self.fast.query_bank().expand(tokens.shape[0], -1, -1)
        hidden = layer.norm_query(hidden + hidden)
        hidden = layer.norm_attention(hidden + self.attention(hidden, tokens, tokens)[0])
        hidden = layer.norm_output(hidden + layer.feed_forward(hidden))
        return self.project(hidden)


def training_step(model: nn.Module, inputs: object) -> Callable[[], None]:
    """Return a call that goes forward and backward once."""

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(inputs).sum().backward()

    return step


def inference(model: nn.Module, inputs: object) -> Callable[[], None]:
    """Return a call that goes forward once, without gradients."""

    def call() -> None:
        with torch.inference_mode():
            model(inputs)

    return call


def compare(title: str, calls: dict[str, Callable[[], None]], *, rounds: int) -> None:
    """Print time and peak memory of each call, and how often the last goes into each."""
    seconds = median_seconds(calls, rounds=rounds, clock=time.process_time)
    fastest = seconds[list(calls)[-1]]
    print(f"\n{title}")
    for name, call in calls.items():
        memory = peak_memory(call) / 2**20
        print(f"  {name:44} {seconds[name] * 1e3:9.2f} ms  {seconds[name] / fastest:6.2f}x  {memory:8.1f} MiB")


def benchmark_projection() -> None:
    """Compare the group projection with a loop over groups."""
    fast = GroupProjection(9605, 200, 768)
    loop = LoopProjection(fast)
    hidden = torch.randn(8, 200, 768, requires_grad=True)
    torch.testing.assert_close(fast(hidden), loop(hidden), atol=1e-4, rtol=1e-4)
    calls = {"loop over groups": training_step(loop, hidden), "one batched product": training_step(fast, hidden)}
    compare("Group projection, N=9605, K=200, batch 8, forward + backward", calls, rounds=7)


def benchmark_inference(num_labels: int, batch: int) -> None:
    """Compare inference with torch's attention, which projects the queries for each image."""
    features = [torch.randn(batch, CHANNELS, SIDE, SIDE)]
    live = MLDecoder(CHANNELS, num_labels).eval()
    calls = {
        "torch attention, queries for each image": inference(PlainMLDecoder(live, live.projection).eval(), features),
        "ours": inference(live, features),
    }
    compare(f"ML-Decoder, a query per label, N={num_labels}, batch {batch}, inference", calls, rounds=15)


def benchmark_whole_head() -> None:
    """Compare a training step of the whole head with its plain form."""
    features = [torch.randn(8, CHANNELS, SIDE, SIDE)]
    fast = MLDecoder(CHANNELS, 9605, num_groups=200, dropout=0.0)
    plain = PlainMLDecoder(fast, LoopProjection(fast.projection))
    torch.testing.assert_close(fast(features), plain(features), atol=1e-4, rtol=1e-4)
    calls = {"torch attention, loop over groups": training_step(plain, features), "ours": training_step(fast, features)}
    compare("ML-Decoder, N=9605, K=200, batch 8, forward + backward", calls, rounds=3)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread; medians of processor time, ratio to the last line, peak memory")
    benchmark_projection()
    benchmark_inference(num_labels=80, batch=1)
    benchmark_inference(num_labels=80, batch=8)
    benchmark_inference(num_labels=1000, batch=1)
    benchmark_whole_head()
