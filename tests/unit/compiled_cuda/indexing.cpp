#include "tests/unit/ops/indexing.cpp"  // the same cases, compiled
