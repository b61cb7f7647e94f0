#include "tests/unit/ops/gradients.cpp"  // the same cases, compiled
