#include "tests/unit/ops/windows.cpp"  // the same cases, through every pass
