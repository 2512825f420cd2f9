# Programs of npm, outside the checkout; sourced after environment.sh.

# node_packages NAME: installs what scripts/NAME/package-lock.json names; sets node_folder, empty where there is no npm.
node_packages() {
    node_folder=
    command -v npm >/dev/null || return 0
    local name=$1 mark folder
    mark=$(cat "$root/scripts/$name/package.json" "$root/scripts/$name/package-lock.json" | sha256sum | cut -c1-12)
    folder=$cache/$name-$mark
    node_folder=$folder/node_modules
    [ -e "$folder/.complete" ] && return
    say "Installing $name into $folder (once) ..."
    mkdir -p "$folder"
    cp "$root/scripts/$name/package.json" "$root/scripts/$name/package-lock.json" "$folder"
    (
        flock 9
        [ -e "$folder/.complete" ] && exit 0
        cd "$folder" && npm ci --silent --no-audit --no-fund && touch "$folder/.complete"
    ) 9>"$folder.lock" || fail "npm could not install $name."
}
