"""The hand-off from Pulumi to Ansible: one contract, the inventory made from it, and the runner."""
