"""Checks run on machines that people work on: they look, and what alters a node is marked an experiment."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

VERIFY = Path(__file__).resolve().parents[1] / "verify"
CHECKS = sorted(VERIFY.glob("*/test_*.py"))
DO = "(add|append|change|clear|create|del|delete|flush|insert|move|remove|rename|replace|set)"
ALTERING = (
    rf"\b(route|rule|link|addr|address|neigh|neighbour|netns|tunnel|xfrm|nexthop) {DO}\b",
    rf"(?<!unshare --net tc )\b(qdisc|class|filter) {DO}\b",
    r"\bsystemctl( -\S+)* (disable|edit|enable|freeze|isolate|kill|mask|reload|restart|stop|thaw|unmask)\b",
    r"(?<!\ba )\b(kill|killall|pkill|reboot|shutdown|poweroff|halt|telinit|init [0-6])\b",
    r"\b(chattr|chgrp|chmod|chown|mount|umount|swapoff|swapon|setfacl|truncate|useradd)\b",
    r"\b(modprobe(?! --showconfig)|rmmod|insmod)\b",
    r"\bfilled up\b",  # others of that room find none
    r"\b(apt|apt-get|dpkg|pip) (?!--simulate )(-\S+ )*(install|remove|purge|upgrade|-i)\b",
    r"\b(iperf3?|netperf|hping3?|stress|stress-ng|fio|ping -f)\b",
    rf"\bnft (-f|{DO})|\bip6?tables(-\S+)? (-t \w+ )?-[ADFIPRX]\b",
    r"\b(sysctl (-\S+ )*\S+=|sysctl -w|hostnamectl set|timedatectl set|date (-s|--set)|ethtool -[A-Z]+)",
    r"\bopen [^ ]+ [awx]b?\b|\bwrite_(text|bytes)\b|\btee /|\bsed (-\S+ )*-i [^$]*/etc/",
)
"""Words of a shell, or of a program on the node, that alter what is there."""


def words_of(node: ast.AST) -> Iterator[str]:
    """Every text below a node, an f-string as one."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from words_of(child)


def altering(text: str) -> str | None:
    """What in a text alters a node; a list of words in a program counts like a command line."""
    line = re.sub(r"[\s\"',()\[\]]+", " ", text)
    return next((found[0] for pattern in ALTERING if (found := re.search(pattern, line))), None)


def definitions(file: Path) -> dict[str, ast.AST]:
    """What a module calls by name, also what it has from its neighbours: functions and values."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.verify"):
            theirs = definitions(VERIFY.parents[1] / f"{str(node.module).replace('.', '/')}.py")
            found |= {name.name: theirs[name.name] for name in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
    return found


def used_by(name: str, known: dict[str, ast.AST]) -> set[str]:
    """The names that a function depends on, itself among them: what it calls, its fixtures, values."""
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        if (one := ahead.pop()) in seen:
            continue
        seen.add(one)
        below = list(ast.walk(known[one]))
        named = {node.id for node in below if isinstance(node, ast.Name)}
        named |= {node.arg for node in below if isinstance(node, ast.arg)}
        named |= set(words_of(known[one]))  # @pytest.mark.usefixtures("links")
        ahead += sorted(named & set(known))
    return seen


def is_experiment(function: ast.AST) -> bool:
    marks = getattr(function, "decorator_list", [])
    return any(ast.unparse(mark) == "pytest.mark.experiment" for mark in marks)


def without_docstring(found: ast.AST) -> list[ast.AST]:
    if not isinstance(found, ast.FunctionDef | ast.ClassDef):
        return [found]
    return list(found.body[1:] if ast.get_docstring(found) is not None else found.body)


def alters(name: str, known: dict[str, ast.AST]) -> str | None:
    """What a check does that alters a node, if anything."""
    for used in sorted(used_by(name, known)):
        for text in (text for part in without_docstring(known[used]) for text in words_of(part)):
            if found := altering(text):
                return f"{used}: {found}"
    return None


@pytest.mark.parametrize("file", CHECKS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_what_alters_a_node_is_an_experiment_and_nothing_else_is(file: Path) -> None:
    known = definitions(file)
    checks = [name for name in known if name.startswith("test_")]
    assert checks
    altered = {name: what for name in checks if (what := alters(name, known))}
    marked = {name for name in checks if is_experiment(known[name])}
    assert {name: what for name, what in altered.items() if name not in marked} == {}
    assert marked - set(altered) == set(), "marked, and yet it only looks"


@pytest.mark.parametrize(
    "text",
    [
        "ip route del 10.0.0.0/8", "ip -n x link set eth0 down", "tc qdisc del dev x root",
        'ip("netns", "add", name)',
        "systemctl kill -s STOP keeper", "systemctl --now stop chrony", "kill -9 1", "iperf3 -c 10.0.0.1",
        "chmod 0600 /etc/x", "modprobe x",
        "nft flush ruleset", "iptables -t nat -A POSTROUTING", "sysctl -w a=1", "reboot",
        'open(path, "w")', "apt-get --yes install x", "mount -o remount,ro /", "sed -i s/a/b/ /etc/hosts",
    ],
)  # fmt: skip
def test_what_alters_is_found(text: str) -> None:
    assert altering(text)


@pytest.mark.parametrize(
    "text",
    [
        "ip -json route show default", "systemctl is-enabled a; systemctl show b",
        "tc -json class show dev eth0",
        "unshare --net tc qdisc add dev lo root htb", "findmnt --bytes /dev/shm", "ping -c 3 -i 0.2",
        'open("/proc/uptime")', "it survives a reboot", "apt-get --simulate install x",
        "modprobe --showconfig",
    ],
)  # fmt: skip
def test_what_looks_is_not(text: str) -> None:
    assert altering(text) is None
