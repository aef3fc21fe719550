"""Layout of the code: size of folders and files, and direction of imports."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.rooms import CODE

ROOT = Path(__file__).parents[1]
MOST_FILES, MOST_LINES, MOST_ARGUMENTS = 20, 600, 6
EXEMPT = {"protocols", "contracts", "_generated"}  # a protocol is a file there, and its messages have names of its own


@cache
def sources() -> Mapping[str, ast.Module]:
    """The product's files by their path, without generated ones."""
    paths = (path for folder in CODE for path in (ROOT / folder).rglob("*.py"))
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for path in paths
        if "_generated" not in path.parts
    }


def imports(tree: ast.Module, modules: Mapping[str, str]) -> Iterator[str]:
    """The files that a file imports, also only for type checking."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (modules[name.name] for name in node.names if name.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                module = f"{node.module}.{name.name}"
                if found := modules.get(module, modules.get(node.module)):
                    yield found


def graph() -> dict[str, set[str]]:
    names = {
        path: f"colonnade/{path}".removeprefix("colonnade/lab/").removesuffix(".py").replace("/", ".")
        for path in sources()
    }
    modules = {name.removesuffix(".__init__"): path for path, name in names.items()}
    return {path: set(imports(tree, modules)) - {path} for path, tree in sources().items()}


def refuse_circle(edges: Mapping[str, set[str]]) -> None:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_no_file_imports_itself_through_others() -> None:
    assert sum(map(len, graph().values())) > len(sources())  # they were found
    refuse_circle(graph())


def test_no_room_imports_itself_through_others() -> None:
    rooms: dict[str, set[str]] = defaultdict(set)
    for path, found in graph().items():
        rooms[room(path)] |= {room(other) for other in found} - {room(path)}
    refuse_circle(rooms)


def room(path: str) -> str:
    """The first two parts of a path: common/errors.py is a unit of its own, common/data/formats is in common/data."""
    return "/".join(path.removeprefix("lab/").split("/")[:2])


def test_a_folder_can_be_looked_over_and_a_file_read() -> None:
    folders = Counter(str(Path(path).parent) for path in sources() if not EXEMPT & set(Path(path).parts))
    assert not {folder: count for folder, count in folders.items() if count > MOST_FILES}
    lines = {path: len((ROOT / path).read_text().splitlines()) for path in sources()}
    assert not {path: count for path, count in lines.items() if count > MOST_LINES}


def test_a_class_has_a_name_of_its_own() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path, tree in sources().items():
        if not EXEMPT & set(Path(path).parts):
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    where[node.name].append(path)
    assert not {name: paths for name, paths in where.items() if len(paths) > 1}


def test_no_function_takes_more_arguments_by_position_than_one_can_count() -> None:
    """Commands are called by the command line alone, by name."""
    found = {}
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not path.endswith("/commands.py"):
                named = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
                count = len(named) - (named[:1] in (["self"], ["cls"]))
                if count > MOST_ARGUMENTS:
                    found[f"{path}: {node.name}"] = count
    assert not found
