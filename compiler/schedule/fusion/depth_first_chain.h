// Finds chains of nests for depth_first.h: each nest is the only reader of the previous one's only output,
// and a range of rows of the last nest needs ranges of rows of all others. The last nest's input may have
// other readers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/access_map.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {

inline constexpr size_t kLongestChain = 6;  // nests

struct RowChain {
  // An intermediate buffer, with the accesses of the nest that writes it and of the next one, which reads it,
  // by its dims.
  struct Passing {
    loop::BufferId buffer;
    std::vector<std::optional<Along>> written, read;
  };
  // The rows of a nest that a tile [first, first + size) needs: from scale * first + before to
  // scale * (first + size) + after.
  struct Rows {
    sym::Expr var, extent;
    int64_t scale = 1, before = 0, after = 0;
  };

  std::vector<int> at;           // positions among the program's top steps
  std::vector<Passing> passing;  // between each nest and the next
  std::vector<Rows> rows;        // of each nest
  std::vector<size_t> row_dim;   // of each intermediate: which dim holds the rows
  // Of each nest: the dims of which a tile has a single index (images), outermost first.
  std::vector<std::vector<sym::Expr>> images;
  std::vector<std::vector<size_t>> image_dims;  // of each intermediate, likewise
  // The extent that is tiled: the rows of the last nest, divided by its scale.
  sym::Expr points;
  int64_t most = 1;    // largest size of a tile, in these points
  int64_t finest = 0;  // of tiles where a run would have few; 0: most
  // The last nest's input stays in memory for other readers, so each of its rows is computed once.
  bool kept = false;

  // How many intermediates, the first ones, are memory of a tile.
  size_t own() const { return passing.size() - (kept ? 1 : 0); }
  // Upper bound on the rows that a tile has of the buffer nest i writes.
  int64_t rows_of_tile(size_t i) const;
  // Whether two consecutive ranges of the reader's rows both read some rows of the buffer that nest i writes
  // (a halo). A tile then takes these rows over from the previous tile.
  bool carries(size_t i) const;
};

// Bytes that a tile has of the buffer nest i writes.
sym::Expr passing_bytes(const loop::Program& program, const RowChain& chain, size_t i);
// Bytes of a tile's scratch. A nest's input, its output and all carried rows are live together; everything
// else shares memory.
sym::Expr own_bytes(const loop::Program& program, const RowChain& chain);

// Finds chains among the program's top steps.
class RowChains {
 public:
  RowChains(const loop::Program& program, const Flow& flow) : program_(program), flow_(flow) {}

  // passes_on: the buffer that the step at `at` alone writes and exactly one other launch reads. reader_of:
  // that launch, or -1. makers_of: the launches whose reader_of is the one at `at`.
  std::optional<loop::BufferId> passes_on(int at) const;
  int reader_of(int at) const;
  std::vector<int> makers_of(int at) const;
  // The first launch after the step at `at` that reads the buffer only this step writes, which may have more
  // readers; or -1.
  int first_reader_of(int at) const;

  // Returns the chain of these launches if `fits` accepts some choice of its rows; `fits` also chooses the
  // tile size. Each launch is the reader of the previous one; the last may be merely its first reader. `why`:
  // the reason for which `fits` refused, or there is no chain.
  using Fits = std::function<bool(RowChain& chain, std::string& why)>;
  std::optional<RowChain> chain_of(std::vector<int> at, const Fits& fits, std::string& why) const;
  // All chains that contain the step.
  std::vector<RowChain> through(int at, const Fits& fits) const;

 private:
  std::optional<loop::BufferId> makes(int at) const;
  bool is_made_once(const RowChain& chain) const;
  const loop::Nest& nest_of(const RowChain& chain, size_t i) const;
  bool add_image(RowChain& chain, sym::Expr var) const;
  std::optional<RowChain> with_rows(RowChain chain, sym::Expr var, const Fits& fits, std::string& why,
                                    bool& leads) const;
  void add_chains(std::vector<int>& backwards, const Fits& fits, std::vector<RowChain>& chains) const;

  const loop::Program& program_;
  const Flow& flow_;
};

// Replaces the chain's launches by one tiled group.
void make_depth_first(loop::Program& program, const RowChain& chain);

}  // namespace stridec::schedule
