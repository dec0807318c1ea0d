"""What comes to a host from the control machine or another Spark, each byte checked."""
