"""Standing nodes made anew from another image: the others take over what they hold, and they come back."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from infra.components.departures import drain, say_goodbye
from infra.components.holding import drained, held_by, kept_by
from infra.components.leaving import forget_all, say
from infra.errors import BadInputError, CausewayError
from infra.ground.contract import Contract
from infra.images.recipe import recipe_of
from infra.providers.local import baked, containers, nodes, vm_image, vms
from infra.providers.local.baked import Baked

ANEW = "not made anew, for nobody takes over what goes with it", "have it stay, or let it go"
UNMENDED = "nothing was taken away: mend it and run the same command again"


def image_of(contract: Contract, pool: str) -> Baked:
    """The image of what a pool is declared to be now. BadInputError where it was not built, or not signed."""
    found = baked.find(recipe_of(contract, pool).name)
    if found is None:
        raise BadInputError(
            f"no image of what {pool} is declared to be now is kept here, signed by this machine's key",
            hint=f"causeway image build {pool} --stack {contract.stack}",
        )
    return found


def of_others(contract: Contract, pool: str, wanted: Baked) -> list[str]:
    """The standing nodes of a pool that were made from anything else, in the order of the pool.

    BadInputError for machines that nobody makes here.
    """
    if not contract.regions[contract.pools[pool].region].makes_nodes:
        raise BadInputError(
            f"the machines of {pool} are not made here",
            hint=f"causeway image export {pool} writes what they boot from by network, image disk a disk",
        )
    key = (contract.stack, contract.pools[pool].region, contract.pools[pool].name)
    made_from = containers.images(*key) | vms.images(*key)
    new = {wanted.tag, str(vm_image.image_dir(wanted))}
    return [name for name in contract.hosts if made_from.get(name, wanted.tag) not in new]


def require_made_from(contract: Contract, pool: str, wanted: Baked, going: Sequence[str]) -> None:
    """CausewayError where nodes that were made anew stand on something else than the image."""
    if others := [name for name in of_others(contract, pool, wanted) if name in going]:
        raise CausewayError(
            f"made anew, and not from image {wanted.name}: {', '.join(others)}",
            hint="it was removed meanwhile, or something else is declared, as `up` says: build the image of "
            "that, and roll out again",
        )


def take_away(contract: Contract, going: Sequence[str], leave: Mapping[str, Mapping[str, Any]]) -> None:
    """Take nodes away that are to come back: what they hold is handed over, and the others forget them.

    LEAVE: see `consent`. CausewayError where what they hold has no other place, or a role could not leave;
    then they still stand. Killed anywhere, the next `up` goes on: it fills what was drained, or makes what is
    gone.
    """
    held = held_by(contract, going, (), kept_by(contract), leave)
    drain(contract, held, leave, drained(contract.stack), {}, ANEW)
    result = say_goodbye(contract, going)
    if result and result.failed:
        raise CausewayError(result.report(), hint=UNMENDED)
    nodes.remove(contract.stack, going, partial(print, flush=True))
    forget_all(contract, going, say, leave)
