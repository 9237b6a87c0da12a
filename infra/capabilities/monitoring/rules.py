"""Monitoring: servers in every region, a global region that is reached, receivers that can be told."""

from collections.abc import Iterator
from typing import ClassVar

from infra.capabilities.monitoring.section import QUERIES, SECRET_FIELDS
from infra.capabilities.monitoring.sizes import gib_per_day, nodes
from infra.declaration import ClusterSpec, MonitoringSpec
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.remote import problems, secret_name
from infra.ground.rule import Rule
from infra.ground.rules.names import LABEL


class ServersHaveNodes:
    """Every region watches itself, also while it is cut off, on its first control nodes."""

    id: ClassVar[str] = "monitoring-nodes"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions without a control node."""
        for index, region in enumerate(spec.regions if spec.monitoring else ()):
            if not any(pool.role == "control" and pool.count > 0 for pool in region.pools):
                message = f"{region.name} has no control node, on which its monitoring would run"
                yield Problem(f"regions[{index}].pools", message, hint="add a pool of role control there")


class GlobalRegionIsReached:
    """What every region has recorded is sent there over the links."""

    id: ClassVar[str] = "monitoring-global-region"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A global region that is not declared, or that some region has no path to."""
        if (monitoring := spec.monitoring) is None or not spec.regions:
            return
        names = [region.name for region in spec.regions]
        chosen = monitoring.global_region or spec.rollout()[0][0]
        if chosen not in names:
            if monitoring.global_region is not None:
                message = f"{show(chosen)} is not a declared region ({', '.join(names)})"
                yield Problem(
                    "monitoring.global_region", message, show(chosen), suggestion=nearest(chosen, names)
                )
            return
        lost = [name for name in names if name not in reached(spec, chosen)]
        if lost:
            path = "monitoring.global_region" if monitoring.global_region else "monitoring"
            message = f"no chain of links leads from {', '.join(lost)} to {chosen}, which is to see all"
            yield Problem(path, message, show(chosen), hint="add a link, or make two clusters of it")


class RetentionFits:
    """Days that the declared size does not hold would not be kept."""

    id: ClassVar[str] = "monitoring-retention"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """A size that holds fewer days than declared, in the largest region."""
        monitoring = spec.monitoring
        size = monitoring.retention.size_gib if monitoring else None
        if monitoring is None or size is None or not spec.regions:
            return
        largest = max(spec.regions, key=nodes)
        day, days = gib_per_day(monitoring, nodes(largest)), monitoring.retention.time_days
        if day * days > size:
            message = (
                f"{size:g} GiB hold {size / day:.1f} of the {days} days"
                f" that the {nodes(largest):,} nodes of {largest.name} are to be kept for"
            )
            hint = f"declare {day * days:.1f} GiB, fewer days, or a longer interval_s"
            yield Problem("monitoring.retention.size_gib", message, f"{size:g}", hint=hint)


class ReceiversCanBeTold:
    """A receiver has a name of its own, regions that are declared, and secrets with names."""

    id: ClassVar[str] = "monitoring-receivers"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Each receiver's name, regions, severities and secrets."""
        if spec.monitoring is not None:
            yield from self._names(spec.monitoring)
            yield from self._regions(spec, spec.monitoring)
            yield from self._secrets(spec.monitoring)

    @staticmethod
    def _names(monitoring: MonitoringSpec) -> Iterator[Problem]:
        seen: set[str] = set()
        for index, receiver in enumerate(monitoring.receivers):
            path, name = f"monitoring.receivers[{index}]", receiver.name
            if not LABEL.fullmatch(name):
                yield Problem(f"{path}.name", f"{show(name)} is not a DNS label (a-z, 0-9 and - inside)")
            elif name in seen or name in RESERVED:
                yield Problem(f"{path}.name", f"{show(name)} is another receiver's name")
            if not receiver.severities:
                yield Problem(f"{path}.severities", "is empty, so it is never told", allowed="page, ticket")
            seen.add(name)

    @staticmethod
    def _regions(spec: ClusterSpec, monitoring: MonitoringSpec) -> Iterator[Problem]:
        names = [region.name for region in spec.regions]
        for index, receiver in enumerate(monitoring.receivers):
            for number, region in enumerate(receiver.regions):
                if region not in names:
                    path = f"monitoring.receivers[{index}].regions[{number}]"
                    message = f"{show(region)} is not a declared region ({', '.join(names)})"
                    yield Problem(path, message, show(region), suggestion=nearest(region, names))

    @staticmethod
    def _secrets(monitoring: MonitoringSpec) -> Iterator[Problem]:
        for index, receiver in enumerate(monitoring.receivers):
            path = f"monitoring.receivers[{index}]"
            for field in SECRET_FIELDS:
                if (secret := getattr(receiver, field, None)) is None:
                    continue
                yield from secret_name(f"{path}.{field}", secret)
            named = getattr(receiver, "username", None), getattr(receiver, "password_secret", None)
            if any(named) and not all(named):
                missing = "password_secret" if named[0] else "username"
                yield Problem(path, f"has no {missing}", hint="a mail server asks for both, or for none")


class MetricsCanBeSent:
    """Recorded series go to a URL, by a name and a password that nobody else reads."""

    id: ClassVar[str] = "monitoring-remote-write"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """The URLs and secrets of a receiver of the site's own."""
        if spec.monitoring is not None and (far := spec.monitoring.remote_write) is not None:
            yield from problems("monitoring.remote_write", far, QUERIES)


class SomebodyIsTold:
    """Alerts that nobody gets are seen by those who look."""

    id: ClassVar[str] = "monitoring-nobody"
    severity: ClassVar[Severity] = "warning"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions in which people work, and no receiver for their pages."""
        if spec.monitoring is None:
            return
        real = [region.name for region in spec.regions if not region.provider.for_trials]
        told = [receiver for receiver in spec.monitoring.receivers if "page" in receiver.severities]
        silent = [name for name in real if not any(name in one.regions or not one.regions for one in told)]
        if silent:
            message = f"nobody is told of alerts in {', '.join(silent)}"
            hint = "declare a receiver; causeway status shows alerts to those who look"
            yield Problem("monitoring.receivers", message, hint=hint)


RESERVED = ("nobody", "dead-man")
"""Receivers that are there in any case."""
RULES: tuple[Rule, ...] = (
    ServersHaveNodes(),
    GlobalRegionIsReached(),
    RetentionFits(),
    ReceiversCanBeTold(),
    MetricsCanBeSent(),
    SomebodyIsTold(),
)


def reached(spec: ClusterSpec, start: str) -> set[str]:
    """The regions to which chains of links lead, itself among them."""
    seen, todo = set[str](), [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            ends = ({link.a, link.b} for link in spec.wan_links)
            todo += [end for pair in ends if name in pair for end in pair]
    return seen
