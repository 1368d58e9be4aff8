"""Each `__init__.py` is a table of contents: its names exist, and what it imports is offered."""

import importlib
import os
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import manylabel

PACKAGES = ["manylabel"] + [
    module.name for module in pkgutil.walk_packages(manylabel.__path__, "manylabel.") if module.ispkg
]
MODULES = [
    module.name for module in pkgutil.walk_packages(manylabel.__path__, "manylabel.") if "__main__" not in module.name
]


@pytest.mark.parametrize("name", [name for name in MODULES if name not in PACKAGES])
def test_every_module_says_what_it_offers(name):
    module = importlib.import_module(name)
    assert all(hasattr(module, public) for public in module.__all__)
    assert module.__doc__


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_offers_just_what_it_imports(name):
    package = importlib.import_module(name)
    offered = set(getattr(package, "__all__", []))
    imported = {
        public
        for public, value in vars(package).items()
        if not public.startswith("_")
        and not isinstance(value, ModuleType)
        and public not in {"TYPE_CHECKING", "import_module"}
    }
    assert imported <= offered
    assert all(hasattr(package, public) for public in offered)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = manylabel.no_such_name


@pytest.mark.slow
def test_every_public_name_is_there_after_import():
    code = "import manylabel as ml; print(sorted(name for name in dir(ml) if not hasattr(ml, name)), *dir(ml))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    missing, *names = done.stdout.split()
    assert missing == "[]"
    assert {"Classifier", "evaluation", "labelgraph", "recipes"} <= set(names)
    assert names == sorted(names)


@pytest.mark.slow
def test_importing_the_package_does_not_wait_for_torch():
    code = "import sys, manylabel.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_model_needs_no_reader_of_data():
    heavy = "{'polars', 'scipy', 'matplotlib', 'manylabel.data.readers'}"
    code = f"import sys, manylabel.classifier; print(sorted({heavy} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
