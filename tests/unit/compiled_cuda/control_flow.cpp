#include "tests/unit/ops/control_flow.cpp"  // the same cases, compiled
