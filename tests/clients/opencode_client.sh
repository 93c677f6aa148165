#!/usr/bin/env bash
# opencode, as `rope-cpu launch` starts it: its prompt and some of its tools in one message, whose answer is streamed and
# shown. At temperature 0 the answer is a text; at others it may call a tool, again and again.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/project"
cat >"$work/project/opencode.json" <<END
{
    "permission": { "*": "deny", "read": "allow", "edit": "allow" },
    "agent": { "title": { "disable": true }, "build": { "temperature": 0 } }
}
END
cd "$work/project"
export OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1
HOME=$work XDG_CONFIG_HOME=$work/config XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache XDG_STATE_HOME=$work/state \
    "$ROPE_CPU" launch opencode -m "$MODEL" -np 1 -c 8192 -n 16 --api-key a-secret -- run --format json 'Say hello.' \
    </dev/null >"$work/out" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
grep -qE '"type":"text",.*"text":"[^"]' "$work/out" || {
    cat "$work/out" "$work/err" >&2
    exit 1
}
