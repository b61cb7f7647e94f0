#include "compiler/ops/composite/optimizer.h"

namespace stridec::ops {

std::vector<Term> momentum_step(Term rate, Term step, Term parameter, Term gradient, Term velocity,
                                const MomentumOptions& options) {
  const Term g = gradient + parameter * options.l2;
  const Term beta = select(greater(step, 0), number_like(step, options.beta), number_like(step, 1));
  const Term v = velocity * options.alpha + g * beta;
  const Term direction = options.nesterov ? g + v * options.alpha : v;
  return {parameter - rate * direction, v};
}

std::vector<Term> adagrad_step(Term rate, Term step, Term parameter, Term gradient, Term square_sum,
                               const AdagradOptions& options) {
  const Term g = gradient + parameter * options.l2;
  const Term r = rate / (step * options.decay + 1.0);
  const Term h = square_sum + square(g);
  return {parameter - r * g / (sqrt(h) + options.epsilon), h};
}

std::vector<Term> adam_step(Term rate, Term step, Term parameter, Term gradient, Term mean, Term mean_square,
                            const AdamOptions& options) {
  const double alpha = options.alpha, beta = options.beta;
  const Term g = gradient + parameter * options.l2;
  const Term v = mean * alpha + g * (1 - alpha), h = mean_square * beta + square(g) * (1 - beta);
  const auto power = [&](double base) { return pow(number_like(step, base), step); };
  const Term corrected = rate * sqrt(subtract_from(1, power(beta))) / subtract_from(1, power(alpha));
  const Term r = select(greater(step, 0), corrected, rate);
  const Term x = parameter - r * v / (sqrt(h) + options.epsilon);
  return {x * (1 - options.decay_after), v, h};
}

}  // namespace stridec::ops
