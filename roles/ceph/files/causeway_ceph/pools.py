"""Pools, and where their copies go, as they are declared."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asked import Cluster, RefusedError
from state import apart

PARALLEL = 16
ERASURE = 3
"""The type of a pool of parts (`pg_pool_t::TYPE_ERASURE`, src/osd/osd_types.h of Ceph)."""


class Compared:
    """What is declared, the cluster that is there, and what was changed in it."""

    def __init__(self, ask: Cluster, wanted: Mapping[str, Any], dry_run: bool = False) -> None:
        self.ask = ask
        self.wanted = wanted
        self.dry_run = dry_run
        self.changes: list[str] = []

    def change(self, what: str, prefix: str, inbuf: bytes = b"", **fields: Any) -> None:
        """Note a change, and make it by a command unless nothing is to be changed."""
        self.changes.append(what)
        if not self.dry_run:
            self.ask(prefix, inbuf, **fields)


class Pools(Compared):
    """Declared pools, held against those that are there."""

    def pools(self) -> None:
        """Every pool with its rule, copies, number of placement groups and quota.

        Side by side: the monitors take a second for each change, and take many in one.
        """
        there = self.there()
        for pool in self.wanted["pools"]:
            if pool["name"] in there:
                self.require_form(pool, there[pool["name"]])
        with ThreadPoolExecutor(PARALLEL) as threads:
            list(threads.map(lambda pool: self.pool(pool, there.get(pool["name"])), self.wanted["pools"]))
        # The managers' own pool is made before anybody can say how.
        if ".mgr" in there:
            self.copies(there[".mgr"], self.wanted["mgr_replicas"])

    def pool(self, pool: Mapping[str, Any], there: Mapping[str, Any] | None) -> None:
        """One pool. THERE: as it is."""
        self.rule(pool, there)
        if not there:
            self.make(pool)
        if found := self.there().get(pool["name"]):
            self.tune(pool, found)

    def require_form(self, pool: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Refuse other parts than a pool was made with: Ceph changes them for no pool, nor copies into parts.

        Before anything is changed: six copies would take the place of 4 + 2 parts.
        """
        is_there = form({})
        if found["type"] == ERASURE:
            is_there = form(self.ask("osd erasure-code-profile get", name=found["erasure_code_profile"]))
        if is_there != form(pool):
            raise RefusedError(
                f"pool {pool['name']} is kept in {is_there} and declared in {form(pool)}, and a pool keeps "
                f"the form that it was made in: declare {is_there} again, and an export of another name for "
                "what is to be copied there"
            )

    def there(self) -> dict[str, dict[str, Any]]:
        """Name → pool, as it is."""
        return {pool["pool_name"]: pool for pool in self.ask("osd pool ls", detail="detail")}

    def rule(self, pool: Mapping[str, Any], there: Mapping[str, Any] | None) -> None:
        """Where the copies of a pool go. Ceph changes no rule: another one takes its place, then its name."""
        name, wanted = pool["name"], self.placed(pool)
        self.profile(pool)
        both, dump = (name, f"{name}.causeway-new"), self.ask("osd crush rule dump")
        rules = {rule["rule_name"]: apart(rule) for rule in dump if rule["rule_name"] in both}
        used = [rule["rule_name"] for rule in dump if there and rule["rule_id"] == there["crush_rule"]]
        if not rules and not there and pool.get("k"):
            return  # Ceph makes it with the pool
        right = next((one for one in both if rules.get(one) == wanted), "")
        if not right:
            free = [one for one in both if one not in rules] or [one for one in both if one not in used]
            right = free[0]
            if right in rules:
                self.change(f"rule {right} removed", "osd crush rule rm", name=right)
            self.make_rule(right, pool)
        if used and used[0] in rules and used[0] != right:
            self.set(name, "crush_rule", right)
        for one in (one for one in rules if one != right):
            self.change(f"rule {one} removed: {rules[one]}, not {wanted}", "osd crush rule rm", name=one)
        if right != name:
            self.change(f"rule {right} named", "osd crush rule rename", srcname=right, dstname=name)

    def placed(self, pool: Mapping[str, Any]) -> str:
        """What the rule of a pool says, as `apart` does."""
        shadow = "~" + pool["device_class"] if pool.get("device_class") else ""
        return f"default{shadow}/{self.wanted['failure_domain']}"

    def make_rule(self, name: str, pool: Mapping[str, Any]) -> None:
        """A rule for a pool, by this name."""
        if pool.get("k"):
            self.change(f"rule {name}", "osd crush rule create-erasure", name=name, profile=pool["name"])
            return
        fields = {"name": name, "root": "default", "type": self.wanted["failure_domain"]}
        if pool.get("device_class"):
            fields["class"] = pool["device_class"]
        self.change(f"rule {name}", "osd crush rule create-replicated", **fields)

    def profile(self, pool: Mapping[str, Any]) -> None:
        """What the rule of a pool of parts is made by; of one there is, only where parts go may change."""
        if not pool.get("k"):
            return
        name, parts = pool["name"], {"k": str(pool["k"]), "m": str(pool["m"])}
        place = {
            "crush-failure-domain": self.wanted["failure_domain"],
            "crush-device-class": pool.get("device_class") or "",
        }
        sure = {}
        if name in self.ask("osd erasure-code-profile ls"):
            found = self.ask("osd erasure-code-profile get", name=name)
            if any(found.get(key) != value for key, value in parts.items()):
                return
            if all(found.get(key, "") == value for key, value in place.items()):
                return
            sure = {"force": True, "yes_i_really_mean_it": True}
        words = ["{}={}".format(*pair) for pair in {**parts, **place}.items()]
        self.change(f"profile of {name}", "osd erasure-code-profile set", name=name, profile=words, **sure)

    def make(self, pool: Mapping[str, Any]) -> None:
        """A pool, as the declaration has it."""
        fields = {"pool": pool["name"], "pg_num": pool["pg_num"], "autoscale_mode": "off"}
        if pool.get("k"):
            fields.update(pool_type="erasure", erasure_code_profile=pool["name"])
        else:
            fields.update(pool_type="replicated", rule=pool["name"], size=pool["replicas"])
        self.change("pool {} made".format(pool["name"]), "osd pool create", **fields)

    def tune(self, pool: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """What of a pool can be changed while it is in use."""
        name = pool["name"]
        if pool.get("k"):
            self.copies(found, pool["k"] + pool["m"], least_parts(pool["k"], pool["m"]))
            if "ec_overwrites" not in found["flags_names"]:
                self.set(name, "allow_ec_overwrites", "true")
        else:
            self.copies(found, pool["replicas"], pool["min_replicas"])
        if found["pg_autoscale_mode"] != "off":
            self.set(name, "pg_autoscale_mode", "off")
        if found["pg_num_target"] != pool["pg_num"]:
            self.set(name, "pg_num", str(pool["pg_num"]))
        rules = {rule["rule_id"]: rule for rule in self.ask("osd crush rule dump")}
        own = [apart(rule) for rule in rules.values() if rule["rule_name"] == name]
        # It has none of its own where the pool was made by somebody, or in check mode.
        if own and own != [apart(rules[found["crush_rule"]])]:
            self.set(name, "crush_rule", name)
        if pool["application"] not in found["application_metadata"]:
            fields = {"pool": name, "app": pool["application"]}
            self.change(
                "{} is for {}".format(name, pool["application"]), "osd pool application enable", **fields
            )
        quota = pool.get("quota_bytes") or 0
        if found["quota_max_bytes"] != quota:
            fields = {"pool": name, "field": "max_bytes", "val": str(quota)}
            self.change(f"quota of {name}", "osd pool set-quota", **fields)

    def copies(self, found: Mapping[str, Any], size: int, least: int | None = None) -> None:
        """How many copies a pool has, and how many of them a write needs."""
        least = least or max(size - 1, 1)
        # Fewer copies than a write needs would stop every write in between.
        order = (
            [("min_size", least), ("size", size)]
            if least <= found["size"]
            else [("size", size), ("min_size", least)]
        )
        for variable, value in order:
            if found[variable] != value:
                self.set(found["pool_name"], variable, str(value))

    def set(self, pool: str, variable: str, value: str) -> None:
        """One variable of a pool."""
        fields = {"pool": pool, "var": variable, "val": value}
        if variable == "size" and value == "1":
            fields["yes_i_really_mean_it"] = True
        self.change(f"{variable} of {pool}", "osd pool set", **fields)


def least_parts(k: int, m: int) -> int:
    """Parts that a pool needs to serve at all: one to spare where a failure leaves that, as Ceph has it.

    OSDMonitor::prepare_pool_size in Ceph's src/mon/OSDMonitor.cc.
    """
    return k + min(1, m - 1)


def form(pool: Mapping[str, Any]) -> str:
    """How a pool keeps what it holds, by a declared pool or a profile."""
    return "{} + {} parts".format(pool["k"], pool["m"]) if pool.get("k") else "copies"
