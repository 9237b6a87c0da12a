"""Unattended upgrades run, and leave the GPU stack alone."""

import re

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask

# The program is loaded with all of apt: that takes a second on an idle node, and many on a busy one.
pytestmark = pytest.mark.deadline(60)

PACKAGES = (
    "nvidia-driver-580",
    "libnvidia-compute-580",
    "cuda-toolkit-13-0",
    "nvidia-fabricmanager-580",
    "datacenter-gpu-manager-4-core",
    "linux-image-6.12.0-1-amd64",
    "openssl",
    "bash",
)

# Asks the program's own function with the configuration it reads itself.
ASK_BLACKLIST = """
import json, sys, importlib.machinery, importlib.util
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("upgrades", "/usr/bin/unattended-upgrade")
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("upgrades", loader))
loader.exec_module(module)
module.apt_pkg.init_config()
patterns = module.apt_pkg.config.value_list("Unattended-Upgrade::Package-Blacklist")
kept = [name for name in sys.argv[1:] if module.is_pkgname_in_blacklist(name, patterns)]
print(json.dumps({"patterns": patterns, "kept": kept}))
"""


@pytest.fixture(autouse=True)
def _set(expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.base_adopt_unattended_upgrades == "keep":
        verdict.not_declared("unattended upgrades are kept as they were")


def test_the_gpu_stack_is_left_alone(host: Host, expect: Expect) -> None:
    declared = expect.base_unattended_blacklist
    answer = ask(host, ASK_BLACKLIST, *PACKAGES)
    assert answer["patterns"] == declared
    wanted = [name for name in PACKAGES if any(re.match(pattern, name) for pattern in declared)]
    assert answer["kept"] == wanted
    assert "nvidia-driver-580" in answer["kept"], (
        "whatever else is declared: the driver never upgrades itself"
    )
    assert "openssl" not in answer["kept"], "a list that keeps everything is no list"


def test_upgrades_run_when_they_are_wanted(host: Host, expect: Expect) -> None:
    done = host.run(
        "eval $(apt-config shell upgrade APT::Periodic::Unattended-Upgrade);"
        "eval $(apt-config shell lists APT::Periodic::Update-Package-Lists);"
        "echo $upgrade $lists; systemctl is-active apt-daily-upgrade.timer"
    )
    switch = "1" if expect.base_unattended_upgrades else "0"
    assert done.stdout.split()[:2] == [switch, switch]
    assert "active" in done.stdout.split()[2:] or not expect.base_unattended_upgrades
