#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

// By suite, so that what waits for the whole grid comes last.
int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  context.setOption("order-by", "suite");
  return context.run();
}
