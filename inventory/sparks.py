"""Your Sparks: the one file to edit. Each host is a name and what differs from group_data/all.py."""

from pyinfra.api.exceptions import InventoryError as _InventoryError

sparks = [
    # ("spark-7d19", {"ssh_hostname": "192.0.2.11", "ssh_user": "you", "recipes": ["tiny-llama"]}),
]

if not sparks:
    raise _InventoryError("inventory/sparks.py names no host yet: add yours to the list `sparks`.")
