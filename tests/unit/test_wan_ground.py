"""What the role says of a machine that somebody has used before, and what it takes for its own."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.loaded import load

CODE = Path(__file__).resolve().parents[2] / "roles" / "wan_gateway" / "files" / "causeway_wan_ground.py"
OURS = "# Ansible managed (Causeway: wan_gateway)\n"
EARLIER = "# Ansible managed\n"
FRR_PACKAGE = """# default to using syslog. /var/log is owned by a group of its own
#
log syslog informational
"""
DAEMONS_PACKAGE = (
    'bgpd=no\nospfd=no\nbfdd=no\n#\nvtysh_enable=yes\nzebra_options="  -A 127.0.0.1 -s 90000000"\n'
)
FRR_FOREIGN = (
    "frr defaults traditional\nhostname edge\n!\nrouter bgp 65001\n neighbor 192.0.2.9 remote-as 65002\n"
)


def link(name: str = "sea", tunnel: bool = False) -> dict[str, Any]:
    made = {"name": name, "address": "192.0.2.1/30"}
    inside = {"device": f"wg-{name}", "address": "100.101.0.1/30", "port": 49152}
    return made | {"tunnel": inside} if tunnel else made


@pytest.fixture(name="ground")
def _ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The role's program, for which a folder is the machine on which no command knows of anything."""
    module = load(CODE)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "say", lambda *_argv: "")
    return module


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def look(
    ground: ModuleType, *links: dict[str, Any], shares: bool = False
) -> tuple[list[str], dict[str, Any]]:
    found = ground.Ground({"links": list(links), "shares": shares})
    return list(found.obstacles()), found.gone()


def was_here(root: Path, *links: dict[str, Any], **more: Any) -> None:
    put(root, "etc/causeway-wan-gateway.json", json.dumps({"links": list(links), "rate_pct": 95, **more}))


def test_a_machine_with_the_packages_alone_is_free(ground: ModuleType, tmp_path: Path) -> None:
    put(tmp_path, "etc/frr/frr.conf", FRR_PACKAGE)
    put(tmp_path, "etc/frr/daemons", DAEMONS_PACKAGE)
    put(tmp_path, "etc/frr/vtysh.conf", "service integrated-vtysh-config\n")
    put(tmp_path, "etc/wireguard/wg-office.conf", "[Interface]\n")
    assert look(ground, link(tunnel=True), shares=True) == ([], {"tunnels": [], "shared": False})


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("etc/frr/frr.conf", FRR_FOREIGN, "/etc/frr/frr.conf is somebody else's (router bgp 65001"),
        ("etc/frr/zebra.conf", "ip route 10.0.0.0/8 192.0.2.9\n", "/etc/frr/zebra.conf"),
        ("etc/frr/daemons", DAEMONS_PACKAGE.replace("ospfd=no", "ospfd=yes"), "/etc/frr/daemons"),
        ("etc/keepalived/keepalived.conf", "vrrp_instance web {\n}\n", "/etc/keepalived/keepalived.conf"),
        ("etc/wireguard/wg-sea.conf", "[Interface]\nPrivateKey = x\n", "/etc/wireguard/wg-sea.conf"),
        ("etc/frr/frr.conf", EARLIER.replace("#", "!") + FRR_FOREIGN, "/etc/frr/frr.conf"),
    ],
)  # fmt: skip
def test_what_somebody_else_has_made_there_is_named(
    ground: ModuleType, tmp_path: Path, name: str, text: str, named: str
) -> None:
    put(tmp_path, name, text)
    (said,), gone = look(ground, link(tunnel=True), shares=True)
    assert named in said
    assert gone == {"tunnels": [], "shared": False}


@pytest.mark.parametrize(
    ("command", "answer", "named"),
    [
        (("ip", "-json", "link"), "[{}]", "an interface wg-sea"),
        (("ss", "-Hlun"), "UNCONN", "UDP port 49152 is in use"),
        (("ss", "-Hltn"), "LISTEN", "another program than FRR"),
        (("nft",), "table ip causeway_wan {}", "nftables table ip causeway_wan"),
    ],
)
def test_what_somebody_else_runs_there_is_named(
    ground: ModuleType, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], answer: str, named: str
) -> None:
    monkeypatch.setattr(ground, "say", lambda *argv: answer if argv[: len(command)] == command else "")
    (said,), _ = look(ground, link(tunnel=True))
    assert named in said


@pytest.mark.parametrize(
    ("kind", "handle", "before", "free"),
    [
        ("noqueue", "0:", False, True),
        ("fq_codel", "0:", False, True),
        ("tbf", "8001:", False, False),
        ("htb", "1:", False, False),
        ("htb", "1:", True, True),  # the role's own, of a link that had another address
    ],
)
def test_queueing_of_somebody_else_on_the_interface_is_named(
    ground: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    handle: str,
    before: bool,
    free: bool,
) -> None:
    if before:
        was_here(tmp_path, {**link(), "address": "192.0.2.5/30"})
    answers = {"ip": [{}, {"ifname": "wan0"}], "tc": [{"kind": kind, "handle": handle, "root": True}]}
    monkeypatch.setattr(
        ground, "say", lambda *argv: json.dumps(answers[argv[0]]) if argv[0] in answers else ""
    )
    said, _ = look(ground, link())
    assert said == ([] if free else [f"wan0, of the link sea, has a queueing discipline ({kind})"])


def test_what_is_ours_is_put_right_however_it_was_changed(ground: ModuleType, tmp_path: Path) -> None:
    was_here(tmp_path, link(tunnel=True), shares=True)
    for name in ("frr/frr.conf", "frr/daemons", "keepalived/keepalived.conf", "wireguard/wg-sea.conf"):
        put(tmp_path, f"etc/{name}", "router bgp 65001\nbgpd=yes\n")
    assert look(ground, link(tunnel=True), shares=True) == ([], {"tunnels": [], "shared": False})


def test_what_is_marked_is_ours_also_without_the_list(ground: ModuleType, tmp_path: Path) -> None:
    for name in ("frr/frr.conf", "frr/daemons", "keepalived/keepalived.conf", "wireguard/wg-sea.conf"):
        put(tmp_path, f"etc/{name}", OURS + "router bgp 65001\nbgpd=yes\n")
    assert look(ground, link(tunnel=True), shares=True)[0] == []


texts = st.sampled_from([None, OURS + "x\n", EARLIER + "x\n", "[Interface]\n", ""])
names = st.sampled_from(["sea", "land", "air"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(names, texts), texts, st.none() | st.sets(names), st.sets(names), st.booleans())
def test_only_what_the_role_made_is_ever_taken_away(
    ground: ModuleType,
    tmp_path: Path,
    tunnels: dict[str, str | None],
    keepalived: str | None,
    before: set[str] | None,
    wanted: set[str],
    shares: bool,
) -> None:
    for path in tmp_path.rglob("*.*"):
        path.unlink()
    if before is not None:
        was_here(tmp_path, *(link(name, tunnel=True) for name in before))
    found = {f"etc/wireguard/wg-{name}.conf": text for name, text in tunnels.items()}
    for file, text in {**found, "etc/keepalived/keepalived.conf": keepalived}.items():
        if text is not None:
            put(tmp_path, file, text)
    _, gone = look(ground, *(link(name, tunnel=True) for name in wanted), shares=shares)
    marked = {
        f"wg-{name}" for name, text in tunnels.items() if text is not None and "Ansible managed" in text
    }
    assert set(gone["tunnels"]) == {f"wg-{name}" for name in (before or set()) - wanted} & marked
    ours = (OURS,) if before is None else (OURS, EARLIER)
    assert gone["shared"] == (not shares and keepalived is not None and keepalived.startswith(ours))


def test_what_somebody_elses_ansible_wrote_stays_somebody_elses_at_every_run(
    ground: ModuleType, tmp_path: Path
) -> None:
    foreign = ("etc/keepalived/keepalived.conf", "etc/wireguard/wg-internet.conf")
    for name in foreign:
        put(tmp_path, name, EARLIER)
    for _ in range(2):
        assert look(ground, link()) == ([], {"tunnels": [], "shared": False})
        was_here(tmp_path, link(), shares=False)
    found, gone = look(ground, link(), link("internet", tunnel=True), shares=True)
    assert [name for name in foreign if not any(name in line for line in found)] == []
    assert gone == {"tunnels": [], "shared": False}
