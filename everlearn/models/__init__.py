"""World models: what predicts."""
