"""Columns of images and texts, read by towers with weights made elsewhere."""

from __future__ import annotations

import csv
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from torch import Tensor

from colonnade.cli.checks.check import check
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.members import PartyConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.sources import load_features
from colonnade.common.data.table_cache import read_copy, write_copy
from colonnade.common.errors import ConfigError, DataError, EnvironmentFault
from colonnade.common.models.build import build_model
from colonnade.common.parsing.file import parse
from colonnade.simulation.federation import Outcome, Simulation
from tests.support import towers
from tests.support.household import colonnade

PRICE = 1  # place of the first embedding: the price stands before it


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The towers and tables; a test that changes them takes `folder`."""
    found = tmp_path_factory.mktemp("towers")
    make = towers.example()
    make.tables(found, rows=24)
    with torch.random.fork_rng(devices=[]):
        make.image_tower(found)
        make.text_tower(found)
    return found


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    for path in made.rglob("*"):
        if path.is_file() and ".embeddings" not in path.parts:
            into = tmp_path / path.relative_to(made)
            into.parent.mkdir(exist_ok=True)
            into.write_bytes(path.read_bytes())
    return tmp_path


def read(section: dict[str, Any], base: Path) -> Features:
    return load_features(PartyConfig.model_validate(section).data, PartyIndex(0, 1), base)


def images(base: Path) -> Tensor:
    return read(towers.photos(), base).values[:, PRICE:]


def trained(base: Path, parties: dict[str, Any], **federation: Any) -> Outcome:
    outcome = Simulation(parse(towers.tree(parties, **federation)), base).run()
    assert outcome.status == "completed", outcome.error
    return outcome


def losses(outcome: Outcome) -> list[float]:
    return [event["loss"] for event in outcome.of_kind("round")]


def kept(base: Path) -> list[Path]:
    return sorted((base / ".embeddings").iterdir())


def test_an_image_becomes_what_timm_makes_of_it(made: Path) -> None:
    timm, image = pytest.importorskip("timm"), pytest.importorskip("PIL.Image")
    found = read(towers.photos(), made)
    model = timm.create_model("test_resnet", pretrained=False)
    model.load_state_dict(safetensors.torch.load_file(made / "tower.safetensors"))
    model.reset_classifier(0)
    prepared = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    with torch.inference_mode():
        expected = model.eval()(prepared(image.open(made / "photos" / "3.png")).unsqueeze(0))[0]
    torch.testing.assert_close(found.values[3, PRICE:].float(), expected, rtol=1e-4, atol=1e-5)
    assert found.names[:3] == ("price", "photo[0]", "photo[1]")


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_a_text_becomes_what_transformers_makes_of_it(made: Path, pool: str) -> None:
    transformers = pytest.importorskip("transformers")
    found = read(towers.notes(pool=pool), made)
    tokens = transformers.PreTrainedTokenizerFast(tokenizer_file=str(made / "bert" / "tokenizer.json"))
    model = transformers.BertModel.from_pretrained(made / "bert").eval()
    with (made / "notes.csv").open() as file:
        note = [line["note"] for line in csv.DictReader(file)][5]
    with torch.inference_mode():
        hidden = model(**tokens(note, return_tensors="pt")).last_hidden_state[0]
    expected = hidden.mean(0) if pool == "mean" else hidden[0]
    torch.testing.assert_close(found.values[5].float(), expected, rtol=1e-4, atol=1e-5)


def test_a_query_whose_rows_come_in_another_order_each_time_keeps_texts_with_their_rows(made: Path) -> None:
    pytest.importorskip("duckdb")
    section, every = towers.notes(), [read(towers.notes(), made)]
    columns = "n.*, note as other, price"
    query = f"select {columns} from 'notes.csv' n join 'photos.csv' using (product)"
    for order, more in (("product", {}), ("random()", {}), ("random()", {"drop": ["price"]})):
        data = {"source": "duckdb", "query": f"{query} order by {order}", "key": "product", **more}
        found = read(section | {"data": data | {"types": {"note": "text", "other": "text"}}}, made)
        every.append(found.rows(torch.tensor([int(found.ids.index(f"p{row}")) for row in range(24)])))
    for found in every[2:]:
        assert torch.equal(found.values, every[1].values[:, 1 - len(found.names) % 2 :])
        assert torch.equal(found.values[:, -2:], every[0].values[:, -2:])


def test_losses_are_the_same_to_the_bit_with_and_without_what_is_kept(folder: Path) -> None:
    parties = {"shop": towers.photos(), "desk": towers.notes()}
    first = losses(trained(folder, parties))
    before = {path: path.read_bytes() for path in kept(folder)}
    assert before
    assert losses(trained(folder, parties)) == first
    assert {path: path.read_bytes() for path in kept(folder)} == before  # read, not made again
    without = {"shop": towers.photos(cache=False), "desk": towers.notes(cache=False)}
    assert losses(trained(folder, without)) == first


def test_only_the_owner_can_read_what_is_kept(folder: Path) -> None:
    images(folder)
    assert stat.S_IMODE((folder / ".embeddings").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept(folder)} == {0o600}


def test_another_image_of_the_same_name_is_embedded_anew(folder: Path) -> None:
    before = images(folder)
    photo = folder / "photos" / "0.png"
    then = photo.stat()
    photo.write_bytes((folder / "photos" / "1.png").read_bytes())
    os.utime(photo, ns=(then.st_atime_ns, then.st_mtime_ns))
    after = images(folder)
    assert torch.equal(after[0], before[1])
    assert not torch.equal(after[0], before[0])
    assert torch.equal(after[1:], before[1:])


def test_other_weights_of_the_same_name_embed_anew(folder: Path) -> None:
    before = images(folder)
    with torch.random.fork_rng(devices=[]):
        towers.example().image_tower(folder, seed=1)
    assert not (images(folder) == before).all(dim=1).any()


@pytest.mark.parametrize("spoil", ["torn", "altered", "shared"])
def test_what_is_kept_and_spoilt_is_made_again(folder: Path, spoil: str) -> None:
    before = images(folder)
    (path,) = kept(folder)
    content = bytearray(path.read_bytes())
    if spoil == "torn":
        path.write_bytes(content[:-100])
    elif spoil == "altered":
        content[-5] ^= 1
        path.write_bytes(content)
    else:
        key = path.name.partition("-")[0]
        tensors, _ = read_copy(path, key)
        write_copy(path, key, {"values": tensors["values"] + 1, "keys": tensors["keys"]}, {})
        assert not torch.equal(images(folder), before)  # whole, and ours alone: it is believed
        path.chmod(0o644)
    assert torch.equal(images(folder), before)


def test_a_folder_that_cannot_be_written_is_a_doubt(folder: Path) -> None:
    (folder / ".embeddings").write_text("")
    found = read(towers.photos(), folder)
    assert any("are not kept" in str(doubt) for doubt in found.doubts)


def test_a_frozen_tower_does_not_learn(made: Path) -> None:
    """What is trained is the layer behind it, on the same embeddings in every round."""
    outcome = trained(made, {"shop": towers.photos()})
    ctx = outcome.clients["shop"]
    assert [tuple(value.shape) for value in ctx.state["model"].parameters()] == [(4, ctx.features.shape[1]), (4,)]
    assert torch.equal(images(made), images(made))


def test_a_tower_that_is_tuned_learns_with_the_layer_behind_it(made: Path) -> None:
    parties = {"shop": towers.photos(tune=True), "desk": towers.notes(tune=True)}
    outcome = trained(made, parties, rounds=2)
    for name, file in (("shop", made / "tower.safetensors"), ("desk", made / "bert" / "model.safetensors")):
        found = outcome.clients[name].state["model"][0].inner.state_dict()
        weights = safetensors.torch.load_file(file)
        floats = [key for key in found if key in weights and found[key].is_floating_point()]
        assert len(floats) > 10
        moved = [key for key in floats if not torch.equal(found[key], weights[key])]
        assert len(moved) > len(floats) / 2
    assert outcome.clients["shop"].features.values.dtype == torch.uint8


def test_a_tuned_tower_begins_where_a_frozen_one_stays(made: Path) -> None:
    """Padding and pixels give the embeddings that one cell alone has."""
    for section, part in ((towers.photos, PRICE), (towers.notes, 0)):
        found = PartyConfig.model_validate(section(tune=True))
        rows = load_features(found.data, PartyIndex(0, 1), made).values.float()
        model = build_model(found.model, tuple(rows.shape[1:]), torch.Generator(), made).eval()
        with torch.inference_mode():
            embedded = model[0](rows)
        expected = read(section(), made).values[:, part:].float()
        torch.testing.assert_close(embedded, expected, rtol=1e-3, atol=1e-4)


def test_a_missing_cell_is_what_the_others_are_on_average(folder: Path) -> None:
    lines = (folder / "notes.csv").read_text().splitlines()
    (folder / "notes.csv").write_text("\n".join([lines[0], "p0,", *lines[2:]]) + "\n")
    with pytest.raises(DataError, match=r"notes\.csv, line 2, column 'note': the value is missing"):
        read(towers.notes(), folder)
    section = towers.notes()
    section["data"]["missing"] = "mean"
    found = read(section, folder)
    assert found.values[0].isnan().all()
    assert not found.values[1:].isnan().any()


def outside(folder: Path) -> str:
    (folder.parent / "secret.png").write_bytes((folder / "photos" / "0.png").read_bytes())
    return "../secret.png"


def linked(folder: Path) -> str:
    (folder / "photos" / "link.png").symlink_to("/etc/passwd")
    return "photos/link.png"


def broken(folder: Path) -> str:
    content = (folder / "photos" / "0.png").read_bytes()
    (folder / "photos" / "broken.png").write_bytes(content[: len(content) // 2])
    return "photos/broken.png"


def foreign(folder: Path) -> str:
    (folder / "photos" / "page.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    return "photos/page.eps"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (outside, "leads out of the table's folder"),
        (lambda _: "/etc/hostname", "leads out of the table's folder"),
        (linked, "leads out of the table's folder"),
        (lambda _: "photos/none.png", "cannot be read: No such file"),
        (lambda _: "photos", "cannot be read: Is a directory"),
        (broken, "is no image that can be read"),
        (foreign, "is no image that can be read"),
    ],
)
def test_a_path_that_is_no_image_of_the_table_is_refused_with_its_place(
    folder: Path, path: Callable[[Path], str], said: str
) -> None:
    lines = (folder / "photos.csv").read_text().splitlines()
    lines[4] = f"p3,{path(folder)},0.5"
    (folder / "photos.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=rf"photos\.csv, line 5, column 'photo'.*{said}"):
        images(folder)


def other_architecture(folder: Path) -> dict[str, Any]:
    return towers.photos(name="timm/test_vit")


def no_architecture(folder: Path) -> dict[str, Any]:
    return towers.photos(name="timm/test_resnett")


def pickled(folder: Path) -> dict[str, Any]:
    torch.save({}, folder / "tower.pth")
    return towers.photos(weights="tower.pth")


def torn(folder: Path) -> dict[str, Any]:
    (folder / "tower.safetensors").write_bytes((folder / "tower.safetensors").read_bytes()[:-9])
    return towers.photos()


def without_weights(folder: Path) -> dict[str, Any]:
    (folder / "bert" / "model.safetensors").unlink()
    return towers.notes()


def other_type(folder: Path) -> dict[str, Any]:
    return towers.notes(name="transformers/roberta")


def incomplete(folder: Path) -> dict[str, Any]:
    path = folder / "bert" / "model.safetensors"
    state = safetensors.torch.load_file(path)
    safetensors.torch.save_file(dict(list(state.items())[2:]), path, {"format": "pt"})
    return towers.notes()


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (other_architecture, "lacks"),
        (no_architecture, "timm has none of this name .did you mean 'test_resnet'"),
        (pickled, "is no .safetensors file"),
        (torn, "cannot be read"),
        (without_weights, "there is no file .*model.safetensors"),
        (other_type, "is of model_type 'bert'"),
        (incomplete, "the weights lack"),
        (lambda _: towers.notes(length=9), "reads 8 tokens at most"),
        (lambda _: {**towers.photos(tune=True), "data": towers.photos()["data"]}, "takes 'photo' alone"),
    ],
)
def test_a_tower_that_cannot_be_used_is_refused(
    folder: Path, section: Callable[[Path], dict[str, Any]], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        read(section(folder), folder)


def with_type(section: dict[str, Any], **types: str) -> dict[str, Any]:
    return {**section, "data": {**section["data"], "types": types}}


def with_data(section: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**section, "data": {**section["data"], **more}}


@pytest.mark.parametrize(
    ("section", "protocol", "said"),
    [
        ({**towers.photos(), "model": "mlp"}, {}, "column 'photo' is image, which parties.shop.model does not read"),
        (with_data(towers.photos(), store="disk"), {}, "embeddings of images and texts are kept in memory"),
        (with_type(towers.photos(), price="number"), {}, "no column is of type image"),
        (with_type(towers.photos(), photo="text"), {}, "reads columns of type image, and 'photo' is text"),
        (towers.photos(tune=True), {"name": "centralized"}, "which trains no model of it"),
        (with_type(towers.photos(tune=True), photo="image", price="image"), {}, "with 2 columns"),
        (with_data(towers.photos(tune=True), scale="unit"), {}, "the tower's own normalisation applies"),
        (with_data(towers.photos(tune=True), noise={"std": 1}), {}, "pixels and tokens take none"),
        ({**towers.photos(tune=True), "workers": 2}, {}, "ranks send each other"),
    ],
)
def test_columns_and_towers_that_do_not_fit_are_refused_by_check(
    section: dict[str, Any], protocol: dict[str, Any], said: str
) -> None:
    made = towers.tree({"shop": section}, **({"protocol": protocol} if protocol else {}))
    with pytest.raises(ConfigError, match=said):
        parse(made)


def test_a_library_that_does_not_load_is_told_with_the_party_and_the_tower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    (tmp_path / "photos.csv").write_text("product,photo\n" + "".join(f"p{row},0.png\n" for row in range(24)))
    (tmp_path / "returns.csv").write_text("product,returned\n" + "".join(f"p{row},{row % 2}\n" for row in range(24)))
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(towers.tree({"shop": towers.photos()})))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [*sys.modules]:
        if name.partition(".")[0] == "timm" or name.endswith(".timm_tower"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EnvironmentFault, match=r"^shop: model\.name = timm/test_resnet: torchvision and torch"):
        check(tmp_path / "shop.yaml", ())


def test_the_example_trains_and_predicts(folder: Path) -> None:
    """examples/towers, aligned by keys: resumed predictions read the table by the columns of training."""
    (folder / "shop.yaml").write_text((towers.EXAMPLE / "shop.yaml").read_text())
    run, ids, out = folder / "run", folder / "ids.csv", folder / "out.csv"
    ids.write_text("product\np3\np8\n")
    code, said = colonnade(
        "up", folder / "shop.yaml", "--out", run, "--set", "federation.rounds=20", "--set", "federation.batch=4"
    )
    assert code == 0, said
    code, said = colonnade("predict", run, "--ids", ids, "--out", out)
    assert code == 0, said
    with out.open() as file:
        assert {line["id"]: line["class"] for line in csv.DictReader(file)} == {"p3": "1", "p8": "0"}
    code, said = colonnade("export", run, "--party", "studio")
    assert code == 2
    assert "begins with the tower timm/test_resnet, which no export holds" in " ".join(said.split())
