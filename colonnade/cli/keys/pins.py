"""`colonnade certs pin`: writes fingerprints of members' certificates into a configuration's roster."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.cli.keys.roster_text import RosterText
from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.certificates import (
    Certificate,
    check_validity,
    describe,
    fingerprint,
    is_authority,
    name_of,
    read_certificate,
)
from colonnade.common.crypto.pki.identity import signed_by
from colonnade.common.crypto.pki.names import SERVER
from colonnade.common.errors import IdentityError, InputError, nearest
from colonnade.common.run.durable import write_kept
from colonnade.reports.console.screen import out as console

_EXAMPLE = "for example server=server/cert.pem bank=bank.pem"


@dataclass(frozen=True)
class Pinning:
    """A checked change of one file's roster, not yet written.

    Args:
        pins: new fingerprints by name.
        authority: certificate that signed all of them.
    """

    roster: RosterText
    pins: Mapping[str, str]
    authority: Certificate

    def write(self) -> None:
        """Prints every fingerprint, and writes the new ones; the file keeps its permissions."""
        roster, path = self.roster, self.roster.path.resolve()
        new = {name: pin for name, pin in self.pins.items() if roster.pin(name) != pin}
        text = roster.pinned(new)
        console.say(f"{roster.path}: the roster of {roster.name!r}")
        width = max(map(len, self.pins))
        for name, pin in self.pins.items():
            before = roster.pin(name)
            state = "as before" if before == pin else f"before: {before}" if before else "new"
            console.say(f"  {name:{width}}  {pin}  {state}")
        shown = describe(self.authority)
        console.say(f"Signed by {shown.subject}, {shown.fingerprint}.")
        if new:
            mode = stat.S_IMODE(path.stat().st_mode)
            write_kept(path, text.encode("utf-8"))
            path.chmod(mode)
            console.say(f"Wrote into {roster.path}: {', '.join(new)}.")
        else:
            console.say(f"Nothing to write: {roster.path} has all of them.")
        self._say_next()

    def _say_next(self) -> None:
        names = [name for name in self.roster.roster if name not in self.pins and not self.roster.pin(name)]
        if names:
            console.say(f"Still without a fingerprint: {', '.join(names)}.")
        console.say("Next, by telephone: each member reads out what `colonnade certs show cert.pem` prints at its own")
        console.say("  machine. Compare all digits: a file that came by mail can be somebody else's.")
        parties = [name for name in self.roster.roster if name != SERVER]
        console.say(f"The federation section must be the same in the files of {', '.join((SERVER, *parties))}.")


def prepare(path: Path, named: Sequence[str], authority: Path | None, *, replace: bool) -> Pinning:
    """Checks certificates against a file's roster and their authority. Writes nothing.

    Args:
        path: YAML with a `federation` section.
        named: NAME=FILE, a member of the roster and its certificate.
        authority: certificate that must have signed them; None for the `ca.pem` beside them.
        replace: whether other fingerprints may be replaced.
    """
    roster = RosterText(path)
    paths = _paths(named)
    for name in paths:
        if name not in roster.roster:
            raise IdentityError(
                f"{path}: no member {name!r} is in the roster{nearest(name, roster.roster)}",
                hint=f"add it to federation.parties, or give one of {', '.join(roster.roster)}",
            )
    certificates = {name: _read(name, file) for name, file in paths.items()}
    issuer = _authority(authority, list(paths.values()))
    for name, certificate in certificates.items():
        if not signed_by(certificate, issuer):
            raise IdentityError(
                f"{paths[name]} is not signed by the authority {describe(issuer).subject}",
                hint="all members need certificates of one authority; --ca FILE names its certificate",
            )
    pins = {name: fingerprint(certificate) for name, certificate in certificates.items()}
    _refuse_replaced(roster, pins, replace=replace)
    return Pinning(roster, pins, issuer)


def _paths(named: Sequence[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for word in named:
        name, equals, file = word.partition("=")
        if not (name and equals and file):
            raise InputError(f"{word!r}: expected NAME=FILE", hint=_EXAMPLE)
        if name in found:
            raise InputError(f"{name!r} is given twice", hint="give one certificate for each member")
        found[name] = Path(file)
    return found


def _read(name: str, path: Path) -> Certificate:
    """Reads a member's certificate, which must be valid now."""
    pem = files.read(path, hint=f"give the certificate that was signed for {name}: colonnade certs sign")
    if b"PRIVATE KEY-----" in pem:
        raise IdentityError(
            f"{path} is a private key, not a certificate",
            hint=f"give cert.pem; if {path.name} was sent to anyone, make a new key and certificate",
        )
    if b"CERTIFICATE REQUEST-----" in pem:
        raise IdentityError(
            f"{path} is a request, not a certificate", hint="have it signed first: colonnade certs sign"
        )
    certificate = read_certificate(pem, str(path))
    if is_authority(certificate):
        raise IdentityError(f"{path} is an authority's certificate, not that of {name!r}", hint=f"give {name}'s own")
    if (found := name_of(certificate)) != name:
        raise IdentityError(
            f"{path} is the certificate of {found!r}, not of {name!r}", hint="check which file belongs to which member"
        )
    renew = f"have it renewed: colonnade certs renew DIR at {name}, then colonnade certs sign"
    check_validity(certificate, f"the certificate of {name!r} ({path})", hint=renew)
    return certificate


def _authority(given: Path | None, certificates: Sequence[Path]) -> Certificate:
    beside = [path.parent / "ca.pem" for path in certificates]
    paths = [given] if given is not None else [path for path in dict.fromkeys(beside) if path.exists()]
    if not paths:
        raise IdentityError(
            "no certificate of an authority is beside the members' certificates",
            hint="name it: --ca ca/cert.pem",
        )
    read = {path: read_certificate(files.read(path, hint="name the authority's cert.pem"), str(path)) for path in paths}
    if len({fingerprint(certificate) for certificate in read.values()}) > 1:
        raise IdentityError(
            f"{' and '.join(map(str, paths))} are certificates of different authorities",
            hint="ask for the right one by telephone, and name it: --ca FILE",
        )
    path, certificate = next(iter(read.items()))
    if not is_authority(certificate):
        raise IdentityError(
            f"{path} is {describe(certificate).subject}'s certificate, no authority's",
            hint="give cert.pem of the folder that `colonnade certs ca DIR` made",
        )
    check_validity(certificate, f"the authority {path}", hint="make a new one: colonnade certs ca DIR")
    return certificate


def _refuse_replaced(roster: RosterText, pins: Mapping[str, str], *, replace: bool) -> None:
    others = [name for name, pin in pins.items() if roster.pin(name) not in ("", pin)]
    if others and not replace:
        lines = "; ".join(f"{name}: {roster.pin(name)}, and the certificate is {pins[name]}" for name in others)
        raise IdentityError(
            f"{roster.path} pins another certificate already: {lines}",
            hint="ask by telephone whether the certificate was renewed; if it was, add --replace",
        )
