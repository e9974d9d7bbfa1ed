"""Planners: what searches."""
