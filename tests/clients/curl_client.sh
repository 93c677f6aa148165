#!/usr/bin/env bash
# curl: health, the native interface, a stream, tokens there and back.
set -euo pipefail
auth="Authorization: Bearer $API_KEY"
post() { curl -sSf -H "$auth" "$BASE_URL$1" -d "$2"; }

[ "$(curl -sSf "$BASE_URL/health")" = '{"status":"ok"}' ]
[ "$(curl -s -o /dev/null -w '%{http_code}' "$BASE_URL/props")" = 401 ]
post /completion '{"prompt":"The sun is","n_predict":4,"temperature":0}' | grep -q '"stop_type":"limit"'
stream=$(post /completion '{"prompt":"The sun is","n_predict":4,"temperature":0,"stream":true}')
[ "$(grep -c '^data: ' <<<"$stream")" = 5 ]
tokens=$(post /tokenize '{"content":"hello world"}')
post /detokenize "$tokens" | grep -q '"content":"hello world"'
