"""Continual Bench: six manipulation tasks around one table, in one world with one dynamics."""
