"""Catalogue of known data sets: description, files with checksums, download addresses.

`origins` is empty where no known address serves the same bytes; `by_hand` then gives instructions.

A file is searched for next to the configuration, in $COLONNADE_DATA, and in the download cache.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from colonnade.common.errors import DataError, nearest


@dataclass(frozen=True)
class DataFile:
    """A file: size in bytes and SHA-256 (hexadecimal); its name tells if it is packed."""

    name: str
    bytes: int
    sha256: str

    @property
    def stem(self) -> str:
        """The name without .gz or .xz: the packed and the unpacked file are both accepted."""
        return self.name.removesuffix(".gz").removesuffix(".xz")


@dataclass(frozen=True)
class Archive:
    """A tar file that holds a set's files in one folder; `hash` is `md5:...` or `sha256:...`, as its publisher gives
    it.
    """

    url: str
    hash: str
    folder: str


@dataclass(frozen=True)
class DataSet:
    """A data set.

    Args:
        rows: number of rows, training and test together.
        licence: as its origin states it.
        files: empty for those that come with scikit-learn.
        origins: addresses that a file's name is appended to, tried in this order.
        archive: used instead where the files are served in one archive.
        classes: names in the order of label numbers, where labels are numbers.
    """

    title: str
    rows: int
    licence: str
    files: tuple[DataFile, ...] = ()
    origins: tuple[str, ...] = ()
    archive: Archive | None = None
    by_hand: str = ""
    classes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def _files(lines: str) -> tuple[DataFile, ...]:
    """One file a line: name, bytes, SHA-256."""
    rows = (line.split() for line in lines.splitlines() if line)
    return tuple(DataFile(name, int(size), sha256) for name, size, sha256 in rows)


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
# A commit, not a branch, so that the served bytes cannot change.
_MULTI_VIEW = (
    "https://raw.githubusercontent.com/ChuanbinZhang/Multi-view-datasets/03ead31e6538322e4e0701c3c28a01595c1a015d/"
)
_CC_BY = "CC BY 4.0"
_NONE = "none stated"

KNOWN: dict[str, DataSet] = {
    "digits": DataSet("Optical digits, UCI, test part", 1797, _CC_BY),
    "breast_cancer": DataSet("Breast Cancer Wisconsin (Diagnostic)", 569, _CC_BY),
    "wine": DataSet("Wine recognition", 178, _CC_BY),
    "iris": DataSet("Iris plants", 150, _CC_BY),
    "mnist": DataSet(
        title="MNIST handwritten digits",
        rows=70_000,
        licence="CC BY-SA 3.0",
        files=_files("""
train-images-idx3-ubyte.gz 9_912_422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
train-labels-idx1-ubyte.gz 28_881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
t10k-images-idx3-ubyte.gz 1_648_877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
t10k-labels-idx1-ubyte.gz 4_542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
"""),
        origins=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        classes=tuple("0123456789"),
    ),
    "fashion-mnist": DataSet(
        title="Fashion-MNIST",
        rows=70_000,
        licence="MIT",
        files=_files("""
train-images-idx3-ubyte.gz 26_421_880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
train-labels-idx1-ubyte.gz 29_515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
t10k-images-idx3-ubyte.gz 4_422_102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
t10k-labels-idx1-ubyte.gz 5_148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
"""),
        origins=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        classes=(
            "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
            "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
        ),
    ),
    "cifar10": DataSet(
        title="CIFAR-10, binary version",
        rows=60_000,
        licence=_NONE,
        files=_files("""
data_batch_1.bin 30_730_000 cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5
data_batch_2.bin 30_730_000 a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed
data_batch_3.bin 30_730_000 bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67
data_batch_4.bin 30_730_000 014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48
data_batch_5.bin 30_730_000 755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add
test_batch.bin 30_730_000 8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b
"""),
        archive=Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-batches-bin",
        ),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    ),
    "adult": DataSet(
        title="Adult (Census Income)",
        rows=48_842,
        licence=_CC_BY,
        files=_files("""
adult.data 3_974_305 5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d
adult.test 2_003_153 a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05
"""),
        origins=(f"{_UCI}/adult/",),
    ),
    "credit-default": DataSet(
        title="Default of Credit Card Clients",
        rows=30_000,
        licence=_CC_BY,
        files=_files("""
UCI_Credit_Card.csv 2_862_995 a0f0ab49d6326671d6cd83be5c88dcf18007025fe9a53ecd699119c871176ca1
"""),
        by_hand="get UCI_Credit_Card.csv from Kaggle (uciml/default-of-credit-card-clients-dataset)",
    ),
    "mfeat": DataSet(
        title="Multiple Features (Handwritten), six views",
        rows=2_000,
        licence=_CC_BY,
        files=_files("""
Handwritten.mat 3_483_654 6092a69891afa22785bffd5a4348f52d49a764aa5d40751ec2c4dc0f6ed48a44
"""),
        origins=(_MULTI_VIEW,),
    ),
    "scene15": DataSet(
        title="Scene-15, three views",
        rows=4_485,
        licence=_NONE,
        files=_files("""
Scene_15.mat 3_384_483 ec33b5e1f53eea04ccacc8b7bdfc6091ed490b04214eb41fd83c05a0a173221f
"""),
        by_hand="get Scene_15.mat from the repository UeharaSetsuYu/Multi-view-Datasets on GitHub",
    ),
    "msrc-v1": DataSet(
        title="MSRC-v1, five views",
        rows=210,
        licence=_NONE,
        files=_files("""
MSRC-v5.mat 1_114_703 3b3adfad0b4e484cef1c1ecd64ec887ddde9f7655ed638e2fee1f047ae2c9ff0
"""),
        origins=(_MULTI_VIEW,),
    ),
}  # fmt: skip


def known(name: str) -> DataSet:
    if name not in KNOWN:
        raise DataError(f"there is no data set {name!r}{nearest(name, KNOWN)}", hint="`colonnade datasets` lists them")
    return KNOWN[name]


VARIABLE = "COLONNADE_DATA"


def cache() -> Path:
    """The user's cache folder for downloads; of a user without a home, as in a container, one for temporary files."""
    try:
        return Path(platformdirs.user_cache_dir("colonnade"))
    except (RuntimeError, KeyError):
        return Path(tempfile.gettempdir()) / f"colonnade-{os.getuid()}"


def find(name: str, base: Path, fits: Callable[[Path], bool], what: str) -> Path:
    """The first place that fits: `base`/name, then $COLONNADE_DATA/name, then cache/name.

    Args:
        name: a path, or the name of a known set, which is also its folder's name.
        what: description of the wanted data, for the DataError if nothing fits.
    """
    tried = []
    for path in _candidates(_at_home(name), base):
        try:
            if fits(path):
                return path
        except PermissionError:
            hint = "run this as a user with permission to open the folder"
            raise DataError(f"{path} cannot be read: Permission denied", hint=hint) from None
        tried.append(str(path))
    if found := next((said for path in tried if (said := _instead(Path(path)))), ""):
        raise DataError(f"{found}, and no {what}", hint=_hint(name))
    raise DataError(f"no {what} at {' or '.join(tried)}", hint=_hint(name))


def _at_home(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise DataError(f"{name}: this user has no home folder", hint="write the whole path, or set HOME") from None


def find_file(name: str, base: Path, what: str = "file") -> Path:
    """The first place with a readable file that is not empty. Raises DataError like `find`."""
    path = find(name, base, Path.is_file, what)
    refuse_unusable(path)
    return path


def refuse_unusable(path: Path) -> None:
    """Raises DataError if a path is a folder, is empty or cannot be read."""
    if said := _instead(path):
        raise DataError(said, hint="name a file")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        hint = "run this as a user with permission to read it" if isinstance(error, PermissionError) else ""
        raise DataError(f"{path} cannot be read: {error.strerror}", hint=hint or "correct the path") from None
    if empty:
        raise DataError(f"{path} is empty", hint="write it again, or name another file")


def _instead(path: Path) -> str:
    """Describes a path that should be a file and is something else; "" for a file or a missing path."""
    if path.is_dir():
        return f"{path} is a folder"
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to {path.readlink()}, which is not there"
    return "" if path.is_file() or not path.exists() else f"{path} is no plain file"


def _candidates(name: Path, base: Path) -> Iterator[Path]:
    yield base / name
    if not name.is_absolute():
        yield from (root / name for root in _roots())


def _roots() -> Iterator[Path]:
    if root := os.environ.get(VARIABLE):
        yield Path(root)
    if not (own := cache()).exists() or own.stat().st_uid == os.getuid():  # a temporary folder may be another user's
        yield own


def _hint(name: str) -> str:
    if name not in KNOWN:
        return f"correct the path, or set {VARIABLE} to the folder that holds {name}"
    get = KNOWN[name].by_hand or f"run `colonnade datasets fetch {name}`"
    return f"{get}, or set {VARIABLE} to the folder that holds {name}/"


@dataclass(frozen=True)
class Presence:
    """The folder that holds a set, and the number of its files present."""

    folder: Path
    files: int


def presence(name: str, data_set: DataSet) -> Presence | None:
    """Location of a set: $COLONNADE_DATA or the cache, whichever holds more of its files."""
    found = [Presence(root / name, sum(_has(root / name, file.stem) for file in data_set.files)) for root in _roots()]
    best = max(found, key=lambda place: place.files)
    return best if best.files else None


def _has(folder: Path, stem: str) -> bool:
    return any((folder / f"{stem}{packed}").is_file() for packed in ("", ".gz", ".xz"))
