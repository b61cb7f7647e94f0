// A builder for loop programs in tests. It keeps the lists of inputs, outputs and states consistent with the
// buffers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/loop/build.h"
#include "compiler/loop/interpret.h"

namespace stridec::testing {

// A program under construction. Each symbol is a dim that is a single variable.
struct ProgramBuilder {
  loop::Program program;

  ProgramBuilder() { program.name = "test"; }
  sym::Expr symbol(const std::string& name, int input, int dim, int64_t lo, int64_t hi) {
    const sym::Expr e = sym::var(name);
    program.facts.set_range(e, lo, hi);
    program.symbols.push_back({.var = e, .input = input, .dim = dim});
    return e;
  }
  loop::View buffer(loop::Storage storage, const std::string& name, DType dtype,
                    std::vector<sym::Expr> shape) {
    auto ordinal = [](const std::vector<loop::BufferId>& list) { return static_cast<int>(list.size()); };
    loop::Buffer b{
        .name = name, .dtype = dtype, .shape = std::move(shape), .strides = {}, .storage = storage};
    if (storage == loop::Storage::kInput) b.ordinal = ordinal(program.inputs);
    if (storage == loop::Storage::kOutput) b.ordinal = ordinal(program.outputs);
    if (storage == loop::Storage::kState) b.ordinal = ordinal(program.states);
    const loop::BufferId id = loop::add_buffer(program, std::move(b));
    if (storage == loop::Storage::kInput) program.inputs.push_back(id);
    if (storage == loop::Storage::kOutput) program.outputs.push_back(id);
    if (storage == loop::Storage::kState) program.states.push_back(id);
    return loop::whole(program, id);
  }
  loop::View input(const std::string& name, DType dtype, std::vector<sym::Expr> shape) {
    return buffer(loop::Storage::kInput, name, dtype, std::move(shape));
  }
  loop::View output(const std::string& name, DType dtype, std::vector<sym::Expr> shape) {
    return buffer(loop::Storage::kOutput, name, dtype, std::move(shape));
  }
  loop::View arena(const std::string& name, DType dtype, std::vector<sym::Expr> shape) {
    return buffer(loop::Storage::kArena, name, dtype, std::move(shape));
  }
  loop::View local(const std::string& name, DType dtype, std::vector<sym::Expr> shape) {
    return buffer(loop::Storage::kLocal, name, dtype, std::move(shape));
  }
  loop::NestBuilder nest(const std::string& name) { return loop::NestBuilder(program, name); }
};

}  // namespace stridec::testing
