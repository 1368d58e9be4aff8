"""Lightning tasks, optimizers, callbacks and the teacher bank."""
