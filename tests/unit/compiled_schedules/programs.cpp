// The programs of the schedule layer's tests, for compiled code.
#include "tests/unit/schedule/programs.cpp"
