#!/usr/bin/env bash
# The program `llm` with a model of an OpenAI-compatible server.
set -euo pipefail
LLM_USER_PATH=$(mktemp -d)
export LLM_USER_PATH
trap 'rm -rf "$LLM_USER_PATH"' EXIT
cat >"$LLM_USER_PATH/extra-openai-models.yaml" <<END
- model_id: local
  model_name: local
  api_base: $BASE_URL/v1
  api_key_name: local
END
llm keys set local --value "$API_KEY"
answer=$(llm --model local --option max_tokens 8 --option temperature 0 'Say hello.' </dev/null)
[ -n "$answer" ]
