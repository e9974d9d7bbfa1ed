"""World models of networks, and agents that plan with them."""
