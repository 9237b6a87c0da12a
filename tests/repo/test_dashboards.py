"""Dashboards ask for series that there are, of the regions that are meant.

What the queries say is Prometheus' to check: tests/integration/test_watch.py and test_monitoring.py.
"""

import re
from functools import cache

import pytest
from ruamel.yaml import YAML

from infra import ROOT, capabilities
from infra.capabilities import dashboards
from infra.drift import watch
from infra.ground.dashboard import Dashboard, Panel, Query
from tests.loaded import load
from tests.repo.dashboards import FILLED_IN, metrics, questions

GATEWAY = ROOT / "roles" / "wan_gateway" / "files" / "causeway_wan_gateway.py"
UIDS = {f"causeway-{about}" for about in ("changes", "fabric", "fleet", "gpus", "links", "node", "storage")}
"""In bookmarks and in links of others: none is renamed or taken for another question."""
EXPORTED = {
    "node_exporter": {
        "node_boot_time_seconds",
        "node_disk_io_time_seconds_total",
        "node_edac_correctable_errors_total",
        "node_load1",
        "node_network_receive_drop_total",
        "node_network_receive_errs_total",
        "node_network_transmit_drop_total",
        "node_network_transmit_errs_total",
        "node_os_info",
        "node_timex_offset_seconds",
        "node_uname_info",
    },
    "ceph": {
        "ceph_num_objects_degraded",
        "ceph_num_objects_misplaced",
        "ceph_num_objects_unfound",
        "ceph_pool_metadata",
        "ceph_pool_rd_bytes",
        "ceph_pool_stored",
        "ceph_pool_wr_bytes",
    },
    "all": {
        "(prometheus|alertmanager)_config_last_reload_successful",
        "(prometheus|alertmanager|node_exporter|blackbox_exporter)_build_info",
        "(prometheus|alertmanager|node_exporter|blackbox_exporter)_config_last_reload_success_timestamp_seconds",
    },
}
"""Exporter → what no alert reads. Seen in answers of Debian's packages; EDAC's in the exporter's source."""
VARIABLES = {"cluster": set[str](), "region": {"$region"}, "node": {"$region", "$node"}}

each = pytest.mark.parametrize(
    ("dashboard", "panel", "query"),
    [pytest.param(*found, id=f"{found[0].uid}-{number}") for number, found in enumerate(questions())],
)


@cache
def known() -> frozenset[str]:
    """What alerts read, each of which has been tried by promtool; what rules record; what is ours."""
    found = {"ALERTS", *watch.HELP, *(f"causeway_wan_{name}" for name in load(GATEWAY).HELP)}
    found |= {name for names in EXPORTED.values() for name in names}
    for name in capabilities.with_watch():
        (group,) = YAML(typ="safe").load(capabilities.alerts_of(name).read_text())["groups"]
        for rule in group["rules"]:
            found |= metrics(re.sub(r"\s+", " ", rule["expr"])) | {rule.get("record", "ALERTS")}
    return frozenset(found)


def test_what_points_to_a_page_finds_it() -> None:
    assert sorted(one.uid for one in dashboards()) == sorted(UIDS)
    assert all(re.fullmatch(r"[a-z-]{1,40}", uid) for uid in UIDS)


def test_every_page_answers_a_question() -> None:
    titles = [one.title for one in dashboards()]
    assert all(title.endswith("?") for title in titles)
    assert len(set(titles)) == len(titles)


def test_columns_of_a_table_can_be_told_apart() -> None:
    for dashboard in dashboards():
        for panel in dashboard.panels:
            names = [query.legend for query in panel.queries]
            assert len(set(names)) == len(names), f"{dashboard.title} {panel.title}"
            assert panel.kind != "table" or all(names), f"{dashboard.title} {panel.title}: name the columns"


@each
def test_what_a_panel_reads_is_there(dashboard: Dashboard, panel: Panel, query: Query) -> None:
    unknown = metrics(query.expr) - known()
    assert not unknown, (
        f"{dashboard.title} {panel.title}: no rule records it, no exporter was seen to have it"
    )


@each
def test_a_page_fills_in_what_its_queries_ask_for(dashboard: Dashboard, panel: Panel, query: Query) -> None:
    asked = set(re.findall(r"\$[a-z_]\w*", query.expr))
    assert asked <= VARIABLES[dashboard.about] | FILLED_IN.keys() - {"$region"}, panel.title


@each
def test_regions_are_told_apart_where_all_of_them_lie(
    dashboard: Dashboard, panel: Panel, query: Query
) -> None:
    """In the global region other regions' series differ from its own by `cluster` alone."""
    read = re.finditer(r"(by \(region\b[^)]*\) \()?\b(?:region:[\w:]+|ALERTS)(\{[^}]*\})?", query.expr)
    mixed = [found[0] for found in read if not found[1] and 'cluster=""' not in (found[2] or "")]
    assert mixed == [], f"{dashboard.title} {panel.title}: take by_region, or say cluster=''"
