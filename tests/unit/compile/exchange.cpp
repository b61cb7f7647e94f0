// The text that passes of users read and write: nothing is lost on the way, and nothing that a pass writes
// breaks the compiler.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/compile.h"
#include "compiler/extend/exchange.h"
#include "compiler/graph/text.h"
#include "compiler/ops/op_table.h"

using namespace stridec;

namespace {

std::vector<std::filesystem::path> light_models() {
  std::vector<std::filesystem::path> all;
  for (const auto& entry : std::filesystem::directory_iterator(STRIDEC_SOURCE_DIR "/tests/models"))
    if (entry.path().extension() == ".onnx") all.push_back(entry.path());
  std::ranges::sort(all);
  return all;
}

graph::Graph imported(const std::filesystem::path& path) {
  frontend::Imported model = frontend::import_file(path.string(), {.missing_weights_are_zero = true});
  REQUIRE(model.problems.empty());
  graph::eliminate_dead_code(model.graph);
  return std::move(model.graph);
}

// Operators of every kind of attribute, a branch, and sizes that are symbols.
const char* const kGraph =
    "graph \"mutated\"\n"
    "  symbol n 1..64 = input 0 dim 0\n"
    "  symbol k 0.. = input 0 dim 1\n"
    "  guard $(k < 1000): \"k is {0}\" $[k]\n"
    "  input %0 \"x\" : f32[n, k]\n"
    "  input %1 \"image\" : f32[n, 3, 8, 8]\n"
    "  input %2 \"ids\" : i64[n]\n"
    "  %3 \"w\" : f32[4, 3, 3, 3] = constant 432 bytes\n"
    "  %4 : f32[] = constant [0.5]\n"
    "  %5 \"table\" : f32[10, 6] = constant 240 bytes\n"
    "  %6 : f32[n, 4, 8, 8] = conv %1 %3 {accumulate=f32, after=[1, 1], before=[1, 1], dilations=[1, 1], "
    "groups=1, strides=[1, 1], to=f32} from \"node 0 'conv' (Conv)\"\n"
    "  %7 : f32[n, 4] = reduce_sum %6 {dims=[2, 3]} from \"node 1\"\n"
    "  %8 : f32[n, 6] = gather %5 %2 {batch_dims=0, dim=0}\n"
    "  %9 : f32[n, 10] = concat %7 %8 {dim=1}\n"
    "  %10 : f32[n, 5] = slice %9 {extents=$[n, 5], starts=$[0, 1], steps=$[1, 2]}\n"
    "  %11 : f32[5, n] = permute %10 {order=[1, 0]}\n"
    "  %12 : f32[5, k] = dot_general %11 %0 {accumulate=f32, batch_a=[], batch_b=[], contract_a=[1], "
    "contract_b=[0], to=f32}\n"
    "  %13 : f32[5, k] = mul %12 %4\n"
    "  %14 : f32[5, k + 2] = pad %13 %4 {after=$[0, 1], before=$[0, 1], mode=\"constant\"}\n"
    "  %15 : i64[2] $[5, k] = elements {dtype=i64, elements=$[5, k], shape=$[2]}\n"
    "  %16 : f32[5, k] = cumsum %13 {dim=0, exclusive=0, reverse=0}\n"
    "  %17 : f32[5, k], %18 : i64[5, k] = sort %16 {descending=0, dim=0}\n"
    "  %19 : i32[5, k] = cast %17 {to=i32}\n"
    "  %20 : f32[5, k] = if {condition=$(n < 3)}\n"
    "    region\n"
    "      %21 : f32[5, k] = exp %17\n"
    "      yield %21\n"
    "    region\n"
    "      yield %13\n"
    "  output \"y\" %20\n"
    "  output \"z\" %14\n"
    "  output \"i\" %19\n"
    "  output \"j\" %18\n"
    "  output \"sizes\" %15\n";

// Breaks a text as passes with faults do: lines, operators, numbers, types and single characters.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string mutate(const std::string& text) {
    std::vector<std::string> lines = split(text);
    const int changes = 1 + static_cast<int>(below(3));
    for (int i = 0; i < changes; ++i) change(lines);
    return join(lines, "\n") + "\n";
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return lines;
  }
  void change(std::vector<std::string>& lines) {
    const size_t a = 1 + below(lines.size() - 1), b = 1 + below(lines.size() - 1);
    switch (below(10)) {
      case 0: lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(a)); break;
      case 1: std::swap(lines[a], lines[b]); break;
      case 2: lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(b), lines[a]); break;
      case 3:
        replace_word(lines[a], "= ",
                     std::string(graph::name(static_cast<graph::OpKind>(below(graph::kOpCount)))));
        break;
      case 4: replace_word(lines[a], "%", std::to_string(below(24))); break;
      case 5:
      case 6: replace_number(lines[a]); break;
      case 7: {
        static const char* const kTypes[] = {"f32", "f16", "i64", "u8", "bool", "f8e4m3fn", "i4", "f64"};
        replace_word(lines[a], ": ", kTypes[below(std::size(kTypes))]);
        break;
      }
      case 8: swap_attributes(lines[a], lines[b]); break;
      default:
        if (!lines[a].empty()) lines[a][below(lines[a].size())] = static_cast<char>(32 + below(95));
    }
  }
  // The word after the n-th place of `mark`.
  void replace_word(std::string& line, const std::string& mark, const std::string& word) {
    std::vector<size_t> places;
    for (size_t at = line.find(mark); at != std::string::npos; at = line.find(mark, at + 1))
      places.push_back(at + mark.size());
    if (places.empty()) return;
    const size_t begin = places[below(places.size())];
    line.replace(begin, std::min(line.find_first_of(" [],{}", begin), line.size()) - begin, word);
  }
  void replace_number(std::string& line) {
    static const char* const kNumbers[] = {"0",
                                           "1",
                                           "-1",
                                           "2",
                                           "3",
                                           "7",
                                           "64",
                                           "4294967296",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "n",
                                           "k",
                                           "n * k",
                                           "1000000007"};
    std::vector<std::pair<size_t, size_t>> places;
    for (size_t at = 0; at < line.size(); ++at) {
      if (!std::isdigit(static_cast<unsigned char>(line[at]))) continue;
      const size_t begin = at;
      while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at]))) ++at;
      places.emplace_back(begin, at - begin);
    }
    if (places.empty()) return;
    const auto [begin, size] = places[below(places.size())];
    line.replace(begin, size, kNumbers[below(std::size(kNumbers))]);
  }
  static void swap_attributes(std::string& a, std::string& b) {
    const size_t x = a.find('{'), y = b.find('{');
    if (x == std::string::npos || y == std::string::npos || &a == &b) return;
    const std::string tail = a.substr(x);
    a.replace(x, std::string::npos, b.substr(y));
    b.replace(y, std::string::npos, tail);
  }

  std::mt19937_64 random_;
};

}  // namespace

TEST_CASE("passes: a text that is written as it was read gives the same graph, with the same weights") {
  for (const auto& path : light_models()) {
    CAPTURE(path.string());
    const graph::Graph graph = imported(path);
    const extend::Exchange exchange(graph);
    const graph::Graph back = exchange.read(exchange.text());
    CHECK(graph::to_string(back) == graph::to_string(graph));
    CHECK(back.facts.relations() == graph.facts.relations());
    REQUIRE(back.values.size() == graph.values.size());
    bool same = true;
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (const auto& a = graph.values[v].data, &b = back.values[v].data; a && a->size > 64)
        same = same && b && a->bytes == b->bytes;
    CHECK(same);
  }
}

TEST_CASE("passes: a branch of other sizes than its node is refused") {
  const graph::Graph graph = graph::parse(kGraph);
  const extend::Exchange exchange(graph);
  const std::string text = exchange.text(), own = "      yield %13\n";
  const size_t at = text.find(own);
  REQUIRE(at != std::string::npos);
  for (const char* const other : {"%5", "%11"}) {  // f32[10, 6] and f32[5, n], where the node is f32[5, k]
    std::string changed = text;
    changed.replace(at, own.size(), cat("      yield ", other, "\n"));
    std::string said;
    try {
      exchange.read(changed);
    } catch (const Error& error) {
      said = join(error.diagnostic.notes, "; ");
    }
    CHECK_MESSAGE(said.find("in branch 1") != std::string::npos, said);
  }
}

TEST_CASE("passes: branches of different sizes, which the node's type names") {
  const graph::Graph graph = graph::parse(
      "graph \"g\"\n"
      "  symbol n 1..64 = input 0 dim 0\n"
      "  input %0 \"x\" : f32[n]\n"
      "  %1 : f32[select(n < 3, n, 2*n)] = if {condition=$(n < 3)}\n"
      "    region\n"
      "      yield %0\n"
      "    region\n"
      "      %2 : f32[2*n] = concat %0 %0 {dim=0}\n"
      "      yield %2\n"
      "  output \"y\" %1\n");
  const extend::Exchange exchange(graph);
  CHECK_NOTHROW(exchange.read(exchange.text()));
}

TEST_CASE("passes: of mutated texts each is refused in words or compiles") {
  const graph::Graph graph = graph::parse(kGraph);
  const extend::Exchange exchange(graph);
  REQUIRE(graph::to_string(exchange.read(exchange.text())) == graph::to_string(graph));
  const int count = std::getenv("STRIDEC_NIGHTLY") ? 10000 : 1000;
  // To run a part: the first seed.
  const char* const first = std::getenv("STRIDEC_FIRST_SEED");
  const int begin = first ? std::atoi(first) : 0;
  int accepted = 0, refused = 0, internal = 0;
  for (int i = begin; i < begin + count; ++i) {
    const std::string text = Mutator(static_cast<uint64_t>(i)).mutate(exchange.text());
    CAPTURE(i);
    try {
      graph::Graph made = exchange.read(text);
      ++accepted;
      CompileOptions how{.model = "mutated", .cpus = {"x86-64-v3"}};
      compile(std::move(made), how, i % 50 == 0 ? Stage::kSource : Stage::kSchedule);
    } catch (const Error& error) {
      ++refused;
      if (error.diagnostic.kind != ErrorKind::kInternal) continue;
      ++internal;
      MESSAGE(error.diagnostic.message.substr(0, 300) << "\n" << text);
    }
  }
  CHECK(internal == 0);
  CHECK(accepted > count / 20);
  CHECK(refused > count / 4);
}
