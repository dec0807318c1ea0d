"""A deploy that ends with a sealed release."""

from roles import account, engine, patches, preflight, wheels

preflight.check()
account.converge()
wheels.converge()
engine.converge()
patches.converge()
