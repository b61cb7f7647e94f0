#include "tests/unit/ops/contractions.cpp"  // the same cases, compiled
