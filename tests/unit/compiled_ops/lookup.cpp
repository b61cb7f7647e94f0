#include "tests/unit/ops/lookup.cpp"  // the same cases, compiled
