"""How services are found: servers in every region, joined over the WAN."""
