#include "tests/unit/ops/axes.cpp"  // the same cases, compiled
