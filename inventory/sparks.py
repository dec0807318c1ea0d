"""Your Sparks: the one file to edit. Each host is a name and what differs from group_data/all.py."""

sparks = [
    # ("spark-7d19", {"ssh_hostname": "192.0.2.11", "ssh_user": "you", "recipes": ["tiny-llama"]}),
]
