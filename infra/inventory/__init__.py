"""The contract as Ansible's inventory: groups, and the variables of roles."""
