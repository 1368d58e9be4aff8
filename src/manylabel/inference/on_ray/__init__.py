"""Models on a Ray cluster: tagging of many pictures, and replicas of a server."""

from manylabel.inference.on_ray.serving import serve_with_ray
from manylabel.inference.on_ray.tagging import tag_with_ray

__all__ = ["serve_with_ray", "tag_with_ray"]
