#include "compiler/frontend/aten/call.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/complex_parts.h"
#include "compiler/frontend/aten/complex_value.h"
#include "compiler/frontend/aten/in_place.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using Table = std::unordered_map<std::string_view, const Row*>;

const Table& table() {
  static const Table* const out = [] {
    auto* t = new Table;
    for (auto rows : {pointwise_rows(),     activation_rows(),  arithmetic_rows(),  reduction_rows(),
                      view_rows(),          alias_rows(),       shape_rows(),       creation_rows(),
                      indexing_rows(),      contraction_rows(), convolution_rows(), pooling_rows(),
                      normalization_rows(), attention_rows(),   resize_rows(),      recurrent_rows(),
                      order_rows(),         histogram_rows(),   assertion_rows(),   complex_rows(),
                      loss_rows(),          vision_rows(),      extension_rows(),   statistics_rows(),
                      assemble_rows(),      special_rows(),     random_rows(),      transformer_rows(),
                      factorization_rows()})
      for (const Row& row : rows) t->emplace(row.name, &row);
    return t;
  }();
  return *out;
}

const Row* row_of(const std::string& name, const std::string& overload) {
  const Table& rows = table();
  if (!overload.empty())
    if (const auto found = rows.find(name + "." + overload); found != rows.end()) return found->second;
  const auto found = rows.find(name);
  return found == rows.end() ? nullptr : found->second;
}

bool is_out(const SchemaArgument& argument) { return argument.written && argument.keyword; }

bool is_in_place(const Schema& schema) {
  return schema.name.size() > 1 && schema.name.ends_with("_") && !schema.arguments.empty() &&
         schema.arguments[0].written;
}

// The default of an argument, from the schema's text.
Value default_value(std::string_view text, const std::string& type) {
  if (text == "None") return {};
  if (text == "True" || text == "False") return Value::condition(text == "True");
  if (text.starts_with("[") && text.ends_with("]")) {
    std::vector<Value> items;
    std::string_view rest = text.substr(1, text.size() - 2);
    while (!rest.empty()) {
      const std::string_view item = rest.substr(0, rest.find(','));
      items.push_back(default_value(item.substr(item.find_first_not_of(' ')), type));
      rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    }
    return Value::list(std::move(items));
  }
  if (text.starts_with("\"") || text.starts_with("'"))
    return Value::string(std::string(text.substr(1, text.size() - 2)));
  // PyTorch's number for i64, the only dtype that is a default.
  if (type == "ScalarType?" && text == "4") return Value::of_dtype(DType::kI64);
  int64_t whole = 0;
  if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
      error == std::errc() && end == text.data() + text.size()) {
    // The only dtype among the defaults: int64 in PyTorch's numbering.
    if (type.starts_with("ScalarType") && whole == 4) return Value::of_dtype(DType::kI64);
    return type == "float" || type == "float?" ? Value::number_of(static_cast<double>(whole))
                                               : Value::integer_of(whole);
  }
  double number = 0;
  if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      error == std::errc() && end == text.data() + text.size())
    return Value::number_of(number);
  Value other;
  other.kind = Value::Kind::kOther;
  other.text = std::string(text);
  return other;
}

std::vector<Value> bind(const Schema& schema, std::vector<NamedValue>& given) {
  std::vector<std::optional<Value>> out(schema.arguments.size());
  size_t position = 0;
  for (NamedValue& g : given) {
    size_t at = position;
    if (!g.name.empty()) {
      at = static_cast<size_t>(std::find_if(schema.arguments.begin(), schema.arguments.end(),
                                            [&](const auto& a) { return a.name == g.name; }) -
                               schema.arguments.begin());
    }
    if (at >= out.size() || out[at])
      fail(
          ErrorKind::kDoesNotFit, "bad-argument",
          cat(schema.full_name(), " takes no argument '", g.name.empty() ? std::to_string(at) : g.name, "'"));
    out[at] = std::move(g.value);
    position = at + 1;
  }
  std::vector<Value> values;
  for (size_t i = 0; i < out.size(); ++i) {
    const SchemaArgument& argument = schema.arguments[i];
    // run_decompositions() writes None for skipped arguments.
    const bool optional = argument.type.ends_with("?");
    if (out[i] && (!out[i]->is_none() || optional || !argument.default_text)) {
      values.push_back(std::move(*out[i]));
    } else if (argument.default_text) {
      values.push_back(default_value(*argument.default_text, argument.type));
    } else {
      fail(ErrorKind::kDoesNotFit, "bad-argument",
           cat(schema.full_name(), " needs an argument '", argument.name, "'"));
    }
  }
  return values;
}

// out= of another shape than the result becomes of that shape in PyTorch. A tensor without elements, which
// programs give for this, does so here as well; another one is refused, because views of it may be read.
void fit_to_result(Builder& b, const Schema& schema, const Tensor& to, const Term& result) {
  const Shape old = read(b, to).shape(), &now = result.shape();
  bool differs = old.size() != now.size();
  for (size_t d = 0; !differs && d < old.size(); ++d) differs = b.holds(sym::ne(old[d], now[d]));
  if (differs && !to.view && b.holds(sym::eq(ops::count(old), 0))) {
    to.storage->strides.reset();
    return write(b, to, ops::filled(b, now, read(b, to).dtype(), 0));
  }
  if (differs)
    fail(ErrorKind::kUnsupported, "unsupported-op",
         cat(schema.full_name(), " writes a result of shape ", ops::to_string(now), " to out= of shape ",
             ops::to_string(old)),
         "give out= the shape of the result, or no elements: torch.empty(0)");
  for (size_t d = 0; d < old.size(); ++d)
    b.require(sym::eq(old[d], now[d]), cat(schema.full_name(), ": size {0} of the result, and {1} of out="),
              {now[d], old[d]});
}

// Gives `to` the value, converted and, for an in-place operator, broadcast.
void assign(Builder& b, const Schema& schema, const Tensor& to, const Value& value) {
  if (!value.is_tensor())
    fail(ErrorKind::kDoesNotFit, "bad-argument", cat(schema.full_name(), " does not give a tensor to write"));
  if (value.tensor.complex && !to.complex)
    fail(ErrorKind::kUnsupported, "unsupported-op",
         cat(schema.full_name(), " writes complex numbers into real ones"));
  const Term old = read(b, to);
  Term now = read(b, value.tensor);
  if (to.complex && !value.tensor.complex) now = read(b, joined(now, ops::number_like(now, 0)));
  if (!is_in_place(schema)) fit_to_result(b, schema, to, now);
  const Shape shape = read(b, to).shape();
  if (now.rank() > std::ssize(shape))
    fail(ErrorKind::kDoesNotFit, "bad-argument",
         cat(schema.full_name(), " writes a tensor of rank ", now.rank(), " into one of rank ", old.rank()));
  write(b, to, ops::expand(ops::cast(now, old.dtype(), false), shape));
}

bool has_tensor(const Value& v) { return v.is_tensor() || std::ranges::any_of(v.items, has_tensor); }

[[noreturn]] void refuse_complex(const Schema& schema) {
  fail(ErrorKind::kUnsupported, "unsupported-op", schema.full_name() + " of complex numbers");
}

Results run_row(Builder& b, const Schema& schema, std::vector<Value> values, const Row& row) {
  if (mentions_complex(values)) {
    if (std::optional<Results> out = by_parts(b, schema, values, row.import)) return *std::move(out);
    if (row.numbers == Numbers::kReal) refuse_complex(schema);
  }
  Context context(b, schema, std::move(values));
  return row.import(context);
}

// The schema that a functional row expects: the in-place or out= overload's arguments without those written.
Results call_written(Builder& b, const Schema& schema, std::vector<Value> values, const Row& row) {
  std::vector<Tensor> targets;
  Schema functional = schema;
  if (is_in_place(schema)) {
    if (!values[0].is_tensor())
      fail(ErrorKind::kDoesNotFit, "bad-argument", schema.full_name() + " writes no tensor");
    targets.push_back(values[0].tensor);
  } else {
    functional.arguments.clear();
    std::vector<Value> kept;
    for (size_t i = 0; i < values.size(); ++i) {
      if (is_out(schema.arguments[i])) {
        if (!values[i].is_tensor())
          fail(ErrorKind::kUnsupported, "unsupported-op",
               cat(schema.full_name(), " writes no single tensor"));
        targets.push_back(values[i].tensor);
      } else {
        functional.arguments.push_back(schema.arguments[i]);
        kept.push_back(std::move(values[i]));
      }
    }
    values = std::move(kept);
  }
  // Without tensors to read, what is written says whether the numbers are complex.
  if (std::ranges::none_of(values, has_tensor) && std::ranges::any_of(targets, &Tensor::complex) &&
      !has_complex_rule(functional))
    refuse_complex(schema);
  const Results results = run_row(b, functional, std::move(values), row);
  if (results.size() < targets.size())
    fail(ErrorKind::kUnsupported, "unsupported-op",
         cat("operator ", schema.full_name(), " is not supported"));
  Results out;
  for (size_t i = 0; i < targets.size(); ++i) {
    assign(b, schema, targets[i], results[i]);
    out.emplace_back(targets[i]);
  }
  return out;
}

constexpr std::string_view kCopy = "_copy";

// "permute_copy" is permute whose result is not a view.
bool copies_view(const Row& row, const Schema& schema) {
  return schema.name.ends_with(kCopy) && !row.name.starts_with(schema.name);
}
Value detached(Builder& b, const Value& value) {
  Value out = value;
  for (Value& item : out.items) item = detached(b, item);
  if (!value.is_tensor()) return out;
  out.tensor = fresh(read(b, value.tensor));
  out.tensor.complex = value.tensor.complex;
  return out;
}

}  // namespace

const Row* find_row(const Schema& schema) {
  if (const Row* row = row_of(schema.name, schema.overload)) return row;
  if (is_in_place(schema)) return row_of(schema.name.substr(0, schema.name.size() - 1), schema.overload);
  if (schema.name.ends_with(kCopy)) {
    const std::string view = schema.name.substr(0, schema.name.size() - kCopy.size());
    if (const Row* row = row_of(view, schema.overload)) return row;
  }
  const bool out = std::any_of(schema.arguments.begin(), schema.arguments.end(), is_out);
  if (!out) return nullptr;
  const size_t end = schema.overload.rfind("_out");
  return row_of(schema.name, end == std::string::npos ? "" : schema.overload.substr(0, end));
}

bool changes_dims_in_place(const Schema& schema) {
  static constexpr std::string_view kNames[] = {"as_strided_", "resize_",    "resize_as_",
                                                "squeeze_",    "swapaxes_",  "swapdims_",
                                                "t_",          "transpose_", "unsqueeze_"};
  return std::ranges::find(kNames, schema.name) != std::end(kNames);
}

Results call(Builder& b, const Schema& schema, std::vector<NamedValue> arguments) {
  const Row* row = find_row(schema);
  if (!row)
    fail(ErrorKind::kUnsupported, "unsupported-op",
         cat("operator ", schema.full_name(), " is not supported"));
  std::vector<Value> values = bind(schema, arguments);
  // A row with the full name of an in-place operator does the writing itself.
  bool own = row->name == schema.name || row->name == schema.full_name();
  if (own && is_in_place(schema) && mentions_complex(values))
    if (const Row* functional = row_of(schema.name.substr(0, schema.name.size() - 1), schema.overload))
      row = functional, own = false;
  if (changes_dims_in_place(schema)) return run_row(b, schema, std::move(values), *row);
  const bool out = std::any_of(schema.arguments.begin(), schema.arguments.end(), is_out);
  if (out || (is_in_place(schema) && !own)) return call_written(b, schema, std::move(values), *row);
  Results results = run_row(b, schema, std::move(values), *row);
  if (copies_view(*row, schema))
    for (Value& value : results) value = detached(b, value);
  return results;
}

}  // namespace stridec::aten
