"""The WAN in `causeway plan`: what every link asks of hosts, and ways over several of them."""

from dataclasses import asdict
from itertools import combinations

from infra.capabilities.wan.plan import WanPlan
from infra.capabilities.wan.section import WanRegion
from infra.declaration import WanLinkSpec
from infra.ground.capability import RegionReport, Report


def report(plan: WanPlan) -> Report:
    """A paragraph per link, then the longer ways; per region where its nodes send what is for others."""
    ways = [text for pair in combinations(plan.routes, 2) if (text := _way_text(plan, *pair))]
    links = [_link_text(link, plan) for link in plan.declared]
    data = {
        "wan": {name: asdict(link) for name, link in plan.links.items()},
        "routes": {
            source: {target: asdict(route) for target, route in routes.items()}
            for source, routes in plan.routes.items()
        },
    }
    regions = {
        name: RegionReport(
            _gateways_text(region),
            {"gateway_address": str(region.gateway_address) if region.gateway_address else None},
        )
        for name, region in plan.section.regions.items()
    }
    return Report("\n\n".join([*links, *(["\n".join(ways)] if ways else [])]), data, regions)


def _gateways_text(region: WanRegion) -> str:
    """Where nodes send what is for other regions, if that is to gateway nodes."""
    count = len(region.gateways)
    shared = f", which {count} gateways share" if count > 1 else ""
    return f"to other regions by {region.gateway_address}{shared}" if count else ""


def _link_text(link: WanLinkSpec, plan: WanPlan) -> str:
    planned = plan.links[link.name]
    stands_in = f", backup of {link.backup_of}" if link.backup_of else ""
    ends = " – ".join(_end_text(link, region, plan) for region in (link.a, link.b))
    return (
        f"{link.name} ({link.kind}{stands_in}): {ends}\n"
        f"  {link.rtt_ms:g} ms round trip, {link.bandwidth_mbps:g} Mbit/s, {link.loss_pct:g} % loss, "
        f"MTU {planned.mtu_bytes} (MSS {planned.mss_bytes})\n"
        f"  in flight when full {planned.bdp_bytes:,} bytes, "
        f"TCP buffers up to {planned.tcp_buffer_max_bytes:,} bytes\n"
        f"  {planned.congestion_control}: {planned.reason}"
    )


def _end_text(link: WanLinkSpec, region: str, plan: WanPlan) -> str:
    """A region, or its gateway node that ends the link, with what the carrier hands over there."""
    node, declared = plan.ends[link.name][region], link.end(region)
    where = node.name if node else region
    return f"{where} ({declared.address})" if declared else where


def _way_text(plan: WanPlan, source: str, target: str) -> str:
    """How traffic goes between two regions, where that is more than one link without a backup."""
    route = plan.routes[source].get(target)
    if route is None or (len(route.primary.links) == 1 and route.backup is None):
        return ""
    way = route.primary
    text = (
        f"{source} – {target} over {', '.join(way.links)}: {way.rtt_ms:g} ms, {way.bandwidth_mbps:g} Mbit/s, "
        f"{way.loss_pct:.3g} % loss, MTU {way.mtu_bytes}; {route.congestion_control}"
    )
    if route.backup is None:
        return text
    return f"{text}; when that is down, over {', '.join(route.backup.links)}: {route.backup.rtt_ms:g} ms"
