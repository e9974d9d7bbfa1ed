"""Soft actor-critic."""
