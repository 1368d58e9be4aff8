"""Feature cache: a frozen backbone sees each image once, and heads train on its output from disk."""

from manylabel.features.cache import FeatureCache, FeaturePlan, pool
from manylabel.features.catalog import StoreInfo, default_root, list_stores, remove_leftovers, remove_store
from manylabel.features.comparison import compare_backbones
from manylabel.features.key import FeatureSpec, image_ids
from manylabel.features.linear_model import fit_linear
from manylabel.features.loader import CachedFeatures, FeatureLoader, dropped_channels
from manylabel.features.store import FeatureStore, StoreWriter

__all__ = [
    "CachedFeatures",
    "FeatureCache",
    "FeatureLoader",
    "FeaturePlan",
    "FeatureSpec",
    "FeatureStore",
    "StoreInfo",
    "StoreWriter",
    "compare_backbones",
    "default_root",
    "dropped_channels",
    "fit_linear",
    "image_ids",
    "list_stores",
    "pool",
    "remove_leftovers",
    "remove_store",
]
