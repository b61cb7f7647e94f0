#include "compiler/schedule/directives/applies.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;

namespace {

// Nests: GEMMs, a transposed copy, a scatter-add, a triangle, and a running sum.
Program nests() {
  Program program = parse_program(R"(program nests
  symbol m = input 0 dim 0 in 1..4096
  symbol h = input 1 dim 0 times 4 in 1..64
  input x f32 [m, 24] ordinal 0
  input z f32 [4*h, 24] ordinal 1
  input w f32 [24, 48] ordinal 2
  input at i64 [m] ordinal 3
  output y f32 [m, 48] ordinal 0
  output t f32 [24, m] ordinal 1
  output sums f32 [7, 24] ordinal 2
  output tri f32 [m, m] ordinal 3
  output runs f32 [m, 24] ordinal 4
  output same f32 [4*h, 24] ordinal 5
  output picked f32 [m, 24] ordinal 6
  inputs (x, z, w, at)
  outputs (y, t, sums, tri, runs, same, picked)
  steps
    nest 0 product (%i0<m, %i1<48)
      %0 : f32 = reduce sum (%r0<24)
        %1 : f32 = load x[%i0, %r0]
        %2 : f32 = load w[%r0, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1] %0
    nest 1 turn (%i0<24, %i1<m)
      %0 : f32 = load x[%i1, %i0]
      store t[%i0, %i1] %0
    nest 2 sums (%i0<m, %i1<24)
      %0 : f32 = load x[%i0, %i1]
      update sum sums[mod(%i0, 7), %i1] %0
    nest 3 triangle (%i0<m, %i1<%i0 + 1)
      %0 : f32 = load x[%i0, 0]
      store tri[%i0, %i1] %0
    nest 4 runs (%i0<m)
      %0 : f32 = constant 0
      %1 : f32 = scan (%s0<24) [%2 = %0]
        %3 : f32 = load x[%i0, %s0]
        %4 : f32 = add %2 %3
        store runs[%i0, %s0] %4
        yield %4
    nest 5 same (%i0<4*h, %i1<24)
      %0 : f32 = load z[%i0, %i1]
      store same[%i0, %i1] %0
    nest 6 pick (%i0<m, %i1<24)
      %0 : i64 = load at[%i0]
      bind %g0 < m = %0 error "no row {0} of {1}"
      %1 : f32 = load x[%g0, %i1]
      store picked[%i0, %i1] %1
)");
  return program;
}

enum Nests { kProduct, kTurn, kSums, kTriangle, kRuns, kSame, kPick };

std::string why(Nests nest, const char* schedule) {
  static const Program program = nests();
  return schedule::why_illegal(program, program.nests[nest], parse_schedule(schedule));
}

}  // namespace

TEST_CASE("a directive that does not apply is named, with the reason") {
  struct Case {
    Nests nest;
    const char *schedule, *why;
  };
  for (const Case& c : std::initializer_list<Case>{
           // For each directive, a nest to which it applies and one to which it does not.
           {kProduct, "", ""},
           {kProduct, "unroll %i0 4", "'unroll %i0 4': directive 'unroll' is not known"},
           {kProduct, "vectorize %i1 16 8",
            "'vectorize %i1 16 8': directive 'vectorize' takes 2 arguments and no more"},
           {kProduct, "chunk 4 4", "'chunk 4 4': directive 'chunk' takes 1 argument and no more"},
           {kProduct, "team 32", "'team 32': it is for a GPU"},
           {kTurn, "reorder %i1 %i0", ""},
           {kTurn, "reorder %i1", "'reorder %i1': the dims are %i0, %i1"},
           {kTurn, "reorder %i1 %i1", "'reorder %i1 %i1': %i1 is named twice"},
           {kTurn, "merge %i0 %i1; reorder %i0 %i1",
            "'merge %i0 %i1': 'x' is not walked through in step by both"},
           {kTriangle, "reorder %i1 %i0", "'reorder %i1 %i0': the range of %i1 depends on %i0"},
           {kSums, "reorder %i1 %i0", "'reorder %i1 %i0': points update memory, one after the other"},
           {kSame, "merge %i0 %i1", ""},
           {kSame, "merge %i1 %i0", "'merge %i1 %i0': %i0 does not follow %i1"},
           {kSame, "merge %i0 %i1; tasks %i0", "'tasks %i0': the nest has no parallel dim %i0, but %i1"},
           {kTriangle, "merge %i0 %i1", "'merge %i0 %i1': a parallel range depends on another dim"},
           {kSame, "split %i0 4; tasks %i0.o", ""},
           {kSame, "split %i0 8", "'split %i0 8': 8 is not known to divide 4*h"},
           {kProduct, "split %i0 2", "'split %i0 2': 2 is not known to divide m"},
           {kProduct, "split %r0 2", "'split %r0 2': the nest has no parallel dim %r0, but %i0, %i1"},
           {kProduct, "tasks %i0 %i1", ""},
           {kSums, "tasks %i1", "'tasks %i1': points update memory, one after the other"},
           {kTriangle, "tasks %i0 %i1", "'tasks %i0 %i1': the range of %i1 depends on a dim"},
           {kProduct, "chunk 4", "'chunk 4': no dim is handed out in tasks"},
           {kProduct, "chunk 0", "'chunk 0': directive 'chunk' needs a positive number as argument 1"},
           {kProduct, "tasks %i0; chunk 99999999999999",
            "'chunk 99999999999999': its number is 1099511627776 at most"},
           {kProduct, "order %i1 %i0", ""},
           {kProduct, "tasks %i0; order %i0 %i1", "'order %i0 %i1': %i0 is one of the tasks' dims"},
           {kTriangle, "order %i1 %i0", "'order %i1 %i0': the range of %i1 depends on %i0"},
           {kProduct, "vectorize %i1 16", ""},
           {kProduct, "vectorize %r0 16; accumulators %r0 4", ""},
           {kTriangle, "vectorize %i1 8", ""},
           {kTriangle, "vectorize %i0 8", "'vectorize %i0 8': the range of %i1 depends on it"},
           {kProduct, "vectorize %i1 24",
            "'vectorize %i1 24': the number of lanes must be 2, 4, 8, 16, 32 or 64"},
           {kProduct, "vectorize %i1 8; vectorize %i0 8", "'vectorize %i1 8': lanes run along %i0"},
           {kProduct, "vectorize %i1 8; vectorize %r0 8", "'vectorize %r0 8': lanes run along %i1"},
           {kProduct, "tasks %i1; vectorize %i1 8", "'vectorize %i1 8': a task has one point of %i1"},
           {kRuns, "vectorize %s0 8", "'vectorize %s0 8': a scan takes its steps one after the other"},
           {kProduct, "vectorize %i9 8", "'vectorize %i9 8': the nest has no parallel dim %i9, but %i0, %i1"},
           {kProduct, "vectorize %i1 8; single %i1", ""},
           {kProduct, "vectorize %i1 8; single %i0", "'single %i0': lanes do not run along %i0"},
           {kProduct, "vectorize %i1 8; accumulators %i1 4",
            "'accumulators %i1 4': no reduction has lanes along %i1"},
           {kProduct, "vectorize %r0 8; accumulators %r0 3",
            "'accumulators %r0 3': its number must be a power of two"},
           {kProduct, "vectorize %r0 8; accumulators %r0 128",
            "'accumulators %r0 128': its number is 64 at most"},
           {kProduct, "vectorize %r0 4294967312",
            "'vectorize %r0 4294967312': directive 'vectorize' needs a number of at most 1048576 as argument "
            "2"},
           {kTurn, "vectorize %i1 8; transpose %i0 8", ""},
           {kTurn, "vectorize %i1 8; transpose %i0 16",
            "'transpose %i0 16': its blocks are as wide as the lanes, 8"},
           {kTurn, "vectorize %i0 8; transpose %i1 8",
            "'transpose %i1 8': nothing is loaded along %i1 that steps along %i0"},
           {kTurn, "tasks %i0; vectorize %i1 8; transpose %i0 8",
            "'transpose %i0 8': %i0 is one of the tasks' dims"},
           {kTurn, "tile %i0 64; tile %i1 8; vectorize %i1 8", ""},
           {kTurn, "tasks %i0; tile %i0 64", "'tile %i0 64': %i0 is one of the tasks' dims"},
           {kTriangle, "tile %i1 8", "'tile %i1 8': the range of %i1 depends on a dim"},
           {kTurn, "tile %i0 64; tile %i0 8", "'tile %i0 8': it occurs twice"},
           {kTurn, "tile %i0 %i1", "'tile %i0 %i1': it is for a GPU"},
           {kProduct, "tasks %i0; vectorize %i1 16; points %i0 4", ""},
           {kProduct, "vectorize %i0 8; points %i1 3", ""},
           {kProduct, "points %i0 17", "'points %i0 17': its number is 16 at most"},
           {kProduct, "vectorize %i1 8; points %i1 4", "'points %i1 4': lanes run along %i1"},
           {kProduct, "vectorize %r0 8; points %i0 4",
            "'points %i0 4': lanes run along %r0, inside of a point"},
           {kProduct, "tasks %i0 %i1; points %i1 4", "'points %i1 4': a task has one point of %i1"},
           {kProduct, "tasks %i0; points %i0 4", "'points %i0 4': a task has a loop over %i1 inside of it"},
           {kSums, "points %i0 4", "'points %i0 4': points update memory, one after the other"},
           {kRuns, "points %i0 4", "'points %i0 4': a scan takes its steps one after the other"},
           {kPick, "points %i0 4", "'points %i0 4': a point may end the run before the next one begins"},
           {kTriangle, "points %i0 2", "'points %i0 2': the range of %i1 depends on it"},
       }) {
    CAPTURE(std::string(c.schedule));
    CHECK(why(c.nest, c.schedule) == c.why);
  }
}

TEST_CASE("every schedule of the tuner's space applies") {
  testing::Pieces rows("rows");
  rows.output("y", rows.softmax(rows.input("x", {rows.n, 48})));
  schedule::fuse(rows.program);
  for (const Program& program : {nests(), rows.program})
    for (const Nest& nest : program.nests)
      for (const char* cpu : {"x86-64-v2", "x86-64-v3", "x86-64-v4"})
        for (const schedule::Candidate& candidate : schedule::candidates(program, nest, cpu_target(cpu))) {
          if (!candidate.schedule.kernel.empty()) continue;
          CAPTURE(to_string(candidate.schedule));
          CHECK(schedule::refusal(program, nest, cpu_target(cpu), candidate.schedule) == "");
          CHECK(parse_schedule(to_string(candidate.schedule)) == candidate.schedule);
          CHECK(schedule::directives(schedule::parse_plan(candidate.schedule)) ==
                candidate.schedule.directives);
        }
}
