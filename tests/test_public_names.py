"""Each `__init__.py` is a table of contents: its names exist, are sorted, and are all that is offered."""

import importlib
import pkgutil
import subprocess
import sys

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
    assert sorted(module.__all__) == list(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)
    assert module.__doc__


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_lists_its_names_in_order(name):
    package = importlib.import_module(name)
    names = getattr(package, "__all__", [])
    assert sorted(names) == list(names)
    assert all(hasattr(package, public) for public in names)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = manylabel.no_such_name


def test_importing_the_package_does_not_wait_for_torch():
    code = "import sys, manylabel.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
