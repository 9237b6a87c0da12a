"""A cluster that spans regions: its sites, the links between them, and the verification of all of it.

`pulumi up` reads `causeway:cluster` from Pulumi.<stack>.yaml and makes it so.
"""

import pulumi

from infra.components import Cluster, Inventory, Region, Rollout, WanLink, declared_cluster

spec = declared_cluster()
cluster = Cluster(spec)

regions = {region.name: Region(region.name, region, cluster) for region in spec.regions}
links = [WanLink(link.name, link, regions[link.a], regions[link.b], cluster) for link in spec.wan_links]

inventory = Inventory(cluster, list(regions.values()), links)
rollout = Rollout(inventory)

pulumi.export("regions", {name: region.instances.apply(sorted) for name, region in regions.items()})
pulumi.export("contract", inventory.contract)
pulumi.export("checks", rollout.verification.effective)
