"""Everything that needs PyTorch."""
