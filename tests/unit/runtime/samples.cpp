// Runs the samples with a hand-written artifact (samples/quickstart.sh runs them with real ones).
#include <stdio.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "doctest/doctest.h"

namespace {

struct Output {
  std::string text;  // stdout and stderr
  int status;
};

Output shell(const std::string& command) {
  Output output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.text.append(buffer, n);
  int status = pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

const std::string build = STRIDEC_BUILD_DIR;
const std::string artifact = STRIDEC_TEST_ARTIFACT;

}  // namespace

TEST_CASE("C: what is not a text encoder is refused in words") {
  std::string tokens = build + "/runtime/tokens.txt";
  std::ofstream(tokens) << "a sentence\t101 1037 6251 102\n";
  Output output = shell(build + "/sample_embed " + artifact + " " + tokens);
  CHECK(output.status == 1);
  CHECK(output.text == artifact + ": nothing is known to give to input 'table' f32 [rows, 4]\n");
  CHECK(shell(build + "/sample_embed /nowhere.so " + tokens).status == 1);
  CHECK(shell(build + "/sample_embed").status == 2);
  output = shell(build + "/sample_embed " + artifact + " /dev/null");
  CHECK(output.text == "/dev/null: no line holds a text, a tab and token numbers\n");
}

TEST_CASE("C: the functions of an artifact, with what they take and return") {
  const Output output = shell(build + "/sample_functions " + artifact);
  CHECK(output.status == 0);
  CHECK(output.text ==
        "function gather\n  input  table f32 [rows, 4]\n  input  index i64 [k]\n  output out f32 [k, 4]\n");
  CHECK(shell(build + "/sample_functions /nowhere.so").status == 1);
  CHECK(shell(build + "/sample_functions").status == 2);
}

TEST_CASE("C++: several threads share a model; a failure is an exception with the model's sentence") {
  Output output = shell(build + "/sample_serve " + artifact + " 3 20 k=5 rows=2");
  CHECK(output.status == 0);
  CHECK(output.text.rfind("gather (baseline): 60 requests on 3 threads", 0) == 0);
}

TEST_CASE("Python: NumPy arrays in and out") {
  // The environment of .ci/setup, which tests/run.sh sets; any other one must have NumPy too.
  const char *given = std::getenv("python"), *cache = std::getenv("STRIDEC_CACHE"),
             *home = std::getenv("HOME");
  const std::string folder = cache ? cache : std::string(home ? home : "") + "/.cache/stridec";
  const std::string python = given ? given : folder + "/python/bin/python";
  REQUIRE(shell(python + " -c 'import numpy'").status == 0);
  std::string code =
      "import sys; sys.path.insert(0, sys.argv[1]); import numpy as np, stridec\n"
      "context = stridec.Model(sys.argv[2]).context(threads=2)\n"
      "table, index = np.arange(20, dtype=np.float32).reshape(5, 4), np.array([4, 9, -1, 9, 0])\n"
      "context.warm_up(table, index[::2])\n"
      "out, = context.run(table[::-1], index[::2])\n"
      "assert (out == table[::-1][index[::2]]).all()\n"
      "mine = np.zeros((3, 4), np.float32)\n"
      "assert np.shares_memory(context.run(table, index[::2], out=[mine])[0], mine) and mine[2, 1] == 1\n"
      "try: context.run(table, index)\n"
      "except stridec.Error as e: print(e)\n";
  Output output = shell(python + " -c '" + code + "' " STRIDEC_SOURCE_DIR "/python " + artifact);
  CHECK(output.status == 0);
  CHECK(output.text == "Gather 'g': index 9 at position 1 is outside [-5, 5)\n");
}
