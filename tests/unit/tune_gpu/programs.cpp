// The programs of the schedule layer's tests, to tune.
#include "tests/unit/schedule/programs.cpp"
