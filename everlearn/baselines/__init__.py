"""Agents to compare with that learn nothing."""
