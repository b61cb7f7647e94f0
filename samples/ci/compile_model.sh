#!/bin/bash
# A step of a CI job: compiles a model, and where that fails says why in the job's log and at the pull request.
#
#   compile_model.sh model.onnx model.so [flags of 'stridec compile'...]
#
# The exit code is stridec's ('stridec exit-codes' lists them), so that a job may treat some of them apart: 5, say, when
# a model uses an operator that this build lacks.
set -uo pipefail
model=$1 artifact=$2
shift 2
stridec=${STRIDEC:-stridec}

report=$("$stridec" compile "$model" -o "$artifact" --format=json --progress=plain "$@")
code=$?
if [ $code = 0 ]; then
  echo "$model -> $artifact"
  exit 0
fi

field() { sed -nE "s/^ *\"$1\": \"(.*)\",?\$/\1/p" <<< "$report" | head -1; }
message="$(field message)"
node=$(field node) help=$(field help)
[ -z "$node" ] || message="$message ($node)"
if [ "${GITHUB_ACTIONS:-}" = true ]; then
  echo "::error file=$model,title=stridec: $(field code)::$message${help:+ - $help}"
else
  echo "$model does not compile: $message${help:+; $help}" >&2
fi
# Everything that stands in the way, not the first problem alone.
"$stridec" check "$model" || true
exit $code
