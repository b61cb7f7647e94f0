#include "tests/unit/ops/library_routines.cpp"  // the same cases, compiled
