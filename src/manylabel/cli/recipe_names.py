"""The recipes in a line each, for the command line, which cannot wait for torch to say what there is."""

__all__ = ["RECIPE_NAMES"]

RECIPE_NAMES = {
    "finetune": "Train backbone and head together, the backbone in smaller steps.",
    "linear_probe": "Train any head on the features of a frozen backbone, kept on disk: minutes on a CPU. Start here.",
    "representation_mixup": "Train a linear head that takes a hint from an early layer of a frozen backbone (RM).",
    "self_distillation": "Train teachers of parts of the labels in parallel, and a student that they teach (CPSD).",
    "zero_shot": "Train on labels as text: the model then answers for any label that one types.",
}
