"""The roles of a deploy, one module each: what must be true on a host, in the order of ``deploy.py``."""
