"""Errors in users' own models name the member, the file, the line and the error, wherever they are raised."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.common.errors import ColonnadeError, ConfigError, declared
from colonnade.common.parsing.file import parse
from colonnade.common.run.plug_ins import UserCodeFault, naming_user_code, note_file, user_fault
from colonnade.simulation.federation import Simulation
from tests.support.federation import tree
from tests.support.household import colonnade

CODE = """
import asyncio
import math
import sys
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent


class Stop(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, how):
        ctx.how = how
        return h.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.how == "backward":
            raise ArithmeticError("my own gradient")  # backward
        return grad[:1, :1], None


def fail(how):
    if how == "exit":
        sys.exit("my own exit")  # exit
    if how == "stop":
        raise Stop("my own stop")  # stop
    if how == "cancelled":
        raise asyncio.CancelledError("my own cancellation")  # cancelled
    if how == "closed":
        raise GeneratorExit("my own close")  # closed
    if how == "next":
        next(iter(()))  # next
    if how == "mute":
        raise Mute  # mute
    if how == "lines":
        raise ValueError("\\n \\nmy own second line")  # lines
    raise LookupError("my own [bold]row")  # forward


class Own(nn.Module):
    def __init__(self, shape, classes=60, how="", later=True):
        super().__init__()
        if not later:
            fail(how)
        self.how, self.calls = how, 0
        inputs = math.prod(shape) if isinstance(shape, tuple) else shape
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, rows):
        h = self.inner(rows)
        self.calls += self.training and len(rows) > 32  # beyond the probes, which have 32 rows
        if self.calls < 3 and not (HERE / "now").exists():
            return h
        match self.how:
            case "forward" | "exit" | "stop" | "cancelled" | "closed" | "next" | "mute" | "lines":
                fail(self.how)
            case "backward" | "gradient":
                return _Wrong.apply(h, self.how)
            case "torch":
                return h @ h  # torch
            case "dtype":
                return h.double()
            case "width":
                return h[:, 1:]
            case "rows":
                return torch.cat([h, h])
            case "sparse":
                return h.to_sparse()
            case "tuple":
                return h, h
        return h
"""
PLACED = {"forward": "LookupError: my own", "exit": "SystemExit: my own exit", "stop": "Stop: my own stop",
          "cancelled": "CancelledError: my own", "closed": "GeneratorExit: my own", "next": "StopIteration",
          "mute": "Mute: its message cannot be read", "lines": "ValueError: my own second line",
          "backward": "ArithmeticError: my own gradient", "torch": "RuntimeError: mat1"}  # fmt: skip
MADE = {
    "dtype": "made float64 of shape (256, 60), expected float32 of shape (256, 60)",
    "width": "made float32 of shape (256, 59), expected float32",
    "tuple": "made tuple, expected float32 of shape (256, 60)",
    "rows": "made float32 of shape (512, 60), expected float32 of shape (256, 60)",
    "sparse": "made a sparse float32 of shape (256, 60), expected float32",
    "gradient": "raised by PyTorch while it computed with its model ./own.py:Own",
}


def written(folder: Path, where: str, **own: Any) -> dict[str, Any]:
    (folder / "own.py").write_text(CODE)
    made = tree({"name": "split", "embedding": 60}, rounds=6, epochs=0)
    if where == "head":
        made["server"]["head"] = {"file": "./own.py:Own", **own}
    else:
        made["parties"] = {"party2": {"model": {"file": "./own.py:Own", **own}}}
    return made


def line(how: str) -> int:
    return next(n for n, text in enumerate(CODE.splitlines(), 1) if text.endswith(f"  # {how}"))


def failure(made: dict[str, Any], folder: Path) -> ColonnadeError:
    with pytest.raises(ConfigError) as failed:
        Simulation(parse(made), base=folder).run()
    return failed.value


@pytest.mark.parametrize("where", ["model", "head"])
@pytest.mark.parametrize("how", [*PLACED, *MADE])
def test_in_a_round(how: str, where: str, tmp_path: Path) -> None:
    error = failure(written(tmp_path, where, how=how), tmp_path)
    member, said = "server" if where == "head" else "parties.party2", str(error)
    assert isinstance(error, UserCodeFault) and said.startswith(f"{member}: ")
    if how in PLACED:
        assert said.startswith(f"{member}: {tmp_path}/own.py, line {line(how)}, in ") and PLACED[how] in said
    else:
        expected = MADE[how] if where == "model" else MADE[how].replace("60", "10").replace("59", "9")
        assert (
            expected.replace("its model", "its head" if where == "head" else "its model").split(" of shape")[0] in said
        )
    assert declared(error)[0] == "its own model or plug-in has failed"


@pytest.mark.parametrize("how", ["forward", "exit", "stop", "cancelled", "mute", "lines"])
def test_in_construction(how: str, tmp_path: Path) -> None:
    error = failure(written(tmp_path, "model", how=how, later=False), tmp_path)
    assert str(error).startswith("parties.party2.model: ./own.py:Own failed: ")
    assert PLACED[how] in str(error) and f"own.py, line {line(how)}, in fail" in str(error)


def test_on_import(tmp_path: Path) -> None:
    made = written(tmp_path, "model")
    (tmp_path / "own.py").write_text("import sys\nsys.exit(3)\n")
    assert "own.py, line 2" in str(failure(made, tmp_path))


def test_interruptions_stay_what_they_are(tmp_path: Path) -> None:
    made = written(tmp_path, "model")
    (tmp_path / "own.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        Simulation(parse(made), base=tmp_path).run()


def test_what_is_ended_where_it_waits_is_no_error_of_its_code(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("async def side(future):\n    await future\n")
    note_file(tmp_path / "waits.py")
    spec = importlib.util.spec_from_file_location("waits", tmp_path / "waits.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))

    async def scene() -> None:
        task = asyncio.ensure_future(module.side(asyncio.get_running_loop().create_future()))
        await asyncio.sleep(0)
        task.cancel()
        with naming_user_code("parties.ada"):
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scene())


def test_our_own_errors_stay_ours() -> None:
    try:
        sys.intern(3)  # type: ignore[arg-type]
    except TypeError as error:
        assert user_fault(error) is None


@pytest.mark.parametrize("how", ["forward", "exit", "backward"])
def test_up_names_it_first_and_once(how: str, tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump(written(tmp_path, "model", how=how)))
    code, output = colonnade("up", file, "--out", tmp_path / "run")
    # Of a narrow screen: the line of a round breaks before "party2 +13 ms".
    said = [line for line in output.splitlines() if ("party2" in line and " ms" not in line) or "failed:" in line]
    assert code == 2 and said[0].startswith(f"error: party2: parties.party2: {tmp_path}/own.py, line {line(how)}"), (
        output
    )
    assert PLACED[how] in said[0] and "fault of Colonnade" not in output and "was lost" not in output


def test_a_prediction_names_it(tmp_path: Path) -> None:
    file, run = tmp_path / "federation.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(written(tmp_path, "model")))
    later = CODE.replace('how=""', 'how="forward"').replace("self.calls < 3 and not", "not")
    (tmp_path / "own.py").write_text(later)  # a file that changes after training is refused
    assert colonnade("simulate", file, "--out", run)[0] == 0
    (tmp_path / "now").touch()
    (tmp_path / "ids.csv").write_text("id\n1\n2\n")
    code, output = colonnade("predict", run, "--ids", tmp_path / "ids.csv", "--out", tmp_path / "predictions.csv")
    said = [text for text in output.splitlines() if "party2" in text or "lost" in text]
    assert code == 3 and "LookupError: my own" in said[0] and f"own.py, line {line('forward')}, in fail" in said[0], (
        output
    )
    code, output = colonnade("explain", run)
    assert code == 2 and "own.py, line" in output and "fault of Colonnade" not in output, output
