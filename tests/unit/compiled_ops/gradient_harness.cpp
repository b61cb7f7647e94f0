#include "tests/unit/ops/gradient_harness.cpp"  // the same checks, of first order alone; gradients run as machine code

namespace stridec::ops::test {

static const bool kFirstOrder = [] {
  thorough() = false;
  return true;
}();

}  // namespace stridec::ops::test
