"""The contract of a declaration and its plan; what it may hold is in contract.py."""

from infra.declaration import ClusterSpec, NodePoolSpec, RegionSpec
from infra.ground.contract import Contract, HostContract, JumpContract, PoolContract, RegionContract
from infra.ground.nodes import pool_key
from infra.ground.sudo import source_of
from infra.planning.plan import Plan
from infra.stack import stack_dir

NOT_OF_POOLS = {
    *("container_runtime", "count", "gpu_stack", "hosts", "nic_names", "node_kind", "roles", "scratch"),
    "shm_gib",
}
"""What a contract says of a pool elsewhere, or not at all."""


def build_contract(spec: ClusterSpec, plan: Plan, stack: str) -> Contract:
    """The contract of a declaration and its plan."""
    return Contract(
        stack=stack,
        cluster=spec.name,
        known_hosts_file=str(stack_dir(stack) / "ssh" / "known_hosts"),
        regions={region.name: _region(region, stack) for region in spec.regions},
        pools={
            pool_key(region.name, pool.name): _pool(region, pool)
            for region in spec.regions
            for pool in region.pools
        },
        hosts={
            node.name: HostContract(pool=node.pool_key, address=node.address, ssh_port=node.ssh_port)
            for node in plan.nodes
        },
        sections=dict(plan.sections),
        waves=spec.rollout(),
    )


def _region(region: RegionSpec, stack: str) -> RegionContract:
    provider = region.provider
    generated_key = str(stack_dir(stack) / "ssh" / "id_ed25519")
    return RegionContract(
        provider=provider.kind,
        makes_nodes=provider.makes_nodes,
        makes_links=provider.makes_links,
        simulates_gpus=provider.simulates_gpus,
        for_trials=provider.for_trials,
        cidr=region.cidr,
        mtu_bytes=region.mtu_bytes,
        ssh_user=provider.ssh_user,
        ssh_private_key_file=provider.ssh_key_file or ("" if provider.ssh_agent else generated_key),
        ssh_agent=provider.ssh_agent,
        sudo_source=source_of(provider.ssh_user, provider.sudo_password_secret)
        if provider.sudo == "password"
        else "",
        take_over=region.take_over,
        ssh_jump=tuple(
            JumpContract(
                address=jump.address,
                ssh_port=jump.ssh_port,
                ssh_user=jump.ssh_user or provider.ssh_user,
                host_key=jump.host_key,
            )
            for jump in provider.ssh_jump
        ),
    )


def _pool(region: RegionSpec, pool: NodePoolSpec) -> PoolContract:
    return PoolContract(
        region=region.name,
        node_kind=region.node_kind(pool),
        gpus_simulated=region.provider.simulates_gpus and pool.gpus > 0,
        excluded_roles=pool.roles.exclude,
        **pool.model_dump(exclude=NOT_OF_POOLS),
    )
