"""Output of deploy/kubernetes by kustomize: against the API's schemas, and against the documented properties."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.common.crypto.pki.authority import Authority, make_federation
from colonnade.common.crypto.pki.certificates import certificate_pem
from colonnade.common.crypto.pki.identity import IdentityFiles, load_identity
from colonnade.common.errors import IdentityError
from colonnade.common.version import VERSION as COLONNADE

ROOT = Path(__file__).parents[2] / "deploy" / "kubernetes"
VERSION = "1.32"
SINGLE = ("given/server", "given/party", "cert-manager/server", "cert-manager/party", "load-balancer")
OVERLAYS = (*SINGLE, "demo")
RENDERED = (*OVERLAYS, "ranks")
GIVEN = [
    *("config.yaml", "revoked.json", "keys/key.pem", "keys/cert.pem", "keys/ca.pem"),
    *("data/labels.safetensors", "data/columns.safetensors"),
]

Document = dict[str, Any]


def _renderer() -> list[str]:
    """kustomize, or the one in kubectl; version 5 at least."""
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    return ["kubectl", "kustomize"] if shutil.which("kubectl") else []


pytestmark = pytest.mark.skipif(not _renderer(), reason="neither kustomize nor kubectl is here")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Document]]:
    """The documents of every overlay, with an operator's files for each that needs some."""
    tree = shutil.copytree(ROOT, tmp_path_factory.mktemp("kubernetes") / "kubernetes")
    for overlay in tree.glob("overlays/**/kustomization.yaml"):
        for name in GIVEN:
            path = overlay.parent / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{overlay.parent.name}: {name}\n")
    return {name: _render(tree / "overlays" / name) for name in RENDERED}


def _render(overlay: Path) -> list[Document]:
    ended = subprocess.run([*_renderer(), str(overlay)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "deprecated" not in ended.stderr, ended.stderr
    return list(yaml.safe_load_all(ended.stdout))


def of(documents: list[Document], kind: str) -> list[Document]:
    return [document for document in documents if document["kind"] == kind]


def pods(documents: list[Document]) -> Iterator[tuple[str, dict[str, str], Document]]:
    """Name, labels and pod spec of every workload."""
    for document in documents:
        if "template" in document.get("spec", {}):
            template = document["spec"]["template"]
            yield document["metadata"]["name"], template["metadata"]["labels"], template["spec"]


@pytest.fixture(scope="module")
def kubernetes_validate() -> ModuleType:
    """Its import takes seconds, which no worker that has none of these tests is to spend."""
    return importlib.import_module("kubernetes_validate")


@pytest.mark.parametrize("overlay", RENDERED)
def test_every_document_is_valid_for_the_api(
    rendered: dict[str, list[Document]], kubernetes_validate: ModuleType, overlay: str
) -> None:
    for document in rendered[overlay]:
        if document["apiVersion"] != "cert-manager.io/v1":  # not of the API itself
            kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_schemas_would_notice_a_slip(rendered: dict[str, list[Document]], kubernetes_validate: ModuleType) -> None:
    (job,) = of(rendered["given/server"], "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    slip = {**job, "spec": {**job["spec"], "template": {"spec": {"containers": [{**container, "imagee": "x"}]}}}}
    with pytest.raises(kubernetes_validate.ValidationError, match="imagee"):
        kubernetes_validate.validate(slip, VERSION, strict=True)


@pytest.mark.parametrize("overlay", RENDERED)
def test_nothing_runs_with_more_rights_than_it_needs(rendered: dict[str, list[Document]], overlay: str) -> None:
    """The API's own profile `restricted`, and a read-only root file system."""
    for name, _, pod in pods(rendered[overlay]):
        shared = pod["securityContext"]
        assert shared["runAsNonRoot"] is True and shared["runAsUser"] == shared["fsGroup"] == 10001, name
        assert shared["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)
        assert all(set(volume) <= {"name", *ALLOWED} for volume in pod["volumes"]), name
        for container in pod["containers"]:
            own = container["securityContext"]
            assert own == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert set(container["resources"]) == {"requests", "limits"}
            assert container["image"] == f"colonnade:{COLONNADE}"


ALLOWED = ("configMap", "secret", "persistentVolumeClaim", "emptyDir")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_member_is_asked_how_it_is(rendered: dict[str, list[Document]], overlay: str) -> None:
    for _, _, pod in pods(rendered[overlay]):
        (container,) = pod["containers"]
        assert container["livenessProbe"]["grpc"] == container["startupProbe"]["grpc"] == {"port": 7401}
        assert container["readinessProbe"]["grpc"] == {"port": 7401, "service": "colonnade"}
        assert pod["terminationGracePeriodSeconds"] == 15


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_secret_is_mounted_in_its_member_alone_and_nobody_else_reads_it(
    rendered: dict[str, list[Document]], overlay: str
) -> None:
    owners: dict[str, list[str]] = {}
    for name, _, pod in pods(rendered[overlay]):
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
        for volume in pod["volumes"]:
            if "secret" in volume:
                owners.setdefault(volume["secret"]["secretName"], []).append(name)
                assert volume["secret"]["defaultMode"] == 0o400 and mounts[volume["name"]]["readOnly"] is True
            if "configMap" in volume and not volume["configMap"].get("optional"):
                owners.setdefault(volume["configMap"]["name"], []).append(name)
        assert not any("secretKeyRef" in str(variable) for variable in container.get("env", []))
    assert owners and all(len(members) == 1 for members in owners.values()), owners
    made = {d["metadata"]["name"] for kind in ("Secret", "ConfigMap") for d in of(rendered[overlay], kind)}
    made |= {certificate["spec"]["secretName"] for certificate in of(rendered[overlay], "Certificate")}
    assert set(owners) == made - {"server-revoked"}


def test_the_demo_gives_every_member_its_own_files(rendered: dict[str, list[Document]]) -> None:
    demo = rendered["demo"]
    kept = {document["metadata"]["name"]: document for document in demo}
    for name, _, pod in pods(demo):
        (config,) = (v["configMap"]["name"] for v in pod["volumes"] if v["name"] == "config")
        assert kept[config]["data"]["config.yaml"] == f"{name}: config.yaml\n"
    assert [name for name, _, _ in pods(demo)] == ["party1", "party2", "party3", "party4", "server"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_has_one_policy_which_allows_the_one_port(rendered: dict[str, list[Document]], overlay: str) -> None:
    policies = of(rendered[overlay], "NetworkPolicy")
    for name, labels, _ in pods(rendered[overlay]):
        chosen = [p["spec"] for p in policies if _selects(p["spec"]["podSelector"], labels)]
        (policy,) = chosen
        assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
        ports = {port["port"] for rule in policy.get("ingress") or [] for port in rule["ports"]}
        out = {port["port"] for rule in policy.get("egress") or [] for port in rule["ports"]}
        assert (ports, out) == (({7400}, set()) if name == "server" else (set(), {7400, 53}))


def test_a_partys_ranks_are_one_group_that_only_its_own_pods_reach(rendered: dict[str, list[Document]]) -> None:
    documents = rendered["ranks"]
    found = {name: (labels, pod) for name, labels, pod in pods(documents)}
    variables = {
        name: {one["name"]: one["value"] for one in pod["containers"][0]["env"]} for name, (_, pod) in found.items()
    }
    (job,) = (job for job in of(documents, "Job") if job["metadata"]["name"] == "party-ranks")
    assert job["spec"]["completionMode"] == "Indexed"
    size = {int(each["WORLD_SIZE"]) for each in variables.values()}
    assert size == {job["spec"]["completions"] + 1} == {job["spec"]["parallelism"] + 1}
    assert {each["LOCAL_WORLD_SIZE"] for each in variables.values()} == {"1"} and variables["party"]["RANK"] == "0"
    assert len({each["MASTER_PORT"] for each in variables.values()}) == 1
    (service,) = of(documents, "Service")
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert variables["party-ranks"]["MASTER_ADDR"] == service["metadata"]["name"]
    assert [name for name, (labels, _) in found.items() if service["spec"]["selector"].items() <= labels.items()] == [
        "party"
    ]
    (policy,) = (one["spec"] for one in of(documents, "NetworkPolicy") if one["metadata"]["name"] == "party-ranks")
    (ingress,), (egress, _names) = policy["ingress"], policy["egress"]
    (chosen,) = policy["podSelector"]["matchExpressions"]
    assert ingress == {"from": [{"podSelector": policy["podSelector"]}]} and egress["to"] == ingress["from"]
    assert {labels[chosen["key"]] for labels, _ in found.values()} == set(chosen["values"])
    assert {volume["name"] for volume in found["party-ranks"][1]["volumes"]} == {"config", "tmp"}
    assert all("kueue.x-k8s.io/queue-name" in job["metadata"]["labels"] for job in of(documents, "Job"))


@pytest.mark.parametrize("file", sorted(ROOT.rglob("policy.yaml")), ids=lambda file: file.parent.name)
def test_no_rule_lets_a_party_reach_every_host(file: Path) -> None:
    for rule in yaml.safe_load(file.read_text())["spec"]["egress"]:
        assert rule["to"] and all(peer for peer in rule["to"])


@pytest.mark.parametrize("overlay", ["given/party", "cert-manager/party"])
def test_a_party_reaches_one_address_of_a_server_elsewhere(overlay: str) -> None:
    (patch,) = (
        yaml.safe_load(one["patch"])
        for one in yaml.safe_load((ROOT / "overlays" / overlay / "kustomization.yaml").read_text())["patches"]
        if one.get("target", {}).get("kind") == "NetworkPolicy"
    )
    assert patch == [{"op": "replace", "path": "/spec/egress/0/to", "value": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}]


def test_manifests_pull_the_image_of_this_version() -> None:
    for member in ("server", "party"):
        base = yaml.safe_load((ROOT / "base" / member / "kustomization.yaml").read_text())
        assert base["images"] == [{"name": "colonnade", "newTag": COLONNADE}]
    assert set(re.findall(r"colonnade:(\d[\w.]*\w)", (ROOT / "README.md").read_text())) == {COLONNADE}


def test_in_the_demo_parties_reach_only_the_server(rendered: dict[str, list[Document]]) -> None:
    demo = rendered["demo"]
    labels = {name: labels for name, labels, _ in pods(demo)}
    for policy in of(demo, "NetworkPolicy"):
        for rule in policy["spec"].get("egress") or []:
            if rule["ports"][0]["port"] == 7400:
                (peer,) = rule["to"]
                assert [n for n in labels if _selects(peer["podSelector"], labels[n])] == ["server"]


def _selects(selector: Document, labels: dict[str, str]) -> bool:
    wanted = selector["matchLabels"]
    return bool(wanted) and wanted.items() <= labels.items()


@pytest.mark.parametrize("overlay", ["given/server", "load-balancer", "cert-manager/server", "demo"])
def test_the_service_finds_the_server_before_it_is_ready(rendered: dict[str, list[Document]], overlay: str) -> None:
    (service,) = of(rendered[overlay], "Service")
    spec = service["spec"]
    assert spec["type"] == ("LoadBalancer" if overlay == "load-balancer" else "ClusterIP")
    selected = [name for name, labels, _ in pods(rendered[overlay]) if spec["selector"].items() <= labels.items()]
    assert selected == ["server"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_members_end_and_are_started_again_only_where_that_helps(
    rendered: dict[str, list[Document]], overlay: str
) -> None:
    for job in of(rendered[overlay], "Job"):
        never, ignore = job["spec"]["podFailurePolicy"]["rules"]
        assert never["action"] == "FailJob" and never["onExitCodes"]["values"] == [2, 5, 6]
        assert ignore["action"] == "Ignore"
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"  # required by podFailurePolicy
        claims = [v for v in job["spec"]["template"]["spec"]["volumes"] if v["name"] == "run"]
        assert claims[0]["persistentVolumeClaim"]["claimName"] in {
            claim["metadata"]["name"] for claim in of(rendered[overlay], "PersistentVolumeClaim")
        }


# Keys as Kubernetes mounts them.


@pytest.fixture
def entered() -> Iterator[Path]:
    """A folder that other users can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
@pytest.mark.parametrize(
    ("mode", "group", "taken"), [(0o440, 10001, True), (0o440, 10002, False), (0o444, 10001, False)]
)
def test_a_mounted_key_is_read_by_our_user_through_its_group(entered: Path, mode: int, group: int, taken: bool) -> None:
    """The kubelet links files twice, gives them to root and the fsGroup, and adds the group's right to read."""
    make_federation(entered / "made", ["bank"])
    keys, real = entered / "keys", entered / "keys" / "..2026_01_01"
    real.mkdir(parents=True)
    for name in ("key.pem", "cert.pem", "ca.pem"):
        shutil.copy(entered / "made" / "bank" / name, real / name)
        os.chown(real / name, 0, group)
        (real / name).chmod(mode)
        (keys / name).symlink_to(Path("..data") / name)
    (keys / "..data").symlink_to(real.name)
    keys.chmod(0o1777)  # its mount is a file system in memory
    assert _loads(keys, 10001) == taken


def _loads(keys: Path, user: int) -> bool:
    """True if a process of that user and group accepts the identity."""
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            load_identity(keys)
        except IdentityError:
            os._exit(1)
        except BaseException:  # noqa: BLE001  # whatever it is, the child ends here
            os._exit(2)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


@pytest.mark.parametrize("member", ["server", "party"])
def test_a_certificate_of_cert_manager_by_our_request_is_an_identity(
    rendered: dict[str, list[Document]], member: str, tmp_path: Path
) -> None:
    (asked,) = (certificate["spec"] for certificate in of(rendered[f"cert-manager/{member}"], "Certificate"))
    assert asked["privateKey"] | {"rotationPolicy": ""} == {
        "algorithm": "ECDSA", "size": 256, "encoding": "PKCS8", "rotationPolicy": ""
    }  # fmt: skip
    authority, key = Authority.make(), ec.generate_private_key(ec.SECP256R1())
    secret = {
        "tls.key": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        "tls.crt": certificate_pem(_issue(asked, key, authority)),
        "ca.crt": certificate_pem(authority.certificate),
    }
    (pod,) = (pod for _, _, pod in pods(rendered[f"cert-manager/{member}"]))
    (keys,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == "keys")
    assert keys["secretName"] == asked["secretName"]
    for item in keys["items"]:
        (tmp_path / item["path"]).write_bytes(secret[item["key"]])
        (tmp_path / item["path"]).chmod(keys["defaultMode"])
    assert load_identity(IdentityFiles.in_folder(tmp_path)).name == asked["commonName"]


def _issue(asked: Document, key: ec.EllipticCurvePrivateKey, authority: Authority) -> x509.Certificate:
    """A certificate with the names of the request, made without our own code."""
    now = datetime.now(UTC)
    usages = {"server auth": ExtendedKeyUsageOID.SERVER_AUTH, "client auth": ExtendedKeyUsageOID.CLIENT_AUTH}
    return (
        x509.CertificateBuilder(
            authority.certificate.subject,
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, asked["commonName"])]),
            key.public_key(),
            x509.random_serial_number(),
            now,
            now + timedelta(hours=int(asked["duration"].removesuffix("h"))),
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in asked["dnsNames"]]), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([usages[name] for name in asked["usages"] if name in usages]), critical=False
        )
        .sign(authority.key, hashes.SHA256())
    )
