#include "compiler/schedule/layout/contiguous_windows.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/build.h"
#include "compiler/loop/index_range.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {
namespace {

using loop::Nest;
using loop::Program;
using sym::Expr;

constexpr int64_t kPieceBytes = 16;
// Multiply-adds per element of the image. From then on loading pieces instead of single elements gains more
// than a copy takes (4 TB/s of memory; 120 TFLOP/s with gathered elements, 500 with pieces).
constexpr int64_t kReadsWorthCopy = 128;
// Elements of a weight that is computed in the run, at most: its copy takes no time to speak of.
constexpr int64_t kSmallWeight = 1 << 18;

// What the window's taps are: dims of the sum, or of the result, as in the gradient of the weight.
enum class Taps { kSummed, kKept };

// Where the elements of a buffer are now: index[d] of `from` is replaced by those of `to`, of the same vars.
struct Moved {
  loop::BufferId from, to;
  std::vector<Expr> vars, index;
};

// The factor's load if it is one load below conversions, otherwise null.
const loop::Load* load_of(const kernels::Factor& factor) {
  const loop::Load* load = nullptr;
  for (const loop::Stmt* stmt : factor.slice) {
    if (const auto* l = std::get_if<loop::Load>(&stmt->node)) {
      if (load) return nullptr;
      load = l;
    } else if (const auto* let = std::get_if<loop::Let>(&stmt->node);
               !let || let->op != loop::ScalarOp::kCast) {
      return nullptr;
    }
  }
  return load;
}

class Runs {
 public:
  Runs(Program& program, const Nest& nest, Taps taps, const Flow& flow)
      : program_(program), nest_(nest), kind_(taps), flow_(flow) {}

  std::optional<std::vector<Nest>> make() {
    contraction_ = kernels::match_contraction(nest_);
    if (!contraction_ || !kernels::tensor_dtypes(nest_, *contraction_)) return std::nullopt;
    for (int side : {0, 1}) {
      data_ = load_of(contraction_->factors[side]);
      weight_ = load_of(contraction_->factors[1 - side]);
      if (!data_ || !weight_ || !fits()) continue;
      std::vector<Nest> made = {copy()};
      if (kind_ == Taps::kKept) {
        made.push_back(result());
        return made;
      }
      const loop::BufferId weight = taps(made);
      made.push_back(reader(weight));
      return made;
    }
    return std::nullopt;
  }

  // Of a result that keeps the taps: where its elements are now.
  const Moved& moved() const { return moved_; }

 private:
  bool fits() {
    const loop::Access& access = data_->access;
    const loop::Buffer& from = program_[access.buffer];
    if ((kind_ == Taps::kSummed ? !is_weight() : !find_store()) || !weight_->access.mask.is_const(1) ||
        from.storage == loop::Storage::kParameter || from.storage == loop::Storage::kLocal ||
        data_->fill.f != 0 || std::signbit(data_->fill.f))
      return false;
    piece_ = kPieceBytes / byte_size(from.dtype);
    // In grouped convolutions, neighbours in memory belong to different groups.
    for (const loop::Dim& dim : nest_.dims)
      if (contraction_->factors[0].vars.contains(dim.var) &&
          contraction_->factors[1].vars.contains(dim.var) &&
          (kind_ == Taps::kSummed || !is_apart(access, dim.var)))
        return false;
    if (!find_dims()) return false;
    if (channels_ >= piece_ && (kind_ == Taps::kKept || in_pieces() || !worth_copy())) return false;
    // Pads steps and rows to whole pieces.
    padded_channels_ = channels_;
    while (step_ * padded_channels_ % piece_) ++padded_channels_;
    padded_taps_ = taps_;
    while (padded_taps_ * padded_channels_ % piece_) ++padded_taps_;

    std::vector<loop::Dim> dims = nest_.dims;
    dims.insert(dims.end(), contraction_->reduce->dims.begin(), contraction_->reduce->dims.end());
    Expr inside = 1;
    least_.clear();
    extent_.clear();
    for (size_t d = 0; d < access.index.size(); ++d) {
      const auto range = loop::range_of(access.index[d], dims);
      if (!range) return false;
      least_.push_back(sym::simplify(range->least, program_.facts));
      Expr most = range->most;
      if (d == along_) most += padded_taps_ - taps_;
      extent_.push_back(sym::simplify(most - range->least + 1, program_.facts));
      inside = sym::logical_and(
          inside, sym::logical_and(sym::le(0, access.index[d]), sym::lt(access.index[d], from.shape[d])));
    }
    if (const auto width = sym::as_const(extent_[along_])) {
      int64_t whole = *width;
      while (whole * padded_channels_ % piece_) ++whole;
      extent_[along_] = whole;
    }
    // The mask has to let every element of the buffer through.
    return kernels::facts_in(program_, nest_, *contraction_).with(inside).holds(access.mask);
  }

  // Whether the other factor is constant, or small.
  bool is_weight() const {
    const loop::Buffer& weight = program_[weight_->access.buffer];
    if (weight.storage == loop::Storage::kParameter) return true;
    const auto elements = sym::as_const(loop::element_count(weight.shape));
    return weight.storage == loop::Storage::kArena && elements && *elements <= kSmallWeight;
  }

  // The only store of the nest, of the sum or a conversion of it.
  bool find_store() {
    store_ = nullptr;
    for (const loop::Stmt& stmt : nest_.body) {
      const auto* let = std::get_if<loop::Let>(&stmt.node);
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) {
        if (store_) return false;
        store_ = store;
      } else if (!std::holds_alternative<loop::Reduce>(stmt.node) &&
                 !(let && let->op == loop::ScalarOp::kCast)) {
        return false;
      }
    }
    return store_ && !store_->update && store_->access.mask.is_const(1) &&
           made_once(program_, flow_, store_->access.buffer);
  }

  // Whether `var` is an index of the data by itself, along which neighbours in memory do not lie, such as
  // that of an image.
  bool is_apart(const loop::Access& access, Expr var) const {
    const auto at = own(access, var);
    return at && !program_[access.buffer].strides[*at].is_const(1);
  }

  const std::vector<loop::Dim>& tap_dims() const {
    return kind_ == Taps::kSummed ? contraction_->reduce->dims : nest_.dims;
  }
  const std::vector<loop::Dim>& step_dims() const {
    return kind_ == Taps::kSummed ? nest_.dims : contraction_->reduce->dims;
  }
  // Whether the other factor, or the result, has a dim for the tap or channel `var`.
  bool has(Expr var) const {
    if (kind_ == Taps::kSummed) return own(weight_->access, var).has_value();
    return own(store_->access, var) &&
           std::ranges::none_of(weight_->access.index, [&](Expr e) { return sym::depends_on(e, var); });
  }

  // Whether a pixel's channels are whole pieces in memory already.
  bool in_pieces() const {
    const loop::Buffer& from = program_[data_->access.buffer];
    if (channels_ % piece_ || !from.strides[*channel_].is_const(1)) return false;
    for (size_t d = 0; d < from.shape.size(); ++d)
      if (d != *channel_ && !from.shape[d].is_const(1) &&
          program_.facts.known_divisor(from.strides[d]) % piece_)
        return false;
    return true;
  }

  bool worth_copy() const {
    Expr products = 1;  // multiply-adds of a window's element
    int64_t steps = 1;  // places of the image per window
    for (const loop::Dim& dim : nest_.dims) {
      bool own = false;
      for (Expr index : data_->access.index) {
        if (!sym::depends_on(index, dim.var)) continue;
        const auto linear = sym::linear_in(index, dim.var);
        steps *= linear ? sym::as_const(linear->coefficient).value_or(1) : 1;
        own = true;
      }
      if (!own) products *= dim.extent;
    }
    for (const loop::Dim& dim : contraction_->reduce->dims)
      if (!is_channel(dim.var)) products *= dim.extent;
    return program_.facts.holds(sym::ge(products, kReadsWorthCopy * steps));
  }

  // Finds the data's channel dim, if there is more than one channel, and the dim along which a window's row
  // runs.
  bool find_dims() {
    channel_.reset();
    channels_ = 1;
    for (const loop::Dim& c : tap_dims()) {
      const auto at = own(data_->access, c.var);
      const auto extent = sym::as_const(c.extent);
      if (!at || !has(c.var) || sym::depends_on(data_->access.mask, c.var)) continue;
      if (!extent || channel_) return false;
      channel_ = at;
      channel_var_ = c.var;
      channels_ = *extent;
    }
    for (size_t d = data_->access.index.size(); d-- > 0;)
      if (d != channel_ && find_row(d)) return true;
    return false;
  }

  // The position in the access's index that is `var` alone, if no other one depends on it.
  static std::optional<size_t> own(const loop::Access& access, Expr var) {
    std::optional<size_t> at;
    for (size_t d = 0; d < access.index.size(); ++d) {
      if (!sym::depends_on(access.index[d], var)) continue;
      if (at || access.index[d] != var) return std::nullopt;
      at = d;
    }
    return at;
  }

  // Whether index[d] is step * x + s plus a term that is constant in the nest.
  bool find_row(size_t d) {
    const std::vector<Expr>& index = data_->access.index;
    for (const loop::Dim& s : tap_dims()) {
      const auto tap = sym::linear_in(index[d], s.var);
      const auto taps = sym::as_const(s.extent);
      const auto users =
          std::count_if(index.begin(), index.end(), [&](Expr e) { return sym::depends_on(e, s.var); });
      if ((channel_ && s.var == channel_var_) || !tap || !tap->coefficient.is_const(1) || !taps ||
          users != 1 || !has(s.var))
        continue;
      for (const loop::Dim& x : step_dims()) {
        const auto linear = sym::linear_in(tap->rest, x.var);
        const auto step = linear ? sym::as_const(linear->coefficient) : std::nullopt;
        if (!step || *step < 1 || sym::has_index(linear->rest)) continue;
        along_ = d;
        tap_var_ = s.var;
        taps_ = *taps;
        step_ = *step;
        return true;
      }
    }
    return false;
  }

  bool is_channel(Expr e) const { return channel_ && e == channel_var_; }

  Nest copy() {
    const loop::Access& access = data_->access;
    const loop::Buffer from = program_[access.buffer];
    std::vector<Expr> shape;
    for (size_t d = 0; d < extent_.size(); ++d)
      if (d != channel_ && d != along_) shape.push_back(extent_[d]);
    shape.push_back(extent_[along_] * padded_channels_);
    rows_ =
        loop::add_buffer(program_, {.name = cat(from.name, ".rows"), .dtype = from.dtype, .shape = shape});
    loop::NestBuilder copy(program_, "pad");
    loop::Access read{.buffer = access.buffer, .index = std::vector<Expr>(access.index.size(), 0)};
    std::vector<Expr> to;
    auto take = [&](size_t d, Expr at) {
      read.index[d] = at + least_[d];
      read.mask = sym::logical_and(
          read.mask, sym::logical_and(sym::le(0, read.index[d]), sym::lt(read.index[d], from.shape[d])));
    };
    for (size_t d = 0; d < extent_.size(); ++d) {
      if (d == channel_ || d == along_) continue;
      to.push_back(copy.dim(extent_[d]));
      take(d, to.back());
    }
    const Expr pixel = copy.dim(extent_[along_]), channel = copy.dim(padded_channels_);
    take(along_, pixel);
    if (channel_)
      take(*channel_, channel);
    else
      read.mask = sym::logical_and(read.mask, sym::lt(channel, 1));
    to.push_back(pixel * padded_channels_ + channel);
    copy.store(loop::whole(program_, rows_), to, copy.load(read, data_->fill));
    Nest made = copy.nest();
    made.nodes = nest_.nodes;
    loop::attribute(made, loop::node_of(nest_, data_->result));
    loop::simplify(program_, made);
    return made;
  }

  // Packs the weight likewise: at compile time, or in a nest of the run.
  loop::BufferId taps(std::vector<Nest>& made_before) {
    const loop::Access access = weight_->access;
    const loop::Buffer from = program_[access.buffer];
    loop::Buffer buffer{.name = from.name + ".rows", .dtype = from.dtype};
    loop::NestBuilder copy(program_, "pad " + from.name);
    loop::Access read{.buffer = access.buffer, .index = std::vector<Expr>(access.index.size(), 0)};
    std::vector<Expr> to;
    for (size_t d = 0; d < access.index.size(); ++d) {
      if (is_channel(access.index[d]) || access.index[d] == tap_var_) continue;
      buffer.shape.push_back(from.shape[d]);
      to.push_back(copy.dim(from.shape[d]));
      read.index[d] = to.back();
    }
    const Expr tap = copy.dim(padded_taps_), channel = copy.dim(padded_channels_);
    for (size_t d = 0; d < access.index.size(); ++d) {
      if (is_channel(access.index[d])) read.index[d] = channel;
      if (access.index[d] == tap_var_) read.index[d] = tap;
    }
    read.mask = sym::logical_and(sym::lt(tap, taps_), sym::lt(channel, channels_));
    to.push_back(tap * padded_channels_ + channel);
    buffer.shape.push_back(padded_taps_ * padded_channels_);
    const bool constant = from.storage == loop::Storage::kParameter;
    if (constant) buffer.storage = loop::Storage::kParameter;
    buffer.prepacked = constant;
    const loop::BufferId id = loop::add_buffer(program_, std::move(buffer));
    copy.store(loop::whole(program_, id), to, copy.load(read, loop::float_scalar(from.dtype, 0)));
    Nest made = copy.nest();
    loop::simplify(program_, made);
    if (constant) {
      program_.prepack.push_back(loop::add_nest(program_, std::move(made)));
    } else {
      made.nodes = nest_.nodes;
      made_before.push_back(std::move(made));
    }
    return id;
  }

  // The access to the copy at element `run` of a window's row.
  loop::Access data_at(Expr run) const {
    loop::Access data{.buffer = rows_, .index = {}};
    const std::vector<Expr>& index = data_->access.index;
    for (size_t d = 0; d < index.size(); ++d)
      if (d != channel_ && d != along_) data.index.push_back(index[d] - least_[d]);
    data.index.push_back((index[along_] - tap_var_ - least_[along_]) * padded_channels_ + run);
    return data;
  }

  // The nest whose result keeps the taps: with an element of the padded row in place of tap and channel.
  Nest result() {
    const Expr run = sym::var("%run");
    const loop::Buffer from = program_[store_->access.buffer];
    const loop::Access old = store_->access;
    loop::Buffer buffer{.name = cat(from.name, ".rows"), .dtype = from.dtype};
    moved_.from = old.buffer;
    loop::Access to;
    for (size_t d = 0; d < old.index.size(); ++d) {
      moved_.vars.push_back(sym::var(cat("%d", d)));
      if (is_channel(old.index[d]) || old.index[d] == tap_var_) continue;
      buffer.shape.push_back(from.shape[d]);
      to.index.push_back(old.index[d]);
      moved_.index.push_back(moved_.vars[d]);
    }
    Expr place = 0;
    for (size_t d = 0; d < old.index.size(); ++d) {
      if (is_channel(old.index[d])) place += moved_.vars[d];
      if (old.index[d] == tap_var_) place += moved_.vars[d] * padded_channels_;
    }
    buffer.shape.push_back(padded_taps_ * padded_channels_);
    to.index.push_back(run);
    moved_.index.push_back(place);
    moved_.to = to.buffer = loop::add_buffer(program_, std::move(buffer));

    const loop::Access data = data_at(run);
    Nest made = nest_;
    std::erase_if(made.dims,
                  [&](const loop::Dim& dim) { return is_channel(dim.var) || dim.var == tap_var_; });
    made.dims.push_back({run, padded_taps_ * padded_channels_});
    loop::for_each_stmt(made.body, [&](loop::Stmt& stmt) {
      if (auto* load = std::get_if<loop::Load>(&stmt.node); load && load->result == data_->result)
        load->access = data;
      if (auto* store = std::get_if<loop::Store>(&stmt.node)) store->access = to;
    });
    loop::simplify(program_, made);
    loop::renumber(made);
    return made;
  }

  Nest reader(loop::BufferId packed) {
    const Expr run = sym::var("%run");
    const loop::Access data = data_at(run);
    loop::Access weight{.buffer = packed, .index = {}};
    for (Expr e : weight_->access.index)
      if (!is_channel(e) && e != tap_var_) weight.index.push_back(e);
    weight.index.push_back(run);
    Nest reader = nest_;
    for (loop::Stmt& stmt : reader.body) {
      auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
      if (!reduce) continue;
      std::erase_if(reduce->dims,
                    [&](const loop::Dim& dim) { return is_channel(dim.var) || dim.var == tap_var_; });
      reduce->dims.push_back({run, padded_taps_ * padded_channels_});
    }
    loop::for_each_stmt(reader.body, [&](loop::Stmt& stmt) {
      auto* load = std::get_if<loop::Load>(&stmt.node);
      if (load && load->result == data_->result) load->access = data;
      if (load && load->result == weight_->result) load->access = weight;
    });
    loop::simplify(program_, reader);
    loop::renumber(reader);
    return reader;
  }

  Program& program_;
  const Nest nest_;
  const Taps kind_;
  const Flow& flow_;
  std::optional<kernels::Contraction> contraction_;
  const loop::Load *data_ = nullptr, *weight_ = nullptr;
  const loop::Store* store_ = nullptr;
  Moved moved_;
  Expr channel_var_ = 0, tap_var_ = 0;
  int64_t piece_ = 0;  // elements in kPieceBytes
  int64_t channels_ = 0, taps_ = 0, step_ = 0, padded_channels_ = 0, padded_taps_ = 0;
  std::optional<size_t> channel_;  // dim of the data; none: it has one channel
  size_t along_ = 0;
  std::vector<Expr> least_, extent_;  // of the padded data, by dim of the data
  loop::BufferId rows_;
};

}  // namespace

void make_windows_contiguous(Program& program) {
  const Flow flow(program, program.steps);
  std::vector<Moved> moved;
  loop::replace_nests(program, [&](const Nest& nest) {
    if (!nest.schedule.kernel.empty()) return std::vector<Nest>();
    if (auto made = Runs(program, nest, Taps::kSummed, flow).make()) return *made;
    Runs gradient(program, nest, Taps::kKept, flow);
    auto made = gradient.make();
    if (made) moved.push_back(gradient.moved());
    return made.value_or(std::vector<Nest>());
  });
  for (Nest& nest : program.nests)
    loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
      auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load) return;
      for (const Moved& move : moved) {
        if (load->access.buffer != move.from) continue;
        sym::Substitution at;
        for (size_t d = 0; d < move.vars.size(); ++d) at[move.vars[d]] = load->access.index[d];
        load->access.buffer = move.to;
        load->access.index.clear();
        for (Expr e : move.index) load->access.index.push_back(sym::substitute(e, at));
        break;
      }
    });
}

}  // namespace stridec::schedule
