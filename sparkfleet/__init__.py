"""The pure core of sparkfleet: what should be true on a Spark, worked out from catalog and inventory."""

__version__ = "0.1.0"
