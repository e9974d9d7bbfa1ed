"""Strategies: what protects a network from forgetting."""
