"""Is the storage healthy? Every cluster of a region by its managers' metrics."""

from infra.ground.dashboard import HERE, Dashboard, Panel, Query, by_region, or_none, or_zero

CEPH = "a Ceph cluster"
OF = "{{region}} {{storage}}"


def ceph(expr: str, legend: str = OF, unit: str = "") -> Query:
    """What only regions with storage have."""
    return Query(expr, legend, unit, needs=CEPH)


def recorded(name: str, *labels: str) -> str:
    """A series that is recorded for each cluster."""
    return by_region(f"region:storage_{name}{{{HERE}}}", "storage", *labels)


STORAGE = Dashboard(
    uid="causeway-storage",
    title="Is the storage healthy?",
    about="region",
    help="Where storage is declared. Ceph's active manager tells; nodes have a page of their own.",
    panels=(
        Panel(
            "Health: 0 is well, 1 a warning, 2 an error",
            "numbers",
            (ceph(recorded("health:state")),),
            bad_from=1,
        ),
        Panel(
            "OSDs that are not up",
            "numbers",
            (ceph(f"{recorded('osds:declared')} - {recorded('osds:up')}"),),
            bad_from=1,
        ),
        Panel(
            "What Ceph warns of",
            "table",
            (
                Query(
                    or_none(
                        f"max by (region, storage, name, severity) (ceph_health_detail{{{HERE}}}) == 1",
                        "name",
                    ),
                    "found",
                ),
            ),
        ),
        Panel(
            "Monitors without a voice",
            "numbers",
            (Query(or_zero(f"count(causeway_ceph_monitor_in_quorum{{{HERE}}} == 0)")),),
            bad_from=1,
        ),
        Panel(
            "Room taken",
            "curves",
            (ceph(f"{recorded('bytes:used')} / {recorded('bytes:total')}"),),
            "percentunit",
        ),
        Panel(
            "Stored by pool",
            "curves",
            (
                ceph(
                    f"max by (region, storage, pool_id) (ceph_pool_stored{{{HERE}}})"
                    " * on (region, storage, pool_id) group_left (name)"
                    " max by (region, storage, pool_id, name) (ceph_pool_metadata)",
                    "{{storage}} {{name}}",
                ),
            ),
            "bytes",
        ),
        Panel(
            "Read and written by clients",
            "curves",
            tuple(
                ceph(
                    f"sum by (region, storage) (rate(ceph_pool_{way}_bytes{{{HERE}}}[$__rate_interval]))",
                    f"{OF} {word}",
                )
                for way, word in (("rd", "read"), ("wr", "written"))
            ),
            "Bps",
        ),
        Panel(
            "Objects with too few copies, or in another place",
            "curves",
            tuple(
                ceph(f"max by (region, storage) (ceph_num_objects_{name}{{{HERE}}})", f"{OF} {name}")
                for name in ("degraded", "misplaced", "unfound")
            ),
        ),
        Panel(
            "Requests that wait for longer than half a minute",
            "curves",
            (ceph(f"max by (region, storage) (ceph_healthcheck_slow_ops{{{HERE}}})"),),
        ),
    ),
)

DASHBOARDS = (STORAGE,)
