"""`causeway init`: write the declaration of machines you have, from a list of them or a few questions."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from infra.commands.arguments import declaration_of, require_known
from infra.errors import BadInputError, ExitCode
from infra.files import write_file
from infra.ground.names import some
from infra.ground.rules.names import is_host_name
from infra.intake import host_keys
from infra.intake.hops import hops
from infra.intake.inventory import read_inventory
from infra.intake.machine import ASKS, ROLES, ListError, Row, complaint, label, word
from infra.intake.place import Pool, Region, Wishes, of_groups, placed
from infra.intake.table import head_of, read_table
from infra.intake.write import Link, checked, declaration_text
from infra.stack import check_stack

OFFLINE = True
"""It needs no stack; only --host-keys asks machines."""
AGENT = "agent"
"""The answer that keys are those of the SSH agent."""
MOST_KEPT = 100
"""Files that were replaced, of one stack."""
LARGEST_LIST_BYTES = 64 * 2**20
FORMS = (
    "a CSV with the columns name, address, pool …; an Ansible inventory, or its `ansible-inventory --list`"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "stack", type=check_stack, metavar="STACK", help="whose declaration is written: Pulumi.STACK.yaml"
    )
    parser.add_argument("source", nargs="?", metavar="FILE", help=f"{FORMS}; - reads it from a pipe")
    parser.add_argument(
        "--force", action="store_true", help="replace a file; it is kept with .old, .old2 … at its end"
    )
    parser.add_argument(
        "--host-keys", action="store_true", help="ask the machines for host keys that the list does not have"
    )
    parser.add_argument(
        "--accept-host-keys", action="store_true", help="the same, without asking you about fingerprints"
    )
    of = parser.add_argument_group("what the list does not say")
    of.add_argument("--region", metavar="R", help="the region of machines that name none (default: STACK)")
    of.add_argument("--regions", metavar="G,…", type=_names, default=(), help="groups that are regions")
    of.add_argument("--pools", metavar="G,…", type=_names, default=(), help="groups that are pools")
    of.add_argument(
        "--role", metavar="POOL=ROLE", action="append", default=[], type=_role, help="what it is for"
    )
    of.add_argument(
        "--cidr", metavar="R=CIDR", action="append", default=[], type=_pair, help="region's network"
    )
    link = "the WAN link between two regions: their names, round trip in ms, Mbit/s"
    of.add_argument("--link", metavar="A,B,MS,MBPS", action="append", default=[], type=_link, help=link)
    of.add_argument("--user", default="", help="who logs in by SSH (default: root)")
    of.add_argument("--key-file", default="", help="the private key (default: the stack makes one)")
    of.add_argument("--agent", action="store_true", help="take keys from the SSH agent")
    jump = "jump hosts, the first one first"
    of.add_argument("--jump", metavar="[USER@]HOST[:PORT],…", default="", type=_way, help=jump)
    of.add_argument(
        "--jump-key", metavar="HOST=KEY", action="append", default=[], type=_pair, help="its public host key"
    )
    of.add_argument("--host-ca", metavar="KEY", default="", help="the authority that signs host keys")
    of.add_argument(
        "--sudo", choices=("passwordless", ASKS), default="", help="whether sudo there asks for a password"
    )
    of.add_argument("--sudo-secret", metavar="NAME", default="", help="the secret that is that password")
    of.add_argument("--gpus", default="", help="GPUs of each node in pools of role gpu")
    of.add_argument("--gpu-model", default="", help="their model, such as h100-sxm")


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _way(text: str) -> str:
    try:
        hops(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _link(text: str) -> Link:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not REGION,REGION,MS,MBPS")
    return Link(label(parts[0]), label(parts[1]), *parts[2:])


def _role(text: str) -> tuple[str, str]:
    pool, role = _pair(text)
    if role not in ROLES:
        raise argparse.ArgumentTypeError(f"{role!r} is not one of {', '.join(ROLES)}")
    return label(pool), role


def run(arguments: argparse.Namespace) -> ExitCode:
    """Read, place, ask for keys, check, write; nothing is written where a row is wrong."""
    path = declaration_of(arguments.stack)
    if os.path.lexists(path) and not arguments.force:
        raise BadInputError(
            f"{path} is there already", hint="--force replaces it, and keeps it as it was beside"
        )
    wishes = Wishes(
        region=arguments.region or label(arguments.stack),
        user=arguments.user,
        key_file=arguments.key_file,
        agent=arguments.agent,
        jump=arguments.jump,
        jump_keys=dict(arguments.jump_key),
        host_ca=arguments.host_ca,
        sudo=arguments.sudo or (ASKS if arguments.sudo_secret else ""),
        sudo_secret=arguments.sudo_secret,
        gpus=arguments.gpus,
        gpu_model=arguments.gpu_model,
        roles=dict(arguments.role),
        cidrs=dict(arguments.cidr),
    )
    if arguments.source is None:
        rows, wishes = _questions(wishes)
    else:
        rows = read_list(arguments.source, arguments.regions, arguments.pools)
    regions = placed(rows, wishes)
    _require_there(wishes, regions)
    regions = with_keys(regions, arguments)
    origin = arguments.source or "answers on a terminal"
    text = declaration_text(label(arguments.stack), regions, arguments.link, origin)
    warnings = checked(text, path, regions)
    if os.path.lexists(path):
        kept = _beside(path)
        path.replace(kept)
        print(f"{kept} is what it was", file=sys.stderr)
    write_file(path, text)
    for warning in warnings:
        print(warning, file=sys.stderr)
    if nameless := [row for row in rows if row.name != row.get("address") and not is_host_name(row.name)]:
        shown = some(word(row.name) for row in nameless)
        print(f"names that are no DNS labels, and are not given: {shown}", file=sys.stderr)
    print(
        f"{path}: {len(rows):,} machines in {len(regions)} regions."
        f" Next: causeway check --stack {arguments.stack}"
    )
    return ExitCode.OK


def _beside(path: Path) -> Path:
    """Where a file is kept that is replaced: what an earlier run has kept may have a stack's secrets."""
    names = (path.with_name(f"{path.name}.old{number}") for number in ("", *range(2, MOST_KEPT + 1)))
    found = next((name for name in names if not os.path.lexists(name)), None)
    if found is None:
        raise BadInputError(f"{MOST_KEPT} files are kept beside {path}", hint=f"remove {path}.old*")
    return found


def _require_there(wishes: Wishes, regions: Sequence[Region]) -> None:
    """BadInputError where an option speaks of a pool, a region or a jump host that the list does not have."""
    require_known("pool", wishes.roles, dict.fromkeys(pool.name for each in regions for pool in each.pools))
    require_known("region", map(label, wishes.cidrs), (each.name for each in regions))
    jumps = dict.fromkeys(hop for region in regions for hop in region.jumps)
    known = [name for hop in jumps for name in (hop.address, f"{hop.address}:{hop.port}")]
    require_known("jump host", wishes.jump_keys, known)


def read_list(source: str, regions: Sequence[str], pools: Sequence[str]) -> list[Row]:
    """The machines of a list, whatever form it has."""
    text = _text(source)
    name = "standard input" if source == "-" else source
    if _is_table(name, text):
        if regions or pools:
            raise BadInputError(
                f"{name} has no groups, of which --regions or --pools could say what they are",
                hint="its columns `region` and `pool` say it",
            )
        rows, unread = read_table(text, name)
        if unread:
            print(f"{name}: columns that are not read: {', '.join(unread)}", file=sys.stderr)
    else:
        rows = of_groups(read_inventory(text, name), regions, pools)
    if not rows:
        raise BadInputError(f"{name}: no machine is in it", hint=f"it is {FORMS}")
    return rows


def _text(source: str) -> str:
    try:
        if source == "-":
            content = sys.stdin.buffer.read(LARGEST_LIST_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                content = file.read(LARGEST_LIST_BYTES + 1)
        if len(content) > LARGEST_LIST_BYTES:
            raise BadInputError(
                f"{source} is larger than {LARGEST_LIST_BYTES >> 20} MiB: no list of machines is"
            )
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInputError(f"{source} is not UTF-8 text", hint="save it as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputError(f"{source} cannot be read: {reason}", hint=f"it is {FORMS}") from None


def _is_table(name: str, text: str) -> bool:
    first = head_of(text).lower()
    return name.lower().endswith(".csv") or ("address" in first and any(mark in first for mark in ",;\t"))


def with_keys(regions: list[Region], arguments: argparse.Namespace) -> list[Region]:
    """The same with host keys that the machines were asked for; ListError for those that have none."""
    lacking = _lacking(regions)
    if not lacking:
        return regions
    if not (arguments.host_keys or arguments.accept_host_keys):
        hint = "a column or variable host_key (ssh_jump_key) has it, or --jump-key; --host-keys asks for it"
        raise ListError((complaint(row, "it has no host key") for row in lacking), hint)
    keys = host_keys.asked(lacking)

    def key_of(address: str, port: str) -> str:
        return keys.get((address, port or host_keys.SSHS_PORT), "")

    found = [(row, key_of(row.get("address"), row.get("ssh_port"))) for row in lacking]
    if silent := [row for row, key in found if not key]:
        behind = any(region.jumps for region in regions)
        hint = (
            "what stands behind a jump host does not answer here: its key goes into the list"
            if behind
            else ""
        )
        raise ListError((complaint(row, "no SSH server says a host key there") for row in silent), hint)
    _accepted(found, asking=not arguments.accept_host_keys)

    def filled(pool: Pool) -> Pool:
        rows = [
            replace(row, values={"host_key": key_of(row.get("address"), row.get("ssh_port")), **row.values})
            for row in pool.rows
        ]
        return replace(pool, rows=rows)

    return [
        replace(
            region,
            pools=list(map(filled, region.pools)),
            jumps=[replace(hop, key=hop.key or key_of(hop.address, hop.port)) for hop in region.jumps],
        )
        for region in regions
    ]


def _lacking(regions: Sequence[Region]) -> list[Row]:
    """What has no host key and needs one: jump hosts first, each once, then machines that nobody signs."""
    jumps = {
        (hop.address, hop.port): Row(
            f"region {region.name}", "its jump host", {"address": hop.address, "ssh_port": hop.port}
        )
        for region in regions
        for hop in region.jumps
        if not hop.key
    }
    unsigned = [region for region in regions if not region.values.get("ssh_host_ca")]
    machines = [row for region in unsigned for row in region.rows if not row.get("host_key")]
    return [*jumps.values(), *machines]


def _accepted(found: Sequence[tuple[Row, str]], *, asking: bool) -> None:
    """Show the fingerprints; BadInputError where the user does not take them."""
    for row, key in found:
        print(
            f"{row.get('address'):<15}  {host_keys.fingerprint(key)}  {key.split()[0]}  {row.name}",
            file=sys.stderr,
        )
    print(host_keys.MEANING, file=sys.stderr)
    if not asking:
        return
    if not sys.stdin.isatty():
        raise BadInputError(
            "nobody is there to be asked about these keys", hint="--accept-host-keys takes them as they are"
        )
    if _answer("Take these keys? yes or no", "no") != "yes":
        raise BadInputError("the keys were not taken; nothing was written")


def _answer(question: str, default: str = "") -> str:
    print(f"{question}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True)
    try:
        return input().strip() or default
    except EOFError:
        return default


def _questions(wishes: Wishes) -> tuple[list[Row], Wishes]:
    """Machines and what they share, as the user answers."""
    if not sys.stdin.isatty():
        raise BadInputError(
            "no list of machines was given, and nobody is there to be asked", hint=f"give {FORMS}"
        )
    region = _answer("Region", wishes.region)
    user = _answer("Who logs in by SSH", wishes.user or "root")
    key_file = _answer(
        f"File of the private key (nothing: the stack makes one; {AGENT}: yours)", wishes.key_file
    )
    jump = _answer("Jump hosts on the way, as [USER@]HOST[:PORT],… (nothing: none)", wishes.jump)
    asks = user != "root" and _answer(f"Does sudo there ask {user} for a password? yes or no", "no") == "yes"
    print("Machines: ADDRESS POOL, such as 192.168.20.11 control. An empty line ends.", file=sys.stderr)
    rows: list[Row] = []
    while words := _answer(f"Machine {len(rows) + 1}").split():
        where = f"machine {len(rows) + 1}"
        rows.append(Row(where, words[0], dict(zip(("address", "pool"), words, strict=False))))
    if not rows:
        raise BadInputError("no machine was named; nothing was written")
    agent = wishes.agent or key_file == AGENT
    key_file = "" if key_file == AGENT else key_file
    wishes = replace(wishes, region=region, user=user, key_file=key_file, agent=agent, jump=jump)
    wishes = replace(wishes, sudo=ASKS if asks else wishes.sudo)
    if any("gpu" in row.get("pool") for row in rows):
        gpus = _answer("GPUs of each GPU node", wishes.gpus or "8")
        wishes = replace(wishes, gpus=gpus, gpu_model=_answer("Their model", wishes.gpu_model or "h100-sxm"))
    return rows, wishes
