#include "tests/unit/ops/search.cpp"  // the same cases, compiled
