"""Who trains the teachers: this process, several on this machine, or Ray."""

from manylabel.recipes.self_distillation.executors.choosing import make_executor, train_teachers
from manylabel.recipes.self_distillation.executors.executor import Executor
from manylabel.recipes.self_distillation.executors.on_ray import OnRay
from manylabel.recipes.self_distillation.executors.processes import Processes
from manylabel.recipes.self_distillation.executors.sequential import Sequential

__all__ = ["Executor", "OnRay", "Processes", "Sequential", "make_executor", "train_teachers"]
