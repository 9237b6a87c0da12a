"""Rules on WAN links, and on the gateways at which they end."""
