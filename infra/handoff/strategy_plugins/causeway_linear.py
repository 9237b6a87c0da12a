"""Ansible's linear strategy on Mitogen's connections.

Ansible starts a Python on the node for every task and compiles its module anew; Mitogen keeps one for a whole
run. `ANSIBLE_STRATEGY=linear` is Ansible's own, which is also what runs where Mitogen is not installed.
"""

from typing import TYPE_CHECKING

from ansible.plugins.strategy.linear import StrategyModule

if not TYPE_CHECKING:
    try:
        from ansible_mitogen.loaders import strategy_loader
        from ansible_mitogen.strategy import StrategyMixin
    except ImportError:
        pass
    else:

        class StrategyModule(StrategyMixin, strategy_loader.get("linear", class_only=True)):
            """Runs tasks in the order of `linear`."""
