#!/usr/bin/env bash
# Codex CLI: its prompt, tools and streams. It needs a larger context than the other clients, so the
# server is its own; the answer is cut short, since so small a model never finishes.
set -euo pipefail
codex=codex-cli
npm=$PWD/.cache/npm-$codex
[ -x "$npm/node_modules/.bin/codex" ] || {
    mkdir -p "$npm" && npm install --prefix "$npm" --silent --no-audit --no-fund @openai/codex@0.169.0 >&2
}
work=$(mktemp -d)
"$ROPE_CPU" serve -m "$MODEL" --port 0 --ctx 32768 --rope-scaling yarn -np 1 -n 16 2>"$work/log" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 300); do
    url=$(sed -n 's/^listening on //p' "$work/log")
    [ -z "$url" ] || break
    sleep 0.1
done
mkdir "$work/home" "$work/project"
provider="{name=\"rope-cpu\",base_url=\"$url/v1\",wire_api=\"responses\",env_key=\"API_KEY\",stream_max_retries=0}"
(cd "$work/project" && CODEX_HOME=$work/home "$npm/node_modules/.bin/codex" exec --skip-git-repo-check \
    -c model_provider=rope -c "model_providers.rope=$provider" -c 'model="any"' 'Say hello.' </dev/null) >"$work/out" 2>&1 || true
# The request was accepted, all of its prompt was read, and an answer was generated.
grep -qE 'path="/v1/responses" status=200 .* read=[0-9]{4,} generated=[1-9]' "$work/log" || {
    cat "$work/out" "$work/log" >&2
    exit 1
}
