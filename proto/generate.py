"""Generates the Python modules of proto/*.proto: `python proto/generate.py [FOLDER]`.

The folder is common/wire/_generated unless named; the result is committed, and a test
regenerates it and finds no difference.
"""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

PROTO = Path(__file__).parent
GENERATED = PROTO.parent / "common" / "wire" / "_generated"


def generate(into: Path) -> None:
    """Writes NAME_pb2.py and NAME_pb2.pyi for every .proto file."""
    into.mkdir(parents=True, exist_ok=True)
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("*.proto"))
    builtin = files("grpc_tools") / "_proto"
    out = [f"--python_out={into}", f"--pyi_out={into}"]
    if protoc.main(["protoc", f"-I{PROTO}", f"-I{builtin}", *out, *sources]) != 0:
        raise SystemExit("protoc failed")
    for module in [*into.glob("*_pb2.py"), *into.glob("*_pb2.pyi")]:
        _make_imports_absolute(module)
    (into / "__init__.py").write_text("")


def _make_imports_absolute(module: Path) -> None:
    """protoc imports its siblings from the top level, where other packages live."""
    text = module.read_text()
    module.write_text(
        re.sub(r"^import (\w+_pb2)", r"from colonnade.common.wire._generated import \1", text, flags=re.M)
    )


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
