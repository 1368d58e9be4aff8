"""Tasks on a real Ray: results as they come, failures by item, and an orderly stop."""

import time

import pytest

from manylabel.errors import ClusterError
from manylabel.on_ray import run_on_ray

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # on a busy machine Ray needs more than one attempt to start
    pytest.mark.filterwarnings("default"),  # Ray warns of its own code
]


def test_items_come_with_their_results_and_one_that_dies_with_its_error(local_ray):
    def work(number):
        import os

        if number == 2:
            os._exit(1)
        return 10 * number

    found = dict(run_on_ray(work, range(4)))
    assert isinstance(found.pop(2), ClusterError)
    assert found == {0: 0, 1: 10, 3: 30}


def test_a_stop_lets_tasks_save(local_ray, tmp_path):
    def work(number):
        try:
            (tmp_path / f"started-{number}").touch()  # the stop may follow at once
            for _ in range(600):
                time.sleep(0.1)
        except KeyboardInterrupt:
            (tmp_path / f"saved-{number}").touch()
            raise

    begun = time.monotonic()
    assert list(run_on_ray(work, [0], is_stopped=(tmp_path / "started-0").exists)) == []
    assert (tmp_path / "saved-0").exists()
    assert time.monotonic() - begun < 50
