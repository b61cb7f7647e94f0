#include "tests/unit/ops/reductions.cpp"  // the same cases, through every pass
