# Type checker, formatter and linter of the web page, outside the checkout; sourced after environment.sh.
# `webui_tools` sets webui_bin, or leaves it empty where there is no Node.

webui_tools() {
    webui_bin=
    command -v npm >/dev/null || return 0
    local mark folder
    mark=$(cat "$root/scripts/webui/package.json" "$root/scripts/webui/package-lock.json" | sha256sum | cut -c1-12)
    folder=$cache/webui-$mark
    webui_bin=$folder/node_modules/.bin
    [ -e "$folder/.complete" ] && return
    say "Installing the web page's type checker into $folder (once) ..."
    mkdir -p "$folder"
    cp "$root/scripts/webui/package.json" "$root/scripts/webui/package-lock.json" "$folder"
    (
        flock 9
        [ -e "$folder/.complete" ] && exit 0
        cd "$folder" && npm ci --silent --no-audit --no-fund && touch "$folder/.complete"
    ) 9>"$folder.lock" || fail "npm could not install the web page's type checker."
}
