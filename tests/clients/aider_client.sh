#!/usr/bin/env bash
# aider, as `rope-cpu launch` starts it: one message, whose answer is streamed and applied to a file. The answer's form
# is given, as so small a model has no edit formats; the model chooses the greeting.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/home/.aider/caches" "$work/project"
# A table of prices, which aider would download.
echo '{"any": {}}' >"$work/home/.aider/caches/model_prices_and_context_window.json"
cat >"$work/settings.yml" <<'END'
- name: openai/any
  edit_format: whole
  extra_params:
    temperature: 0
    max_tokens: 60
    extra_body:
      regex: 'greeting\.py\n```\ndef greeting\(\):\n    return "(hello|good day)"\n```'
END
cd "$work/project"
printf 'def greeting():\n    return "bye"\n' >greeting.py
# It shows the size of the context that `launch` has told it.
HOME=$work/home LITELLM_LOCAL_MODEL_COST_MAP=True "$ROPE_CPU" launch aider -m "$MODEL" -np 1 -c 8192 --api-key a-secret -- \
    --model-settings-file "$work/settings.yml" --no-git --yes-always --no-pretty --no-fancy-input \
    --no-check-update --no-show-release-notes --analytics-disable --verbose \
    --message 'Return hello.' greeting.py </dev/null >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
grep -q '^Applied edit to greeting.py' "$work/out" && grep -qE 'return "(hello|good day)"' greeting.py &&
    grep -q '"max_input_tokens": 8192' "$work/out" || {
    cat "$work/out" greeting.py >&2
    exit 1
}
