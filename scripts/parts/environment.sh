# Makes a Python environment for this checkout, outside it, and sets PYTHON. Sourced by the scripts beside it.
# Usage: . scripts/parts/environment.sh, then make_environment NAME EXTRAS

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# As root the cache must be reachable by the ordinary accounts that PostgreSQL and test jobs run as.
if [ "$(id -u)" = 0 ]; then default_cache=/var/cache/trainmaster; else default_cache=${XDG_CACHE_HOME:-$HOME/.cache}/trainmaster; fi
cache=${TRAINMASTER_CACHE:-$default_cache}

find_python() {
    local candidate
    for candidate in "${TRAINMASTER_PYTHON:-}" /usr/bin/python3 /usr/local/bin/python3 python3 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        candidate=$(command -v "$candidate") || continue
        "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        printf '%s\n' "$candidate"
        return
    done
    fail "Python 3.11 or newer with its venv module is needed (Debian, Ubuntu: apt install python3 python3-venv), or set TRAINMASTER_PYTHON."
}

make_environment() { # NAME EXTRAS: the packages of requirements/NAME.txt, and this checkout with those extras
    local name=$1 extras=$2 base mark folder
    base=$(find_python) || exit 1
    # The name is a hash of what determines the content: a changed lock makes a new environment, and the old one stays.
    mark=$(cat "$root/pyproject.toml" "$root/requirements/$name.txt" "$root/scripts/parts/environment.sh" <(printf '%s' "$base $root") | sha256sum | cut -c1-12)
    folder=$cache/$name-$mark
    PYTHON=$folder/bin/python
    export PATH=$folder/bin:$PATH
    [ -e "$folder/.complete" ] && return
    say "Installing into $folder (once) ..."
    mkdir -p "$cache" || fail "$cache cannot be made; set TRAINMASTER_CACHE to a folder that can."
    # `--no-deps`: the lock is complete. pip 23 looks for the newest release of a package that another one asks for
    # with an extra (coverage[toml]), and refuses what it finds, because that has no hash.
    (
        flock 9
        [ -e "$folder/.complete" ] && exit 0
        rm -rf "$folder"
        "$base" -m venv "$folder" &&
            "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-warn-script-location \
                --require-hashes --no-deps --requirement "$root/requirements/$name.txt" &&
            "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-warn-script-location \
                --no-deps --no-build-isolation --editable "$root[$extras]" &&
            touch "$folder/.complete"
    ) 9>"$cache/$name.lock" || fail "The installation failed; the lines above say why. Mend it and run this again."
}
