"""Creation of all identities of a federation in one step, for demos: one machine then holds every key."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.authority import Authority, Role
from colonnade.common.crypto.pki.certificates import certificate_pem, fingerprint
from colonnade.common.crypto.pki.keys import key_pem, new_key
from colonnade.common.crypto.pki.names import LOOPBACK, SERVER, check_party_name
from colonnade.common.crypto.pki.requests import make_request
from colonnade.common.errors import IdentityError

_NEW = "name a folder that is new or empty"


def make_federation(
    folder: Path, names: Sequence[str], server_names: Sequence[str] = LOOPBACK, *, days: int = 30
) -> dict[str, str]:
    """Creates an authority, the server's identity and every party's; all of it appears at once, or nothing.

    Args:
        folder: new or empty; gets `ca/` (`key.pem`, `cert.pem`) and, for the server and each party, `NAME/` with
            `key.pem`, `cert.pem` and `ca.pem`. Only its owner can enter it.
        server_names: DNS names and IP addresses under which the server is dialled.

    Returns:
        The fingerprints by name, the server's first, as a roster pins them.
    """
    parties = [check_party_name(name) for name in names]
    if twice := sorted({name for name in parties if parties.count(name) > 1}):
        raise IdentityError(f"the party {twice[0]!r} is named twice", hint="give each party its own name")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise IdentityError(f"cannot make {folder}: it is in use", hint=_NEW)
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    try:
        files.make_folder(folder.parent)
        prints = _fill(draft, parties, server_names, days)
        draft.rename(folder)
    except OSError as error:
        raise IdentityError(f"cannot make {folder}: {error.strerror or error}", hint=_NEW) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return prints


def _fill(folder: Path, parties: Sequence[str], server_names: Sequence[str], days: int) -> dict[str, str]:
    authority = Authority.make(days=days)
    ca = certificate_pem(authority.certificate)
    folder.mkdir(mode=0o700)
    _put(folder / "ca", {"key.pem": key_pem(authority.key), "cert.pem": ca})
    prints = {}
    for name in (SERVER, *parties):
        role, hosts = (Role.SERVER, server_names) if name == SERVER else (Role.PARTY, ())
        key = new_key()
        certificate = authority.sign(make_request(key, name, hosts), role=role, days=days)
        pem = certificate_pem(certificate)
        _put(folder / name, {"key.pem": key_pem(key), "cert.pem": pem, "ca.pem": ca})
        prints[name] = fingerprint(certificate)
    return prints


def _put(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(mode=0o700)
    for name, data in contents.items():
        files.create(folder / name, data, mode=files.PRIVATE if name == "key.pem" else files.PUBLIC)
