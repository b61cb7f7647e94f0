#include "compiler/ops/composite/contraction.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::Builder;
using graph::OpKind;
using graph::Shape;

namespace {

Term contract_dims(Term a, Term b, Dims batch_a, Dims batch_b, Dims contract_a, Dims contract_b) {
  return {a.builder(), dot_general(a.builder(), a.id(), b.id(),
                                   {std::move(batch_a), std::move(batch_b), std::move(contract_a),
                                    std::move(contract_b)})};
}

}  // namespace

Term matmul(Term a, Term b, std::optional<DType> to) {
  return {a.builder(), matmul(a.builder(), a.id(), b.id(), to)};
}

Term scaled_matmul(Term a, Term b, double alpha) {
  const Term y = matmul(a, b);
  return alpha == 1 ? y : y * alpha;
}

Term linear(Term x, Term w, std::optional<Term> bias) {
  const Term y = matmul(x, w);
  return bias ? y + *bias : y;
}

Term gemm(Term a, Term b, std::optional<Term> c, double alpha, double beta) {
  if (a.rank() != 2 || b.rank() != 2)
    does_not_fit(cat("operands of rank ", a.rank(), " and ", b.rank(), " are not matrices"));
  Term y = matmul(a, b);
  if (alpha != 1) y = y * alpha;
  if (!c || beta == 0) return y;
  const Term bias = unidirectional(*c, y.shape(), "C");
  return y + (beta == 1 ? bias : bias * beta);
}

// ---- einsum ----

namespace {

using DimLabels = std::string;  // one character per dim; ellipsis dims are the characters from kEllipsis on
constexpr char kEllipsis = '\x80';

struct Labelled {
  Term term;
  DimLabels labels;
};

bool has(const DimLabels& labels, char c) { return labels.find(c) != DimLabels::npos; }

[[noreturn]] void bad_equation(const std::string& equation, const std::string& why) {
  fail(ErrorKind::kMalformed, "bad-equation", "einsum equation '" + equation + "' " + why);
}

// "..." denotes the last `count` of the ellipsis dims, so that operands align on the right.
DimLabels read_labels(const std::string& equation, const std::string& text, int64_t ellipsis,
                      int64_t widest) {
  DimLabels out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      if (text.compare(i, 3, "...") != 0) bad_equation(equation, "has a stray '.'");
      i += 2;
      for (int64_t k = widest - ellipsis; k < widest; ++k) out.push_back(static_cast<char>(kEllipsis + k));
    } else if (std::isalpha(static_cast<unsigned char>(text[i]))) {
      out.push_back(text[i]);
    } else {
      bad_equation(equation, std::string("has an unexpected character '") + text[i] + "'");
    }
  }
  return out;
}

// Replaces dims of the same letter by one dim, the last. A contiguous n x n matrix, reshaped to rows of n + 1
// elements, has its diagonal in the first column.
Labelled take_diagonal(Labelled x) {
  for (size_t i = 0; i < x.labels.size(); ++i) {
    for (size_t j = x.labels.size() - 1; j > i; --j) {
      if (x.labels[i] != x.labels[j]) continue;
      Builder& b = x.term.builder();
      b.require(sym::eq(x.term.dim(static_cast<int64_t>(i)), x.term.dim(static_cast<int64_t>(j))),
                "sizes {0} and {1} of a diagonal differ",
                {x.term.dim(static_cast<int64_t>(i)), x.term.dim(static_cast<int64_t>(j))});
      Dims order;
      DimLabels labels;
      for (size_t d = 0; d < x.labels.size(); ++d)
        if (d != i && d != j) order.push_back(static_cast<int64_t>(d)), labels.push_back(x.labels[d]);
      const auto last = static_cast<int64_t>(order.size());
      labels.push_back(x.labels[i]);
      order.insert(order.end(), {static_cast<int64_t>(i), static_cast<int64_t>(j)});
      const Term t = permute(x.term, order);
      const sym::Expr rows = t.dim(last), columns = t.dim(last + 1);
      Shape flat(t.shape().begin(), t.shape().end() - 2), cut = flat, none(flat.size() + 1, 0), after = none;
      flat.push_back(rows * columns);
      after.back() = rows;
      cut.insert(cut.end(), {rows, columns + 1});
      const Term whole = reshape(pad(reshape(t, flat), none, after, 0), cut);
      return take_diagonal({squeeze(slice(whole, last + 1, 0, 1), {last + 1}), labels});
    }
  }
  return x;
}

Labelled sum_out(Labelled x, const DimLabels& needed) {
  Dims dims;
  DimLabels left;
  for (size_t i = 0; i < x.labels.size(); ++i) {
    if (has(needed, x.labels[i]))
      left.push_back(x.labels[i]);
    else
      dims.push_back(static_cast<int64_t>(i));
  }
  return {reduce_sum(x.term, dims), left};
}

// Permutes the operand to the dims of `labels`; missing dims get extent 1.
Term arrange(const Labelled& x, const DimLabels& labels) {
  Dims order, missing;
  for (size_t i = 0; i < labels.size(); ++i) {
    const size_t at = x.labels.find(labels[i]);
    if (at == DimLabels::npos)
      missing.push_back(static_cast<int64_t>(i));
    else
      order.push_back(static_cast<int64_t>(at));
  }
  return unsqueeze(permute(x.term, order), missing);
}

// Broadcasts the dims that both operands have, batch and summed ones. Whether a size is 1 may be known at run
// time only.
void stretch(Labelled& a, Labelled& b) {
  Shape shape_a = a.term.shape(), shape_b = b.term.shape();
  for (size_t i = 0; i < shape_a.size(); ++i) {
    const size_t at = b.labels.find(a.labels[i]);
    if (at == DimLabels::npos) continue;
    const Shape both = broadcast(a.term.builder(), {{shape_a[i]}, {shape_b[at]}}, "einsum");
    shape_a[i] = shape_b[at] = both[0];
  }
  a.term = expand(a.term, shape_a);
  b.term = expand(b.term, shape_b);
}

Labelled contract(Labelled a, Labelled b, const DimLabels& needed) {
  a = sum_out(a, needed + b.labels);
  b = sum_out(b, needed + a.labels);
  DimLabels shared, summed, free_a, free_b;
  for (char c : a.labels) (!has(b.labels, c) ? free_a : has(needed, c) ? shared : summed).push_back(c);
  for (char c : b.labels)
    if (!has(a.labels, c)) free_b.push_back(c);
  if (summed.empty()) {
    const DimLabels all = shared + free_a + free_b;
    return {arrange(a, all) * arrange(b, all), all};
  }
  stretch(a, b);
  const auto positions = [](const DimLabels& of, const DimLabels& in) {
    Dims out;
    for (char c : of) out.push_back(static_cast<int64_t>(in.find(c)));
    return out;
  };
  const Term out = contract_dims(a.term, b.term, positions(shared, a.labels), positions(shared, b.labels),
                                 positions(summed, a.labels), positions(summed, b.labels));
  return {out, shared + free_a + free_b};
}

}  // namespace

Term einsum(std::string equation, std::vector<Term> operands) {
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  std::vector<std::string> texts(1);
  for (char c : left) {
    if (c == ',')
      texts.emplace_back();
    else
      texts.back().push_back(c);
  }
  if (texts.size() != operands.size()) bad_equation(equation, "does not have one term per operand");

  std::vector<int64_t> ellipsis(texts.size(), 0);
  int64_t widest = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto letters =
        std::count_if(texts[i].begin(), texts[i].end(), [](unsigned char c) { return std::isalpha(c); });
    const bool dots = texts[i].find("...") != std::string::npos;
    ellipsis[i] = operands[i].rank() - letters;
    if (ellipsis[i] < 0 || (!dots && ellipsis[i] != 0))
      bad_equation(equation, "does not fit the operands' ranks");
    widest = std::max(widest, ellipsis[i]);
  }
  std::vector<Labelled> list;
  std::string counts;
  for (size_t i = 0; i < texts.size(); ++i) {
    const DimLabels labels = read_labels(equation, texts[i], ellipsis[i], widest);
    counts += labels;
    list.push_back(take_diagonal({operands[i], labels}));
  }
  DimLabels result;
  if (arrow != std::string::npos) {
    result = read_labels(equation, equation.substr(arrow + 2), widest, widest);
  } else {
    for (int64_t k = 0; k < widest; ++k) result.push_back(static_cast<char>(kEllipsis + k));
    DimLabels sorted = counts;
    std::sort(sorted.begin(), sorted.end());
    for (char c : sorted)
      if (std::isalpha(static_cast<unsigned char>(c)) && std::count(counts.begin(), counts.end(), c) == 1)
        result.push_back(c);
  }
  for (char c : result)
    if (!has(counts, c) || std::count(result.begin(), result.end(), c) != 1)
      bad_equation(equation, "has an output that its inputs do not give");

  while (list.size() > 1) {
    DimLabels needed = result;
    for (size_t i = 2; i < list.size(); ++i) needed += list[i].labels;
    list[0] = contract(list[0], list[1], needed);
    list.erase(list.begin() + 1);
  }
  return arrange(sum_out(list[0], result), result);
}

}  // namespace stridec::ops
