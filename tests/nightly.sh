#!/bin/bash
# All tests, before a release or once a night: the suites that are marked `nightly` in tests/suites.txt, all models, and every
# folder under the sanitizers. Takes hours. The last line is "N passed, N failed".
#
#   bash tests/nightly.sh [name...]
set -euo pipefail
cd "$(dirname "$0")/.."
STRIDEC_NIGHTLY=1 exec bash tests/run.sh "$@"
