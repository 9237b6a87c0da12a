"""What would stand, computed from the declaration alone: pure functions, no I/O, no Pulumi, no Ansible."""
