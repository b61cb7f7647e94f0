#include "tests/unit/ops/windows.cpp"  // the same cases, compiled
