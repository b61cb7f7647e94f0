#include "tests/unit/ops/special.cpp"  // the same cases, compiled
