"""Hybrid Sharing Layer compared with the loops of Algorithm 1: python benchmarks/hybrid_sharing.py.

Forward and backward at 80 labels, 512 -> 64 channels, 16 shared experts and one per label, batch 8. All must give the
same result first. Prints ratios of medians, interleaved in one process, and peak memory.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from manylabel.cost import median_seconds, peak_memory
from manylabel.heads.hsq import HybridSharingLayer

LABELS, IN_WIDTH, OUT_WIDTH, SHARED, BATCH = 80, 512, 64, 16, 8
ROUNDS = 7


def algorithm_1(layer: HybridSharingLayer, shared: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Algorithm 1 of the paper, with one expert per label and no biases."""
    label_experts, gates = layer.label_experts.weight, layer.label_gate.weight
    shared_experts = layer.shared_experts.weight.unflatten(0, (SHARED, OUT_WIDTH)).transpose(1, 2)
    of_shared: list[Tensor] = []
    of_label: list[list[Tensor]] = [[] for _ in range(LABELS)]
    for i in range(LABELS):
        of_shared.append(shared @ label_experts[i])
        of_label[i].append(labels[:, i] @ label_experts[i])
    for j in range(SHARED):
        of_shared.append(shared @ shared_experts[j])
        for i in range(LABELS):
            of_label[i].append(labels[:, i] @ shared_experts[j])
    weights = layer.shared_gate(shared).softmax(-1)
    shared_output = (weights.unsqueeze(-1) * torch.stack(of_shared, 2).relu()).sum(2)
    label_outputs = []
    for i in range(LABELS):
        weights = (labels[:, i] @ gates[i]).softmax(-1)
        label_outputs.append((weights.unsqueeze(-1) * torch.stack(of_label[i], 1).relu()).sum(1))
    return shared_output, torch.stack(label_outputs, 1)


def main() -> None:
    """Check, time and print."""
    torch.manual_seed(0)
    settings = {"num_shared_experts": SHARED, "bias": False}
    whole = HybridSharingLayer(LABELS, IN_WIDTH, OUT_WIDTH, **settings, shared_output=True)
    lean = HybridSharingLayer(LABELS, IN_WIDTH, OUT_WIDTH, **settings)
    lean.load_state_dict({key: value for key, value in whole.state_dict().items() if "shared_gate" not in key})
    shared, labels = torch.randn(2, BATCH, LABELS, IN_WIDTH).unbind()
    for ours, theirs in zip(whole(shared, labels), algorithm_1(whole, shared, labels), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lean(None, labels)[1], whole(shared, labels)[1])

    def step(forward: Callable[[], tuple[Tensor | None, Tensor]]) -> Callable[[], None]:
        def run() -> None:
            for layer in (whole, lean):
                layer.zero_grad(set_to_none=True)
            torch.stack([output.sum() for output in forward() if output is not None]).sum().backward()

        return run

    calls = {
        "Algorithm 1 with its loops": step(lambda: algorithm_1(whole, shared, labels)),
        "our layer, both outputs": step(lambda: whole(shared, labels)),
        "our layer as the head uses it": step(lambda: lean(None, labels)),
    }
    seconds = median_seconds(calls, rounds=ROUNDS)
    slowest = seconds["Algorithm 1 with its loops"]
    print(f"{'forward + backward':32} {'ms':>9} {'faster':>8} {'peak MiB':>9}")
    for name, call in calls.items():
        memory = peak_memory(call) / 2**20
        print(f"{name:32} {seconds[name] * 1e3:9.1f} {slowest / seconds[name]:7.1f}x {memory:9.1f}")


if __name__ == "__main__":
    main()
