"""Every setting, its default and why. Override one for a host or a group in the inventory."""

__all__ = (
    "api_key_file",
    "bench_concurrency",
    "clock_skew",
    "deep",
    "driver_policy",
    "driver_reboot",
    "engine",
    "hub",
    "hub_token",
    "keep_releases",
    "lock",
    "memory_total",
    "models",
    "models_from",
    "os_reserve",
    "python",
    "recipe_directory",
    "recipe_overrides",
    "recipes",
    "report",
    "rollback_to",
    "settings_version",
    "sources",
    "systemd",
    "uninstall_keeps",
    "usage_statistics",
    "vocabularies",
    "wheelhouse",
    "wheelhouse_from",
)

# Proves that this file was read: pyinfra looks for it in the directory it is run in, and says nothing if it finds none.
settings_version = 1

# What a host serves: names of docs/recipes.md or of your own files (below). Each host or group must say; [] stands for
# nothing, and what served before is then stopped and removed.
recipes = None

# Directory on this machine with recipes of your own, beside the catalog's. None: recipes/ of this checkout.
recipe_directory = None

# What differs from a recipe's file here, key by key: {"gpt-oss-120b": {"port": 8001, "flags": {"max-num-seqs": 4}}}.
# A flag or variable set to None is not given. The data nearest to a host wins whole: it is not merged with a group's.
recipe_overrides = {}

# None: the engine each recipe prefers. An engine of catalog/engines/ overrides that.
engine = None

# The Python a release is built with: that of DGX OS (Ubuntu 24.04).
python = "3.12"

# The wheels of the engine. With nothing said here, this machine fetches them from pip's package index, once for all
# hosts, into its cache and hands them to the hosts while the run lasts. With a directory here and nothing more, nothing
# is fetched: each host has it (a mount, a disk, a copy).
wheelhouse = None

# Whose directory `wheelhouse` is, if not each host's own ("host"): "control" or the name of a Spark, which hands its
# wheels to the others; "index" fills it on this machine, from the package index.
wheelhouse_from = None

# What an engine cannot get from the package index (docs/engines.md): address of an index, or path of a wheel here, by
# distribution. Passwords are better kept in ~/.netrc, where pip finds them.
sources = {}

# A file on this machine that replaces the engine's lock. Needed only for engines that say so.
lock = None

# Directory on the host that holds a directory for each model. One that is there is taken, and no network asked.
models = "/srv/sparkfleet/models"

# A directory on this machine that `sparkfleet vocab --dest` filled: for gpt-oss on engines up to vLLM 0.30, when this
# machine has no internet. None: they are had once, through the package index or from their own address, and kept.
vocabularies = None
# GiB that a Spark's kernel says it has (MemTotal): recipes are fitted into it, those that do not fit together exclude
# each other, and the share of it that an engine may ask for is worked out. A machine that has less than its recipes
# need is stopped by preflight: set what it has, then.
memory_total = 121.7

# Another Spark of the inventory to copy models from: it is deployed in the same run, and may be what has them first.
models_from = None

# Where models come from that are in no such directory. None: the Hugging Face hub; else the address of a mirror.
hub = None

# File on this machine with a token of the hub, for models that want one. None: HF_TOKEN of the environment, if any. It
# goes to the host with the order, on standard input, and is kept nowhere there.
hub_token = None

# GiB of memory that recipes leave to the operating system: a Spark that runs out freezes until it is power-cycled.
os_reserve = 8.0

# What tasks/rollback.py goes back to: a release that served here before, or the beginning of its name ("vllm-0.20.1").
# None: what served before what serves now.
rollback_to = None

# File on this machine that tasks/status.py writes its report to, too: one page of HTML, to be read or mailed.
report = None

# Releases that tasks/gc.py keeps besides those in use and the last good one.
keep_releases = 1

# Whether tasks/verify.py also reads every file of the releases in use, which takes a minute or two: say it there, with
# --data deep=true.
deep = False

# How many clients tasks/bench.py has ask at once, one number after the other.
bench_concurrency = [1, 2, 4, 8, 16]

# What happens on a host whose driver must not serve (catalog/drivers.yaml). "check": it is left as it is, and the
# commands that mend it are shown. "install": apt installs the policy's packages, from the Spark repository only.
driver_policy = "check"

# After such an installation: True reboots the host, waits for it and goes on; False asks for the reboot.
driver_reboot = False

# What tasks/uninstall.py leaves on a host: weights take a day to fetch, and logs say what was. [] leaves nothing.
uninstall_keeps = ["weights", "logs"]

# Seconds that a host's clock may differ from this machine's: more breaks certificates and the order of logs.
clock_skew = 60.0

# A file on this machine whose first line is the key that clients must send (`Authorization: Bearer ...`). Needed by
# recipes that listen on more than loopback; asked for by every recipe of the host once it is set.
api_key_file = None

# Whether engines may tell the vLLM project what they run on. What they send is not ours to give away.
usage_statistics = False

# The systemd that units are written for, and that a host must at least have: DGX OS has 255.
systemd = 255
