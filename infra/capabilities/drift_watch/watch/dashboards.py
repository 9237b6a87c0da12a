"""What changed: drift, roles that were not sealed, boots, configurations taken, versions."""

from infra.ground.dashboard import HERE, Dashboard, Panel, Query, by_region, or_none, or_zero

SERVICES = "(prometheus|alertmanager|node_exporter|blackbox_exporter)"
OF_ROLE = "region, instance, role"


def table(title: str, column: str, expr: str, label: str = "instance", **more: str) -> Panel:
    """What is found; a line that says `none` where nothing is."""
    return Panel(title, "table", (Query(or_none(expr, label), column),), **more)  # type: ignore[arg-type] # texts only


def by_service(suffix: str) -> str:
    """A series that every service of Prometheus' family has below its own name."""
    return f'{{__name__=~"{SERVICES}_{suffix}", {HERE}}}'


CHANGES = Dashboard(
    uid="causeway-changes",
    title="What changed?",
    about="region",
    help="Nodes compare themselves with what was sealed, once a minute.",
    panels=(
        Panel(
            "Things that differ from what was sealed",
            "curves",
            (Query(by_region(f"region:drift:differences{{{HERE}}}"), "{{region}}"),),
        ),
        Panel(
            "Nodes that differ",
            "curves",
            (Query(by_region(f"region:drift:nodes{{{HERE}}}"), "{{region}}"),),
        ),
        table("What differs", "things", f"sum by ({OF_ROLE}) (causeway_drift_differences{{{HERE}}}) > 0"),
        table(
            "Roles that were not sealed",
            "unsealed",
            f"max by ({OF_ROLE}) (causeway_drift_unsealed{{{HERE}}} == 1)",
        ),
        Panel(
            "Nodes that cannot look at themselves",
            "numbers",
            (Query(or_zero(f"count(causeway_drift_scan_success{{{HERE}}} == 0)")),),
            width=6,
            bad_from=1,
        ),
        Panel(
            "Configurations that were refused",
            "numbers",
            (
                Query(
                    or_zero(
                        "count({__name__=~"
                        f'"(prometheus|alertmanager)_config_last_reload_successful", {HERE}}} == 0)'
                    )
                ),
            ),
            width=6,
            bad_from=1,
        ),
        table(
            "Nodes that booted in the time shown",
            "ago",
            f"max by (region, pool, instance) (time() - node_boot_time_seconds{{{HERE}}} < $__range_s)",
            unit="s",
        ),
        Panel(
            "Roles, when last sealed",
            "table",
            (
                Query(
                    f"1000 * max by (region, role) (causeway_drift_sealed_timestamp_seconds{{{HERE}}} > 0)",
                    "sealed",
                ),
            ),
            "dateTimeFromNow",
            help="The last time on any node.",
        ),
        Panel(
            "Services, when they last took their configuration",
            "table",
            (
                Query(
                    "1000 * max by (region, instance, job)"
                    f" ({by_service('config_last_reload_success_timestamp_seconds')})",
                    "taken",
                ),
            ),
            "dateTimeFromNow",
        ),
        Panel(
            "Kernels and systems",
            "table",
            (
                Query(
                    "count by (region, pool, release, pretty_name) ("
                    f"node_uname_info{{{HERE}}}"
                    " * on (region, instance) group_left (pretty_name) node_os_info)",
                    "nodes",
                ),
            ),
        ),
        Panel(
            "Versions of services",
            "table",
            (Query(f"count by (region, job, version) ({by_service('build_info')})", "nodes"),),
        ),
    ),
)

DASHBOARDS = (CHANGES,)
