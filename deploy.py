"""What a Spark becomes, role by role: `pyinfra inventory/sparks.py deploy.py`."""

from roles import account, engine, patches, preflight, service, verify, vocab, weights, wheels

preflight.check()  # is it a Spark, is the driver good, is there room: stops a host before anything is changed
account.converge()  # system user, directories, limits
wheels.converge()  # what the engine is built from, each wheel fetched once for all hosts
engine.converge()  # the pinned engine release, built in a fresh directory
patches.converge()  # the SM121 patch set on that release, which seals it
vocab.converge()  # the vocabularies of gpt-oss, for engines that would fetch them at their first start
weights.converge()  # the models, complete to the last byte
service.converge()  # a systemd unit for each recipe, active once it serves
verify.converge()  # the right model answers, and what it says is sane
