import numpy as np
import torch

from manylabel.cost import peak_memory


def test_counts_what_is_held_at_once_not_what_is_made() -> None:
    def one_after_the_other() -> None:
        for _ in range(10):
            torch.ones(100)

    def all_at_once() -> list[torch.Tensor]:
        return [torch.ones(100) for _ in range(10)]

    assert peak_memory(one_after_the_other) <= 2 * 400
    assert peak_memory(all_at_once) == 10 * 400


def test_what_was_there_before_and_its_views_cost_nothing() -> None:
    weight = torch.zeros(50, 20)
    assert peak_memory(lambda: weight.t()[:5].reshape(5, 50)) == 0
    assert peak_memory(lambda: weight.add_(1)) == 0


def test_counts_what_autograd_saves_for_backward() -> None:
    inputs = torch.zeros(1000, requires_grad=True)

    def five_times() -> torch.Tensor:
        outputs = inputs
        for _ in range(5):
            outputs = outputs.exp()
        return outputs.sum()

    with torch.no_grad():
        without = peak_memory(five_times)
    assert without <= 2 * 4000 + 4
    assert peak_memory(five_times) >= 5 * 4000
    assert peak_memory(lambda: five_times().backward()) >= 6 * 4000


def test_counts_a_new_tensor_at_the_address_of_one_that_was_there_before() -> None:
    def forget_arrays_then_make_tensors() -> list[torch.Tensor]:
        for _ in range(20):
            torch.from_numpy(np.ones(100, dtype=np.float32)).add_(1)
        return [torch.ones(100) for _ in range(10)]

    assert peak_memory(forget_arrays_then_make_tensors) == 10 * 400
