"""What every capability stands on: names, addresses, findings and their rules. No Pulumi, no Ansible."""
