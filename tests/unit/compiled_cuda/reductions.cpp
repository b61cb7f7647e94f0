#include "tests/unit/ops/reductions.cpp"  // the same cases, compiled
