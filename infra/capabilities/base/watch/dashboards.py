"""What is wrong with one node."""

from infra.ground.dashboard import Dashboard, Panel, Query, or_none, or_zero

NODE = 'instance="$node"'
CPUS = f'scalar(count(node_cpu_seconds_total{{mode="idle", {NODE}}}))'
WAYS = ("receive", "transmit")


def number(title: str, expr: str, unit: str = "short", bad_from: float | None = None) -> Panel:
    """One of the numbers at the top."""
    return Panel(title, "numbers", (Query(expr),), unit, width=4, bad_from=bad_from)


def curves(title: str, unit: str, *queries: Query, help: str = "") -> Panel:  # noqa: A002 - Panel's
    """Half a row."""
    return Panel(title, "curves", queries, unit, help=help)


def table(title: str, column: str, expr: str, label: str) -> Panel:
    """What is found; a line that says `none` where nothing is."""
    return Panel(title, "table", (Query(or_none(expr, label), column),))


def rate(counter: str) -> str:
    """Of this node's, in a second."""
    return f"rate({counter}{{{NODE}}}[$__rate_interval])"


def both_ways(what: str) -> tuple[Query, ...]:
    """Received and transmitted, by interface."""
    return tuple(
        Query(
            f'rate(node_network_{way}_{what}_total{{{NODE}, device!="lo"}}[$__rate_interval])',
            f"{{{{device}}}} {way} {what}",
        )
        for way in WAYS
    )


ONE_NODE = Dashboard(
    uid="causeway-node",
    title="What is wrong with this node?",
    about="node",
    help="A container shows its host's processors, memory, disks and clock.",
    panels=(
        number("Answers", f"max(node:answers{{{NODE}}})"),
        number("Booted, ago", f"time() - max(node_boot_time_seconds{{{NODE}}})", "s"),
        number(
            "Alerts that fire",
            or_zero(f'count(ALERTS{{cluster="", alertstate="firing", severity=~"page|ticket", {NODE}}})'),
            bad_from=1,
        ),
        number("Things that drifted", f"sum(causeway_drift_differences{{{NODE}}})", bad_from=1),
        number(
            "Units that failed",
            or_zero(f'count(node_systemd_unit_state{{state="failed", {NODE}}} == 1)'),
            bad_from=1,
        ),
        number(
            "Processes killed for want of memory, in the time shown",
            f"max(increase(node_vmstat_oom_kill{{{NODE}}}[$__range]))",
            bad_from=1,
        ),
        curves(
            "CPU",
            "percentunit",
            Query(
                f'sum by (mode) (rate(node_cpu_seconds_total{{mode!="idle", {NODE}}}[$__rate_interval]))'
                f" / {CPUS}",
                "{{mode}}",
            ),
            Query(f"max(node_load1{{{NODE}}}) / {CPUS}", "load of a minute, per processor"),
        ),
        curves(
            "Memory",
            "percentunit",
            Query(
                f"1 - node_memory_MemAvailable_bytes{{{NODE}}} / node_memory_MemTotal_bytes",
                "in use",
            ),
        ),
        curves(
            "Filesystems",
            "percentunit",
            Query(
                "1 - max by (mountpoint)"
                f" (node_filesystem_avail_bytes{{{NODE}}} / node_filesystem_size_bytes)",
                "{{mountpoint}}",
            ),
            Query(
                "1 - max by (mountpoint)"
                f' (node_filesystem_files_free{{{NODE}, fstype=~"ext[234]|xfs|f2fs|tmpfs"}}'
                " / node_filesystem_files)",
                "{{mountpoint}}, inodes",
            ),
        ),
        curves(
            "Disks",
            "percentunit",
            Query(rate("node_disk_io_time_seconds_total"), "{{device}} busy"),
        ),
        curves("Network", "Bps", *both_ways("bytes")),
        curves("Network: errors and drops", "pps", *both_ways("errs"), *both_ways("drop")),
        curves(
            "Clock",
            "s",
            Query(f"max(abs(timestamp(node_time_seconds{{{NODE}}}) - node_time_seconds))", "from Prometheus"),
            Query(f"max(abs(node_timex_offset_seconds{{{NODE}}}))", "from what sets it"),
            help="What a scrape takes is part of the first; the second is 0 where chrony steers.",
        ),
        curves(
            "Whether something sets the clock",
            "short",
            Query(f"max(node_timex_sync_status{{{NODE}}})", "1: it does"),
        ),
        table(
            "Units that failed",
            "failed",
            f'max by (name) (node_systemd_unit_state{{state="failed", {NODE}}} == 1)',
            "name",
        ),
        table(
            "Alerts that fire",
            "fires",
            "max by (severity, alertname)"
            f' (ALERTS{{cluster="", alertstate="firing", severity=~"page|ticket", {NODE}}})',
            "alertname",
        ),
        table("What drifted", "things", f"sum by (role) (causeway_drift_differences{{{NODE}}}) > 0", "role"),
        Panel(
            "XIDs of GPUs, since they are counted",
            "table",
            (
                Query(
                    f"max by (pci, xid, action) (causeway_gpu_xid_total{{{NODE}}})",
                    "times",
                    needs="a GPU that had one",
                ),
            ),
        ),
        curves(
            "Temperature",
            "celsius",
            Query(
                f"max by (chip, sensor) (node_hwmon_temp_celsius{{{NODE}}})",
                "{{chip}} {{sensor}}",
                needs="sensors",
            ),
        ),
        curves(
            "Memory that was wrong, since boot",
            "short",
            Query(
                f"max by (controller) (node_edac_correctable_errors_total{{{NODE}}})",
                "{{controller}} corrected",
                needs="memory with ECC",
            ),
            Query(
                f"max by (controller) (node_edac_uncorrectable_errors_total{{{NODE}}})",
                "{{controller}} not corrected",
                needs="memory with ECC",
            ),
        ),
    ),
)

DASHBOARDS = (ONE_NODE,)
