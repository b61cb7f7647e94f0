#include "tests/unit/ops/gradients_control.cpp"  // the same cases, compiled
