"""Layout of the code: files that are worth one, and direction of imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.rooms import CODE

ROOT = Path(__file__).parents[1]
MOST_ARGUMENTS, LEAST_LINES = 6, 60
ACROSS = {
    "colonnade/cli/start.py",
    "common/data/known_sets/views.py",
}
"""Small files with one reader whose subject is another, or that is imported as a module."""
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


def module_of(path: str) -> str:
    inside = path if path.startswith("colonnade/") else f"colonnade/{path}"
    return inside.removeprefix("colonnade/lab/").removesuffix(".py").replace("/", ".")


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
    names = {path: module_of(path) for path in sources()}
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


def test_a_small_file_has_several_readers() -> None:
    """A file under 60 lines that only one other imports belongs into that one."""
    edges = graph()
    readers: dict[str, set[str]] = defaultdict(set)
    for path, found in edges.items():
        for other in found:
            readers[other].add(path)
    small = {
        path
        for path in sources()
        if len((ROOT / path).read_text().splitlines()) < LEAST_LINES
        and len(readers[path]) == 1
        and Path(path).stem not in {"__init__", "__main__", "commands"}
        and not (EXEMPT | {"towers"}) & set(Path(path).parts)
        and any(reads_at_its_top(reader, path) for reader in readers[path])
    }
    assert small <= ACROSS, "merge it into the file that imports it"
    assert small >= ACROSS, "no longer an exception"


def reads_at_its_top(reader: str, path: str) -> bool:
    """False if a function imports it, so that nothing else loads what it needs."""
    module = module_of(path)
    tops = [node for node in sources()[reader].body if isinstance(node, ast.ImportFrom) and node.module is not None]
    return any(module in {node.module, *(f"{node.module}.{name.name}" for name in node.names)} for node in tops)


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
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not path.endswith(
                ("/commands.py", "cli/search.py")
            ):
                named = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
                count = len(named) - (named[:1] in (["self"], ["cls"]))
                if count > MOST_ARGUMENTS:
                    found[f"{path}: {node.name}"] = count
    assert not found
