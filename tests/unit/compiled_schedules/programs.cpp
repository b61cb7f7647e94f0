// The programs of the schedule layer's tests, used with compiled code.
#include "tests/unit/schedule/programs.cpp"
