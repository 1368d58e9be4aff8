"""Readers: a module per format, with a function that returns an `ImageDataset`; `manylabel.data.spec` lists them."""
