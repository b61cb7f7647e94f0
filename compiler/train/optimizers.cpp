#include "compiler/train/optimizers.h"

#include <algorithm>
#include <cmath>

#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/nodes.h"

namespace stridec::train {
namespace {

using namespace ops;
using graph::OpKind;
using graph::Shape;
using Numbers = std::function<double(std::string_view)>;
using Terms = std::vector<Term>;

// A scalar in the parameter's dtype.
Term like(const Update& u, Term x) { return cast(x, u.parameter.dtype()); }
// 1 - beta^step, in f64.
Term correction(const Update& u, double beta) {
  return subtract_from(1, pow(number_like(u.step, beta), u.step));
}
// a + weight (b - a)
Term lerp(Term a, Term b, double weight) { return a + (b - a) * weight; }

Term decayed_gradient(const Update& u) {
  const double decay = u.number("weight_decay");
  return decay == 0 ? u.gradient : u.gradient + u.parameter * decay;
}
// The parameter after decoupled weight decay.
Term decayed_parameter(const Update& u) {
  const double decay = u.number("weight_decay");
  return decay == 0 ? u.parameter : u.parameter * subtract_from(1, u.rate * decay);
}

Terms sgd(const Update& u) {
  const Term g = decayed_gradient(u);
  const double momentum = u.number("momentum");
  if (momentum == 0) return {u.parameter - u.rate * g};
  const Term later = u.states[0] * momentum + g * (1 - u.number("dampening"));
  const Term buffer = select(equal(u.step, 1), g, later);
  const Term direction = u.number("nesterov") != 0 ? g + buffer * momentum : buffer;
  return {u.parameter - u.rate * direction, buffer};
}

// The means of the gradient and of its square.
struct Moments {
  Term mean, square_mean;
};
Moments moments(const Update& u, Term g) {
  const double b1 = u.number("beta1"), b2 = u.number("beta2");
  return {lerp(u.states[0], g, 1 - b1), u.states[1] * b2 + square(g) * (1 - b2)};
}

Terms adam_like(const Update& u, Term parameter, Term g) {
  const auto [m, v] = moments(u, g);
  const bool amsgrad = u.number("amsgrad") != 0;
  const Term greatest = amsgrad ? maximum(u.states[2], v) : v;
  const Term root = like(u, sqrt(correction(u, u.number("beta2"))));
  const Term size = like(u, cast(u.rate, DType::kF64) / correction(u, u.number("beta1")));
  const Term x = parameter - size * (m / (sqrt(greatest) / root + u.number("eps")));
  return amsgrad ? Terms{x, m, v, greatest} : Terms{x, m, v};
}
Terms adam(const Update& u) { return adam_like(u, u.parameter, decayed_gradient(u)); }
Terms adamw(const Update& u) { return adam_like(u, decayed_parameter(u), u.gradient); }

// Dozat 2016; the states end with the product of the momenta so far.
Terms nadam(const Update& u) {
  const Term g = decayed_gradient(u);
  const auto [m, v] = moments(u, g);
  const double b1 = u.number("beta1"), decay = u.number("momentum_decay");
  const auto momentum = [&](Term step) {
    return subtract_from(1, pow(number_like(step, 0.96), step * decay) * 0.5) * b1;
  };
  const Term mu = momentum(u.step), next = momentum(u.step + 1.0), product = u.states[2] * mu;
  const Term denominator = sqrt(v / like(u, correction(u, u.number("beta2")))) + u.number("eps");
  const Term rate = cast(u.rate, DType::kF64);
  const Term of_gradient = like(u, rate * subtract_from(1, mu) / subtract_from(1, product));
  const Term of_mean = like(u, rate * next / subtract_from(1, product * next));
  return {u.parameter - of_gradient * (g / denominator) - of_mean * (m / denominator), m, v, product};
}

// Liu et al. 2019, arXiv:1908.03265.
Terms radam(const Update& u) {
  const auto [m, v] = moments(u, decayed_gradient(u));
  const double b2 = u.number("beta2"), longest = 2 / (1 - b2) - 1;
  const Term power = pow(number_like(u.step, b2), u.step);
  const Term length = subtract_from(longest, u.step * power * 2.0 / subtract_from(1, power));
  const Term trusted = greater(length, 5);
  const Term safe = select(trusted, length, longest);  // so that the root is one of a positive number
  const Term rectified =
      sqrt((safe - 4.0) * (safe - 2.0) * longest / (safe * ((longest - 4) * (longest - 2))));
  const Term adapted = like(u, rectified * sqrt(subtract_from(1, power))) / (sqrt(v) + u.number("eps"));
  const Term direction = m / like(u, correction(u, u.number("beta1")));
  return {u.parameter - u.rate * (direction * select(trusted, adapted, 1)), m, v};
}

Terms adagrad(const Update& u) {
  const Term g = decayed_gradient(u), sum = u.states[0] + square(g);
  const Term slower = like(u, (u.step - 1.0) * u.number("lr_decay") + 1.0);
  return {u.parameter - u.rate / slower * (g / (sqrt(sum) + u.number("eps"))), sum};
}

Terms adadelta(const Update& u) {
  const Term g = decayed_gradient(u);
  const double rho = u.number("rho"), eps = u.number("eps");
  const Term squares = u.states[0] * rho + square(g) * (1 - rho);
  const Term change = sqrt(u.states[1] + eps) / sqrt(squares + eps) * g;
  return {u.parameter - u.rate * change, squares, u.states[1] * rho + square(change) * (1 - rho)};
}

Terms rmsprop(const Update& u) {
  const Term g = decayed_gradient(u);
  const double alpha = u.number("alpha"), momentum = u.number("momentum");
  const bool centered = u.number("centered") != 0;
  Terms states = {u.states[0] * alpha + square(g) * (1 - alpha)};
  Term spread = states[0];
  if (centered) {
    states.push_back(lerp(u.states[1], g, 1 - alpha));
    spread = spread - square(states[1]);
  }
  Term direction = g / (sqrt(spread) + u.number("eps"));
  if (momentum != 0) {
    direction = u.states.back() * momentum + direction;
    states.push_back(direction);
  }
  states.insert(states.begin(), u.parameter - u.rate * direction);
  return states;
}

Terms lion(const Update& u) {
  const double b1 = u.number("beta1"), b2 = u.number("beta2");
  const Term direction = apply(OpKind::kSign, lerp(u.states[0], u.gradient, 1 - b1));
  return {decayed_parameter(u) - u.rate * direction, lerp(u.states[0], u.gradient, 1 - b2)};
}

Term element_count_of(Term x) { return size_as(x.builder(), x.dtype(), count(x.shape())); }
Term norm(Term x) { return sqrt(x.rank() == 0 ? square(x) : reduce_sum(square(x), all_dims(x.rank()))); }

// Shazeer and Stern 2018, arXiv:1804.04235. A matrix keeps the means of its rows and columns alone.
Terms adafactor(const Update& u) {
  constexpr double kEpsilon = 0x1p-23;
  const Term weight64 = pow(u.step, u.number("beta2_decay")), weight = like(u, weight64);
  const Term rate = minimum(u.rate, like(u, rsqrt(u.step)));
  const Term size = sqrt(element_count_of(u.parameter));
  const Term scale = maximum(norm(u.parameter) / size, u.number("eps2")) * rate;
  const Term x = decayed_parameter(u);
  const auto blend = [&](Term old, Term now) { return old + (now - old) * weight; };
  Terms states;
  Term spread = u.gradient;
  if (u.parameter.rank() > 1) {
    const int64_t r = u.parameter.rank();
    states = {blend(u.states[0], reduce_mean(square(u.gradient), {r - 1}, kKeep)),
              blend(u.states[1], reduce_mean(square(u.gradient), {r - 2}, kKeep))};
    spread = states[0] * states[1] / maximum(reduce_mean(states[0], {r - 2}, kKeep), kEpsilon);
  } else {
    states = {blend(u.states[0], square(u.gradient))};
    spread = states[0];
  }
  const Term change = rsqrt(maximum(spread, kEpsilon * kEpsilon)) * u.gradient;
  const Term limit = maximum(norm(change) / (size * u.number("d")), 1);
  states.insert(states.begin(), x - scale / limit * change);
  return states;
}

// The matrix with the singular vectors of x and singular values near 1: five steps of a quintic
// Newton-Schulz iteration in bf16. Jordan 2024, https://kellerjordan.github.io/posts/muon.
Term orthogonal(Term x, bool tall) {
  const Term wide = tall ? transpose(x, 0, 1) : x;
  const auto rounded = [](Term t) { return cast(t, DType::kBF16); };
  Term y = rounded(wide);
  // PyTorch's norm is one of bf16, and its rounding scales the whole matrix.
  const Term size = maximum(cast(rounded(norm(cast(y, DType::kF32))), DType::kF32), 1e-7);
  y = rounded(cast(y, DType::kF32) / size);
  for (int i = 0; i < 5; ++i) {
    const Term gram = matmul(y, transpose(y, 0, 1));
    const Term mixed = rounded(cast(gram, DType::kF32) * -4.7750 + matmul(gram, gram, DType::kF32) * 2.0315);
    y = rounded(cast(y, DType::kF32) * 3.4445 + matmul(mixed, y, DType::kF32));
  }
  const Term result = cast(y, DType::kF32);
  return tall ? transpose(result, 0, 1) : result;
}

bool is_matrix(const Shape& shape) { return shape.size() == 2; }

// Matrices by Muon, all other parameters by AdamW with `other_lr` times the rate.
Terms muon(const Update& u) {
  const Shape& shape = u.parameter.shape();
  if (!is_matrix(shape)) {
    Update other = u;
    other.rate = u.rate * u.number("other_lr");
    const Numbers number = u.number;
    other.number = [number](std::string_view name) { return name == "amsgrad" ? 0 : number(name); };
    return adamw(other);
  }
  const double momentum = u.number("momentum");
  const Term buffer = lerp(u.states[0], u.gradient, 1 - momentum);
  const Term direction = u.number("nesterov") != 0 ? lerp(u.gradient, buffer, momentum) : buffer;
  const double rows = static_cast<double>(*sym::as_const(shape[0])),
               columns = static_cast<double>(*sym::as_const(shape[1]));
  const double scale = std::sqrt(std::max(1.0, rows / columns));
  const Term change = like(u, orthogonal(direction, rows > columns));
  return {decayed_parameter(u) - u.rate * scale * change, buffer};
}

// ---- states

Shape row_means(const Shape& of) {
  Shape out = of;
  out.back() = 1;
  return out;
}
Shape column_means(const Shape& of) {
  Shape out = of;
  out[out.size() - 2] = 1;
  return out;
}

constexpr StateRow kMomentum[] = {
    {.name = "momentum_buffer", .used = [](const Numbers& n, const Shape&) { return n("momentum") != 0; }}};
constexpr StateRow kAdam[] = {
    {.name = "exp_avg"},
    {.name = "exp_avg_sq"},
    {.name = "max_exp_avg_sq", .used = [](const Numbers& n, const Shape&) { return n("amsgrad") != 0; }}};
constexpr StateRow kMoments[] = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
constexpr StateRow kNadam[] = {
    {.name = "exp_avg"}, {.name = "exp_avg_sq"}, {.name = "mu_product", .initial = 1, .shared = true}};
constexpr StateRow kSum[] = {{.name = "sum"}};
constexpr StateRow kAdadelta[] = {{.name = "square_avg"}, {.name = "acc_delta"}};
constexpr StateRow kRmsprop[] = {
    {.name = "square_avg"},
    {.name = "grad_avg", .used = [](const Numbers& n, const Shape&) { return n("centered") != 0; }},
    {.name = "momentum_buffer", .used = [](const Numbers& n, const Shape&) { return n("momentum") != 0; }}};
constexpr StateRow kLion[] = {{.name = "exp_avg"}};
constexpr StateRow kAdafactor[] = {
    {.name = "row_var",
     .shape = row_means,
     .used = [](const Numbers&, const Shape& s) { return s.size() > 1; }},
    {.name = "col_var",
     .shape = column_means,
     .used = [](const Numbers&, const Shape& s) { return s.size() > 1; }},
    {.name = "variance", .used = [](const Numbers&, const Shape& s) { return s.size() < 2; }}};
constexpr StateRow kMuon[] = {
    {.name = "momentum_buffer", .used = [](const Numbers&, const Shape& s) { return is_matrix(s); }},
    {.name = "exp_avg", .used = [](const Numbers&, const Shape& s) { return !is_matrix(s); }},
    {.name = "exp_avg_sq", .used = [](const Numbers&, const Shape& s) { return !is_matrix(s); }}};

// ---- settings: names and defaults are PyTorch's

constexpr Setting kBeta1 = {"beta1", "0.9", "decay of the mean gradient"};
constexpr Setting kBeta2 = {"beta2", "0.999", "decay of the mean square"};
constexpr Setting kEps = {"eps", "1e-8", "added to the denominator"};
constexpr Setting kNoDecay = {"weight_decay", "0", "adds weight_decay * parameter to the gradient"};
constexpr Setting kDecoupled = {"weight_decay", "0.01", "shrinks the parameter by lr * weight_decay"};
constexpr Setting kSgdSettings[] = {{"lr", "1e-3", "learning rate"},
                                    {"momentum", "0", "decay of the momentum"},
                                    {"dampening", "0", "of the momentum"},
                                    {"nesterov", "0", "1: Nesterov momentum"},
                                    kNoDecay};
constexpr Setting kAdamSettings[] = {{"lr", "1e-3", "learning rate"},
                                     kBeta1,
                                     kBeta2,
                                     kEps,
                                     {"amsgrad", "0", "1: the greatest mean square so far"},
                                     kNoDecay};
constexpr Setting kAdamwSettings[] = {{"lr", "1e-3", "learning rate"},
                                      kBeta1,
                                      kBeta2,
                                      kEps,
                                      {"amsgrad", "0", "1: the greatest mean square so far"},
                                      kDecoupled};
constexpr Setting kNadamSettings[] = {{"lr", "2e-3", "learning rate"},        kBeta1,  kBeta2, kEps,
                                      {"momentum_decay", "4e-3", "of beta1"}, kNoDecay};
constexpr Setting kRadamSettings[] = {{"lr", "1e-3", "learning rate"}, kBeta1, kBeta2, kEps, kNoDecay};
constexpr Setting kAdagradSettings[] = {{"lr", "1e-2", "learning rate"},
                                        {"lr_decay", "0", "lr / (1 + (step - 1) lr_decay)"},
                                        {"eps", "1e-10", "added to the denominator"},
                                        kNoDecay};
constexpr Setting kAdadeltaSettings[] = {{"lr", "1", "learning rate"},
                                         {"rho", "0.9", "decay of the means"},
                                         {"eps", "1e-6", "added below the roots"},
                                         kNoDecay};
constexpr Setting kRmspropSettings[] = {{"lr", "1e-2", "learning rate"},
                                        {"alpha", "0.99", "decay of the mean square"},
                                        kEps,
                                        {"momentum", "0", "decay of the momentum"},
                                        {"centered", "0", "1: divides by the deviation"},
                                        kNoDecay};
constexpr Setting kLionSettings[] = {{"lr", "1e-4", "learning rate"},
                                     kBeta1,
                                     {"beta2", "0.99", "decay of the mean gradient that is kept"},
                                     {"weight_decay", "0", "shrinks the parameter by lr * weight_decay"}};
constexpr Setting kAdafactorSettings[] = {
    {"lr", "1e-2", "upper limit of the learning rate"},
    {"beta2_decay", "-0.8", "the mean squares' weight is step^beta2_decay"},
    {"eps2", "1e-3", "least size of a parameter"},
    {"d", "1", "limit of an update's size"},
    {"weight_decay", "0", "shrinks the parameter by lr * weight_decay"}};
constexpr Setting kMuonSettings[] = {
    {"lr", "1e-3", "learning rate"},
    {"momentum", "0.95", "decay of the momentum of matrices"},
    {"nesterov", "1", "1: Nesterov momentum"},
    {"weight_decay", "0.1", "shrinks the parameter by lr * weight_decay"},
    {"other_lr", "1", "factor of the rate for parameters that are not matrices"},
    kBeta1,
    kBeta2,
    kEps};

constexpr Optimizer kOptimizers[] = {
    {"sgd", "b = momentum b + (1 - dampening) g, b = g in step 1; p -= lr b, or lr (g + momentum b)",
     kSgdSettings, kMomentum, sgd},
    {"adam", "m, v: means of g, g^2; p -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)",
     kAdamSettings, kAdam, adam},
    {"adamw", "p -= lr weight_decay p, then adam", kAdamwSettings, kAdam, adamw},
    {"nadam", "adam with Nesterov momentum beta1 (1 - 0.96^(t momentum_decay) / 2)", kNadamSettings, kNadam,
     nadam},
    {"radam", "adam whose mean square counts once its variance is small enough", kRadamSettings, kMoments,
     radam},
    {"adagrad", "s += g^2; p -= lr g / (sqrt(s) + eps)", kAdagradSettings, kSum, adagrad},
    {"adadelta", "s: mean of g^2; d = g sqrt(a + eps) / sqrt(s + eps); p -= lr d; a: mean of d^2",
     kAdadeltaSettings, kAdadelta, adadelta},
    {"rmsprop", "s: mean of g^2; p -= lr g / (sqrt(s) + eps)", kRmspropSettings, kRmsprop, rmsprop},
    {"lion", "p -= lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g", kLionSettings, kLion,
     lion},
    {"adafactor", "adam without m, whose v is a product of means of rows and columns", kAdafactorSettings,
     kAdafactor, adafactor},
    {"muon", "p -= lr sqrt(max(1, rows / columns)) orthogonal(momentum of g); others by adamw", kMuonSettings,
     kMuon, muon},
};

}  // namespace

std::span<const Optimizer> optimizers() { return kOptimizers; }

const Optimizer* find_optimizer(std::string_view name) {
  const auto found = std::ranges::find(kOptimizers, name, &Optimizer::name);
  return found == std::end(kOptimizers) ? nullptr : found;
}

}  // namespace stridec::train
