"""Each `__init__.py` is a table of contents: its names exist, and what it imports is offered."""

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import manylabel

PACKAGES = ["manylabel"] + [
    module.name for module in pkgutil.walk_packages(manylabel.__path__, "manylabel.") if module.ispkg
]
MODULES = [
    module.name for module in pkgutil.walk_packages(manylabel.__path__, "manylabel.") if "__main__" not in module.name
]

# Tests that are not of one module: of the project as a whole, and of one behaviour across modules.
FOLDERS_OF_THEIR_OWN = {"benchmarks", "conformance", "faults", "on_ray"}
OF_THE_PROJECT = {
    "claims", "command_reference", "dockerfile", "docs", "examples", "extras", "notebooks", "one_road",
    "paper_defaults", "paper_examples", "public_names", "troubleshooting", "words",
}  # fmt: skip


def test_every_test_file_has_the_name_and_place_of_what_it_tests():
    tests, package = Path(__file__).parent, Path(manylabel.__path__[0])
    strays = []
    for path in tests.rglob("test_*.py"):
        place, name = path.relative_to(tests).parent, path.stem.removeprefix("test_")
        is_exception = place.parts[:1] and place.parts[0] in FOLDERS_OF_THEIR_OWN
        is_exception = is_exception or (not place.parts and name in OF_THE_PROJECT)
        tested = package / place
        if not is_exception and not (tested / name).is_dir() and not any(tested.glob(f"{name}.*")):
            strays.append(str(path.relative_to(tests)))
    assert strays == []


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_holds(name):
    assert importlib.import_module(name).__doc__


def test_no_module_imports_a_private_name_of_another():
    folder = Path(manylabel.__path__[0])
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")}
    private = [
        f"{path.relative_to(folder)}: {name.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("manylabel")
        for name in node.names
        if name.name.startswith("_") and name.name != "__version__"
    ]
    assert private == []


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
