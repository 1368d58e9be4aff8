"""NUS-WIDE: 81 concepts, or 925 seen and 81 unseen labels."""

from manylabel.data.nus_wide.reader import nus_wide, nus_wide_zero_shot_labels

__all__ = ["nus_wide", "nus_wide_zero_shot_labels"]
