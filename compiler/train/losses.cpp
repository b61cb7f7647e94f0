#include "compiler/train/losses.h"

#include <algorithm>
#include <limits>

#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/loss.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/nodes.h"
#include "compiler/sym/guard.h"
#include "compiler/train/ctc.h"

namespace stridec::train {
namespace {

using namespace ops;
using graph::OpKind;
using graph::Shape;

[[noreturn]] void refuse(const std::string& message, const std::string& help) {
  fail(ErrorKind::kUsage, "bad-train", cat("--train: ", message), help);
}

// Whether dims of known sizes do not contradict each other.
bool broadcast(Term x, Term y) {
  if (x.rank() != y.rank()) return false;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const auto a = sym::as_const(x.dim(d)), b = sym::as_const(y.dim(d));
    if (a && b && *a != *b && *a != 1 && *b != 1) return false;
  }
  return true;
}

std::string type_of(Term x) { return graph::to_string(x.builder().type(x)); }

// The output that the setting names, of at least `rank` dims.
Term output_of(LossInputs& in, std::string_view loss, std::string_view setting, int64_t rank) {
  const Term x = in.output(setting);
  if (x.rank() < rank)
    refuse(cat("the loss ", loss, " needs an output of at least ", counted(rank, "dim"), ", and '",
               in.text(setting), "' is ", type_of(x)),
           cat("name another output: ", setting, "=NAME"));
  return x;
}

// The outputs that the settings name: different ones, of shapes that broadcast and at least `rank` dims.
std::vector<Term> outputs_alike(LossInputs& in, std::string_view loss,
                                const std::vector<std::string_view>& settings, int64_t rank) {
  std::vector<Term> out;
  for (size_t i = 0; i < settings.size(); ++i) {
    const std::string& name = in.text(settings[i]);
    for (size_t j = 0; j < i; ++j)
      if (in.text(settings[j]) == name)
        refuse(cat("the loss ", loss, " compares ", settings.size(), " outputs, and ", settings[j], " and ",
                   settings[i], " are both '", name, "'"),
               cat("name an output for each of ",
                   join(settings, ", ", [](std::string_view s) { return std::string(s); })));
    const Term x = output_of(in, loss, settings[i], rank);
    if (!out.empty() && !broadcast(x, out[0]))
      refuse(cat("the loss ", loss, " needs outputs of one shape, and '", in.text(settings[0]), "' is ",
                 type_of(out[0]), ", '", name, "' is ", type_of(x)),
             cat("name another output: ", settings[i], "=NAME"));
    out.push_back(x);
  }
  return out;
}

Term total(Term x) { return x.rank() == 0 ? x : reduce_sum(x, all_dims(x.rank())); }

// The sum or the mean of the elements, as the setting `reduction` says.
LossSum reduced(const LossInputs& in, Term each, std::optional<Term> weight = {}) {
  if (in.text("reduction") == "sum") return {total(each), number_like(each, 1)};
  return {total(each), weight ? total(*weight) : size_as(each.builder(), each.dtype(), count(each.shape()))};
}

Term target_like(LossInputs& in, Term x) { return in.target("target", {x.dtype(), x.shape()}); }

// An output and the dim of its classes.
struct Classes {
  Term x;
  int64_t dim;
};

Classes classes_of(LossInputs& in, Term x) {
  const int64_t given = static_cast<int64_t>(in.number("class_dim"));
  const int64_t dim = given < 0 ? given + x.rank() : given;
  if (dim < 0 || dim >= x.rank() || x.rank() < 1)
    refuse(cat("class_dim is ", given, ", and the output has ", counted(x.rank(), "dim")),
           "count dims from 0, or from the end by negative numbers: class_dim=-1");
  if (x.rank() == 1) return {unsqueeze(x, {0}), 1};
  return {x, dim};
}

Shape without(const Shape& shape, size_t dim) {
  Shape out = shape;
  out.erase(out.begin() + static_cast<std::ptrdiff_t>(dim));
  return out;
}

std::optional<Term> class_weights(LossInputs& in, const Classes& classes) {
  if (in.text("class_weights").empty()) return std::nullopt;
  return in.target("class_weights", {classes.x.dtype(), {classes.x.dim(classes.dim)}});
}

// "label {0} of input 't'", for the sentence of a label that is not a class.
std::string label_of(const LossInputs& in) {
  return cat("label {0} of input '", sym::escaped(in.text("labels")), "'");
}

// From logarithms of probabilities. `extra`: per position, added to the loss.
LossSum class_loss(LossInputs& in, const Classes& classes, double smoothing, std::optional<Term> extra = {}) {
  const auto& [logs, dim] = classes;
  const Term labels = in.target("labels", {DType::kI64, without(logs.shape(), static_cast<size_t>(dim))});
  const auto weights = class_weights(in, classes);
  const double ignore = in.number("ignore_index");
  const ClassLoss loss = class_nll(logs, labels, weights, static_cast<int64_t>(ignore), label_of(in), dim);
  const auto kept = [&](Term each) { return select(equal(labels, ignore), 0, each); };
  Term each = loss.loss;
  if (smoothing != 0) {
    const Term spread = weights ? logs * along_dim(*weights, dim, logs.rank()) : logs;
    const Term share = divide_into(smoothing, size_as(logs.builder(), logs.dtype(), logs.dim(dim)));
    each = each * (1 - smoothing) - kept(reduce_sum(spread, {dim})) * share;
  }
  if (extra) each = each + kept(*extra);
  return reduced(in, each, loss.weight);
}

LossSum cross_entropy(LossInputs& in) {
  const auto [x, dim] = classes_of(in, in.output("logits"));
  const Term logs = log_softmax(x, {dim});
  const double z = in.number("z");
  if (z == 0) return class_loss(in, {logs, dim}, in.number("label_smoothing"));
  const Term greatest = reduce_max(x, {dim}, kKeep);
  const Term size = squeeze(greatest, {dim}) + log(reduce_sum(exp(x - greatest), {dim}));
  return class_loss(in, {logs, dim}, in.number("label_smoothing"), square(size) * z);
}

LossSum soft_cross_entropy(LossInputs& in) {
  const auto [x, dim] = classes_of(in, in.output("logits"));
  const Term target = classes_of(in, in.target("target", {x.dtype(), in.output("logits").shape()})).x;
  return reduced(in, -reduce_sum(target * log_softmax(x, {dim}), {dim}));
}

LossSum nll(LossInputs& in) { return class_loss(in, classes_of(in, in.output("output")), 0); }

LossSum mse(LossInputs& in) {
  const Term x = in.output("output");
  return reduced(in, square(x - target_like(in, x)));
}
LossSum l1(LossInputs& in) {
  const Term x = in.output("output");
  return reduced(in, abs(x - target_like(in, x)));
}
LossSum huber_loss(LossInputs& in) {
  const Term x = in.output("output");
  return reduced(in, huber(x - target_like(in, x), in.number("delta")));
}
LossSum smooth_l1_loss(LossInputs& in) {
  const Term x = in.output("output");
  return reduced(in, smooth_l1(x - target_like(in, x), in.number("beta")));
}

LossSum bce(LossInputs& in) {
  const Term x = in.output("output");
  return reduced(in, binary_cross_entropy(x, target_like(in, x)));
}
LossSum bce_with_logits(LossInputs& in) {
  const Term x = in.output("logits");
  const double positive = in.number("pos_weight");
  return reduced(
      in, binary_cross_entropy_of_logits(
              x, target_like(in, x), positive == 1 ? std::nullopt : std::optional(number_like(x, positive))));
}

LossSum kl(LossInputs& in) {
  const Term x = output_of(in, "kl", "output", in.text("reduction") == "batchmean" ? 1 : 0);
  const Term each = kl_divergence(x, target_like(in, x), in.text("log_target") == "true");
  if (in.text("reduction") != "batchmean") return reduced(in, each);
  return {total(each), size_as(x.builder(), x.dtype(), x.dim(0))};
}

// Lin et al. 2017, arXiv:1708.02002, as torchvision.ops.sigmoid_focal_loss computes it.
LossSum focal(LossInputs& in) {
  const Term x = in.output("logits"), y = target_like(in, x);
  const Term p = apply(OpKind::kSigmoid, x), entropy = binary_cross_entropy_of_logits(x, y, std::nullopt);
  const Term wrong = p + y - p * y * 2.0;  // 1 - the probability of the target
  Term each = entropy * pow(wrong, in.number("gamma"));
  const double alpha = in.number("alpha");
  if (alpha >= 0) each = each * (y * alpha + subtract_from(1, y) * (1 - alpha));
  return reduced(in, each);
}

// Milletari et al. 2016, arXiv:1606.04797: over all elements of a sample.
LossSum dice(LossInputs& in) {
  const Term x = apply(OpKind::kSigmoid, in.output("logits")), y = target_like(in, x);
  Dims inner = all_dims(x.rank());
  if (!inner.empty()) inner.erase(inner.begin());
  const Term both = reduce_sum(x * y, inner), either = reduce_sum(x, inner) + reduce_sum(y, inner);
  const double smooth = in.number("smooth");
  return reduced(in, subtract_from(1, (both * 2.0 + smooth) / (either + smooth)));
}

LossSum cosine(LossInputs& in) {
  const Term x = output_of(in, "cosine", "output", 1);
  const Term y = target_like(in, x);
  return reduced(in, subtract_from(1, cosine_similarity(x, y, x.rank() - 1, 1e-8)));
}

Term distance(Term x, Term y) {
  // The gradient of a root at 0 is infinite; PyTorch adds 1e-6 to each difference likewise.
  return sqrt(reduce_sum(square(x - y + 1e-6), {x.rank() - 1}));
}
LossSum triplet(LossInputs& in) {
  const auto outputs = outputs_alike(in, "triplet", {"anchor", "positive", "negative"}, 1);
  const Term near = distance(outputs[0], outputs[1]), far = distance(outputs[0], outputs[2]);
  return reduced(in, maximum(near - far + in.number("margin"), 0));
}

// Row i of `keys` belongs to row i of `output`; all other rows are negatives. Both ways, as CLIP does.
LossSum info_nce(LossInputs& in) {
  const auto outputs = outputs_alike(in, "info_nce", {"output", "keys"}, 2);
  const Term x = outputs[0], y = outputs[1];
  if (x.rank() != 2)
    refuse(cat("the loss info_nce needs outputs [batch, features], and '", in.text("output"), "' is ",
               type_of(x)),
           "name another output: output=NAME");
  const auto unit = [](Term t) {
    return t / sqrt(maximum(reduce_sum(square(t), {t.rank() - 1}, kKeep), 1e-16));
  };
  const Term scores = matmul(unit(x), transpose(unit(y), 0, 1)) * (1 / in.number("temperature"));
  const Term at = positions_along(in.builder(), x.dim(0), 0, 2);
  const auto one_way = [&](Term s) { return squeeze(gather_elements(log_softmax(s, {1}), at, 1), {1}); };
  return reduced(in, (one_way(scores) + one_way(transpose(scores, 0, 1))) * -0.5);
}

// The logarithm of a softmax of logarithms of probabilities is these, so the output may be either.
LossSum ctc(LossInputs& in) {
  const Term given = in.output("logits");
  if (given.rank() != 3)
    refuse(cat("the loss ctc needs an output [steps, batch, classes], and '", in.text("logits"), "' is ",
               type_of(given)),
           "name another output: logits=NAME");
  const Term logs = log_softmax(in.text("layout") == "NTC" ? transpose(given, 0, 1) : given, {2});
  const graph::Type lengths = {DType::kI64, {logs.dim(1)}};
  const Term labels = in.rows("labels", DType::kI64, logs.dim(1));
  const Term steps = in.target("input_lengths", lengths), size = in.target("target_lengths", lengths);
  const auto blank = static_cast<int64_t>(in.number("blank"));
  if (const auto classes = sym::as_const(logs.dim(2)); classes && blank >= *classes)
    refuse(cat("blank is ", blank, ", and the output has ", counted(*classes, "class", "classes")),
           "classes are counted from 0");
  Term each = ctc_loss(logs, labels, steps, size, blank, label_of(in),
                       cat("input '", sym::escaped(in.text("target_lengths")), "'"));
  if (in.text("zero_infinity") == "true")
    each = select(equal(each, std::numeric_limits<double>::infinity()), 0, each);
  return reduced(in, in.text("reduction") == "sum" ? each : each / cast(maximum(size, 1), each.dtype()));
}

LossSum model_output(LossInputs& in) { return reduced(in, in.output("output")); }

constexpr Setting kReduction = {"reduction", "mean", "mean or sum", "mean|sum"};
constexpr std::string_view kBool = "true|false";
constexpr Setting kClassWeights = {
    "class_weights", "none", "an input of the model, or the name of a new one: a weight for each class"};
constexpr Setting kPair[] = {{"output", "", "the model's output"},
                             {"target", "", "an input of the model, or the name of a new one"},
                             kReduction};
constexpr Setting kClasses[] = {
    {"logits", "", "the model's output"},
    {"labels", "", "class indices: an input of the model, or the name of a new one"},
    {"class_dim", "-1", "the dim of the classes"},
    {"ignore_index", "-100", "the label of positions that do not count"},
    {"label_smoothing", "0", "share of the target that is spread over all classes"},
    {"z", "0", "weight of the squared logarithm of the softmax's sum"},
    kClassWeights,
    kReduction};
constexpr Setting kSoft[] = {{"logits", "", "the model's output"},
                             {"target", "", "probabilities of the classes"},
                             {"class_dim", "-1", "the dim of the classes"},
                             kReduction};
constexpr Setting kNll[] = {{"output", "", "logarithms of probabilities"},
                            {"labels", "", "class indices"},
                            {"class_dim", "-1", "the dim of the classes"},
                            {"ignore_index", "-100", "the label of positions that do not count"},
                            kClassWeights,
                            kReduction};
constexpr Setting kHuber[] = {kPair[0], kPair[1], {"delta", "1", "where the line begins"}, kReduction};
constexpr Setting kSmooth[] = {kPair[0], kPair[1], {"beta", "1", "where the line begins"}, kReduction};
constexpr Setting kLogits[] = {
    {"logits", "", "the model's output"}, kPair[1], {"pos_weight", "1", "weight of ones"}, kReduction};
constexpr Setting kKl[] = {{"output", "", "logarithms of probabilities"},
                           {"target", "", "probabilities"},
                           {"log_target", "false", "the target has logarithms: true or false", kBool},
                           {"reduction", "batchmean", "batchmean, mean or sum", "batchmean|mean|sum"}};
constexpr Setting kFocal[] = {{"logits", "", "the model's output"},
                              kPair[1],
                              {"alpha", "0.25", "weight of ones; negative: none"},
                              {"gamma", "2", "exponent that lowers the weight of easy elements"},
                              kReduction};
constexpr Setting kDice[] = {
    {"logits", "", "the model's output"}, kPair[1], {"smooth", "1", "added above and below"}, kReduction};
constexpr Setting kTriplet[] = {{"anchor", "", "an output of the model"},
                                {"positive", "", "an output of the model"},
                                {"negative", "", "an output of the model"},
                                {"margin", "1", "how much farther away the negative must be"},
                                kReduction};
constexpr Setting kInfoNce[] = {{"output", "", "an output of the model, [batch, features]"},
                                {"keys", "", "an output of the model, [batch, features]"},
                                {"temperature", "0.07", "divides the similarities"},
                                kReduction};
constexpr Setting kCtc[] = {
    {"logits", "", "the model's output, logits or logarithms of probabilities"},
    {"labels", "", "[batch, longest] classes without blanks; elements after a row's length are ignored"},
    {"input_lengths", "", "[batch]: the number of steps of each row"},
    {"target_lengths", "", "[batch]: the number of labels of each row"},
    {"layout", "TNC", "of the output: TNC, [steps, batch, classes], or NTC", "TNC|NTC"},
    {"blank", "0", "the class of no label"},
    {"zero_infinity", "false", "true: labels that do not fit into the steps cost nothing", kBool},
    {"reduction", "mean", "mean, of losses divided by the numbers of labels, or sum", "mean|sum"}};
constexpr Setting kOutput[] = {{"output", "", "an output of the model"}, kReduction};

constexpr Loss kLosses[] = {
    {"cross_entropy", "-log softmax(logits)[label]", kClasses, cross_entropy},
    {"soft_cross_entropy", "-sum(target log softmax(logits))", kSoft, soft_cross_entropy},
    {"nll", "-output[label]", kNll, nll},
    {"mse", "(output - target)^2", kPair, mse},
    {"l1", "|output - target|", kPair, l1},
    {"huber", "d^2 / 2 for |d| <= delta, else delta (|d| - delta / 2)", kHuber, huber_loss},
    {"smooth_l1", "d^2 / (2 beta) for |d| < beta, else |d| - beta / 2", kSmooth, smooth_l1_loss},
    {"bce", "-(target log output + (1 - target) log(1 - output)), logarithms at least -100", kPair, bce},
    {"bce_with_logits", "bce of sigmoid(logits)", kLogits, bce_with_logits},
    {"kl", "target (log target - output)", kKl, kl},
    {"focal", "alpha (1 - p)^gamma bce_with_logits, p the target's probability", kFocal, focal},
    {"dice", "1 - (2 sum(p target) + smooth) / (sum p + sum target + smooth), p = sigmoid(logits)", kDice,
     dice},
    {"cosine", "1 - cos(output, target) along the last dim", kPair, cosine},
    {"triplet", "max(0, |anchor - positive| - |anchor - negative| + margin)", kTriplet, triplet},
    {"info_nce", "cross-entropy of output's similarity to each key, and of each key's to output", kInfoNce,
     info_nce},
    {"ctc", "-log of the probability that the steps spell the labels, blanks and repetitions left out", kCtc,
     ctc},
    {"output", "the output itself", kOutput, model_output},
};

}  // namespace

std::span<const Loss> losses() { return kLosses; }

const Loss* find_loss(std::string_view name) {
  const auto found = std::ranges::find(kLosses, name, &Loss::name);
  return found == std::end(kLosses) ? nullptr : found;
}

}  // namespace stridec::train
