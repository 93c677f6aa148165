#!/usr/bin/env bash
# Codex CLI, as `rope-cpu launch` starts it: its prompt, tools and streams. It needs a larger context than the other
# clients, so the server is its own; the answer is cut short, since so small a model never finishes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/home" "$work/project"
(cd "$work/project" && CODEX_HOME=$work/home "$ROPE_CPU" launch codex -m "$MODEL" -np 1 -n 16 --log-verbosity 3 \
    -- exec --skip-git-repo-check -c model_providers.rope-cpu.stream_max_retries=0 'Say hello.' </dev/null) >"$work/out" 2>&1 || true
# The request was accepted, all of its prompt was read, and an answer was generated.
grep -qE 'path="/v1/responses" status=200 .* read=[0-9]{4,} generated=[1-9]' "$work/out" || {
    cat "$work/out" >&2
    exit 1
}
