"""Measure how fast a unit serves: load from the release's own ``vllm bench serve``, checked by streams of our own."""
