"""A deploy that ends once the wheels are there: what tests of their way need, without a build."""

from roles import account, preflight, wheels

preflight.check()
account.converge()
wheels.converge()
