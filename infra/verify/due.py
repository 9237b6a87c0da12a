"""What an update has to verify: where something ran or was made, and of every pool one node as a witness.

At a thousand nodes the checks of all of them take longer than the change did. What nothing happened to keeps
its verdict; what a change does to others shows on one node of each pool.
"""

from collections.abc import Collection, Mapping

from infra import capabilities
from infra.verify.verdicts import VerificationResult

Roles = Mapping[str, Collection[str]]
"""Host → roles."""


def unproven(declared: Roles, kept: VerificationResult) -> dict[str, list[str]]:
    """Host → its declared roles of which the last verdict is none, or no good one; no host without any.

    A role's verdicts are forgotten before it runs, see `verdicts.forget`.
    """
    good = kept.good()
    found = {name: [role for role in roles if (name, role) not in good] for name, roles in declared.items()}
    return {name: roles for name, roles in found.items() if roles}


def due(
    declared: Roles,
    pools: Mapping[str, Collection[str]],
    kept: VerificationResult,
    *,
    made: Collection[str],
    elsewhere: bool,
) -> dict[str, list[str]]:
    """Host → the roles to verify.

    `pools`: pool → its hosts. `made`: pools of which something was made or started. `elsewhere`: whether more
    changed than the roles that are due, so that any role of a witness may show it.

    Of each pool the witness is the node with most to verify. All its roles are, where anything of its pool is
    due; else those of the capabilities that something is due of.
    """
    found = unproven(declared, kept)
    found |= {name: list(declared[name]) for pool in made for name in pools[pool]}
    owners = capabilities.owners()
    ran = {owners[role] for roles in found.values() for role in roles}
    for names in pools.values():
        if names:
            witness = max(names, key=lambda name: len(found.get(name, ())))
            of_all = elsewhere or any(name in found for name in names)
            found[witness] = [role for role in declared[witness] if of_all or owners[role] in ran]
    # A node without roles is asked whether it answers.
    return {name: found.get(name, []) for name, roles in declared.items() if found.get(name) or not roles}
