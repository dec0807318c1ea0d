"""May this machine be changed: rules on facts, and the driver."""
