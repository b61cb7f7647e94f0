#include "compiler/train/ctc.h"

#include <limits>

#include "compiler/base/text.h"
#include "compiler/ops/composite/loss.h"
#include "compiler/ops/nodes.h"

namespace stridec::train {
namespace {

using namespace ops;

constexpr double kImpossible = -1e30;

// log(e^a + e^b + e^c)
Term log_sum(Term a, Term b, Term c) {
  const Term most = stop_gradient(maximum(a, maximum(b, c)));
  return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

// blank, label, blank, label, ..., blank: [batch, 2 most + 1]. Labels that do not count are blank too, so
// that what pads a row may be anything.
Term with_blanks(Term labels, Term lengths, int64_t blank) {
  graph::Builder& b = labels.builder();
  const sym::Expr rows = labels.dim(0), most = labels.dim(1);
  const Term counts = less(positions_along(b, most, 1, 2), unsqueeze(lengths, {1}));
  const Term label = unsqueeze(select(counts, labels, static_cast<double>(blank)), {2});
  const auto blanks = [&](const graph::Shape& shape) {
    return filled(b, shape, DType::kI64, static_cast<double>(blank));
  };
  const Term pairs = reshape(concat({blanks({rows, most, 1}), label}, 2), {rows, most * 2});
  return concat({pairs, blanks({rows, 1})}, 1);
}

// x [batch, places] and what is one and two places before each.
struct Before {
  Term one, two;
};
Before places_before(Term x, double first) {
  const Term padded = pad(x, {0, 2}, {0, 0}, first);
  return {slice(padded, 1, 1, x.dim(1)), slice(padded, 1, 0, x.dim(1))};
}

}  // namespace

Term ctc_loss(Term logs, Term labels, Term steps_used, Term lengths, int64_t blank, const std::string& label,
              const std::string& length) {
  graph::Builder& b = logs.builder();
  const Term spelled = with_blanks(labels, lengths, blank);
  const sym::Expr steps = logs.dim(0), rows = spelled.dim(0), places = spelled.dim(1);
  const Term emitted =
      at_label(logs, expand(unsqueeze(spelled, {0}), {steps, rows, places}), 2, label_sentence(label));
  // A label may follow another label without a blank between them.
  const Term skips = logical_not(
      logical_or(equal(spelled, static_cast<double>(blank)), equal(spelled, places_before(spelled, -1).two)));
  const Term place = positions_along(b, places, 1, 2);
  const Term start =
      expand(select(equal(place, 0), number_like(logs, 0), number_like(logs, kImpossible)), {rows, places});
  const LoopResult result = loop(b, steps, std::nullopt, {start.id()}, [&](const LoopState& state) {
    const Term at(b, state.carried[0]);
    const auto [one, two] = places_before(at, kImpossible);
    const Term next =
        log_sum(at, one, select(skips, two, kImpossible)) + squeeze(slice(emitted, 0, state.counter, 1), {0});
    const Term active = unsqueeze(less(Term(b, state.counter_value), steps_used), {1});
    return LoopStep{.condition = std::nullopt, .carried = {select(active, next, at).id()}, .stacked = {}};
  });
  const Term last(b, result.carried[0]), end = unsqueeze(lengths * 2, {1});
  const std::string sentence = cat(length, " has a row longer than the labels: it ends at place {0} of {1}");
  const auto at = [&](Term index) { return squeeze(at_label(last, index, 1, sentence), {1}); };
  const Term of_blank = at(end), none = number_like(of_blank, kImpossible);
  const Term of_label = select(equal(lengths, 0), kImpossible, at(maximum(end - 1.0, 0)));
  const Term total = log_sum(of_blank, of_label, none);
  return select(less(total, kImpossible / 2), std::numeric_limits<double>::infinity(), -total);
}

}  // namespace stridec::train
