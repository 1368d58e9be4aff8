import pytest
import torch

from manylabel import system
from manylabel.errors import ConfigError
from manylabel.system import device_name


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(system.shutil, "which", lambda _: None)
    monkeypatch.setattr(system.sys, "platform", "linux")
    monkeypatch.setattr(system, "GPU_FILES", ("/no/such/device",))


def test_where_there_can_be_no_gpu_torch_is_not_asked(without_gpu, monkeypatch):
    monkeypatch.setattr(system, "find_device", None)
    assert device_name("auto") == device_name("cpu") == "cpu"


def test_where_there_may_be_a_gpu_torch_decides(without_gpu, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(system, "find_device", lambda name: asked.append(name) or torch.device("cuda", 0))
    monkeypatch.setattr(system, "GPU_FILES", (str(tmp_path),))
    assert device_name("auto") == "cuda:0"
    monkeypatch.setattr(system.sys, "platform", "darwin")
    monkeypatch.setattr(system.platform, "machine", lambda: "x86_64")
    assert device_name("auto") == "cpu"
    monkeypatch.setattr(system.platform, "machine", lambda: "arm64")
    device_name("auto")
    assert asked == ["auto", "auto"]


def test_a_device_that_is_named_is_checked(without_gpu):
    with pytest.raises(ConfigError, match="there is no device 'gpu'"):
        device_name("gpu")
