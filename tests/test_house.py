"""The rules of the house, read from its code: who imports whom, and what a library leaves to the program that uses it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = sorted((ROOT / "pipelines").rglob("*.py"))
PEOPLE = sorted((ROOT / "app").rglob("*.py"))
LEAVES = ("frame", "errors", "channel", "crew")
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
    """Modules that are imported, with what is taken from them; without `deep` only when the module itself is."""
    for node in ast.walk(nodes) if deep else _at_import(nodes):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """All that runs when a module is imported: not what is inside of functions, nor what is for type checkers."""
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
    """Dotted names of what is called."""
    return {ast.unparse(n.func) for n in ast.walk(tree(path)) if isinstance(n, ast.Call)}


def attributes(path: Path) -> set[str]:
    """Dotted names that are read."""
    return {ast.unparse(n) for n in ast.walk(tree(path)) if isinstance(n, ast.Attribute)}


def classes(folder: str) -> Iterator[tuple[str, str]]:
    """Module and name of the public classes of a folder."""
    for path in sorted((ROOT / "pipelines" / folder).glob("*.py")):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield path.stem, node.name


@pytest.mark.parametrize("path", HOUSE, ids=path_id)
class TestHouse:
    def test_it_does_not_know_who_lives_in_it(self, path: Path) -> None:
        assert not {package(m) for m in imports(tree(path))} & {"app", "samples", "tests"}

    def test_it_knows_no_command_line_no_environment_and_no_http(self, path: Path) -> None:
        forbidden = {"argparse", "asyncio", "http", "http.server", "aiohttp", "starlette", "fastapi"}
        modules = set(imports(tree(path)))
        assert not {m for m in modules if m in forbidden or package(m) in forbidden}
        assert not calls(path) & {"sys.exit", "os._exit", "print", "input", "exit", "quit", "os.getenv"}
        assert not attributes(path) & {"sys.argv", "os.environ"}

    def test_a_leaf_imports_no_other_part(self, path: Path) -> None:
        if path.parent.name == "pipelines" and path.stem in LEAVES:
            parts = {m.split(".")[1] for m in imports(tree(path)) if package(m) == "pipelines"}
            assert parts <= set(LEAVES)

    def test_torch_is_imported_when_it_is_needed(self, path: Path) -> None:
        if path != ENGINES / "torch.py":
            assert not {package(m) for m in imports(tree(path), deep=False)} & HEAVY

    def test_sources_predict_render_and_sinks_know_nothing_of_each_other(self, path: Path) -> None:
        """They meet in the lane. Only the window, a sink, draws and writes text as the overlay does."""
        parts = {"sources": set(), "predict": set(), "render": set(), "sinks": {"render"}}
        own = path.relative_to(ROOT / "pipelines").parts[0]
        if own in parts:
            others = {m.split(".")[1] for m in imports(tree(path)) if m.startswith("pipelines.")} & parts.keys()
            assert others <= {own} | parts[own]

    def test_what_is_coded_does_not_know_how_it_came(self, path: Path) -> None:
        if path.parent.name == "bitstream":
            ways = ("pipelines.sources.rtp", "pipelines.sources.rtsp")
            assert not [m for m in imports(tree(path)) if m.startswith(ways)]

    def test_daemon_threads(self, path: Path) -> None:
        keywords = [k for n in ast.walk(tree(path)) if isinstance(n, ast.Call) for k in n.keywords]
        assert not [k for k in keywords if k.arg == "daemon" and ast.unparse(k.value) == "True"]


@pytest.mark.parametrize("path", PEOPLE, ids=path_id)
def test_only_build_names_concrete_sources_and_sinks(path: Path) -> None:
    """The window is the exception: it belongs to the main thread, which is in app/run/run.py. Measuring parts alone and
    choosing an engine need the part itself."""
    allowed = {
        "build.py": None,
        "run.py": {"Window", "Display"},
        "job.py": {"Window"},
        "streams.py": {"Synthetic"},  # it reads the text of a source
        "file_bench.py": {"FileSource"},
        "stages.py": {"VideoFile"},
        "clients.py": {"ProbeEngine"},
        "fidelity.py": {"OpenVinoEngine", "OpenVinoSlot"},
        "player.py": {"PictureDecoder"},
        "doctor.py": set(),
    }.get(path.name, set())
    if allowed is None:
        return
    others = ("Unheard", "Watch", "Timeouts", "EncodedPictures")
    concrete = {
        name
        for folder, roles in ROLES.items()
        for _, name in classes(folder)
        if name not in roles and not name.endswith(("Options", "Event")) and name not in others
    }
    used = {m.rsplit(".", 1)[1] for m in imports(tree(path)) if m.startswith("pipelines.")}
    assert used & concrete <= allowed


@pytest.mark.parametrize("path", PEOPLE, ids=path_id)
def test_asyncio_is_for_services(path: Path) -> None:
    if not {"serve", "web", "http"} & set(path.parts):
        assert "asyncio" not in {package(m) for m in imports(tree(path))}


def test_every_part_stands_in_the_house() -> None:
    """Three levels, and nothing beside them: what is new finds its place, or this list is changed on purpose."""
    assert {p.name for p in (ROOT / "pipelines").iterdir() if p.is_dir() and p.name != "__pycache__"} == {
        "media",
        "sources",
        "predict",
        "tasks",
        "render",
        "sinks",
    }


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
