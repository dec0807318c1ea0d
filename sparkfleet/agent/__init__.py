"""The program that runs on a host: says what is true there, and changes it atomically when told to.

Standard library only, Python 3.10 to 3.14, relative imports only: it travels as one zipapp file (see
``sparkfleet.bundle``) and must run on whatever Python 3 a host has. It takes no input from the network; its verb
``fetch`` does, which runs without root's rights on a release's Python.
"""
