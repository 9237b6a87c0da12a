"""Storage: Ceph clusters and NFS servers, each within one region, and what they export to its GPU nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from infra.capabilities.monitoring.section import MonitoringSection
from infra.capabilities.storage import figures, nfs
from infra.capabilities.storage.rules import RULES
from infra.capabilities.storage.section import (
    GATEWAY,
    CephCluster,
    Osd,
    Scratch,
    StorageExport,
    StoragePool,
    StorageSection,
    cluster_secrets,
)
from infra.declaration import (
    CephfsExport,
    CephSpec,
    ClusterSpec,
    FileBackingSpec,
    NfsSpec,
    RgwExport,
)
from infra.ground.capability import Capability, Planned, Report, SecretKind
from infra.ground.endpoint import Endpoint, HostSet, Ports, Scrape
from infra.ground.nodes import pool_key

MON, METRICS = 3300, 9283
DAEMONS = Ports(6800, 7300)


@dataclass(frozen=True)
class Tier:
    """OSDs of one class, and the exports whose data lies on them alone."""

    device_class: str
    osds: int
    nodes: int
    raw_gib: float
    exports: tuple[str, ...]


@dataclass(frozen=True)
class Outlook:
    """What a cluster can hold and bear, for people."""

    storage: str
    region: str
    kind: str
    nodes: int
    osds: int
    raw_gib: float
    usable_gib: float
    replicas: int
    failure_domain: str
    monitors: tuple[str, ...]
    placement_groups_per_osd: float
    memory_gib_per_node: float
    recovery_h: float | None
    """None where what was lost has nowhere to go."""
    version: str = ""
    """The declared one, where one is."""
    tiers: tuple[Tier, ...] = ()
    """Where classes of disks are declared."""
    encrypted: bool = False
    """Whether what lies on the disks is."""


@dataclass(frozen=True)
class StoragePlan:
    """The section, and an outlook for each of what is in it."""

    section: StorageSection
    outlooks: tuple[Outlook | nfs.NfsOutlook, ...]


class Storage(Capability[StoragePlan]):
    """Where `storage` is declared, or `scratch` of a pool."""

    name = "storage"
    uses = ("monitoring",)
    rules = (*RULES, *nfs.RULES)

    def plan(self, spec: ClusterSpec, planned: Planned) -> StoragePlan | None:
        """From the declaration alone."""
        ceph = [storage for storage in spec.storage if isinstance(storage, CephSpec)]
        served = tuple(nfs.storage_of(spec, one) for one in spec.storage if isinstance(one, NfsSpec))
        clusters = tuple(_cluster(spec, storage) for storage in ceph)
        scratch = {
            pool_key(region.name, pool.name): Scratch(**pool.scratch.model_dump())
            for region in spec.regions
            for pool in region.pools
            if pool.scratch
        }
        outlooks: tuple[Outlook | nfs.NfsOutlook, ...] = (
            *(_outlook(spec, one) for one in ceph),
            *(nfs.outlook(one) for one in served),
        )
        section = StorageSection(clusters=clusters, nfs=served, scratch=scratch)
        return StoragePlan(section, outlooks) if outlooks or scratch else None

    def section(self, plan: StoragePlan) -> StorageSection:
        """The clusters, and what is served by NFS."""
        return plan.section

    def endpoints(self, plan: StoragePlan, planned: Planned) -> tuple[Endpoint, ...]:
        """Monitors, gateways, the range of all other daemons, for the region's own nodes; metrics; NFS."""
        daemons = tuple(
            Endpoint(
                f"ceph-{kind}-{cluster.name}",
                HostSet(hosts=hosts),
                (ports,),
                "management",
                sources=HostSet(regions=(cluster.region,)),
            )
            for cluster in plan.section.clusters
            for kind, hosts, ports in (
                ("mon", cluster.mons, Ports.one(MON)),
                ("daemons", tuple(cluster.osds), DAEMONS),
                ("rgw", cluster.rgws, Ports.one(GATEWAY)),
            )
            if hosts
        )
        served = tuple(nfs.endpoint(one) for one in plan.section.nfs if one.shares)
        return daemons + self._metrics(plan, planned) + served

    def _metrics(self, plan: StoragePlan, planned: Planned) -> tuple[Endpoint, ...]:
        """Of each cluster's managers, for its region's server; one that stands by has none to tell."""
        monitoring = planned.section(MonitoringSection)
        return tuple(
            Endpoint(
                f"ceph-metrics-{cluster.name}",
                HostSet(hosts=cluster.mgrs),
                (Ports.one(METRICS),),
                "management",
                sources=HostSet(hosts=(monitoring.regions[cluster.region].server,)),
                scrape=Scrape(labels=(("storage", cluster.name),), samples=_series(cluster)),
            )
            for cluster in plan.section.clusters
            if monitoring
        )

    def secrets(self, plan: StoragePlan) -> Mapping[str, SecretKind]:
        """A key for each use of each cluster."""
        clusters = plan.section.clusters
        return {name: kind for cluster in clusters for name, kind in cluster_secrets(cluster).items()}

    def report(self, plan: StoragePlan) -> Report:
        """A paragraph for each."""
        text = [
            nfs.in_words(one) if isinstance(one, nfs.NfsOutlook) else in_words(one) for one in plan.outlooks
        ]
        text += [
            f"Scratch {one.path} on {key}: unused for {one.days} days goes, the oldest from {one.high_pct} %"
            for key, one in plan.section.scratch.items()
        ]
        return Report("\n".join(text), {"storage": [asdict(one) for one in plan.outlooks]})


def _cluster(spec: ClusterSpec, storage: CephSpec) -> CephCluster:
    members = figures.nodes(spec, storage)
    mons = tuple(node.name for node in figures.monitors(storage, members))
    files, objects = (
        any(isinstance(export, kind) for export in storage.exports) for kind in (CephfsExport, RgwExport)
    )
    region = spec.region(storage.region)
    return CephCluster(
        name=storage.name,
        region=storage.region,
        mons=mons,
        mgrs=mons[:2],
        # Beside managers there is least room, so metadata servers begin at the other end.
        mdss=tuple(node.name for node in members[::-1][:2]) if files else (),
        rgws=tuple(node.name for node in members[len(members) // 2 :][:2]) if objects else (),
        osds={node.name: _osds(storage, node.name) for node in members},
        racks={node.name: node.rack for node in members if node.rack},
        failure_domain="rack" if figures.failure_domain(members) == "rack" else "host",
        replicas=figures.replicas(storage, members),
        full_ratio=figures.full_ratio(storage),
        osd_memory_bytes=int(storage.osd_memory_gib * figures.GIB),
        encrypt_wire=storage.encrypt_wire,
        ceph_version=storage.version or "",
        pools=tuple(StoragePool(**asdict(pool)) for pool in figures.pools(storage, members)),
        exports=tuple(
            StorageExport(
                kind=export.kind,
                name=export.name,
                pool=figures.data_pool(storage, export),
                quota_bytes=int((export.quota_gib or 0) * figures.GIB),
                data_class=export.data_class,
                residency=export.residency or (storage.region,),
            )
            for export in storage.exports
        ),
        clients=tuple(pool_key(region.name, pool.name) for pool in region.pools if pool.role == "gpu")
        if storage.exports
        else (),
    )


def _series(cluster: CephCluster) -> int:
    """Twice what 18.2's module has: about 60 for a pool, 8 for an OSD, 200 for the rest."""
    return 2 * (60 * (len(cluster.pools) + 1) + 8 * sum(map(len, cluster.osds.values())) + 200)


def _osds(storage: CephSpec, host: str) -> tuple[Osd, ...]:
    backing = storage.osd_backing
    if isinstance(backing, FileBackingSpec):
        return tuple(
            Osd(place=str(number), kind="file", size_gib=backing.size_gib, device_class=tier or None)
            for number, (tier, _) in enumerate(figures.disks(storage, host))
        )
    return tuple(
        Osd(
            place=device.path,
            kind="device",
            size_gib=device.size_gib or backing.size_gib,
            path=device.path,
            serial=device.serial,
            wipe=device.wipe,
            encrypted=backing.encrypted,
            device_class=device.device_class,
        )
        for device in backing.devices
        if device.host == host
    )


def _outlook(spec: ClusterSpec, storage: CephSpec) -> Outlook:
    members = figures.nodes(spec, storage)
    osds = len(members) * storage.osds_per_node
    return Outlook(
        storage=storage.name,
        region=storage.region,
        kind=storage.kind,
        nodes=len(members),
        osds=osds,
        raw_gib=figures.raw_gib(storage, members),
        usable_gib=figures.usable_gib(storage, members),
        replicas=figures.replicas(storage, members),
        failure_domain=figures.failure_domain(members),
        monitors=tuple(node.name for node in figures.monitors(storage, members)),
        placement_groups_per_osd=figures.groups_per_osd(storage, members),
        memory_gib_per_node=figures.memory_gib(storage),
        recovery_h=figures.recovery_h(storage, members),
        version=storage.version or "",
        tiers=tuple(_tier(storage, members, tier) for tier in figures.tiers(storage, members)),
        encrypted=storage.is_encrypted,
    )


def _tier(storage: CephSpec, members: Sequence[figures.Node], tier: str) -> Tier:
    exports = [one.name for one in storage.exports if figures.tier_of(storage, one) == tier]
    nodes, osds = figures.within(storage, members, tier)
    raw = figures.raw_gib(storage, members, tier)
    return Tier(tier, osds, len(nodes), raw, tuple(exports))


def in_words(one: Outlook) -> str:
    """A cluster: what it holds, what it bears, what it takes."""
    lines = [
        f"Storage {one.storage} in {one.region}: Ceph, {counted(one.osds, 'OSD')} on "
        f"{counted(one.nodes, 'node')}{', on encrypted disks' if one.encrypted else ''}",
        f"  {size(one.usable_gib)} usable of {size(one.raw_gib)}, {bears(one)}",
        f"  monitors on {', '.join(one.monitors)}; {one.placement_groups_per_osd:.0f} placement groups "
        f"an OSD, up to {one.memory_gib_per_node:g} GiB of memory a node",
    ]
    for tier in one.tiers:
        held = f"for {', '.join(tier.exports)}" if tier.exports else "for nothing by name"
        lines.append(
            f"  tier {tier.device_class}: {counted(tier.osds, 'OSD')} on {counted(tier.nodes, 'node')}, "
            f"{size(tier.raw_gib)} raw, {held}"
        )
    if one.version:
        lines.append(
            f"  Ceph {one.version}: what runs another one is upgraded, monitors first, then managers, OSDs, "
            "metadata servers and gateways, a node at a time"
        )
    return "\n".join(lines)


def bears(one: Outlook) -> str:
    """What may fail, and what then."""
    if one.replicas == 1:
        return f"one copy: the loss of any OSD loses data, and no {one.failure_domain} may fail"
    word = f"{one.replicas} copies, each on another {one.failure_domain}: "
    word += "one may fail and writes go on"
    if one.replicas > 2:
        word += f", {one.replicas - 1} may fail and nothing is lost"
    if one.recovery_h is None:
        return f"{word}; what is lost is copied again once it is replaced"
    return f"{word}; a full node is copied again in {hours(one.recovery_h)}"


def counted(number: int, word: str) -> str:
    """`3 nodes`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def size(gib: float) -> str:
    """GiB, or TiB from ten of them on."""
    return f"{gib / 1024:,.1f} TiB" if gib >= 10 * 1024 else f"{gib:,.1f} GiB"


def hours(time_h: float) -> str:
    """Hours, or minutes below one."""
    return f"{time_h:.1f} h" if time_h >= 1 else f"{max(time_h * 60, 1):.0f} min"


CAPABILITY = Storage()
