#include "tests/unit/ops/contractions.cpp"  // the same cases, through every pass, with weights and without
