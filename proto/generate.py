"""Generates the wire's .proto files and Python modules: `python proto/generate.py [FOLDER]`, or `make proto`.

Protocol messages are declared once, as dataclasses. Their .proto files are generated for programs in other languages;
nothing here imports them. The .proto files of `BY_HAND` are written by hand, and protoc generates their Python modules.
All output is committed, and a test checks that it is up to date.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from colonnade.common.alignment.messages import ALIGNMENT
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.prediction import Ask, Averaged, Output
from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.messaging.message import Message, TensorSpec, schema
from colonnade.common.wire.codec import field_numbers

PROTO = Path(__file__).parent
GENERATED = PROTO.parent / "common" / "wire" / "_generated"
BY_HAND = ("federation", "serving", "tensor")

_TYPES: Mapping[type, str] = {int: "uint32", float: "double", str: "string", bool: "bool"}
_EVERYWHERE = {"part": '"validation" or "test"', "block": "from 0"}  # fields of every evaluation message
_STEMS = {  # modules whose .proto file has another name
    "alignment.messages": "alignment",
    "aggregation.messages": "secure_aggregation",
    "encryption.messages": "encrypted_sums",
}
_WIDTH = 117  # of a comment line, without its slashes


def generate(into: Path, protos: Path = PROTO) -> None:
    """Writes a .proto file for the messages of every module, then NAME_pb2.py and NAME_pb2.pyi for those by hand."""
    for name, text in described().items():
        (protos / name).write_text(text, encoding="utf-8")
    into.mkdir(parents=True, exist_ok=True)
    protoc(f"--python_out={into}", f"--pyi_out={into}", *(f"{name}.proto" for name in BY_HAND))
    for module in [*into.glob("*_pb2.py"), *into.glob("*_pb2.pyi")]:
        _tidy(module)
    (into / "__init__.py").write_text("", encoding="utf-8")


def protoc(*arguments: str) -> None:
    """Runs the compiler in a process of its own: beside OR-Tools, which brings a protobuf too, it would end this one.

    Raises:
        SystemExit: it has failed.
    """
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", *arguments]
    if subprocess.run(command, check=False).returncode:  # noqa: S603  # its own arguments
        raise SystemExit("protoc failed")


def described() -> dict[str, str]:
    """The messages of all protocols, of alignment and of prediction: file name -> content."""
    contracts: list[Contract] = [CONTRACTS[name] for name in NAMES]
    said = [kind for contract in contracts for kind in contract.messages]
    by_stem: dict[str, list[type[Message]]] = {}
    for kind in dict.fromkeys([*ALIGNMENT, *said, Ask, Output, Averaged]):
        by_stem.setdefault(stem(kind), []).append(kind)
    return {f"{name}.proto": _file(name, sorted(kinds, key=_line)) for name, kinds in by_stem.items()}


def stem(kind: type[Message]) -> str:
    """Name of a message's .proto file, without its ending: by default its module's name."""
    own = kind.__module__.removeprefix("colonnade.")
    return next((name for end, name in _STEMS.items() if own.endswith(f".{end}")), own.rpartition(".")[2])


def _line(kind: type[Message]) -> int:
    return inspect.getsourcelines(kind)[1]


def _file(name: str, kinds: list[type[Message]]) -> str:
    source = kinds[0].__module__.removeprefix("colonnade.").replace(".", "/") + ".py"
    head = f'syntax = "proto3";\n\n// Generated from {source} by `make proto`.\npackage colonnade.{name};\n'
    tensors = any(isinstance(spec, TensorSpec) for kind in kinds for spec in schema(kind).values())
    return "\n".join([head, *(['import "tensor.proto";\n'] if tensors else []), "\n".join(map(_message, kinds))])


def _message(kind: type[Message]) -> str:
    what, _, args = inspect.cleandoc(kind.__doc__ or "").partition("\n\nArgs:\n")
    notes = {**_EVERYWHERE, **dict(re.findall(r"^ +(\w+): (.*)\.$", args, flags=re.M))}
    fields = []
    for field, number in field_numbers(kind).items():
        spec = schema(kind)[field]
        tensor = isinstance(spec, TensorSpec)
        note = ", ".join(filter(None, [str(spec) if tensor else "", notes.get(field, "")]))
        declared = f"  {'colonnade.Tensor' if isinstance(spec, TensorSpec) else _TYPES[spec]} {field} = {number};"
        fields.append(f"{declared}  // {note}" if note else declared)
    comment = "\n".join(
        f"// {line}".rstrip() for part in what.splitlines() for line in (textwrap.wrap(part, _WIDTH) or [""])
    )
    return "\n".join([comment, f"message {kind.__name__} {{", *fields, "}\n"])


def _tidy(module: Path) -> None:
    """Makes imports of siblings absolute, and takes out the generator's version.

    protoc writes a check that refuses every runtime library older than itself. These modules need none of its news: the
    tests hold them to the range of versions in pyproject.toml.
    """
    text = module.read_text(encoding="utf-8")
    text = re.sub(r"^import (\w+_pb2)", r"from colonnade.common.wire._generated import \1", text, flags=re.M)
    text = re.sub(r"^# Protobuf Python Version: .*\n|^from .* import runtime_version .*\n", "", text, flags=re.M)
    text = re.sub(r"^_runtime_version\.ValidateProtobufRuntimeVersion\(.*?^\)\n", "", text, flags=re.M | re.S)
    module.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
