"""Compiled code of the online model."""
