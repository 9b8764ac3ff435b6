"""The rules of the structure, read from the code: imports, and the matters that the library leaves to its program."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import plain_words

ROOT = Path(__file__).parents[1]
HOUSE = sorted((ROOT / "pipelines").rglob("*.py"))
PEOPLE = sorted((ROOT / "app").rglob("*.py"))
OWN = {"app", "pipelines", "samples"}
LEAVES = ("frame", "errors", "channel", "crew", "choices", "credentials", "watch")
HEAVY = {"torch", "torchvision", "timm", "nncf"}
ENGINES = ROOT / "pipelines/predict/engines"
ROLES = {
    "sources": {"Source"},
    "sinks": {"Sink", "Screen", "Consumer"},
    "predict/engines": {"Engine", "Slot"},
}


def path_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(nodes: ast.AST, *, deep: bool = True) -> Iterator[str]:
    """Modules that are imported, with the names taken from them. deep: also imports inside of functions."""
    for node in ast.walk(nodes) if deep else _at_import(nodes):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a module is imported: none inside of functions or for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _at_import(child)


def package(module: str) -> str:
    return module.split(".", 1)[0]


def calls(path: Path) -> set[str]:
    """Dotted names of the functions that a file calls."""
    return {ast.unparse(n.func) for n in ast.walk(tree(path)) if isinstance(n, ast.Call)}


def attributes(path: Path) -> set[str]:
    """Dotted names of the attributes that a file reads."""
    return {ast.unparse(n) for n in ast.walk(tree(path)) if isinstance(n, ast.Attribute)}


def classes(folder: str) -> Iterator[tuple[str, str]]:
    """Module and name of the public classes of a folder."""
    for path in sorted((ROOT / "pipelines" / folder).glob("*.py")):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield path.stem, node.name


def test_the_library_does_not_know_the_program() -> None:
    outside = {"app", "samples", "tests"}
    assert [f"{path_id(p)}: {m}" for p in HOUSE for m in imports(tree(p)) if package(m) in outside] == []


def test_the_library_knows_no_command_line_no_environment_and_no_http() -> None:
    modules = {"argparse", "asyncio", "http", "aiohttp", "starlette", "fastapi"}
    functions = {"sys.exit", "os._exit", "print", "input", "exit", "quit", "os.getenv"}
    offenders = [f"{path_id(p)}: {m}" for p in HOUSE for m in imports(tree(p)) if package(m) in modules]
    offenders += [f"{path_id(p)}: {name}" for p in HOUSE for name in calls(p) & functions]
    offenders += [f"{path_id(p)}: {name}" for p in HOUSE for name in attributes(p) & {"sys.argv", "os.environ"}]
    assert offenders == []


def test_a_leaf_imports_no_other_part() -> None:
    leaves = [p for p in HOUSE if p.parent.name == "pipelines" and p.stem in LEAVES]
    assert len(leaves) == len(LEAVES)
    others = [
        f"{path_id(p)}: {m}"
        for p in leaves
        for m in imports(tree(p))
        if package(m) == "pipelines" and m.split(".")[1] not in LEAVES
    ]
    assert others == []


def test_torch_is_imported_when_it_is_needed() -> None:
    files = [p for p in HOUSE if p != ENGINES / "torch.py"]
    assert [f"{path_id(p)}: {m}" for p in files for m in imports(tree(p), deep=False) if package(m) in HEAVY] == []


def test_sources_predict_render_sinks_and_monitor_know_nothing_of_each_other() -> None:
    """They meet in the lane and the session. Only the window, a sink, draws and writes text as the overlay does."""
    parts: dict[str, set[str]] = {"sources": set(), "monitor": set(), "predict": set(), "render": set(), "sinks": {"render"}}
    offenders = []
    for path in HOUSE:
        own = path.relative_to(ROOT / "pipelines").parts[0]
        if own in parts:
            others = {m.split(".")[1] for m in imports(tree(path)) if m.startswith("pipelines.")} & parts.keys()
            offenders += [f"{path_id(path)}: {other}" for other in others - {own} - parts[own]]
    assert offenders == []


def test_bitstreams_do_not_know_their_transport() -> None:
    ways = ("pipelines.sources.rtp", "pipelines.sources.rtsp")
    files = [p for p in HOUSE if p.parent.name == "bitstream"]
    assert files
    assert [f"{path_id(p)}: {m}" for p in files for m in imports(tree(p)) if m.startswith(ways)] == []


def test_no_thread_of_the_library_is_a_daemon() -> None:
    daemons = [
        f"{path_id(p)}:{n.lineno}"
        for p in HOUSE
        for n in ast.walk(tree(p))
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg == "daemon" and ast.unparse(k.value) == "True"
    ]
    assert daemons == []


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _graph() -> dict[str, set[str]]:
    """The modules of app and pipelines that each of them imports when it is imported itself."""
    names = {_module(p) for p in (*HOUSE, *PEOPLE)}
    graph = {}
    for path in (*HOUSE, *PEOPLE):
        wanted = {m if m in names else m.rpartition(".")[0] for m in imports(tree(path), deep=False)}
        graph[_module(path)] = (wanted & names) - {_module(path)}
    return graph


def test_modules_import_each_other_in_no_circle() -> None:
    try:
        TopologicalSorter(_graph()).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}", pytrace=False)


@pytest.mark.parametrize("place", ["app", "pipelines", "pipelines/predict", "pipelines/sources"])
def test_rooms_import_each_other_in_no_circle(place: str) -> None:
    """The folders and files of a place; imports within functions count, too."""
    depth = place.count("/") + 1
    graph: dict[str, set[str]] = {}
    for path in (p for p in (*HOUSE, *PEOPLE) if p.is_relative_to(ROOT / place)):
        own = path.relative_to(ROOT / place).with_suffix("").parts[0]
        wanted = {m.split(".")[depth] for m in imports(tree(path)) if m.startswith(place.replace("/", ".") + ".")}
        graph[own] = graph.get(own, set()) | (wanted - {own})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}", pytrace=False)


def test_http_does_not_know_the_service() -> None:
    files = [p for p in PEOPLE if p.is_relative_to(ROOT / "app/http")]
    assert files
    assert [f"{path_id(p)}: {m}" for p in files for m in imports(tree(p)) if m.startswith("app.serve")] == []


PATCHED = {
    "pipelines/media/patches.py",
    "pipelines/predict/models/loaders.py",  # torch.load and huggingface's switch, while a model is loaded
    "app/terminal/stdio.py",  # sys.stdout and sys.stderr
}
"""Files that may change other libraries. New changes belong into patches.py."""


def foreign_assignments(path: Path) -> Iterator[str]:
    """Attributes of imported names of other libraries that a file assigns."""
    foreign = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            foreign |= {alias.asname or package(alias.name) for alias in node.names if package(alias.name) not in OWN}
        elif isinstance(node, ast.ImportFrom) and package(node.module or "") not in OWN:
            foreign |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree(path)):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and ast.unparse(target).split(".")[0] in foreign:
                yield f"{path_id(path)}:{target.lineno}: {ast.unparse(target)}"


def test_other_libraries_are_changed_in_known_places() -> None:
    files = [p for p in (*HOUSE, *PEOPLE) if path_id(p) not in PATCHED]
    assert [found for p in files for found in foreign_assignments(p)] == []


CLAUSES = 2.0
"""Limit for the clauses that `tests.plain_words` counts in 1,000 words of comments and docstrings."""


def test_the_prose_is_plain() -> None:
    rooms = [p for part in ("app", "pipelines") for p in sorted((ROOT / part).iterdir()) if p.is_dir() or p.suffix == ".py"]
    offenders = []
    for room in rooms:
        words, found = plain_words.measured([room])
        if len(found) > max(1, CLAUSES * words / 1000):  # a short file may have one
            offenders += [f"{path_id(room)}: {1000 * len(found) / words:.1f} in 1,000 words, more than {CLAUSES}", *found]
    assert offenders == [], "\n".join(offenders)


# The window belongs to the main thread, which is in app/run. Measuring parts alone and choosing an engine need the part itself.
CONCRETE: dict[str, set[str]] = {
    "run.py": {"Window", "Display"},
    "job.py": {"Window"},
    "file_bench.py": {"FileSource"},
    "stages.py": {"VideoFile"},
    "fidelity.py": {"OpenVinoEngine", "OpenVinoSlot"},
    "player.py": {"PictureDecoder", "Synthetic", "SyntheticSource"},
}


def test_only_build_names_concrete_sources_and_sinks() -> None:
    others = ("Timeouts", "EncodedPictures", "StreamSpec")
    concrete = {
        name
        for folder, roles in ROLES.items()
        for _, name in classes(folder)
        if name not in roles and not name.endswith(("Options", "Event")) and name not in others
    }
    offenders = []
    for path in PEOPLE:
        used = {m.rsplit(".", 1)[1] for m in imports(tree(path)) if m.startswith("pipelines.")}
        if path.name != "build.py":
            offenders += [f"{path_id(path)}: {name}" for name in (used & concrete) - CONCRETE.get(path.name, set())]
    assert offenders == []


def test_asyncio_is_for_services() -> None:
    files = [p for p in PEOPLE if not {"serve", "web", "http"} & set(p.parts)]
    assert [path_id(p) for p in files for m in imports(tree(p)) if package(m) == "asyncio"] == []


ROOMS = {
    "pipelines": {"media", "monitor", "sources", "predict", "tasks", "render", "sinks"},
    "app": {"run", "commands", "terminal", "machine", "calibrate", "http", "serve", "bench"},
}


@pytest.mark.parametrize("house", list(ROOMS))
def test_every_part_stands_in_the_house(house: str) -> None:
    """A new folder finds its place in one of these, or this list is changed on purpose."""
    assert {p.name for p in (ROOT / house).iterdir() if p.is_dir() and p.name != "__pycache__"} == ROOMS[house]


ONE_MEANING = {"Answer", "Batch", "Label", "Model", "PictureSet", "SequenceSet"}
"""Classes that stand twice for one thing: its JSON form over HTTP, a protocol of it, the same part of two bitstreams."""


def test_a_name_has_one_meaning() -> None:
    """No class and no file has the name of another."""
    paths = [p for house in ROOMS for p in (ROOT / house).rglob("*.py") if p.name != "__init__.py"]
    classes = [n.name for p in paths for n in ast.parse(p.read_text()).body if isinstance(n, ast.ClassDef) and n.name[0] != "_"]
    assert {name for name, count in Counter(classes).items() if count > 1} == ONE_MEANING
    assert {name for name, count in Counter(p.name for p in paths).items() if count > 1} == set()


@pytest.mark.parametrize("module", ["pipelines.lane", "pipelines.predict.engines.probe", "pipelines.predict.predictor"])
def test_the_probe_needs_no_torch(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_run_with_the_probe_imports_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from app.cli import main
assert main(["run", "synthetic:64x64@100", "--max-frames", "3", "--model", "probe", "--no-show", "-q"]) == 0
print(*sorted({HEAVY | {"openvino"}!r} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
