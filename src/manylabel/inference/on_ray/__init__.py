"""Models on a Ray cluster: tagging of many pictures."""

from manylabel.inference.on_ray.tagging import tag_with_ray

__all__ = ["tag_with_ray"]
