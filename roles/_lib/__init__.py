"""All that sparkfleet has to do with pyinfra: observe a host, converge it, render what lands on it."""
