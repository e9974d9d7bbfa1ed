"""What all world models share: inputs, scaling, memory and imagination."""
