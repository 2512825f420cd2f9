"""The user's pbsbatch_args: accepted ones, refused ones, and the sentences for them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.dispatchers.batch.requests import BadOption
from trainmaster.dispatchers.pbs.options import ALLOWED, RESERVED, check


@pytest.mark.parametrize("letter", sorted(RESERVED))
@pytest.mark.parametrize("form", ["-{0}x", "-{0} x", " -{0}x", "-p 5 -{0} x", "-f -{0}x", "-f{0}x"])
def test_reserved_option_is_refused_in_any_spelling(letter: str, form: str) -> None:
    with pytest.raises(BadOption, match=f"PBS option -{letter} is not configurable"):
        check([form.format(letter)])


@pytest.mark.parametrize("argument", ["--version", "--", "-- /bin/sh", "-p 1 -- /bin/sh", "--qu=x", "-"])
def test_argument_that_ends_options_is_refused(argument: str) -> None:
    with pytest.raises(BadOption, match="is not configurable"):
        check([argument])


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("-A acct", {"A": "acct"}),
        ("-Aacct", {"A": "acct"}),
        ("-a 1230", {"a": "1230"}),
        ("-a 203001311200.30", {"a": "203001311200.30"}),
        ("-m abe", {"m": "abe"}),
        ("-M a@b.org,c@d.org", {"M": "a@b.org,c@d.org"}),
        ("-A 'DOM\\user 1'", {"A": "DOM\\user 1"}),
        ("-A user@site.org", {"A": "user@site.org"}),
        ("-p -1024", {"p": "-1024"}),
        ("-P 'my.project'", {"P": "my.project"}),
        ("-p 1 -A x", {"p": "1", "A": "x"}),
        ("-f", {}),
        ("-f -p 3", {"p": "3"}),
    ],
)
def test_arguments_that_determined_allowed_are_allowed(argument: str, options: dict[str, str]) -> None:
    assert check([argument]).options == options


def test_a_users_name_for_the_job_is_read_and_left_out() -> None:
    assert check(["-N mine"]).options == {}
    with pytest.raises(BadOption, match="-N takes a name"):
        check(["-N 'a b'"])


@pytest.mark.parametrize(
    "argument",
    [
        "-p 2000", "-p x", "-p", "-m xyz", "-a tomorrow", "-M 'a b'", "-M -S", "-M a@b.org,-S", "-A '$(id)'",
        "-A 'a;b'", "script.sh", "-p 1 script", "-Z 1", "-P", "-A 'unclosed",
    ],
)  # fmt: skip
def test_bad_values_are_refused(argument: str) -> None:
    with pytest.raises(BadOption):
        check([argument])


@pytest.mark.parametrize("end", ["\n", "\r", "\0", "\x1b"])
def test_control_characters_are_refused(end: str) -> None:
    with pytest.raises(BadOption, match="control character"):
        check([f"-p 1{end}#PBS -q other"])


# -- resources


def test_resources_of_the_job_and_of_every_node() -> None:
    given_ = check(["-l walltime=1:30:00,cput=7200", "-l select=ncpus=8:mem=32gb", "-l place=excl:group=switch"])
    assert given_.resources == {"walltime": "1:30:00", "cput": "7200"}
    assert given_.per_node == {"ncpus": "8", "mem": "32gb"}
    assert given_.place == ["excl", "group=switch"]
    assert given_.chunks is None
    assert given_.walltime == 5400


def test_the_number_in_select_is_kept_to_be_compared() -> None:
    assert check(["-l select=2:ncpus=8"]).chunks == 2


def test_node_resources_go_into_every_chunk() -> None:
    assert check(["-l mem=4gb -l ncpus=2"]).per_node == {"mem": "4gb", "ncpus": "2"}


@pytest.mark.parametrize("size", ["64GB", "24gb", "100kw", "2mw", "4g", "5000000", "1.5tb", "10MB"])
def test_sizes_are_qsubs_to_judge(size: str) -> None:
    assert check([f"-l select=1:mem={size}", f"-l pmem={size}"]).per_node == {"mem": size}


@pytest.mark.parametrize(("time", "seconds"), [("90", 90), ("2:30", 150), ("72:00:00", 259200), ("1:30:00.5", 5400),
                                               ("1-12:00:00", None)])  # fmt: skip
def test_times_are_qsubs_to_judge(time: str, seconds: int | None) -> None:
    given_ = check([f"-l walltime={time}"])
    assert (given_.resources, given_.walltime) == ({"walltime": time}, seconds)


def test_a_sites_own_resource_is_taken_as_it_is_written() -> None:
    assert check(["-l matlab=2"]).resources == {"matlab": "2"}
    assert check(["-l select=ncpus=1:fast_disk=true"]).per_node == {"ncpus": "1", "fast_disk": "true"}


def test_the_last_of_several_wins() -> None:
    given_ = check(["-l walltime=10", "-l walltime=20", "-p 1", "-p 2", "-l place=excl", "-l place=shared"])
    assert (given_.resources, given_.options, given_.place) == ({"walltime": "20"}, {"p": "2"}, ["shared"])


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("-l select=2:ngpus=4", "slots_per_trial"),
        ("-l ngpus=4", "slots_per_trial"),
        ("-l nodes=2:ppn=4", "obsolete"),
        ("-l select=1:ncpus=1+1:ncpus=2", "one kind of node"),
        ("-l select=1:mpiprocs=4", "mpiprocs"),
        ("-l select=ncpus=1:walltime=5", "whole job"),
        ("-l select=ncpus=0", "above 0"),
        ("-l select=ncpus", "such as ncpus=8"),
        ("-l mem=much", "size such as 4gb"),
        ("-l walltime=soon", "a time such as"),
        ("-l walltime", "such as walltime"),
        ("-l place=pack", "host of its own"),
        ("-l place=free", "host of its own"),
        ("-l software='a b'", "characters"),
        ("-l select=host=a$b", "characters"),
        ("-l", "needs a value"),
    ],
)
def test_bad_resources_are_refused_with_advice(argument: str, words: str) -> None:
    with pytest.raises(BadOption) as refused:
        check([argument])
    assert words in str(refused.value)


def test_the_gpus_name_is_the_sites() -> None:
    with pytest.raises(BadOption):
        check(["-l select=accelerator_count=2"], gpu_resource="accelerator_count")
    assert check(["-l select=ngpus=2"], gpu_resource="gpus").per_node == {"ngpus": "2"}


@given(st.lists(st.text(max_size=40), max_size=4))
def test_whatever_passes_is_plain(arguments: list[str]) -> None:
    try:
        given_ = check(arguments)
    except BadOption:
        return
    assert set(given_.options) <= set(ALLOWED)
    for value in (*given_.options.values(), *given_.resources.values(), *given_.per_node.values()):
        assert shlex.quote(value) == value or set(value) <= set("abcdefghijklmnopqrstuvwxyz0123456789@+^")
        assert not value.startswith("-") or value.lstrip("-").isdigit()
