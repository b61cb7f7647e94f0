#include "tests/unit/ops/fourier.cpp"  // the same cases, compiled
