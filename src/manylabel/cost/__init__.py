"""What a model costs: MACs, parameters, time and memory."""

from manylabel.cost.macs import Cost, count_cost, count_macs, count_parameters
from manylabel.cost.memory import peak_memory
from manylabel.cost.timing import median_seconds

__all__ = ["Cost", "count_cost", "count_macs", "count_parameters", "median_seconds", "peak_memory"]
