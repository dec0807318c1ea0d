"""What models are made of: weights from a hub, a directory or another Spark, and vocabularies."""
