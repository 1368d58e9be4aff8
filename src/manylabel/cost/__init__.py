"""What a model costs: MACs, parameters, time and memory."""

from manylabel.cost.macs import Cost, count_cost, count_macs, count_parameters

__all__ = ["Cost", "count_cost", "count_macs", "count_parameters"]
