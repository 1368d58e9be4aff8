"""Readers: a module per format, each with a function that gives an `ImageDataset`; `manylabel.data` offers them."""
