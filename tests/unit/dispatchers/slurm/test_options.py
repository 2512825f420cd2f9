"""The user's sbatch_args: Determined's own test vectors, and attempts to get around the allow-list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.dispatchers.batch.requests import BadOption
from trainmaster.dispatchers.slurm.options import ALLOWED, RESERVED, check, shortest_walltime, walltime


@pytest.mark.parametrize(
    "argument", ["-G1", "--gpus=2", "-n3", " -N2", "-Dmydir", "--gres=gpu:tesla:100,cpu:100", "--no-requeue"]
)
def test_options_that_determined_refuses_are_refused(argument: str) -> None:
    with pytest.raises(BadOption):
        check([argument])


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("--gpus-per-task=2", {"gpus-per-task": "2"}),
        ("--nice=3", {"nice": "3"}),
        ("-J -nameOfJob", {"comment": "-nameOfJob"}),
        ("--gres=cpu:100", {"gres": "cpu:100"}),
        ("--gres=", {}),
        ("--gres=,", {}),
        ("--gres", {}),
    ],
)
def test_options_that_determined_accepts_are_accepted(argument: str, options: dict[str, str]) -> None:
    assert check([argument]) == options


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("-t 1:30:00", {"time": "1:30:00"}),
        ("-t90", {"time": "90"}),
        ("--time 2-0", {"time": "2-0"}),
        ("-c=4", {"cpus-per-task": "4"}),
        ("--constraint='a100&ib'", {"constraint": "a100&ib"}),
        ("--exclusive", {"exclusive": None}),
        ("--exclusive=user", {"exclusive": "user"}),
        ("--mem=16G --account=phys", {"mem": "16G", "account": "phys"}),
        ("-w n1,n[3-5]", {"nodelist": "n1,n[3-5]"}),
        ("--mail-user=a.b+c@example.org", {"mail-user": "a.b+c@example.org"}),
        ("-v", {}),
        ("--nice", {"nice": None}),
        ("--nice=-5", {"nice": "-5"}),
        ("--mem=64GB", {"mem": "64GB"}),
        ("--mem=24gb --tmp=1T", {"mem": "24gb", "tmp": "1T"}),
        ("--mem-per-cpu=4000MB --mem-per-gpu=500K", {"mem-per-cpu": "4000MB", "mem-per-gpu": "500K"}),
        ("--time=1-12", {"time": "1-12"}),
        ("-t UNLIMITED", {"time": "UNLIMITED"}),
        ("--time=infinite --time-min=-1", {"time": "infinite", "time-min": "-1"}),
        (
            "--mail-user=a@b.org,c.d@e.org --mail-type=END,TIME_LIMIT_80",
            {"mail-user": "a@b.org,c.d@e.org", "mail-type": "END,TIME_LIMIT_80"},
        ),
        ("--begin='now + 3 days'", {"begin": "now + 3 days"}),
        ("--licenses='matlab@server:1|maple:2'", {"licenses": "matlab@server:1|maple:2"}),
        ("--constraint='[rack1*2&rack2*4]'", {"constraint": "[rack1*2&rack2*4]"}),
        ("--core-spec=0 --exclusive=job", {"core-spec": "0", "exclusive": "job"}),
        ("--account=bio@site.org", {"account": "bio@site.org"}),
        ("--gpus-per-task=2080ti:1", {"gpus-per-task": "2080ti:1"}),
        ("--gpus-per-socket=1g.5gb:1,3g.20gb:2", {"gpus-per-socket": "1g.5gb:1,3g.20gb:2"}),
    ],
)
def test_spellings_become_canonical(argument: str, options: dict[str, str | None]) -> None:
    assert check([argument]) == options


def test_the_last_one_wins_and_lists_add_up() -> None:
    given_ = ["--mem=1G", "--mem=2G", "--gres=shard:1", "--gres=nvme:1", "-x n1", "--exclude=n[2-3]"]
    assert check(given_) == {"mem": "2G", "gres": "shard:1,nvme:1", "exclude": "n1,n[2-3]"}


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--part=main", "write it out: --partition"),
        ("--no-r", "write it out"),
        ("--partition=main", "resources.resource_pool"),
        ("-p main", "not configurable"),
        ("--wrap=id", "not configurable"),
        ("--uid=0", "not configurable"),
        ("--export=ALL", "not configurable"),
        ("--bogus=1", "not on the list"),
        ("--time=soon", "takes a time"),
        ("--mem=lots", "takes a size"),
        ("--cpus-per-task=0", "above 0"),
        ("--mem", "needs a value"),
        ("--contiguous=yes", "takes no value"),
        ("--comment=a\n#SBATCH --nodes=2", "control character"),
        ("--mem=1G\x00", "control character"),
        ("--constraint='a", "has unbalanced quotes"),
        ("plain", "does not begin with"),
        ("-y", "not known"),
        ("--mem=1G;reboot", "takes a size"),
        ("--", "not configurable"),
        ("--mail-user=-S", "takes mail addresses"),
        ("--mail-user=a@b.org,-S", "takes mail addresses"),
        ("--nodelist=/etc/passwd", "takes node names"),
        ("--gres=gres/gpu:2080ti:1", "may not ask for GPUs"),
        ("--gres=gres:gpu=1", "may not ask for GPUs"),
        ("--gres=help", "submits nothing"),
        ("--account='$(id)'", "takes text without"),
    ],
)
def test_anything_else_is_refused_in_words(argument: str, words: str) -> None:
    with pytest.raises(BadOption, match=words):
        check([argument])


def test_no_beginning_of_a_reserved_option_gets_through() -> None:
    for name in RESERVED:
        for end in range(1, len(name) + 1):
            if name[:end] not in ALLOWED:
                with pytest.raises(BadOption):
                    check([f"--{name[:end]}=1"])


@given(st.lists(st.text(max_size=40), max_size=4))
def test_check_returns_only_allowed_keys_and_plain_values(arguments: list[str]) -> None:
    try:
        options = check(arguments)
    except BadOption:
        return
    for key, value in options.items():
        assert key in ALLOWED
        assert value is None or value.isprintable() or not any(ord(character) < 32 for character in value)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("2-0", 172800),
        ("1-2:30", 95400),
        ("1-12", 129600),
        ("UNLIMITED", None),
        ("unlimited", None),
        ("-1", None),
        ("1-2:3:4:5", None),
    ],
)
def test_the_time_limit_in_seconds(time: str, seconds: int | None) -> None:
    assert walltime({"time": time}, 60) == seconds
    assert walltime({}, 60) == 60
    assert walltime({}) is None


def test_the_shortest_limit_that_slurm_may_give() -> None:
    assert shortest_walltime({}, 3600) == 3600
    assert shortest_walltime({"time": "2:00:00", "time-min": "10"}, 3600) == 600
    assert shortest_walltime({"time": "0"}, 3600) is None
