// The programs of the schedule layer's tests, used for tuning.
#include "tests/unit/schedule/programs.cpp"
