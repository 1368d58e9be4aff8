"""What a model costs: MACs, parameters, time and memory."""
