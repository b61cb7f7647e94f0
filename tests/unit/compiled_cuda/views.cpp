#include "tests/unit/ops/views.cpp"  // the same cases, compiled
