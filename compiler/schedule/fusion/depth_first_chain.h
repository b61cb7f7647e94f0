// Nests one after the other, each of which alone reads what the one before alone writes, whose rows lead to rows: what a range
// of some rows of the last one needs are ranges of rows of all others. What depth_first.h makes strips of. What the last one reads
// others may read as well.
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
  // A buffer that passes, as one nest writes and the next one reads it, by its dims.
  struct Passing {
    loop::BufferId buffer;
    std::vector<std::optional<Along>> written, read;
  };
  // Rows of a nest that a strip [first, first + size) needs: from scale * first + before to scale * (first + size) + after.
  struct Rows {
    sym::Expr var, extent;
    int64_t scale = 1, before = 0, after = 0;
  };

  std::vector<int> at;           // positions among the program's top steps
  std::vector<Passing> passing;  // from each to the next
  std::vector<Rows> rows;        // of each
  std::vector<size_t> row_dim;   // of what passes
  std::vector<std::vector<sym::Expr>>
      images;  // of each nest: the dims that strips do not reach across, outer first
  std::vector<std::vector<size_t>> image_dims;  // of what passes, likewise
  sym::Expr points;  // that strips are ranges of: rows of the last nest, by its scale
  int64_t most = 1;  // of them in a strip
  // What passes to the last nest stays in memory, for others that read it: each of its rows is made once.
  bool kept = false;

  // How many of what passes are memory of a strip: the first ones.
  size_t own() const { return passing.size() - (kept ? 1 : 0); }
  int64_t rows_of_strip(size_t i) const;  // of what passes behind nest i, at most
  // Rows that two ranges of the reader's rows, one behind the other, both read of what passes behind nest i: a strip has them
  // from the one before.
  bool carries(size_t i) const;
};

// Bytes of what passes behind nest i, of a strip.
sym::Expr passing_bytes(const loop::Program& program, const RowChain& chain, size_t i);
// What a nest reads and what it writes are in use together with all that strips carry, and memory is shared otherwise.
sym::Expr own_bytes(const loop::Program& program, const RowChain& chain);

// Finds chains among the program's top steps.
class RowChains {
 public:
  RowChains(const loop::Program& program, const Flow& flow) : program_(program), flow_(flow) {}

  // What the step at `at` alone writes and one other launch alone reads; and that launch, or -1; and the launches of which this
  // is true for the one at `at`.
  std::optional<loop::BufferId> passes_on(int at) const;
  int reader_of(int at) const;
  std::vector<int> makers_of(int at) const;
  // The first launch behind the step at `at` that reads what this alone writes, whoever else does; or -1.
  int first_reader_of(int at) const;

  // The chain of these launches, each the reader of the one before, the last one perhaps its first reader alone, if there are
  // rows for which `fits` says yes; it chooses how many there are in a strip. `why`, where it says no, and where there is no
  // chain.
  using Fits = std::function<bool(RowChain& chain, std::string& why)>;
  std::optional<RowChain> chain_of(std::vector<int> at, const Fits& fits, std::string& why) const;
  // All chains that the step is part of.
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

// Puts strips in place of the chain's launches.
void make_depth_first(loop::Program& program, const RowChain& chain);

}  // namespace stridec::schedule
