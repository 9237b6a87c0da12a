"""The node knows its own name, and the address of every node that its hosts file is to have.

Names that a discovery answers for are in its own verification.
"""

from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, is_address, resolved, sample


def declared_addresses(expect: Expect) -> dict[str, str]:
    """Name → address, as the role got it: its variable, or else the inventory's addresses."""
    if expect.base_hosts_entries:
        return dict(expect.base_hosts_entries)
    return {name: text for name, text in expect.cluster_addresses.items() if is_address(text)}


def addresses(expect: Expect, found: list[str], declared: str) -> list[str]:
    """What a name has to resolve to: also to what others say of it, where their lines are kept."""
    return sorted({declared, *(found if expect.base_adopt_hosts_file == "managed_block" else ())})


def test_the_host_has_its_name(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.base_adopt_hostname == "keep":
        verdict.not_declared("the machine keeps its name")
    done = host.run("uname --nodename; cat /etc/hostname")
    assert done.stdout.split() == [expect.base_hostname] * 2, "the running name, and the one after a reboot"


def test_every_declared_name_resolves_to_its_address(host: Host, expect: Expect) -> None:
    declared = declared_addresses(expect)
    names = sample(declared)
    found = resolved(host, names, 0)
    assert found == {name: addresses(expect, found[name], declared[name]) for name in names}


def test_they_resolve_whoever_else_answers(host: Host, expect: Expect) -> None:
    declared = declared_addresses(expect)
    names = sample(declared)
    done = host.run(f"getent --service=files ahosts {' '.join(names)}")
    found, wanted = {line.split()[0] for line in done.stdout.splitlines()}, {declared[name] for name in names}
    assert wanted <= found if expect.base_adopt_hosts_file == "managed_block" else wanted == found


def test_the_own_name_resolves(host: Host, expect: Expect) -> None:
    own = declared_addresses(expect).get(expect.base_hostname)
    if own is None:
        own = expect.address if expect.base_hosts_entries and is_address(expect.address) else "127.0.1.1"
    found = resolved(host, [expect.base_hostname], 0)
    assert found == {expect.base_hostname: addresses(expect, found[expect.base_hostname], own)}
