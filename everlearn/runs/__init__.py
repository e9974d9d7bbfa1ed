"""Experiments: what drives the loop between agent and world and stores what happened."""
