"""`colonnade certs`: keys, certificates and the revocation list; `colonnade token`.

Every party makes its own key, which never leaves its machine; the authority only signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.authority import Authority, Role, make_federation, make_request, read_request
from colonnade.common.crypto.pki.certificates import certificate_pem, describe, in_words, name_of, read_certificate
from colonnade.common.crypto.pki.identity import PrivateKey, key_fingerprint, load_key, new_key, save_key
from colonnade.common.crypto.pki.names import LOOPBACK, SERVER, check_fingerprint
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import IdentityError
from colonnade.reports.console.screen import err
from colonnade.reports.console.screen import out as console
from colonnade.server.prediction.serving.tokens import add_caller

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(metavar="DIR", show_default=False)]
Days = Annotated[int, typer.Option(help="Validity in days.")]
Dns = Annotated[list[str] | None, typer.Option(metavar="NAME", help="A DNS name of the server; repeatable.")]
Ip = Annotated[list[str] | None, typer.Option(metavar="IP", help="An IP address of the server; repeatable.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


@app.command()
def ca(folder: Folder, days: Days = 3650) -> None:
    """Make a certificate authority in DIR, on a machine that stays offline."""
    authority = Authority.make_in(folder, days=days)
    console.say(f"Made the authority {describe(authority.certificate).subject!r} in {folder}.")
    console.say(f"  Keep {folder / 'key.pem'} here: anyone who holds it can sign any name.")
    console.say(f"  Give {folder / 'cert.pem'} to the server and every party, as their ca.pem.")
    console.say(f"Next, for each request: colonnade certs sign FILE.csr --ca {folder} --out cert.pem")


@app.command()
def request(
    name: Annotated[str, typer.Argument(help="The party's name, or `server`.", show_default=False)],
    folder: Folder,
    *,
    dns: Dns = None,
    ip: Ip = None,
    loopback: Annotated[bool, typer.Option("--loopback", help="Also localhost, 127.0.0.1, ::1.")] = False,
    force: Force = False,
) -> None:
    """Make a key and a certificate request for NAME in DIR."""
    key = new_key()
    made = make_request(key, name, [*(dns or ()), *(ip or ()), *(LOOPBACK if loopback else ())])
    path = files.make_folder(folder) / "key.pem"
    if path.exists() and not force:
        raise IdentityError(
            f"{path} exists already and is not overwritten",
            hint=f"for a new certificate: colonnade certs renew {folder}; for a new key: --force",
        )
    save_key(key, path, overwrite=force)
    _keep_request(made, key, name, folder)


@app.command()
def renew(folder: Folder) -> None:
    """Make a new request from the key and certificate in DIR."""
    missing = f"make a first one: colonnade certs request NAME {folder}"
    key = load_key(folder / "key.pem", hint=missing)
    path = folder / "cert.pem"
    certificate = read_certificate(files.read(path, own=True, hint=missing), str(path))
    name = name_of(certificate)
    made = make_request(key, name, describe(certificate).hosts)
    _keep_request(made, key, name, folder)
    console.say("The new certificate has a new fingerprint: every roster has to pin that one.")


@app.command()
def sign(
    requested: Annotated[Path, typer.Argument(metavar="REQUEST", help="A .csr file.", show_default=False)],
    *,
    authority: Annotated[Path, typer.Option("--ca", metavar="DIR", help="The authority's folder.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Certificate file to write.")],
    days: Days = 365,
    role: Annotated[Role, typer.Option(help="Role of its owner.")] = Role.PARTY,
    force: Force = False,
) -> None:
    """Sign a request with the authority in --ca."""
    pem = files.read(requested, hint="it is made by: colonnade certs request NAME DIR")
    certificate = Authority.load(authority).sign(pem, role=role, days=days)
    shown = describe(certificate)
    files.write(out, certificate_pem(certificate), overwrite=force, hint="name another file, or --force")
    console.say(f"Signed {shown.subject!r} until {in_words(shown.valid_until)} into {out}.")
    console.say(f"  The key it is for: {key_fingerprint(read_request(pem).public_key)}")
    console.say(f"  Ask {shown.subject} by another way, a telephone say, whether this is its key.")
    if shown.hosts:
        console.say(f"  It answers as: {', '.join(shown.hosts)}")
    console.say(f"Next: send back {out} as cert.pem, and {authority / 'cert.pem'} as ca.pem; and pin")
    console.say(f"  {shown.subject}: {shown.fingerprint}")
    console.say("in the roster of the server and of every party:")
    console.say(f"  colonnade certs pin FILE {shown.subject}={out} --ca {authority / 'cert.pem'}")


@app.command()
def show(paths: Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)]) -> None:
    """Print the subject, fingerprint and validity of certificates."""
    for path in paths:
        certificate = read_certificate(files.read(path, hint="name a certificate's file"), str(path))
        shown = describe(certificate)
        console.say(f"{shown.subject}  ({path})")
        console.say(f"  fingerprint  {shown.fingerprint}")
        console.say(f"  holds        {_period(shown.valid_from, shown.valid_until)}")
        console.say(f"  issuer       {shown.issuer}")
        console.say(f"  serial       {shown.serial}")
        if shown.hosts:
            console.say(f"  answers as   {', '.join(shown.hosts)}")


@app.command()
def pin(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with the roster.", show_default=False)],
    named: Annotated[
        list[str],
        typer.Argument(metavar="NAME=CERT...", help="Members and their certificates' files.", show_default=False),
    ],
    *,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="CERT", help="The authority's; otherwise ca.pem beside them.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace other fingerprints.")] = False,
) -> None:
    """Write the fingerprints of certificates into a configuration's roster, and show them."""
    from colonnade.cli.keys import pins  # noqa: PLC0415  # .2 s of imports, for one command of six

    pins.pin(file, named, ca, replace=replace)


@app.command()
def revoke(
    which: Annotated[str, typer.Argument(metavar="FILE|FINGERPRINT", show_default=False)],
    listed: Annotated[Path, typer.Option("--list", metavar="FILE", help="The list; made if missing.")],
    reason: Annotated[str, typer.Option(help="Reason; it is sent to the party.")],
) -> None:
    """Add a certificate to a revocation list, for good."""
    known = check_fingerprint(which) if which.startswith("sha256:") else _certificate(Path(which))
    held = RevocationList(listed) if listed.exists() else RevocationList.create(listed)
    entry = held.revoke(known, reason)
    console.say(f"{entry.name or 'The certificate'} {entry.fingerprint} is revoked since {entry.time}:")
    console.say(f"  {entry.reason}")
    console.say("A process that was started with this list turns it away from now on. Others need a copy.")


@app.command("all")
def everyone(
    folder: Folder,
    parties: Annotated[str, typer.Option(metavar="A,B,C", help="The parties' names, by commas.")],
    dns: Dns = None,
    ip: Ip = None,
    days: Days = 30,
) -> None:
    """Make an authority, the server's identity and every party's in DIR, for demos."""
    hosts: Sequence[str] = [*LOOPBACK, *(dns or ()), *(ip or ())]
    prints = make_federation(folder, [name.strip() for name in parties.split(",")], hosts, days=days)
    for name, fingerprint in prints.items():
        console.say(f"{name}: {fingerprint}")
    err.say(
        f"Warning: {folder} holds everyone's private key. Whoever reads it can be anyone: this is for "
        "demos. In a federation of several organisations each runs `colonnade certs request` itself.",
        style="yellow",
    )


def _keep_request(made: bytes, key: PrivateKey, name: str, folder: Path) -> None:
    path = folder / "request.csr"
    files.write(path, made, overwrite=True)
    role = " --role server" if name == SERVER else ""
    console.say(f"Made a request for {name!r} in {path}.")
    console.say(f"  Keep {folder / 'key.pem'} here, and send it to nobody.")
    console.say(f"  The key's fingerprint: {key_fingerprint(key.public_key())}")
    console.say(f"Next: send {path} to the holder of the authority, who runs")
    console.say(f"  colonnade certs sign request.csr --ca DIR --out {name}.pem{role}")
    console.say(f"Save the returned files as {folder / 'cert.pem'} and {folder / 'ca.pem'}.")


def _certificate(path: Path) -> bytes:
    return certificate_pem(read_certificate(files.read(path, hint=_WHICH), str(path)))


def _period(begin: datetime, end: datetime) -> str:
    now = datetime.now(UTC)
    state = " (EXPIRED)" if now > end else " (NOT YET)" if now < begin else ""
    return f"{in_words(begin)} until {in_words(end)}{state}"


_WHICH = "name a certificate's file, or its fingerprint: sha256: and 64 hex digits"


def token(
    name: Annotated[str, typer.Argument(help="the caller's name", show_default=False)],
    tokens: Annotated[
        Path, typer.Option("--tokens", metavar="FILE", help="as `serve` reads it: RUN/serve.tokens", show_default=False)
    ],
) -> None:
    console.say(add_caller(tokens, name))
