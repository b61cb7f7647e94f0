#include "cli/reference_operators.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/output.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/extend/run_reference.h"
#include "compiler/extend/user_operator.h"

namespace stridec::cli {
namespace {

using extend::Attr;
using extend::CallTensor;
using extend::OperatorFile;
using extend::UserOperator;

[[noreturn]] void mismatch(const UserOperator& op, const std::string& what) {
  fail(ErrorKind::kDoesNotFit, "does-not-fit", cat(op.name, ": ", what),
       "give the file of --ops that the artifact was compiled with");
}

// Types that DLPack lacks are passed as integers of their size.
bool is_type(DType dtype, const stridec_dtype& given) {
  const stridec_dtype own = dlpack_dtype(dtype);
  const auto equal = [&](uint8_t code) { return code == given.code && own.bits == given.bits; };
  if (dtype == DType::kBF16) return equal(STRIDEC_DTYPE_BFLOAT);
  const bool narrow_float = is_float(dtype) && own.bits == 8;
  return equal(own.code) || (narrow_float && given.bits == 8 && given.code > STRIDEC_DTYPE_BOOL);
}

CallTensor tensor_of(const UserOperator& op, const extend::DeclaredTensor& declared,
                     const stridec_tensor& given) {
  CallTensor made;
  const std::vector<DType> types = extend::types_of(op, declared.type);
  // Types of fewer than 8 bits are stored as bytes.
  auto type = std::ranges::find_if(
      types, [&](DType each) { return is_type(each, given.dtype) && info(each).bits == given.dtype.bits; });
  if (type == types.end())
    type = std::ranges::find_if(types, [&](DType each) { return is_type(each, given.dtype); });
  if (type == types.end())
    mismatch(op, cat("the artifact's '", declared.name, "' is not of the declared type"));
  made.dtype = *type;
  made.dims.assign(given.shape, given.shape + given.ndim);
  made.strides.assign(given.strides, given.strides + given.ndim);
  made.data = static_cast<uint8_t*>(given.data) + given.byte_offset;
  return made;
}

void compute(const UserOperator& declared, const stridec_call& call) {
  const UserOperator op = extend::instance_of(declared, call.input_count, call.output_count);
  if (call.input_count != op.inputs.size() || call.output_count != op.outputs.size())
    mismatch(op, "the artifact's operator has another number of tensors than the declared one");
  std::vector<CallTensor> reads, writes;
  for (size_t i = 0; i < call.input_count; ++i) reads.push_back(tensor_of(op, op.inputs[i], call.inputs[i]));
  for (size_t i = 0; i < call.output_count; ++i)
    writes.push_back(tensor_of(op, op.outputs[i], call.outputs[i]));
  std::map<std::string, Attr, std::less<>> attributes;
  for (size_t i = 0; i < call.attribute_count; ++i) {
    const stridec_attribute& each = call.attributes[i];
    attributes.emplace(each.name, each.real ? Attr(each.number) : Attr(sym::Expr(each.integer)));
  }
  for (const extend::DeclaredAttribute& each : op.attributes)
    if (!attributes.contains(each.name))
      mismatch(op, cat("the artifact's operator has no attribute '", each.name, "'"));
  extend::run_reference(op, reads, writes, attributes);
}

const UserOperator* find(const OperatorFiles& files, const std::string& name) {
  for (const auto& file : files)
    for (const UserOperator& op : file->operators)
      if (op.name == name) return &op;
  return nullptr;
}

}  // namespace

void declare_reference_operators(CLI::App& app, std::vector<std::string>& files) {
  app.add_option("--ops", files,
                 "the file of --ops with the operators that the application computes: here their references "
                 "compute them")
      ->type_name("FILE");
}

OperatorFiles read_operator_files(const std::vector<std::string>& files) {
  OperatorFiles made;
  for (const std::string& file : files)
    made.push_back(std::make_shared<OperatorFile>(extend::read_operators(file)));
  const extend::Operators once(made);  // refuses an operator that two files declare
  return made;
}

void use_references(Library& library, const OperatorFiles& files, const Globals& globals) {
  std::vector<std::string> by_reference;
  for (const std::string& name : library.operators()) {
    const UserOperator* op = find(files, name);
    if (op && op->reference) {
      by_reference.push_back(printable(name));
      // The capture keeps the files, which `op` points into.
      library.set_operator(name, [files, op](const stridec_call& call) { compute(*op, call); });
      continue;
    }
    const std::string help = op ? "declare a 'reference' in the file of --ops"
                                : "give the file that declares it, with a 'reference': --ops FILE.json";
    library.set_operator(name, [name, help](const stridec_call&) {
      fail(ErrorKind::kUnsupported, "no-reference",
           cat("operator '", printable(name),
               "' is computed by the application, and has no reference that commands can run"),
           help);
    });
  }
  if (!by_reference.empty())
    note(cat("note: computed by the reference, interpreted, in place of the application's callback: ",
             join(by_reference, ", ")),
         globals);
}

}  // namespace stridec::cli
