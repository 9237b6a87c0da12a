"""Ansible at work: a playbook run against a stack, and how far it is."""
