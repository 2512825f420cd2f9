# Makes the environment of the searches that ours are compared with, and fetches the prior that tasks are drawn from.
# Sourced after environment.sh, which sets `cache`, `root` and `find_python`.

search_peers() {
    local folder=$cache/search-peers base
    [ -e "$folder/.complete" ] || {
        say "Installing other packages' searches into $folder (once) ..."
        base=$(find_python) || exit 1
        rm -rf "$folder"
        "$base" -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            optuna==5.0.0 syne-tune==0.16.0 pydantic scikit-learn numpy scipy
        touch "$folder/.complete"
    }
    [ -d "$cache/ifbo/ifbo" ] || {
        mkdir -p "$cache/ifbo"
        "$folder/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$cache/ifbo" ifbo==0.4.1
        "$folder/bin/python" -m zipfile -e "$cache"/ifbo/ifbo-*.whl "$cache/ifbo"
    }
}
