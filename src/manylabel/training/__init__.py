"""Lightning tasks, optimizers, callbacks, cached features and the teacher bank."""

from manylabel.training.cached_features import CachedFeatures, FeatureLoader
from manylabel.training.feature_pass import FeatureProgress
from manylabel.training.features import cache_features, plan_features

__all__ = ["CachedFeatures", "FeatureLoader", "FeatureProgress", "cache_features", "plan_features"]
