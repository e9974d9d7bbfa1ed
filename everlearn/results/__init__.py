"""Reading stored runs: lines, metrics, statistics."""
