"""Dashboards as Grafana takes them: its classic JSON.

That is what older ones know; Grafana 13 makes its second schema of it when it loads it.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common as builders_common
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from infra.capabilities import dashboards
from infra.ground.dashboard import Dashboard, Panel, Query

TAG = "causeway"
SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHTS = {"numbers": 4, "curves": 8, "table": 8}
"""In rows of Grafana's grid."""
SINCE, AGAIN = "now-6h", "1m"
REGIONS = "label_values(region:nodes:declared, region)"
NODES = 'label_values(up{job="node-exporter", region=~"$region"}, instance)'
AnyPanel = stat.Panel | timeseries.Panel | table.Panel


def dashboard_json(one: Dashboard) -> str:
    """The file of a dashboard, the same for the same dashboard."""
    made = builders.Dashboard(one.title).uid(one.uid).tags([TAG]).description(one.help)
    made.editable().time(SINCE, "now").refresh(AGAIN).tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.link(
        builders.DashboardLink("Other questions")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .keep_time(True)
        .include_vars(True)
    )
    made.with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    if one.about != "cluster":
        made.with_variable(_regions())
    if one.about == "node":
        made.with_variable(_chosen("node", NODES).label("Node"))
    for number, panel in enumerate(one.panels, 1):
        made.with_panel(_panel(panel).id(number))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def dashboard_files() -> dict[str, str]:
    """The name of each dashboard's file → what is in it."""
    return {f"{one.uid}.json": dashboard_json(one) for one in dashboards()}


def provisioning(path: Path) -> str:
    """What tells Grafana to read all dashboards in a folder of its host. JSON is YAML."""
    provider = {
        "name": TAG,
        "type": "file",
        "folder": "Causeway",
        "folderUid": TAG,
        "allowUiUpdates": False,
        "options": {"path": str(path)},
    }
    return json.dumps({"apiVersion": 1, "providers": [provider]}, indent=2) + "\n"


def _regions() -> builders.QueryVariable:
    everyone = models.VariableOption(text="All", value="$__all", selected=True)
    return (
        _chosen("region", REGIONS)
        .label("Region")
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(everyone)
    )


def _chosen(name: str, query: str) -> builders.QueryVariable:
    """What can be chosen is asked again whenever the time shown changes."""
    made = builders.QueryVariable(name).datasource(SOURCE).query(query)
    return made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC)


def _panel(panel: Panel) -> AnyPanel:
    drawn: dict[str, Callable[[Panel], AnyPanel]] = {"numbers": _numbers, "curves": _curves, "table": _table}
    made = drawn[panel.kind](panel)
    made.title(panel.title).description(_described(panel)).datasource(SOURCE).unit(panel.unit)
    made.span(panel.width).height(HEIGHTS[panel.kind]).no_value("no series")
    if panel.bad_from is not None:
        steps = [
            models.Threshold(value=None, color="green"),
            models.Threshold(value=panel.bad_from, color="red"),
        ]
        made.thresholds(builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    return made


def _described(panel: Panel) -> str:
    needs = sorted({query.needs for query in panel.queries if query.needs})
    return " ".join(filter(None, [panel.help, f"Needs {', '.join(needs)}." if needs else ""]))


def _numbers(panel: Panel) -> stat.Panel:
    last = builders_common.ReduceDataOptions().calcs(["lastNotNull"])
    made = stat.Panel().graph_mode(common.BigValueGraphMode.NONE).reduce_options(last)
    for ref, query in _named(panel.queries):
        made.with_target(_target(ref, query).instant())
    return made


def _curves(panel: Panel) -> timeseries.Panel:
    sort, legend = builders_common.VizTooltipOptions(), builders_common.VizLegendOptions()
    sort.mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    legend.show_legend(True).display_mode(common.LegendDisplayMode.LIST)
    legend.placement(common.LegendPlacement.BOTTOM)
    dashed = models.DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash"})
    made = timeseries.Panel().min(0).tooltip(sort).legend(legend).override_by_regexp("^declared ", [dashed])
    made.color_scheme(builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
    for ref, query in _named(panel.queries):
        made.with_target(_target(ref, query).range())
    return made


def _table(panel: Panel) -> table.Panel:
    """Each query is a column beside its labels; Grafana calls it by the query where there are several."""
    made = table.Panel()
    alone = len(panel.queries) == 1
    columns: dict[str, str] = {}
    for ref, query in _named(panel.queries):
        made.with_target(_target(ref, query).instant().format(PromQueryFormat.TABLE))
        columns["Value" if alone else f"Value #{ref}"] = query.legend
        if query.unit:
            made.override_by_name(query.legend, [models.DynamicConfigValue(id_val="unit", value=query.unit)])
    if not alone:
        made.with_transformation(_transformation("merge", {}))
    options = {"excludeByName": {"Time": True}, "renameByName": columns}
    return made.with_transformation(_transformation("organize", options))


def _transformation(name: str, options: dict[str, Any]) -> models.DataTransformerConfig:
    return models.DataTransformerConfig(id_val=name, options=options)


def _named(queries: Sequence[Query]) -> list[tuple[str, Query]]:
    """Grafana's letters for them: no panel has more than there are."""
    return list(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(queries)], queries, strict=True))


def _target(ref: str, query: Query) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(ref).datasource(SOURCE).expr(query.expr).legend_format(query.legend)
