"""What is kept of a stack whose machines outlive it: what reaches them, and what they were told to trust.

`pulumi destroy` deletes keys, secrets and records with the resources. Machines that were there before the
stack stay, with all that was put on them: without the authority's key, the gossip key and the manifests
nobody could go on with them. So the stack's folder is out of the way while it runs, and what the machines
need is back afterwards, where the next `up` finds and adopts it.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from infra import ROOT
from infra.components.access_key import SshKeyLifecycle
from infra.components.inventory_files import InventoryLifecycle
from infra.components.leaving import recorded_roles, take_leave
from infra.components.secret import SecretLifecycle
from infra.components.taken_out import machines_of
from infra.drift.journal import record_of
from infra.errors import CausewayError
from infra.files import write_file
from infra.providers.lifecycle import Lifecycle
from infra.pulumi_cli import CAUSEWAY_DIR, require, stack_exists
from infra.stack import check_stack, contract_file, stack_dir

KEPT = ("contract.json", "drift", "identities.json", "secrets", "ssh")
FILES: Mapping[str, Callable[[], Lifecycle]] = {
    "Secret": SecretLifecycle,
    "SshKey": SshKeyLifecycle,
    "InventoryFiles": InventoryLifecycle,
}
"""Kind of resource → what writes the files that the state holds."""
PULUMI_SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105 - marks a secret in a state, and is none
Machines = Mapping[str, Mapping[str, Any]]
"""Host → what the contract says of it."""


def machines(stack: str) -> Machines:
    """The machines that stay when the stack goes; what the state knows of them is then on this controller.

    The state counts, for the files may be another controller's, or lost; the file does where a `down` that
    failed has taken the contract out of the state already.
    """
    known = list(_resources(stack)) if stack_exists(stack) else []
    contracts = [properties["contract"] for kind, properties in known if kind == "InventoryFiles"]
    with suppress(OSError, ValueError):  # none, or half a file
        contracts.append(json.loads(contract_file(stack).read_bytes()))
    stay = {name: host for contract in contracts for name, host in machines_of(contract).items()}
    for kind, properties in known if stay else ():
        with suppress(ValidationError):  # another version's contract: the file is as it was
            FILES[kind]().ensure(properties, properties)
    return stay


def _resources(stack: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind, properties) of what the state holds files of."""
    state = json.loads(require(["stack", "export", "--show-secrets", "--stack", stack]))
    for resource in state["deployment"].get("resources") or ():
        kind = resource["type"].rpartition("/causeway:")[2]
        if kind in FILES and not resource.get("delete"):
            yield kind, _plain({**resource.get("inputs", {}), **resource.get("outputs", {})})


def _plain(value: Any) -> Any:
    """A value of an exported state, with the secrets in it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if PULUMI_SECRET in value:
        return _plain(json.loads(value["plaintext"]))
    return {key: _plain(item) for key, item in value.items()}


@contextmanager
def out_of_the_way(stack: str) -> Iterator[None]:
    """While it lasts, the stack's folder is where nothing deletes in it."""
    put_back(stack)
    _aside(stack).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    (ROOT / stack_dir(stack)).rename(_aside(stack))
    try:
        yield
    finally:
        put_back(stack)


def put_back(stack: str) -> None:
    """Bring back what a `down` had moved away, also one that was killed."""
    aside, folder = _aside(stack), ROOT / stack_dir(stack)
    if aside.exists() and not folder.exists():
        aside.rename(folder)
    for path in sorted(aside.rglob("*")):
        target = folder / path.relative_to(aside)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True, mode=path.stat().st_mode & 0o777)
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(stack: str) -> Path:
    return CAUSEWAY_DIR / "kept" / check_stack(stack)


def take_roles_off(stack: str, stay: Machines, *, purge_data: bool) -> Machines:
    """Take all roles off the machines; those on which some stay. CausewayError where that failed."""
    if leave := recorded_roles(stack, stay):
        # An earlier `down` has taken the stack's own inventory away.
        source = ROOT / stack_dir(stack) / "inventory" / "causeway.yml"
        write_file(source, f"---\nplugin: causeway\nstack: {stack}\n")
        say = partial(print, flush=True)
        result = take_leave(stack, leave, "leave", say, purge_data=purge_data, inventory=source)
        print(result.log.read_text())
        if result.failed:
            raise CausewayError(
                result.report(), hint=f"mend it and run ./run down {stack} --remove-roles again"
            )
    return {name: stay[name] for name in recorded_roles(stack, stay)}


def leave_only_what_they_need(stack: str, stay: Machines) -> None:
    """Delete the rest of the stack's folder: logs, records, manifests of nodes that are gone."""
    folder = ROOT / stack_dir(stack)
    rest = [path for path in folder.iterdir() if path.name not in KEPT]
    rest += [path for path in folder.glob("drift/*.*") if path.stem not in stay]
    for path in rest:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def in_words(stack: str, stay: Machines) -> Iterator[str]:
    """What stays, where, and what can be done with it."""
    folder, some = stack_dir(stack), next(iter(stay))
    count = "its machine stays as it is" if len(stay) == 1 else f"its {len(stay)} machines stay as they are"
    yield f"Stack {stack} is taken down; {count}, with the roles that Causeway put there:"
    for name, host in stay.items():
        yield f"  {name} ({host['address']}): {_roles(stack, name)}"
    yield f"./run down {stack} --remove-roles takes them off, and gives back what they replaced."
    yield f"Kept in {folder}: SSH key, secrets, contract, manifests."
    yield f"  ./run up {stack}: goes on with these machines, by the same keys and authority"
    yield f"  ssh -F {folder}/ssh/config {some}: gets you in"
    yield f"  ./run exec causeway drift {stack}: what each role made true there, and whether it still is"
    yield f"  rm -r {folder}: once nothing of it runs any more; there is no other copy"


def _roles(stack: str, name: str) -> str:
    try:
        manifest = record_of(stack, name)
    except CausewayError:
        manifest = None
    return ", ".join(manifest.roles) if manifest and manifest.roles else "none was sealed; one may have begun"
