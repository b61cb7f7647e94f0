#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

// In suite order, so that tests that need the whole grid come last.
int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  context.setOption("order-by", "suite");
  return context.run();
}
