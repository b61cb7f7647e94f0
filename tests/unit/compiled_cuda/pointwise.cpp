#include "tests/unit/ops/pointwise.cpp"  // the same cases, compiled
