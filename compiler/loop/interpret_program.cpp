#include "compiler/loop/interpret.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/strided.h"
#include "compiler/base/text.h"
#include "compiler/loop/bytecode.h"
#include "compiler/loop/capacity.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/library.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::loop {
namespace {

using sym::Expr;

struct Memory {
  uint8_t* data = nullptr;
  int64_t elements = -1;       // -1: not allocated yet
  std::vector<uint8_t> owned;  // if the run itself owns the memory
};

int64_t product(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t e : shape)
    if (__builtin_mul_overflow(n, e, &n))
      fail(ErrorKind::kDoesNotFit, "too-large", "a tensor has more than 2^63 elements");
  return n;
}

class Runner {
 public:
  Runner(const Program& program, const RunOptions& options)
      : program_(program), options_(options), memory_(program.buffers.size()) {}

  void bind_inputs(const std::vector<HostTensor>& inputs) {
    if (inputs.size() != program_.inputs.size())
      fail(ErrorKind::kDoesNotFit, "input-count",
           cat("the program takes ", program_.inputs.size(), " inputs, not ", inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Buffer& b = program_[program_.inputs[i]];
      if (inputs[i].dtype != b.dtype)
        fail(ErrorKind::kDoesNotFit, "input-dtype",
             cat("input '", b.name, "' is ", name(inputs[i].dtype), "; the program expects ", name(b.dtype)));
      if (inputs[i].shape.size() != b.shape.size())
        fail(ErrorKind::kDoesNotFit, "input-rank",
             cat("input '", b.name, "' has rank ", inputs[i].shape.size(), "; the program expects ",
                 b.shape.size()));
    }
    bind_context_sizes();
    for (const Symbol& s : program_.symbols) {
      if (s.input < 0 || symbols_.contains(s.var)) continue;
      int64_t dim = inputs[s.input].shape[s.dim];
      if (dim % s.multiple != 0)
        fail(ErrorKind::kDoesNotFit, "input-shape",
             cat("input '", program_[program_.inputs[s.input]].name, "': dim ", s.dim, " is ", dim,
                 ", not a multiple of ", s.multiple));
      symbols_[s.var] = dim / s.multiple;
      check_range(s.var, cat("input '", program_[program_.inputs[s.input]].name, "' dim ", s.dim));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Buffer& b = program_[program_.inputs[i]];
      for (size_t d = 0; d < b.shape.size(); ++d) {
        std::optional<int64_t> expected = try_evaluate(b.shape[d]);
        if (expected && *expected != inputs[i].shape[d])
          fail(ErrorKind::kDoesNotFit, "input-shape",
               cat("input '", b.name, "': dim ", d, " (", b.shape[d], ") is ", inputs[i].shape[d],
                   ", expected ", *expected));
      }
      Memory& m = memory_[program_.inputs[i].value];
      m.data = const_cast<uint8_t*>(inputs[i].bytes.data());  // verified programs never write inputs
      m.elements = product(inputs[i].shape);
      STRIDEC_CHECK(static_cast<int64_t>(inputs[i].bytes.size()) >= m.elements * byte_size(b.dtype), b.name);
      if (b.strides == row_major(b.shape)) continue;
      m.owned = in_memory_order(b, inputs[i]);
      m.data = m.owned.data();
    }
    check_guards(Expr());
  }

  void bind_context_sizes() {
    for (const Symbol& s : program_.symbols) {
      if (!is_context_size(program_, s.var)) continue;
      const auto given = options_.context_sizes.find(s.var.name());
      if (given == options_.context_sizes.end()) {
        if (s.input < 0)
          fail(ErrorKind::kDoesNotFit, "size-missing",
               cat("the size '", s.var.name(), "' of a state is not given"));
        continue;
      }
      symbols_[s.var] = given->second;
      check_range(s.var, "a size of the context");
    }
  }

  void load_states() {
    for (size_t i = 0; i < program_.states.size(); ++i) {
      BufferId id = program_.states[i];
      uint8_t* data = memory(id).data;
      if (!options_.states) continue;
      STRIDEC_CHECK(i < options_.states->size());
      const HostTensor& given = (*options_.states)[i];
      STRIDEC_CHECK(given.bytes.size() == memory_[id.value].owned.size(), program_[id].name);
      std::ranges::copy(in_memory_order(program_[id], given), data);
    }
  }

  void save_states() {
    if (!options_.states) return;
    for (size_t i = 0; i < program_.states.size(); ++i) (*options_.states)[i] = read(program_.states[i]);
  }

  void prepack() {
    for (NestId n : program_.prepack) run_nest(program_[n]);
  }

  void run(const Steps& steps) {
    for (Expr capacity : capacities_of(program_, steps)) bind(capacity, kFirstCapacity);
    for (const Step& step : steps) {
      std::visit([&](const auto& s) { run(s); }, step.node);
      if (options_.after_step)
        options_.after_step(step, {program_, symbols_, [this](BufferId id) { return read(id); }});
    }
  }

  std::vector<int64_t> evaluate(const std::vector<Expr>& all) const {
    std::vector<int64_t> values;
    for (const Expr e : all) values.push_back(evaluate(e));
    return values;
  }

  // The bytes of a row-major tensor as they lie in the buffer, whose strides are dense.
  std::vector<uint8_t> in_memory_order(const Buffer& b, const HostTensor& given) const {
    return scattered(given.bytes, evaluate(b.shape), evaluate(b.strides), byte_size(b.dtype));
  }

  // A copy of a buffer's contents, dense and row-major.
  HostTensor read(BufferId id) {
    const Buffer& b = program_[id];
    HostTensor out{.dtype = b.dtype, .shape = evaluate(b.shape), .bytes = {}};
    int64_t count = product(out.shape), bytes = byte_size(b.dtype);
    out.bytes.resize(static_cast<size_t>(count * bytes));
    const uint8_t* data = memory(id).data;
    for_each_place(out.shape, evaluate(b.strides), 0, [&](int64_t element, int64_t place) {
      std::memcpy(out.bytes.data() + element * bytes, data + place * bytes, static_cast<size_t>(bytes));
    });
    return out;
  }

  std::vector<uint8_t> take(BufferId id) { return std::move(memory_[id.value].owned); }

 private:
  std::optional<int64_t> try_evaluate(Expr e) const {
    return sym::evaluate(e, [&](Expr s) -> std::optional<int64_t> {
      auto it = symbols_.find(s);
      if (it == symbols_.end()) return std::nullopt;
      return it->second;
    });
  }
  int64_t evaluate(Expr e) const {
    std::optional<int64_t> v = try_evaluate(e);
    if (!v) fail(ErrorKind::kInternal, "unbound-size", cat("the size ", e, " has no value at this step"));
    return *v;
  }

  void check_range(Expr symbol, const std::string& what) const {
    sym::Interval range = program_.facts.bounds(symbol);
    int64_t v = symbols_.at(symbol);
    if (!range.contains(v))
      fail(ErrorKind::kDoesNotFit, "out-of-range",
           cat(what, " (", symbol, ") is ", v, "; the program supports ", to_string(range)));
  }

  // Checks the guards that can be evaluated now: all of them, or those that mention `symbol`, which has just
  // been bound.
  void check_guards(Expr symbol) const {
    for (const sym::Guard& g : program_.guards) {
      if (symbol.is_var() && !sym::depends_on(g.condition, symbol)) continue;
      std::optional<int64_t> holds = try_evaluate(g.condition);
      if (!holds || *holds != 0) continue;
      fail(ErrorKind::kDoesNotFit, "guard",
           sym::render(g, [&](Expr s) -> std::optional<int64_t> { return try_evaluate(s); }));
    }
  }

  void bind(Expr symbol, int64_t value) {
    symbols_[symbol] = value;
    check_guards(symbol);
  }

  // ---- memory

  int64_t elements_of(const Buffer& b) const {
    int64_t count = 1;
    for (size_t d = 0; d < b.shape.size(); ++d) {
      int64_t extent = evaluate(b.shape[d]);
      if (extent <= 0) return 0;
      count += (extent - 1) * evaluate(b.strides[d]);
    }
    return count;
  }

  // The buffer's memory, allocated on first use and again when its size has changed.
  Memory& memory(BufferId id) {
    const Buffer& b = program_[id];
    Memory& m = memory_[id.value];
    if (b.storage == Storage::kInput) return m;
    int64_t elements = elements_of(b);
    if (m.elements == elements) return m;
    STRIDEC_CHECK(elements <= (int64_t{1} << 40), cat(b.name, " has ", elements, " elements"));
    int64_t bytes = elements * byte_size(b.dtype);
    m.elements = elements;
    if (b.storage == Storage::kParameter && !b.prepacked) {
      STRIDEC_CHECK(bytes == 0 || (b.weight.bytes && static_cast<int64_t>(b.weight.size) >= bytes),
                    cat("weight ", b.name, " has no bytes"));
      m.data = const_cast<uint8_t*>(b.weight.bytes);
      return m;
    }
    if (b.storage == Storage::kArena && options_.planned) {
      m.data = arena(evaluate(b.offset), bytes, b);
      return m;
    }
    m.owned.assign(static_cast<size_t>(bytes), 0);
    m.data = m.owned.data();
    if (b.storage == Storage::kState) {
      if (b.weight.bytes)
        std::memcpy(m.data, b.weight.bytes, std::min<size_t>(b.weight.size, m.owned.size()));
    } else if (options_.poison) {
      bytecode::poison_memory(b.dtype, m.data, static_cast<size_t>(bytes));
    }
    return m;
  }

  uint8_t* arena(int64_t offset, int64_t bytes, const Buffer& b) {
    if (arena_.empty())
      arena_.assign(static_cast<size_t>(std::max<int64_t>(arena_bytes(), 1)), options_.poison ? 0xff : 0);
    STRIDEC_CHECK(offset >= 0 && offset + bytes <= static_cast<int64_t>(arena_.size()),
                  cat(b.name, " at ", offset, " with ", bytes, " bytes leaves the arena of ", arena_.size()));
    return arena_.data() + offset;
  }
  // Symbols that are not bound yet take their upper bound, as in memory planning.
  int64_t arena_bytes() const {
    std::optional<int64_t> v = sym::evaluate(program_.arena_bytes, [&](Expr s) -> std::optional<int64_t> {
      if (auto it = symbols_.find(s); it != symbols_.end()) return it->second;
      if (s == threads_of(program_)) return 1;
      return program_.facts.bounds(s).hi;
    });
    STRIDEC_CHECK(v.has_value(), "the arena's size overflows");
    return *v;
  }

  // ---- steps

  void run_nest(const Nest& nest) {
    std::vector<BufferMemory> buffers(program_.buffers.size());
    for_each_stmt(nest.body, [&](const Stmt& s) {
      const Access* a = access_of(s);
      if (!a || program_[a->buffer].storage == Storage::kLocal) return;
      Memory& m = memory(a->buffer);
      buffers[a->buffer.value] = {m.data, m.elements};
    });
    interpret(program_, nest, symbols_, buffers, options_.poison);
  }

  int64_t read_integer_of(BufferId id) {
    Memory& m = memory(id);
    STRIDEC_CHECK(m.elements >= 1, program_[id].name);
    return read_integer(program_[id].dtype, m.data);
  }

  void run(const Launch& s) { run_nest(program_[s.nest]); }

  void run(const BindSymbol& s) {
    int64_t v = read_integer_of(s.buffer);
    int64_t lower = evaluate(s.lower), upper = evaluate(s.upper);
    if (v < lower || v > upper) {
      std::vector<Expr> values{v, lower, upper};
      if (!s.values.empty()) values.clear();
      for (Expr e : s.values) values.emplace_back(evaluate(e));
      fail(ErrorKind::kDoesNotFit, "out-of-range",
           sym::render({.condition = 0, .sentence = s.sentence, .values = values}));
    }
    bind(s.symbol, v);
  }

  void run(const If& s) { run(evaluate(s.condition) != 0 ? s.then_steps : s.else_steps); }

  void run(const While& s) {
    const auto capacity = capacity_of(program_, s);
    int64_t trips = capacity ? std::numeric_limits<int64_t>::max() : evaluate(s.trip_count), i = 0;
    for (; i < trips; ++i) {
      if (s.condition.valid() && read_integer_of(s.condition) == 0) break;
      if (capacity && i == symbols_.at(*capacity)) double_capacity(*capacity);
      bind(s.counter, i);
      run(s.body);
    }
    if (s.iterations.is_var()) bind(s.iterations, i);
  }

  // Contents stay: only the first dim follows the capacity.
  void double_capacity(Expr capacity) {
    const std::vector<BufferId> growing = growing_buffers(program_, capacity);
    std::vector<std::vector<uint8_t>> contents;
    for (BufferId id : growing) {
      memory(id);
      contents.push_back(std::move(memory_[id.value].owned));
    }
    bind(capacity, 2 * symbols_.at(capacity));
    for (size_t i = 0; i < contents.size(); ++i)
      std::copy(contents[i].begin(), contents[i].end(), memory(growing[i]).data);
  }

  void run(const TiledGroup& s) {
    const int64_t count = evaluate(s.count()), of_round = evaluate(s.count_of_round());
    struct Made {
      int64_t end = 0, base = 0;
      std::vector<uint8_t> bytes;
    };
    std::vector<Made> made(s.carried.size());  // by the previous tile
    for (int64_t i = 0; i < count; ++i) {
      const int64_t strip = i % of_round;
      const int64_t first = evaluate(s.first_of(strip)), next = evaluate(s.first_of(strip + 1));
      bind(s.first, first);
      bind(s.size, next - first);
      check_range(s.size, "a strip");
      if (s.round.is_var()) bind(s.round, i / of_round);
      // `from`: where the previous tile stored them.
      struct Kept {
        int64_t at = 0, rows = 0, from = 0;
      };
      std::vector<Kept> kept(s.carried.size());
      for (const TiledGroup::Size& size : s.sizes) {
        bind(size.symbol, evaluate(size.value));
        check_range(size.symbol, "a strip");
        for (size_t k = 0; k < s.carried.size(); ++k) {
          const TiledGroup::Carried& each = s.carried[k];
          if (each.rows != size.symbol) continue;
          const int64_t at = evaluate(each.at), rows = evaluate(each.rows), base = evaluate(each.base),
                        have = strip == 0 ? 0 : std::clamp<int64_t>(made[k].end - at, 0, rows);
          kept[k] = {each.per * at - base, each.per * have, each.per * at - made[k].base};
          made[k].end = at + rows, made[k].base = base;
          bind(each.at, at + have);
          bind(each.rows, rows - have);
        }
      }
      for (size_t k = 0; k < s.carried.size(); ++k) {
        const Memory& m = memory_[s.carried[k].buffer.value];
        if (kept[k].rows > 0) made[k].bytes.assign(m.owned.begin(), m.owned.end());
      }
      for (BufferId id : s.own) {
        const Buffer& b = program_[id];
        Memory& m = memory_[id.value];
        m.elements = elements_of(b);
        m.owned.assign(static_cast<size_t>(m.elements * byte_size(b.dtype)), 0);
        m.data = m.owned.data();
        if (options_.poison) bytecode::poison_memory(b.dtype, m.data, m.owned.size());
      }
      for (size_t k = 0; k < s.carried.size(); ++k) {
        const TiledGroup::Carried& each = s.carried[k];
        const Buffer& b = program_[each.buffer];
        Memory& m = memory_[each.buffer.value];
        const int64_t row = evaluate(b.strides[each.dim]) * byte_size(b.dtype),
                      block = row * evaluate(b.shape[each.dim]);
        for (int64_t o = 0; kept[k].rows > 0 && o < static_cast<int64_t>(m.owned.size()); o += block)
          std::copy_n(made[k].bytes.begin() + o + row * kept[k].from, row * kept[k].rows,
                      m.owned.begin() + o + row * kept[k].at);
      }
      run(s.body);
    }
  }

  void run(const Call& s) {
    auto get = [&](const std::vector<BufferId>& ids) {
      std::vector<RoutineBuffer> out;
      for (BufferId id : ids) {
        Memory& m = memory(id);
        out.push_back({program_[id].dtype, m.data, m.elements});
      }
      return out;
    };
    std::vector<int64_t> arguments;
    for (Expr e : s.arguments) arguments.push_back(evaluate(e));
    if (const auto kernel = find_user_kernel(s.routine)) {
      if (kernel->run) return kernel->run(*kernel, get(s.reads), get(s.writes), arguments);
      fail(
          ErrorKind::kUnsupported, "no-reference",
          cat(kernel->name, " has neither a reference nor a text in C, so the interpreter cannot compute it"),
          "declare a 'reference' in the file of --ops");
    }
    const LibraryRoutine* routine = find_routine(s.routine);
    STRIDEC_CHECK(routine, s.routine);
    run_routine(*routine, get(s.reads), get(s.writes), arguments);
  }

  void run(const Copy& s) {
    Memory &from = memory(s.from), &to = memory(s.to);
    STRIDEC_CHECK(from.elements == to.elements && program_[s.from].dtype == program_[s.to].dtype,
                  cat("copy of ", program_[s.from].name, " to ", program_[s.to].name));
    std::memmove(to.data, from.data, static_cast<size_t>(from.elements * byte_size(program_[s.from].dtype)));
  }

  const Program& program_;
  const RunOptions& options_;
  Bindings symbols_;
  std::vector<Memory> memory_;
  std::vector<uint8_t> arena_;
};

}  // namespace

HostTensor make_tensor(DType dtype, std::vector<int64_t> shape) {
  HostTensor out{.dtype = dtype, .shape = std::move(shape), .bytes = {}};
  out.bytes.resize(static_cast<size_t>(element_count(out) * byte_size(dtype)));
  return out;
}

int64_t element_count(const HostTensor& tensor) { return product(tensor.shape); }

double get_number(const HostTensor& t, int64_t element) {
  const uint8_t* at = t.bytes.data() + element * byte_size(t.dtype);
  return is_float(t.dtype) ? read_float(t.dtype, at) : static_cast<double>(read_integer(t.dtype, at));
}

void set_number(HostTensor& t, int64_t element, double value) {
  uint8_t* at = t.bytes.data() + element * byte_size(t.dtype);
  if (is_float(t.dtype))
    write_float(t.dtype, value, at);
  else
    write_integer(t.dtype, static_cast<int64_t>(value), at);
}

void interpret(const Program& program, const Nest& nest, const Bindings& symbols,
               std::span<const BufferMemory> buffers, bool poison) {
  bytecode::Bytecode compiled = bytecode::compile(program, nest, symbols, buffers);
  bytecode::run(program, compiled, poison);
}

std::vector<HostTensor> interpret(const Program& program, const std::vector<HostTensor>& inputs,
                                  const RunOptions& options) {
  Runner runner(program, options);
  runner.bind_inputs(inputs);
  runner.load_states();
  runner.prepack();
  runner.run(program.steps);
  runner.save_states();
  std::vector<HostTensor> out;
  for (BufferId id : program.outputs) out.push_back(runner.read(id));
  return out;
}

std::vector<std::vector<uint8_t>> interpret_prepack(const Program& program) {
  RunOptions options;
  Runner runner(program, options);
  runner.prepack();
  std::vector<std::vector<uint8_t>> out(program.buffers.size());
  for (size_t i = 0; i < out.size(); ++i)
    if (program.buffers[i].prepacked) out[i] = runner.take(BufferId(static_cast<int64_t>(i)));
  return out;
}

}  // namespace stridec::loop
