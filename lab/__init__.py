"""Throw-away Sparks on this machine: real systemd and sshd in a few seconds, for trying and for tests.

``hosts.Lab`` is the whole of it for a caller. Below it, each module does one thing: ``image`` (the root
every host starts from), ``disk`` (one host's files), ``network``, ``machine`` (the running system),
``access`` (keys), ``scenarios`` (what a host pretends its GPU says), ``state`` (what is remembered, and where).
"""
