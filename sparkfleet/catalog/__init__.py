"""The knowledge of sparkfleet: engines, patches, recipes and policies, read from validated YAML."""
