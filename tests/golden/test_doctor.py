"""What `causeway doctor` says, to the letter, and the table of ports in docs/machines.md."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from infra import ROOT
from infra.checks.load import load_spec
from infra.cli import main
from infra.commands.doctor import WIDE
from infra.doctor import reference
from infra.doctor.examine import Examined
from infra.doctor.report import as_json, print_reports
from infra.ground.machine import Finding, adopted, fine, impossible, in_the_way
from infra.planning.plan import make_plan
from tests.golden.test_declarations import compare

HERE = Path(__file__).parent
WELL = (fine("OS", "Debian GNU/Linux 13 (trixie)"), fine("sudo", "root"))
TAKEN = in_the_way("ports", "TCP port 8301 is taken by nginx (nginx.service)", "stop it there")
OTHER_OS = impossible("OS", "Rocky Linux 9.4: roles need Debian or Ubuntu", "install one of them")
STAYS = adopted("WireGuard", "tunnel wg-office stays")


def named(number: int) -> Finding:
    return in_the_way(
        "host name", "it has another name", "see who knows it", f"db{number} → fra-gpu-{number}"
    )


REPORTS = [
    *(Examined(f"fra-gpu-{number}", (TAKEN, named(number), STAYS, *WELL)) for number in range(16)),
    Examined("fra-control-0", WELL),
    Examined("fra-storage-0", (OTHER_OS, TAKEN, Finding(WELL[1].grade, "sudo", "admin"))),
    Examined("fra-storage-1", silent="no answer within 10 s, twice"),
]  # fmt: skip


def test_the_tables(capsys: pytest.CaptureFixture[str], update_golden: bool) -> None:
    print_reports(REPORTS, Console(highlight=False, markup=False, width=WIDE))
    printed = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    compare(HERE / "doctor" / "report.txt", printed, update_golden)
    assert "fra-gpu-0…15 (16 machines)" in printed


def test_the_json(update_golden: bool) -> None:
    found = as_json("lab", [REPORTS[0], *REPORTS[-2:]])
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    compare(HERE / "doctor" / "report.json", text, update_golden)


def test_the_page_has_the_ports_of_today() -> None:
    text = reference.PAGE.read_text(encoding="utf-8")
    assert reference.page(text) == text, "python -m infra.doctor.reference writes it"


def _in_the_page() -> dict[str, tuple[str, str]]:
    """What listens → its protocols and ports there."""
    lines = reference.table().splitlines()[2:]
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {name: (protocols, ports) for name, protocols, ports, *_ in rows}


def test_whatever_a_declaration_can_open_stands_in_the_page() -> None:
    """Whoever opens a firewall by it has nothing that stays shut."""
    known = _in_the_page()
    for file in (*sorted((HERE / "good").glob("*.yaml")), HERE / "warnings" / "storage-one-server.yaml"):
        spec = load_spec(file)
        for one in make_plan(spec).endpoints:
            if one.network == "loopback":
                continue
            name = reference.generic(one.name, reference.names_of(spec))
            protocols, ports = known[name]
            assert protocols == "/".join(one.protocols), (file.name, name)
            of_the_declaration = name in ("ssh", "wireguard-LINK")
            assert of_the_declaration or ports == (", ".join(map(str, one.ports)) or "–"), (file.name, name)


def test_whatever_a_capability_says_that_listens_stands_in_the_page() -> None:
    """Also what no declaration of the tests has."""
    named = re.compile(r"""\bEndpoint\(\s*f?"([a-z-]+)""")
    files = (ROOT / "infra" / "capabilities").rglob("*.py")
    begins = {found for file in files for found in named.findall(file.read_text(encoding="utf-8"))}
    assert begins >= {"ssh", "nfs-", "registry-", "path-probe"}
    known = _in_the_page()
    assert not [begin for begin in begins if not any(name.startswith(begin) for name in known)]


def test_a_stack_of_local_nodes_has_no_machine_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "local"]) == 0
    assert capsys.readouterr().out == (
        "nodes of stack local are made by `up`: there is no machine to look at before\n"
    )


def test_the_ports_of_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "local", "--ports", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    (rpc,) = (row for row in rows if row["name"] == "consul-rpc")
    assert rpc == {
        "name": "consul-rpc",
        "protocol": "tcp",
        "ports": "8300",
        "on": "shanghai-control-0, tokyo-control-0",
        "sources": "every node",
        "network": "management",
        "between_sites": True,
    }


def test_bad_input_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "local", "--host", "nobody"]) == 2
    assert main(["doctor", "there-is-no-such-stack"]) == 2
    said = capsys.readouterr().err
    assert "nobody is no machine of this stack that you have" in said
    assert "there-is-no-such-stack" in said
