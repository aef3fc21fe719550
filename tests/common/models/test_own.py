"""User-defined models: from a file, checked, and with errors that name it."""

from functools import partial
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from colonnade.common.config.models import HeadConfig, ModelConfig, OwnConfig
from colonnade.common.errors import ConfigError
from colonnade.common.models.build import build_head, build_model
from colonnade.common.models.probes import ModelProbe
from tests.support.seeded import seeded


def test_a_file_is_taken_where_a_name_would_stand() -> None:
    for adapter in (TypeAdapter(ModelConfig), TypeAdapter(HeadConfig)):
        named = adapter.validate_python({"name": "./tower.py:Tower", "width": 3})
        assert named == adapter.validate_python({"file": "./tower.py:Tower", "width": 3})


TOWER = """
from dataclasses import dataclass

import torch
from torch import nn

@dataclass
class Sizes:
    width: int = 4

class Tower(nn.Module):
    def __init__(self, input_shape, width=Sizes().width):
        super().__init__()
        self.layer = nn.Linear(input_shape[-1], width)

    def forward(self, rows):
        return self.layer(rows).sum(1)

class Flat(Tower):
    def forward(self, rows):
        return self.layer(rows)

def lazy(input_shape):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))

def head(inputs, classes, bias=False):
    return nn.Linear(inputs, classes, bias)

def text(input_shape):
    return "a tower"

def broken(input_shape):
    raise RuntimeError("first line\\nsecond line")

number = 3
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "tower.py").write_text(TOWER)
    return tmp_path


def parse(value: object) -> ModelConfig:
    return TypeAdapter(ModelConfig).validate_python(value)


def test_a_class_from_a_file(base: Path) -> None:
    tower = build_model(parse("./tower.py:Tower"), (5, 6), start=seeded(0), base=base)
    assert tower(torch.zeros(3, 5, 6)).shape == (3, 4)


def test_other_keys_are_its_arguments(base: Path) -> None:
    config = parse({"file": "tower.py:Tower", "width": 9})
    assert isinstance(config, OwnConfig)
    assert build_model(config, (5, 6), start=seeded(0), base=base)(torch.zeros(3, 5, 6)).shape == (3, 9)


@pytest.mark.parametrize("name", ["Tower", "lazy"])
def test_its_weights_come_from_the_seed(base: Path, name: str) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    states = [build_model(parse(f"./tower.py:{name}"), (5, 6), seeded(seed), base).state_dict() for seed in (1, 1, 2)]
    first, second, third = (next(iter(state.values())) for state in states)
    assert torch.equal(first, second) and not torch.equal(first, third)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_head_of_one_s_own(base: Path) -> None:
    config = TypeAdapter(HeadConfig).validate_python({"file": "./tower.py:head", "bias": True})
    assert len(list(build_head(config, 6, 3, start=seeded(0), base=base).parameters())) == 2


def test_a_head_must_give_one_score_a_class(base: Path) -> None:
    (base / "head.py").write_text("from torch import nn\ndef head(inputs, classes): return nn.Linear(inputs, 7)\n")
    config = TypeAdapter(HeadConfig).validate_python("./head.py:head")
    with pytest.raises(ConfigError, match="gives 7 scores for 3 classes"):
        build_head(config, 6, 3, start=seeded(0), base=base)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("./gone.py:Tower", "there is no file .*gone.py"),
        ("./tower.py:Towr", r"has no class or function 'Towr' \(did you mean 'Tower'\?\)"),
        ("./tower.py:number", "has no class or function 'number'"),
        ("./tower.py:text", "made a str, not a torch.nn.Module"),
        ("./tower.py:broken", r"tower.py:broken failed: RuntimeError: first line \(.*tower.py, line \d+, in broken\)$"),
        ("./tower.py:Flat", r"makes \(2, 5, 4\) of rows of shape \(2, 5, 6\), expected \(2, width\)"),
        (
            {"file": "./tower.py:Tower", "widht": 9},
            "failed: TypeError: .*unexpected keyword argument 'widht'",
        ),
    ],
)
def test_refuses(base: Path, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build_model(parse(value), (5, 6), start=seeded(0), base=base)
    assert caught.value.hint and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_does_not_import(base: Path, text: str, message: str) -> None:
    (base / "tower.py").write_text(text)
    with pytest.raises(ConfigError, match=f"tower.py does not import: {message}"):
        build_model(parse("./tower.py:Tower"), (5, 6), start=seeded(0), base=base)


def test_two_files_of_one_name_are_two_modules(base: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tower.py").write_text(TOWER.replace("width: int = 4", "width: int = 8"))
    widths = [
        build_model(parse(f"./{folder}tower.py:Tower"), (5, 6), seeded(0), base)(torch.zeros(1, 5, 6)).shape[1]
        for folder in ("", "other/")
    ]
    assert widths == [4, 8]


@pytest.mark.parametrize("value", ["./tower.py", "tower:Tower", "./tower.py:", "./tower.py:a.b"])
def test_the_configuration_refuses(value: str) -> None:
    with pytest.raises(ValidationError):
        parse(value)


NORMED = """
import torch
from torch import nn

def norm(shape):
    return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Dropout(0.5))

def lazy_norm(shape):
    return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())

def images(shape):
    return nn.Sequential(nn.Conv2d(shape[0], 4, shape[1]), nn.BatchNorm2d(4), nn.Flatten())

def without_statistics(shape):
    return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4, track_running_stats=False, affine=False))

def frozen(shape):
    return nn.Linear(shape[0], 4).requires_grad_(False)

def plain(shape):
    return nn.Identity()

def head(inputs, classes):
    return nn.Sequential(nn.Linear(inputs, classes), nn.BatchNorm1d(classes))
"""


@pytest.mark.parametrize(
    ("name", "shape"),
    [("norm", (3,)), ("lazy_norm", (3,)), ("images", (2, 5, 5)), ("without_statistics", (3,))],
)
def test_a_batch_of_one_row_passes_a_batch_norm_of_ones_own(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    (tmp_path / "own.py").write_text(NORMED)
    model = build_model(parse({"file": f"./own.py:{name}"}), shape, torch.Generator().manual_seed(0), tmp_path).train()
    model(torch.randn(1, *shape)).sum().backward()
    several = torch.randn(6, *shape)
    if name == "norm":
        model[2].p = 0.0
        expected = torch.nn.functional.batch_norm(model[0](several), None, None, model[1].weight, model[1].bias, True)
        torch.testing.assert_close(model(several), expected)


def test_a_head_of_ones_own_takes_one_row_too(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(NORMED)
    config = TypeAdapter(HeadConfig).validate_python({"file": "./own.py:head"})
    assert build_head(config, 4, 2, torch.Generator().manual_seed(0), tmp_path).train()(torch.randn(1, 4)).shape == (
        1,
        2,
    )


@pytest.mark.parametrize("name", ["frozen", "plain"])
def test_a_model_with_nothing_to_train_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "own.py").write_text(NORMED)
    with pytest.raises(ConfigError, match="has nothing to train"):
        build_model(parse({"file": f"./own.py:{name}"}), (4,), torch.Generator().manual_seed(0), tmp_path)


PROBED = """
import torch
from torch import nn
from torch.nn import functional

class Tower(nn.Module):
    def __init__(self, shape, how):
        super().__init__()
        self.how, self.layer, self.spare = how, nn.Linear(shape[0], 4), nn.Linear(2, 2)
        self.register_buffer("w", torch.randn(shape[0], 4))
        self.norm = nn.SyncBatchNorm(4)
        self.register_buffer("m", torch.zeros(4))
        self.register_buffer("v", torch.ones(4))

    def forward(self, x):
        return getattr(self, self.how)(x)

    def plain(self, x):
        return self.layer(x)

    def detached(self, x):
        return self.layer(x).detach()

    def without(self, x):
        with torch.no_grad():
            return self.layer(x)

    def fixed(self, x):
        return x @ self.w

    def sync(self, x):
        return self.norm(self.layer(x))

    def function(self, x):
        return functional.batch_norm(self.layer(x), self.m, self.v, training=self.training)

    def spread(self, x):
        h = self.layer(x)
        return (h - h.mean(0)) / (h.std(0) + 1e-5)
"""


def probed(folder: Path, how: str, *parts: str, by_gradients: bool = True, text: str = PROBED) -> str:
    (folder / "own.py").write_text(text)
    config = parse({"file": "./own.py:Tower", "how": how})
    model = build_model(config, (3,), seeded(0), folder).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        make = partial(build_model, config, (3,), base=folder)
        probe = ModelProbe("tower", config, model, make, torch.randn(6, 3))
        return "\n".join(probe.doubts(parts, by_gradients=by_gradients))
    finally:
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert model.training and all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("how", ["detached", "without", "fixed"])
def test_a_model_that_no_gradient_reaches_is_refused_before_the_first_round(tmp_path: Path, how: str) -> None:
    with pytest.raises(ConfigError, match="tower has nothing to train: the gradient at its outputs reaches no param"):
        probed(tmp_path, how)
    assert not probed(tmp_path, how, by_gradients=False)  # zeroth-order protocols compare outputs


def test_parameters_that_no_gradient_reaches_are_named(tmp_path: Path) -> None:
    said = "tower: no gradient reaches its spare.weight, spare.bias, norm.weight, norm.bias, which stay as they began"
    assert probed(tmp_path, "plain") == said


USED = """
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

class Tower(nn.Module):
    def __init__(self, shape, how):
        super().__init__()
        self.how, self.calls, self.cached = how, 0, None
        self.layer = nn.LazyLinear(4) if how == "lazy" else nn.Linear(shape[0], 4)
        more = {"norm": nn.BatchNorm1d(4), "dropout": nn.Dropout(0.3), "spectral": spectral_norm(nn.Linear(4, 4))}
        self.more = more.get(how)
        self.register_buffer("scale", torch.ones(()), persistent=how == "kept")
        self.register_buffer("drawn", torch.randn(4), persistent=False)

    def forward(self, x):
        return getattr(self, self.how, self.through)(x)

    def through(self, x):
        return self.layer(x) if self.more is None else self.more(self.layer(x))

    def annealed(self, x):
        self.scale += 0.05 * self.training
        return self.layer(x) * self.scale

    kept = annealed

    def counted(self, x):
        self.calls += 1
        return self.layer(x) * (1 + self.calls)

    def in_training(self, x):
        self.calls += self.training
        return self.layer(x) * (1 + self.calls * self.training)

    def projected(self, x):
        return self.layer(x) * self.drawn

    def cache(self, x):
        if self.training or self.cached is None:
            return self.layer(x) if self.training else self.make(x)
        return x @ self.cached + self.layer.bias

    def make(self, x):
        self.cached = self.layer.weight.detach().T.clone()
        return self.layer(x)
"""


@pytest.mark.parametrize("how", ["annealed", "counted", "in_training", "projected", "cache"])
def test_what_a_state_dict_lacks_is_said_with_the_remedy(tmp_path: Path, how: str) -> None:
    mode = "in training mode" if how == "in_training" else "in evaluation mode"
    said = probed(tmp_path, how, text=USED).splitlines()[-1]
    assert said.startswith(f"tower: its outputs depend on more than its `state_dict`, {mode}, and a checkpoint")
    assert "`self.register_buffer(NAME, TENSOR)`" in said


@pytest.mark.parametrize("how", ["kept", "norm", "dropout", "spectral", "lazy"])
def test_a_state_that_is_saved_and_draws_by_the_seed_are_no_doubt(tmp_path: Path, how: str) -> None:
    assert "state_dict" not in probed(tmp_path, how, text=USED)


@pytest.mark.parametrize(
    ("how", "said", "modes"),
    [
        ("sync", r"makes nothing \(ValueError\)", ["training"]),
        ("function", r"makes nothing \(ValueError\)", ["training"]),
        ("spread", "makes no finite numbers", ["training", "validation", "test"]),
        ("plain", "", []),
    ],
)
def test_a_model_that_takes_no_single_row_is_refused_where_a_batch_has_one(
    tmp_path: Path, how: str, said: str, modes: list[str]
) -> None:
    probed(tmp_path, how)
    for part in ("training", "validation", "test"):
        if part in modes:
            with pytest.raises(ConfigError, match=f"tower {said} of a batch of one row, and the {part} rows have one"):
                probed(tmp_path, how, part)
        else:
            probed(tmp_path, how, part)
